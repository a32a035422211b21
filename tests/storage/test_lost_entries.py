"""A log that has lost its end is never served silently: files beside it tell what is missing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine import commands as c
from penstock.storage.errors import Damaged, EntriesLost
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.scan import LogScan, scan_live
from penstock.storage.store import StoreSettings
from penstock.storage.verify import verify
from tests.storage.histories import Writer
from tests.storage.support import entries, files_of, open_store, replay, take_snapshot, write

LARGE = StoreSettings(segment_bytes=1 << 20, reserve_bytes=0)
RELAXED = replace(LARGE, is_durable=False)
ENTRIES = 300
KEPT = 149


def scan_of(path: Path) -> LogScan:
    log = Layout(path).log
    with FileSource(log) as source:
        return scan_live(source, log, None, 0)


def cut_log(path: Path, count: int) -> None:
    """Keep this many entries, and zeros behind them as in a log that never was longer."""
    log = Layout(path).log
    data = log.read_bytes()
    end = scan_of(path).offsets[count]
    log.write_bytes(data[:end] + bytes(len(data) - end))


def kill(path: Path, target: Path) -> None:
    """The files as they are while the node runs."""
    shutil.copytree(path, target)


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in files_of(path) if file.name != "lock"}


def test_300_acknowledged_and_a_log_cut_at_a_record_refuse_the_start(tmp_path: Path) -> None:
    """The node was stopped: the tail of the journal tells of all entries, and of the messages in them."""
    writer = Writer(tmp_path / "data")
    for number in range(ENTRIES):
        writer.apply(c.Put("", [c.Item(0, b"message %d" % number)]))
    writer.store.close()
    path = tmp_path / "data"
    last = scan_of(path).last_index
    kept = scan_of(path).first_index + 20
    cut_log(path, 20)
    before = contents(path)
    with pytest.raises(EntriesLost) as caught:
        Writer(path, writer.truth)
    assert (caught.value.first_index, caught.value.last_index) == (kept, last)
    assert caught.value.messages == last - kept + 1
    assert "penstock storage repair --accept-loss" in str(caught.value)
    assert contents(path) == before, "a refused start changes nothing"
    (problem,) = verify(path).problems
    assert problem.severity == "damage"
    assert problem.reason == caught.value.reason, "verify says the same as the start"


def test_blocks_of_the_journal_prove_the_loss_of_a_killed_node(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "run", LARGE)
    write(store, 0, ENTRIES)
    kill(tmp_path / "run", tmp_path / "killed")
    store.close()
    path = tmp_path / "killed"
    assert not Layout(path).tail.exists()
    cut_log(path, KEPT)
    with pytest.raises(EntriesLost, match=f"ends with entry {KEPT - 1}, but .*live.events"):
        open_store(path, LARGE)
    assert not verify(path).ok


def test_a_torn_tail_that_the_journal_knows_was_synced_is_not_cut(tmp_path: Path) -> None:
    """The record is damaged and nothing good follows it; but its events were written, so it had been synced."""
    store, _ = open_store(tmp_path / "run", LARGE)
    write(store, 0, ENTRIES)
    kill(tmp_path / "run", tmp_path / "killed")
    store.close()
    path = tmp_path / "killed"
    log = Layout(path).log
    offset = scan_of(path).offsets[KEPT]
    data = log.read_bytes()
    log.write_bytes(data[: offset + 40] + bytes(len(data) - offset - 40))
    with pytest.raises(EntriesLost):
        open_store(path, LARGE)
    assert log.read_bytes()[offset : offset + 40] == data[offset : offset + 40]


def test_without_a_promise_lost_entries_are_reported_and_the_node_starts(tmp_path: Path) -> None:
    """In the modes interval and none a power cut may keep the journal's pages and lose the log's."""
    store, _ = open_store(tmp_path / "run", RELAXED)
    write(store, 0, ENTRIES, sync=False)
    kill(tmp_path / "run", tmp_path / "killed")
    store.close()
    path = tmp_path / "killed"
    cut_log(path, KEPT)
    (problem,) = [each for each in verify(path).problems if each.severity != "torn"]
    assert problem.severity == "loss"
    store, recovered = open_store(path, LARGE)
    (note,) = [note for note in recovered.notes if note.startswith("LOST")]
    assert problem.reason in note
    assert f"entries {KEPT} to " in note
    assert replay(store, recovered) == entries(0, KEPT)
    store.close()
    store, recovered = open_store(path, LARGE)
    assert recovered.notes == []
    store.close()


def test_a_change_of_mode_is_written_down_before_the_first_entry(tmp_path: Path) -> None:
    for settings in (RELAXED, LARGE, RELAXED):
        store, recovered = open_store(tmp_path, settings)
        replay(store, recovered)
        assert scan_of(tmp_path).was_promised == settings.is_durable
        write(store, store.last_index + 1, store.last_index + 4)
        assert scan_of(tmp_path).was_promised == settings.is_durable
        store.close()
    store, recovered = open_store(tmp_path, RELAXED)
    assert list(recovered.entries) == entries(0, 9)
    store.close()


def test_a_snapshot_or_tail_ahead_of_the_log_is_a_loss_in_every_mode(tmp_path: Path) -> None:
    """Both are written only after the log was synced."""
    for name, with_snapshot in (("snapshot", True), ("tail", False)):
        path = tmp_path / name
        store, _ = open_store(path, RELAXED)
        write(store, 0, 20, sync=False)
        if with_snapshot:
            take_snapshot(store, 19)
        store.close()
        cut_log(path, 10)
        with pytest.raises(EntriesLost, match=f"raft.snapshot|{name}"):
            open_store(path, RELAXED)


def test_an_accepted_loss_is_reported_once_and_is_over(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, LARGE)
    write(store, 0, ENTRIES)
    store.close()
    cut_log(tmp_path, KEPT)
    store, recovered = open_store(tmp_path, LARGE, accept_loss=True)
    assert any(note.startswith("LOST") and "accepted" in note for note in recovered.notes)
    assert replay(store, recovered) == entries(0, KEPT)
    store.close()
    assert verify(tmp_path).problems == []
    store, recovered = open_store(tmp_path, LARGE)
    assert recovered.notes == []
    assert replay(store, recovered) == entries(0, KEPT)
    store.close()


def test_a_flipped_version_of_raft_log_is_damage_and_not_a_torn_tail(tmp_path: Path) -> None:
    """As a log of version 2 it has no record at all: everything in it would be cut."""
    store, _ = open_store(tmp_path / "run", LARGE)
    write(store, 0, ENTRIES)
    kill(tmp_path / "run", tmp_path / "killed")
    store.close()
    log = Layout(tmp_path / "killed").log
    data = bytearray(log.read_bytes())
    assert data[4] == 3
    data[4] = 2
    log.write_bytes(data)
    before = contents(tmp_path / "killed")
    with pytest.raises(Damaged, match="says version 2"):
        open_store(tmp_path / "killed", LARGE)
    assert contents(tmp_path / "killed") == before
    assert not verify(tmp_path / "killed").ok

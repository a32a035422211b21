"""Opening a data directory: what is new, what is mended, what is refused and with which words."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.storage.errors import (
    Damaged,
    DirectoryInUse,
    EntriesLost,
    NewerVersion,
    NotADataDirectory,
    NotWritable,
    OlderVersion,
    WrongMarker,
    WrongNode,
)
from penstock.storage.layout import Layout
from penstock.storage.lock import is_held
from penstock.storage.records import MARK_BYTES
from penstock.storage.segmenthead import HEAD_BYTES
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import (
    CLUSTER_ID,
    FailingDisk,
    RecordingDisk,
    all_rows,
    close_as_if_killed,
    data_of,
    entries,
    files_of,
    open_store,
    replay,
    take_snapshot,
    term_of,
    write,
)


def test_a_new_directory_is_empty_and_has_seed_names(tmp_path: Path) -> None:
    store, recovered = open_store(tmp_path / "made" / "deep")
    assert recovered.is_new
    assert (recovered.metadata.term, recovered.metadata.vote) == (0, None)
    assert (recovered.metadata.cluster_id, recovered.metadata.node_id) == (CLUSTER_ID, 7)
    assert store.cluster_id == CLUSTER_ID
    assert recovered.snapshot is None
    assert list(recovered.entries) == []
    assert (store.first_index, store.last_index, store.last_term, store.durable_index) == (0, -1, 0, -1)
    store.close()
    consensus = tmp_path / "made" / "deep" / "consensus"
    assert {"raft.log", "raft.metadata"} <= {path.name for path in consensus.iterdir()}
    again, recovered = open_store(tmp_path / "made" / "deep")
    assert not recovered.is_new
    again.close()


def test_the_last_entry_with_a_mark_is_not_cut_but_refused(tmp_path: Path) -> None:
    """The mark says that it was synced; without the mark the same damage is a torn tail."""
    for marked in (False, True):
        path = tmp_path / str(marked)
        store, _ = open_store(path)
        write(store, 0, 10)
        if marked:
            store.mark()
        close_as_if_killed(store)
        log = Layout(path).log
        data = bytearray(log.read_bytes())
        position = data.rindex(entries(9, 10)[0][2])
        data[position] ^= 1
        log.write_bytes(data)
        if marked:
            with pytest.raises(Damaged) as caught:
                open_store(path)
            assert caught.value.file == log
            assert bytes(data) == log.read_bytes(), "a refused file is left as it is"
        else:
            store, recovered = open_store(path)
            assert store.last_index == 8
            assert [torn.offset for torn in recovered.torn] == [position - 32]
            store.close()


def test_a_torn_tail_is_cut_once_and_writing_goes_on_there(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    close_as_if_killed(store)
    log = Layout(tmp_path).log
    data = log.read_bytes()
    end = len(data.rstrip(b"\0"))
    log.write_bytes(data[: end - 5] + bytes(len(data) - end + 5))
    store, recovered = open_store(tmp_path)
    (torn,) = recovered.torn
    assert torn.file == log
    assert "cut" in str(torn)
    assert replay(store, recovered) == entries(0, 9)
    write(store, 9, 30)
    store.close()
    store, recovered = open_store(tmp_path)
    assert recovered.torn == []
    assert list(recovered.entries) == entries(0, 30)
    store.close()


def test_a_snapshot_ahead_of_the_log_starts_the_log_anew_behind_it(tmp_path: Path) -> None:
    """The log lost its end, which is refused unless it is accepted; the snapshot stands for what is missing."""
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    layout = Layout(tmp_path)
    short = layout.log.read_bytes()
    write(store, 10, 20)
    take_snapshot(store, 19)
    store.close()
    layout.log.write_bytes(short)
    with pytest.raises(EntriesLost, match="entries 10 to 19 are gone; the snapshot has their effect"):
        open_store(tmp_path)
    store, recovered = open_store(tmp_path, accept_loss=True)
    assert list(recovered.entries) == []
    assert (store.first_index, store.last_index, store.last_term) == (20, 19, term_of(19))
    assert any("ahead of the log" in note for note in recovered.notes)
    assert store.term_of(19) == term_of(19)
    assert store.term_of(15) is None
    with pytest.raises(ValueError, match="gone"):
        list(store.read(5, 25))
    write(store, 20, 60)
    store.close()
    store, recovered = open_store(tmp_path)
    assert replay(store, recovered) == entries(20, 60)
    assert store.first_index == 20
    store.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    with pytest.raises(DirectoryInUse):
        open_store(tmp_path)
    program = (
        "import sys\n"
        "from penstock.storage.store import Store\n"
        "from penstock.storage.errors import DirectoryInUse\n"
        "try:\n"
        "    Store.open(sys.argv[1], row_bytes=16, new_cluster_id=bytes(16), node_id=7)\n"
        "except DirectoryInUse as error:\n"
        "    print(error.code)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout == "directory_in_use\n"
    store.close()
    open_store(tmp_path)[0].close()


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path)[0].close()
    with pytest.raises(WrongNode) as caught:
        open_store(tmp_path, node_id=8)
    assert (caught.value.found, caught.value.expected) == (7, 8)
    open_store(tmp_path)[0].close()


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADataDirectory):
        open_store(tmp_path / "file")
    (tmp_path / "consensus").write_bytes(b"")
    with pytest.raises(NotADataDirectory):
        open_store(tmp_path)


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata", "raft.snapshot"])
@pytest.mark.parametrize(
    ("position", "value", "error"),
    [(0, b"\x00", WrongMarker), (4, b"\x04\0\0\0", NewerVersion), (4, b"\x01\0\0\0", OlderVersion)],
)
def test_wrong_markers_and_versions_refuse_the_start(
    tmp_path: Path, name: str, position: int, value: bytes, error: type[Exception]
) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    take_snapshot(store, 9)
    store.close()
    path = tmp_path / "consensus" / name
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    if name == "raft.snapshot" and error is NewerVersion:
        error = OlderVersion  # Where the others have their version, version 1 of a snapshot has its last index.
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        open_store(tmp_path)
    assert getattr(caught.value, "file", None) == path


@pytest.mark.parametrize("name", ["raft.log", "raft.metadata"])
def test_a_missing_file_refuses_the_start(tmp_path: Path, name: str) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 100)
    store.close()
    (tmp_path / "consensus" / name).unlink()
    with pytest.raises(Damaged, match="missing"):
        open_store(tmp_path)


def test_a_missing_segment_refuses_the_start_or_the_replay(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 200)
    store.close()
    segments = Layout(tmp_path).sealed_first_indexes()
    Layout(tmp_path).sealed_log(segments[1]).unlink()
    with pytest.raises(Damaged, match="missing"):
        open_store(tmp_path)


def test_damage_in_a_sealed_segment_ends_the_replay(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 200)
    store.close()
    path = Layout(tmp_path).sealed_log(Layout(tmp_path).sealed_first_indexes()[1])
    data = bytearray(path.read_bytes())
    data[500] ^= 4
    path.write_bytes(data)
    store, recovered = open_store(tmp_path)
    with pytest.raises(Damaged) as caught:
        list(recovered.entries)
    assert caught.value.file == path
    with pytest.raises(Damaged):
        list(store.read(0, 199))
    store.close()


def test_a_damaged_opening_mark_of_an_empty_log_is_made_again(tmp_path: Path) -> None:
    """Where the segment begins is known from the sealed one before it."""
    store, _ = open_store(tmp_path)
    write(store, 0, 40)
    close_as_if_killed(store)
    layout = Layout(tmp_path)
    (first,) = layout.sealed_first_indexes()[-1:]
    data = layout.log.read_bytes()
    layout.log.write_bytes(data[:HEAD_BYTES] + b"\xff" * MARK_BYTES + bytes(len(data) - HEAD_BYTES - MARK_BYTES))
    store, recovered = open_store(tmp_path)
    found = list(recovered.entries)
    assert found == entries(0, len(found))
    assert len(found) >= first
    store.close()


def test_the_default_settings_preallocate_the_log_for_real(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=8 << 20, reserve_bytes=1 << 20)
    store, _ = Store.open(tmp_path, row_bytes=16, new_cluster_id=CLUSTER_ID, node_id=1, settings=settings)
    status = Layout(tmp_path).log.stat()
    assert status.st_size == 8 << 20
    assert Layout(tmp_path).reserve.stat().st_size == 1 << 20
    store.append(entries(0, 100))
    assert store.sync() == 99
    assert Layout(tmp_path).log.stat().st_size == 8 << 20
    store.close()


@pytest.mark.parametrize(("row_bytes", "cluster_id"), [(7, CLUSTER_ID), (1 << 20, CLUSTER_ID), (16, b"short")])
def test_impossible_row_lengths_and_ids_are_refused(tmp_path: Path, row_bytes: int, cluster_id: bytes) -> None:
    with pytest.raises(ValueError, match="rows of"):
        Store.open(tmp_path, row_bytes=row_bytes, new_cluster_id=cluster_id, node_id=1)


def test_what_a_start_found_is_synced_before_it_is_called_durable(tmp_path: Path) -> None:
    """After the end of a process its last writes may be in the system's memory only."""
    store, _ = open_store(tmp_path)
    write(store, 0, 10, sync=False)
    store._log.close(sync=False)
    store.close()
    disk = RecordingDisk()
    store, _ = open_store(tmp_path, disk=disk)
    assert "log.sync" in disk.sites
    assert store.durable_index == 9
    store.close()


def test_a_roll_that_is_not_followed_by_its_entry_is_undone(tmp_path: Path) -> None:
    """A large entry begins a new segment and is lost; a smaller one comes instead, and still fits the old segment.

    In a mode without syncs even rows of entries beyond may have reached the journal, and its file may be sealed.
    """
    store, _ = open_store(tmp_path / "undone")
    write(store, 0, 20)
    layout = Layout(tmp_path / "undone")
    store.append([(20, 1, bytes(3000)), (21, 1, b"small")])
    assert layout.sealed_first_indexes() == [0]
    for index in (20, 21):
        store.journal_append(index, all_rows(2, 3))
    assert layout.sealed_events(0).exists()
    close_as_if_killed(store)
    layout.log.write_bytes(layout.log.read_bytes()[: HEAD_BYTES + MARK_BYTES])
    store, recovered = open_store(tmp_path / "undone")
    assert replay(store, recovered) == entries(0, 20)
    assert layout.sealed_first_indexes() == []
    assert len(recovered.notes) == 1
    write(store, 20, 60)
    store.close()
    never, _ = open_store(tmp_path / "never")
    write(never, 0, 60)
    never.close()
    for name in ("archive/*.events", "events/live.events"):
        ours = sorted(layout.consensus.glob(name))
        theirs = sorted((tmp_path / "never" / "consensus").glob(name))
        assert [(path.name, path.read_bytes()) for path in ours] == [(path.name, path.read_bytes()) for path in theirs]


def test_nothing_is_left_of_what_was_cut(tmp_path: Path) -> None:
    """Good records behind a hole would look like damage once the log has grown over the hole."""
    store, _ = open_store(tmp_path)
    write(store, 0, 30, sync=False)
    close_as_if_killed(store)
    log = Layout(tmp_path).log
    data = log.read_bytes()
    hole = data.index(data_of(10)) - 32
    log.write_bytes(data[:hole] + bytes(50) + data[hole + 50 :])
    store, recovered = open_store(tmp_path)
    assert [torn.offset for torn in recovered.torn] == [hole]
    assert not any(log.read_bytes()[hole:])
    assert log.stat().st_size == 4096
    replay(store, recovered)
    write(store, 10, 12)
    store.close()
    store, recovered = open_store(tmp_path)
    assert recovered.torn == []
    assert list(recovered.entries) == entries(0, 12)
    store.close()


def test_a_log_older_than_the_archive_is_refused(tmp_path: Path) -> None:
    """Somebody put an old copy of raft.log back: going on from it would forget what the archive has."""
    store, _ = open_store(tmp_path)
    write(store, 0, 20)
    layout = Layout(tmp_path)
    old = layout.log.read_bytes()
    write(store, 20, 100)
    close_as_if_killed(store)
    layout.log.write_bytes(old)
    with pytest.raises(Damaged, match="archive"):
        open_store(tmp_path)


def test_removing_the_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    """Two nodes would write to one log."""
    store, _ = open_store(tmp_path)
    layout = Layout(tmp_path)
    layout.lock.unlink()
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()} has this data directory open"):
        open_store(tmp_path)
    assert is_held(layout)
    layout.lock.unlink(missing_ok=True)
    assert is_held(layout), "a reader of the files must know that a node runs"
    store.close()
    assert not is_held(layout)
    open_store(tmp_path)[0].close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_written_to_is_found_before_anything_is_done(tmp_path: Path, number: int) -> None:
    """temp/ was only found to be read-only by the first snapshot, after the node had said that it is ready."""
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    store.close()
    before = {path: path.read_bytes() for path in files_of(tmp_path)}
    for nth, path in enumerate(Layout(tmp_path).directories, start=1):
        with pytest.raises(NotWritable) as caught:
            open_store(tmp_path, disk=FailingDisk("directory.check", number, nth))
        message = str(caught.value)
        assert caught.value.file == path
        assert os.strerror(number) in message
        assert f"mode {path.stat().st_mode & 0o7777:04o}" in message
        assert f"user {path.stat().st_uid}" in message
    assert {path: path.read_bytes() for path in files_of(tmp_path)} == before
    open_store(tmp_path)[0].close()
    assert not [path for path in files_of(tmp_path) if path.name.startswith(".")]


def test_a_directory_that_was_missing_is_reported(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    store.close()
    Layout(tmp_path).archive.rmdir()
    store, recovered = open_store(tmp_path)
    assert [note for note in recovered.notes if "archive was missing" in note]
    store.close()

"""A refused start has a way out: repairs that lose nothing, and those that the operator accepts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.doors.server import Server
from penstock.engine import commands as c
from penstock.engine.journal import ROW_BYTES
from penstock.settings import Settings, TaskfluxSettings
from penstock.storage.errors import Damaged, DirectoryInUse, EntriesLost, StorageError
from penstock.storage.layout import Layout
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from penstock.testing import OTHER_DOORS_CLOSED
from tests.storage.histories import NODE_ID, Writer
from tests.storage.test_lost_entries import cut_log

PUTS = 60


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture
def written(tmp_path: Path) -> Writer:
    """A stopped node with several segments and two snapshots."""
    writer = Writer(tmp_path / "data")
    for number in range(PUTS):
        writer.apply(c.Put("", [c.Item(0, b"message %d" % number + bytes(20_000))]))
        if number in (PUTS // 3, PUTS // 2):
            writer.snapshot()
    writer.store.close()
    assert len(Layout(tmp_path / "data").sealed_first_indexes()) > 2
    return writer


def messages_after_a_start(path: Path) -> int:
    """How many messages a real node finds in these files."""

    async def run() -> int:
        native = TaskfluxSettings(port=0)
        server = Server(Settings(data_dir=str(path), node_id=NODE_ID, taskflux=native, **OTHER_DOORS_CLOSED))
        await server.start()
        found = server.node.engine.state.by_name[""].occupied()
        await server.stop()
        return found

    return asyncio.run(run())


def test_a_damaged_snapshot_is_replaced_by_the_older_one_without_loss(tmp_path: Path, written: Writer) -> None:
    path = tmp_path / "data"
    flip(Layout(path).snapshot, 100)
    with pytest.raises(StorageError):
        messages_after_a_start(path)
    done = repair(path, ROW_BYTES)
    assert "nothing is lost" in " ".join(done)
    assert messages_after_a_start(path) == PUTS
    assert (Layout(path).consensus / "damaged" / "raft.snapshot").exists()
    assert repair(path, ROW_BYTES) == [], "a second repair finds nothing to do"


def test_with_two_damaged_snapshots_and_the_whole_log_the_state_is_built_anew(tmp_path: Path, written: Writer) -> None:
    layout = Layout(tmp_path / "data")
    flip(layout.snapshot, 100)
    layout.older_snapshot.unlink()
    assert "built from the whole log" in " ".join(repair(tmp_path / "data", ROW_BYTES))
    assert messages_after_a_start(tmp_path / "data") == PUTS


def test_a_damaged_segment_that_a_snapshot_covers_is_set_aside(tmp_path: Path, written: Writer) -> None:
    path = tmp_path / "data"
    layout = Layout(path)
    second = layout.sealed_first_indexes()[1]
    flip(layout.sealed_log(second), 200)
    assert not verify(path).ok
    done = repair(path, ROW_BYTES)
    assert "history now begins" in " ".join(done)
    assert layout.sealed_first_indexes()[0] > second
    assert messages_after_a_start(path) == PUTS
    assert verify(path).ok


def test_a_segment_that_no_snapshot_covers_is_never_given_up(tmp_path: Path, written: Writer) -> None:
    layout = Layout(tmp_path / "data")
    flip(layout.sealed_log(layout.sealed_first_indexes()[-1]), 200)
    before = sorted(layout.consensus.rglob("*"))
    with pytest.raises(Damaged):
        repair(tmp_path / "data", ROW_BYTES, accept_loss=True)
    assert sorted(layout.consensus.rglob("*")) == before


def test_a_lost_end_of_the_log_must_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    writer = Writer(path)
    for number in range(20):
        writer.apply(c.Put("", [c.Item(0, b"message %d" % number)]))
    writer.store.close()
    cut_log(path, 5)
    with pytest.raises(EntriesLost):
        repair(path, ROW_BYTES)
    assert "LOST" in " ".join(repair(path, ROW_BYTES, accept_loss=True))
    assert verify(path).ok
    Writer(path, writer.truth).store.close()


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    with pytest.raises(DirectoryInUse):
        repair(tmp_path / "data", ROW_BYTES)
    writer.store.close()

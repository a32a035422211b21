"""Files of another node, another cluster, another time or a later release are refused with the reason, not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.errors import Damaged, NewerVersion, UnreadableData, WrongCluster
from penstock.storage.layout import MARKER, Layout
from penstock.storage.store import Store
from penstock.storage.verify import verify
from tests.storage.support import (
    CLUSTER_ID,
    NODE_ID,
    ROW_BYTES,
    SMALL,
    FastDisk,
    entries,
    files_of,
    open_store,
    snapshot_blocks,
    take_snapshot,
    write,
)

ANOTHER = b"another cluster!"


def make(path: Path, cluster_id: bytes, count: int = 100, snapshot: int | None = None) -> Layout:
    store, _ = Store.open(
        path, row_bytes=ROW_BYTES, new_cluster_id=cluster_id, node_id=NODE_ID, settings=SMALL, disk=FastDisk()
    )
    write(store, 0, count)
    if snapshot is not None:
        take_snapshot(store, snapshot)
    store.close()
    return Layout(path)


@pytest.fixture
def ours(tmp_path: Path) -> Layout:
    return make(tmp_path / "ours", CLUSTER_ID, snapshot=99)


@pytest.fixture
def theirs(tmp_path: Path) -> Layout:
    return make(tmp_path / "theirs", ANOTHER, snapshot=99)


def refused(layout: Layout, kind: type[UnreadableData]) -> str:
    """Why the start is refused; nothing is changed by it, and verify finds the same file bad."""
    before = {path: path.read_bytes() for path in files_of(layout.data_dir) if path.name != "lock"}
    with pytest.raises(kind) as caught:
        open_store(layout.data_dir)
    assert {path: path.read_bytes() for path in files_of(layout.data_dir) if path.name != "lock"} == before
    assert caught.value.file in {problem.file for problem in verify(layout.data_dir).problems}
    return str(caught.value)


def test_a_log_of_another_cluster_is_refused_with_both_ids(ours: Layout, theirs: Layout) -> None:
    """It was served as if it were this node's."""
    theirs.log.rename(ours.log)
    message = refused(ours, WrongCluster)
    assert CLUSTER_ID.hex() in message
    assert ANOTHER.hex() in message


def test_a_sealed_segment_of_another_cluster_is_refused(ours: Layout, theirs: Layout) -> None:
    first = ours.sealed_first_indexes()[1]
    theirs.sealed_log(first).rename(ours.sealed_log(first))
    assert ANOTHER.hex() in refused(ours, WrongCluster)


def test_metadata_of_another_cluster_is_refused(ours: Layout, theirs: Layout) -> None:
    theirs.metadata.rename(ours.metadata)
    assert CLUSTER_ID.hex() in refused(ours, WrongCluster)


def test_a_log_without_its_metadata_is_refused(ours: Layout) -> None:
    ours.metadata.unlink()
    assert "is missing" in refused(ours, Damaged)


def test_a_snapshot_of_another_log_is_refused_by_its_term(ours: Layout, tmp_path: Path) -> None:
    """Entry 30 is of term 1 here."""
    store, _ = open_store(tmp_path / "other")
    store.append([(index, 9, data) for index, _, data in entries(0, 31)])
    store.sync()
    for index in range(31):
        store.journal_append(index, b"")
    writer = store.begin_snapshot(30, 9)
    for block in snapshot_blocks(30):
        writer.write_block(block)
    writer.finish()
    store.close()
    Layout(tmp_path / "other").snapshot.rename(ours.snapshot)
    assert "is of term 9, in the log it is of term 1" in refused(ours, Damaged)


def test_a_journal_of_a_later_release_is_refused_and_kept(tmp_path: Path) -> None:
    """It was thrown away and begun anew, with the history before the snapshot."""
    layout = make(tmp_path, CLUSTER_ID, count=20, snapshot=19)
    layout.live_events.write_bytes(MARKER + (9).to_bytes(4, "little") + b"a header and blocks of another format")
    assert "use a newer release" in refused(layout, NewerVersion)


def test_a_sealed_segment_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    layout = make(tmp_path, CLUSTER_ID)
    first, second = layout.sealed_first_indexes()[:2]
    layout.sealed_log(first).write_bytes(layout.sealed_log(second).read_bytes())
    with pytest.raises(Damaged):
        open_store(tmp_path)
    assert not verify(tmp_path).ok

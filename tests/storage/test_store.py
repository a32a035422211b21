"""A data directory in use: what is written is there, in order, after it is opened again; wrong calls are refused."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.storage.errors import Damaged
from penstock.storage.layout import Layout
from penstock.storage.records import ENTRY_BYTES_MAX
from penstock.storage.snapshot import SnapshotReader
from tests.storage.support import (
    FastDisk,
    RecordingDisk,
    all_rows,
    entries,
    joined,
    open_store,
    replay,
    rows_of,
    snapshot_blocks,
    take_snapshot,
    term_of,
    write,
)


def test_a_snapshot_that_the_disk_changes_does_not_take_the_place_of_the_last_one(tmp_path: Path) -> None:
    class LyingDisk(FastDisk):
        def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
            super().fdatasync(descriptor, site, path)
            if site == "snapshot.sync" and path.name.endswith(".99"):
                os.pwrite(descriptor, b"?", 200)

    store, _ = open_store(tmp_path, disk=LyingDisk())
    write(store, 0, 100)
    take_snapshot(store, 59)
    with pytest.raises(Damaged, match="wrong checksum of a block"):
        take_snapshot(store, 99)
    assert (store.snapshot_index, store.older_snapshot_index) == (59, -1)
    layout = Layout(tmp_path)
    assert not list(layout.temp.iterdir())
    take_snapshot(store, 98)
    assert (store.snapshot_index, store.older_snapshot_index) == (98, 59)
    assert list(SnapshotReader(layout.older_snapshot)) == snapshot_blocks(59)
    store.close()


def test_where_files_cannot_have_two_names_only_one_snapshot_is_kept(tmp_path: Path) -> None:
    class PlainDisk(FastDisk):
        def before(self, site: str, path: Path) -> None:
            if site == "snapshot.link":
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    store, _ = open_store(tmp_path, disk=PlainDisk())
    write(store, 0, 100)
    take_snapshot(store, 59)
    take_snapshot(store, 99)
    assert (store.snapshot_index, store.older_snapshot_index) == (99, -1)
    store.close()


def test_a_damaged_older_snapshot_is_reported_and_replaced(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 100)
    take_snapshot(store, 59)
    take_snapshot(store, 99)
    store.close()
    Layout(tmp_path).older_snapshot.write_bytes(b"damaged")
    store, recovered = open_store(tmp_path)
    assert any("raft.snapshot.1" in note for note in recovered.notes)
    assert store.older_snapshot_index == -1
    take_snapshot(store, 99)
    assert store.older_snapshot_index == 99
    store.close()


@pytest.mark.parametrize("batch", [1, 7, 300])
def test_what_is_appended_comes_back_over_segments_in_any_batches(tmp_path: Path, batch: int) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 300, batch=batch)
    assert store.durable_index == store.last_index == 299
    assert store.last_term == term_of(299)
    segments = Layout(tmp_path).sealed_first_indexes()
    assert len(segments) > 5
    store.close()
    store, recovered = open_store(tmp_path)
    assert replay(store, recovered) == entries(0, 300)
    assert recovered.torn == []
    assert recovered.notes == []
    assert Layout(tmp_path).sealed_first_indexes() == segments
    assert joined(store.journal_rows(0, 299)) == all_rows(0, 300)
    store.close()


def test_segments_are_cut_at_the_same_entries_however_they_came(tmp_path: Path) -> None:
    cuts = []
    for batch in (1, 3, 50, 300):
        store, _ = open_store(tmp_path / str(batch))
        write(store, 0, 300, batch=batch)
        store.close()
        cuts.append(Layout(tmp_path / str(batch)).sealed_first_indexes())
    assert all(cut == cuts[0] for cut in cuts)


def test_a_batch_is_one_write_and_a_sync_is_one_sync(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store, _ = open_store(tmp_path, disk=disk)
    disk.sites.clear()
    store.append(entries(0, 10))
    store.sync()
    assert disk.sites == ["log.write", "log.sync"]
    store.close()


def test_an_entry_larger_than_a_segment_gets_a_segment_of_its_own(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    huge = os.urandom(10_000)
    store.append([(0, 1, b"small"), (1, 1, huge), (2, 1, b"small")])
    store.close()
    assert Layout(tmp_path).sealed_first_indexes() == [0, 1]
    store, recovered = open_store(tmp_path)
    assert [data for _, _, data in recovered.entries] == [b"small", huge, b"small"]
    store.close()


def test_entries_are_read_back_from_everywhere(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 200)
    for first, last in ((0, 199), (0, 0), (199, 199), (30, 95), (150, 170), (190, 500)):
        assert list(store.read(first, last)) == entries(first, min(last, 199) + 1)
    assert list(store.read(200, 300)) == []
    for index in (0, 39, 40, 120, 199):
        assert store.term_of(index) == term_of(index)
    assert store.term_of(200) is None
    assert store.term_of(-1) == 0
    store.close()


def test_what_is_not_synced_is_not_durable(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.append(entries(0, 3))
    assert store.durable_index == -1
    assert store.sync() == 2
    store.append(entries(3, 5))
    assert store.durable_index == 2
    store.close()


def test_a_sync_in_a_thread_calls_durable_only_what_was_there_when_it_began(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    class SlowDisk(FastDisk):
        def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
            if site == "log.sync" and threading.current_thread() is not threading.main_thread():
                entered.set()
                leave.wait(10)
            super().fdatasync(descriptor, site, path)

    store, _ = open_store(tmp_path, disk=SlowDisk())
    store.append(entries(0, 3))
    thread = threading.Thread(target=store.sync)
    thread.start()
    assert entered.wait(10)
    store.append(entries(3, 6))
    leave.set()
    thread.join()
    assert store.durable_index == 2
    assert store.sync() == 5
    store.close()


def test_a_roll_waits_for_a_sync_in_a_thread(tmp_path: Path) -> None:
    """The file that the sync is busy with must not be closed under it."""
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    class SlowDisk(FastDisk):
        def fdatasync(self, descriptor: int, site: str, path: Path) -> None:
            if site == "log.sync" and threading.current_thread() is not threading.main_thread():
                entered.set()
                leave.wait(10)
                order.append("synced")
            super().fdatasync(descriptor, site, path)

        def rename(self, source: Path, target: Path, site: str) -> None:
            order.append(site)
            super().rename(source, target, site)

    store, _ = open_store(tmp_path, disk=SlowDisk())
    order.clear()
    store.append(entries(0, 3))
    thread = threading.Thread(target=store.sync)
    thread.start()
    assert entered.wait(10)
    threading.Timer(0.05, leave.set).start()
    store.append(entries(3, 60))
    thread.join()
    assert order[:2] == ["synced", "log.seal"]
    store.close()


def test_marks_are_written_once_and_only_when_all_is_synced(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    assert not store.mark()
    store.append(entries(0, 1))
    assert not store.mark()
    store.sync()
    assert store.mark()
    assert not store.mark()
    store.append(entries(1, 100))
    store.sync()
    assert store.mark()
    store.close()
    store, recovered = open_store(tmp_path)
    assert [index for index, _, _ in recovered.entries] == list(range(100))
    store.close()


@pytest.mark.parametrize(
    "batch",
    [
        [(1, 1, b"x")],
        [(0, 1, b"")],
        [(0, 1, b"x"), (2, 1, b"x")],
        [(0, 2, b"x"), (1, 1, b"x")],
        [(0, 1, b"x"), (1, 1, bytes(ENTRY_BYTES_MAX + 1))],
    ],
)
def test_a_batch_that_cannot_follow_is_refused_whole(tmp_path: Path, batch: list[tuple[int, int, bytes]]) -> None:
    store, _ = open_store(tmp_path)
    with pytest.raises(ValueError, match="cannot follow"):
        store.append(batch)
    write(store, 0, 3)
    assert list(store.read(0, 2)) == entries(0, 3)
    assert store.term_of(0) == 1
    store.close()
    store, recovered = open_store(tmp_path)
    assert list(recovered.entries) == entries(0, 3)
    store.close()


@pytest.mark.parametrize("keep", [199, 150, 100, 34, 33, 32, 1, 0])
def test_entries_are_dropped_from_any_place_also_in_sealed_segments(tmp_path: Path, keep: int) -> None:
    """What follows is as if they had never been: also the segments are cut where they would have been."""
    store, _ = open_store(tmp_path / "dropped")
    store.append(entries(0, 200))
    store.sync()
    store.truncate_from(keep)
    assert store.last_index == keep - 1
    assert store.last_term == (term_of(keep - 1) if keep else 0)
    assert store.durable_index == keep - 1
    assert list(store.read(0, 300)) == entries(0, keep)
    for index in range(keep):
        store.journal_append(index, rows_of(index))
    write(store, keep, 250)
    store.close()
    never, _ = open_store(tmp_path / "never")
    write(never, 0, 250)
    never.close()
    assert Layout(tmp_path / "dropped").sealed_first_indexes() == Layout(tmp_path / "never").sealed_first_indexes()
    for name in ("archive/*.events", "events/live.events"):
        ours = sorted((tmp_path / "dropped" / "consensus").glob(name))
        theirs = sorted((tmp_path / "never" / "consensus").glob(name))
        assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]
    store, recovered = open_store(tmp_path / "dropped")
    assert list(recovered.entries) == entries(0, 250)
    store.close()


def test_dropped_entries_do_not_come_back(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.append(entries(0, 20))
    store.sync()
    store.truncate_from(10)
    store.close()
    store, recovered = open_store(tmp_path)
    assert list(recovered.entries) == entries(0, 10)
    assert recovered.torn == []
    store.close()


def test_applied_entries_and_entries_that_are_not_there_cannot_be_dropped(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 10)
    store.append(entries(10, 20))
    with pytest.raises(ValueError, match="applied"):
        store.truncate_from(9)
    with pytest.raises(ValueError, match="cannot drop"):
        store.truncate_from(21)
    store.truncate_from(20)
    assert store.last_index == 19
    store.close()


def test_term_and_vote_are_kept(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store, _ = open_store(tmp_path, disk=disk)
    store.save_metadata(5, 2)
    disk.sites.clear()
    store.save_metadata(5, 2)
    assert disk.sites == [], "nothing changed, nothing written"
    store.save_metadata(6, None)
    store.close()
    store, recovered = open_store(tmp_path)
    assert (recovered.metadata.term, recovered.metadata.vote) == (6, None)
    assert store.metadata == recovered.metadata
    store.close()


def test_a_snapshot_shortens_the_replay(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 150)
    take_snapshot(store, 149)
    assert (store.snapshot_index, store.snapshot_term) == (149, term_of(149))
    write(store, 150, 180)
    store.close()
    store, recovered = open_store(tmp_path)
    assert recovered.snapshot is not None
    assert (recovered.snapshot.last_index, recovered.snapshot.last_term) == (149, term_of(149))
    assert list(recovered.snapshot) == snapshot_blocks(149)
    assert replay(store, recovered) == entries(150, 180)
    assert store.term_of(149) == term_of(149)
    assert joined(store.journal_rows(0, 179)) == all_rows(0, 180)
    store.close()


def test_a_snapshot_that_is_given_up_leaves_the_old_one(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 50)
    take_snapshot(store, 49)
    write(store, 50, 60)
    writer = store.begin_snapshot(59, term_of(59))
    writer.write_block(b"half")
    with pytest.raises(ValueError, match="under way"):
        store.begin_snapshot(59, term_of(59))
    writer.abort()
    writer.abort()
    with pytest.raises(ValueError, match="ended"):
        writer.write_block(b"more")
    with pytest.raises(ValueError, match="ended"):
        writer.finish()
    assert list(Layout(tmp_path).temp.glob("raft.snapshot*")) == []
    take_snapshot(store, 59)
    store.close()
    store, recovered = open_store(tmp_path)
    assert recovered.snapshot is not None
    assert recovered.snapshot.last_index == 59
    store.close()


def test_a_snapshot_is_only_taken_at_an_applied_entry(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 50)
    store.append(entries(50, 55))
    for index in (50, 54, 99, -2):
        with pytest.raises(ValueError, match="no snapshot at"):
            store.begin_snapshot(index, 1)
    take_snapshot(store, 30)
    with pytest.raises(ValueError, match="no snapshot at"):
        store.begin_snapshot(29, 1)
    store.close()


def test_a_snapshot_is_written_by_a_thread_while_the_log_rolls(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 100)
    writer = store.begin_snapshot(99, term_of(99))
    go_on = threading.Event()

    def run() -> None:
        for block in snapshot_blocks(99):
            writer.write_block(block)
        go_on.wait(10)
        writer.finish()

    thread = threading.Thread(target=run)
    thread.start()
    write(store, 100, 250)
    go_on.set()
    thread.join()
    store.close()
    store, recovered = open_store(tmp_path)
    assert recovered.snapshot is not None
    assert list(recovered.snapshot) == snapshot_blocks(99)
    assert replay(store, recovered) == entries(100, 250)
    assert joined(store.journal_rows(0, 249)) == all_rows(0, 250)
    store.close()


def test_closing_syncs_what_is_left(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store, _ = open_store(tmp_path, disk=disk)
    store.append(entries(0, 5))
    disk.sites.clear()
    store.close()
    assert disk.sites[:2] == ["log.sync", "journal.sync"]
    assert {site.split(".")[0] for site in disk.sites[2:]} == {"tail"}
    store.close()


def test_a_snapshot_is_not_published_before_the_log_it_covers_is_synced(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store, _ = open_store(tmp_path, disk=disk)
    write(store, 0, 10, sync=False)
    disk.sites.clear()
    take_snapshot(store, 9)
    order = [disk.sites.index(site) for site in ("log.sync", "journal.sync", "tail.rename", "snapshot.rename")]
    assert order == sorted(order)
    store.close()

"""A full disk: the reserve is given up so that the log goes on, and comes back when there is room."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.storage.errors import DiskExhausted
from penstock.storage.layout import Layout
from penstock.storage.records import MARK_BYTES
from penstock.storage.segmenthead import HEAD_BYTES
from penstock.storage.space import PREALLOCATION_BYTES_MIN
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import FullDisk, entries, open_store, take_snapshot, write

MIB = 1 << 20
KIB = 1 << 10
SETTINGS = StoreSettings(segment_bytes=64 * KIB, reserve_bytes=256 * KIB)


def test_the_log_goes_on_from_the_reserve_and_recovers_when_space_returns(tmp_path: Path) -> None:
    disk = FullDisk(2 * MIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    layout = Layout(tmp_path)
    assert layout.reserve.stat().st_size == 256 * KIB
    disk.room_bytes = 4 * KIB
    index = 0
    while not store.disk_full:
        store.append(entries(index, index + 10))
        store.sync()
        index += 10
        assert index < 10_000
    assert layout.reserve.stat().st_size == 64 * KIB, "the last part is kept"
    assert not store.disk_spent
    # Takes and acks go on.
    store.append(entries(index, index + 500))
    store.sync()
    assert store.durable_index == index + 499
    assert not store.try_recover_space(), "no room yet"
    assert store.disk_full
    disk.room_bytes += 256 * KIB + 64 * KIB
    assert store.try_recover_space()
    assert not store.disk_full
    assert layout.reserve.stat().st_size == 256 * KIB
    assert store.try_recover_space()
    store.close()
    store, recovered = open_store(tmp_path, SETTINGS)
    assert list(recovered.entries) == entries(0, index + 500)
    store.close()


def test_when_the_reserve_is_used_up_the_store_fails(tmp_path: Path) -> None:
    disk = FullDisk(2 * MIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    disk.room_bytes = 0
    with pytest.raises(DiskExhausted):
        write(store, 0, 100_000)
    acked = store.durable_index
    assert store.disk_full
    assert store.disk_spent
    store.close()
    store, recovered = open_store(tmp_path, SETTINGS)
    assert acked > 1000, "the reserve carried it far"
    found = list(recovered.entries)
    assert len(found) > acked
    assert found == entries(0, len(found))
    store.close()


def test_a_new_segment_makes_do_with_less_room(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=64 * MIB, reserve_bytes=0)
    disk = FullDisk(70 * MIB)
    store, _ = open_store(tmp_path, settings, disk)
    assert Layout(tmp_path).log.stat().st_size == 64 * MIB
    store.close()
    for room, size in ((40 * MIB, 32 * MIB), (17 * MIB, 16 * MIB), (5 * MIB, PREALLOCATION_BYTES_MIN), (MIB, None)):
        path = tmp_path / str(room)
        store, _ = open_store(path, settings, FullDisk(room))
        assert store.disk_full
        found = Layout(path).log.stat().st_size
        assert found == (size or HEAD_BYTES + MARK_BYTES)
        write(store, 0, 50)
        store.close()
        store, recovered = open_store(path, StoreSettings(segment_bytes=MIB, reserve_bytes=0))
        assert list(recovered.entries) == entries(0, 50)
        store.close()


def test_a_start_without_room_for_a_reserve_starts_full(tmp_path: Path) -> None:
    disk = FullDisk(300 * KIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    assert store.disk_full
    assert Layout(tmp_path).reserve.stat().st_size == 64 * KIB, "there is room for the last part"
    assert not store.disk_spent
    write(store, 0, 20)
    disk.room_bytes = MIB
    assert store.try_recover_space()
    assert Layout(tmp_path).reserve.stat().st_size == 256 * KIB
    store.close()


def test_a_start_without_room_for_the_last_part_lets_clients_use_nothing(tmp_path: Path) -> None:
    open_store(tmp_path, StoreSettings(segment_bytes=64 * KIB, reserve_bytes=0))[0].close()
    disk = FullDisk(10 * KIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    assert (store.disk_full, store.disk_spent) == (True, True)
    write(store, 0, 20)  # the node's own work goes on in the room that the log has
    disk.room_bytes = MIB
    assert store.try_recover_space()
    assert (store.disk_full, store.disk_spent) == (False, False)
    store.close()


def test_the_last_part_is_given_up_for_the_log_but_not_for_room_set_aside(tmp_path: Path) -> None:
    disk = FullDisk(2 * MIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    disk.room_bytes = 0
    index = 0
    while not store.disk_spent:
        assert Layout(tmp_path).reserve.stat().st_size >= 64 * KIB
        store.append(entries(index, index + 10))
        index += 10
    assert not Layout(tmp_path).reserve.exists()
    before = index
    while index < before + 300:
        store.append(entries(index, index + 10))
        index += 10
    store.close()


def test_holes_in_the_copies_of_reserve_and_log_are_filled(tmp_path: Path) -> None:
    """After `cp --sparse` the files have their size and no room behind it: the next writes would find no space."""
    store, _ = open_store(tmp_path, SETTINGS)
    write(store, 0, 20)
    store.close()
    layout = Layout(tmp_path)
    for path in (layout.reserve, layout.log):
        data, size = path.read_bytes().rstrip(b"\0"), path.stat().st_size
        path.unlink()
        with path.open("wb") as file:
            file.write(data)
            file.truncate(size)
        assert path.stat().st_blocks * 512 < size
    store, recovered = open_store(tmp_path, SETTINGS)
    for path in (layout.reserve, layout.log):
        assert path.stat().st_blocks * 512 >= path.stat().st_size
    assert list(recovered.entries) == entries(0, 20)
    assert not store.disk_full
    store.close()


def test_holes_that_cannot_be_filled_start_the_node_full(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, SETTINGS)
    store.close()
    layout = Layout(tmp_path)
    layout.reserve.unlink()
    with layout.reserve.open("wb") as file:
        file.truncate(SETTINGS.reserve_bytes)
    store, _ = open_store(tmp_path, SETTINGS, FullDisk(100 * KIB))
    assert store.disk_full
    store.close()


def test_the_reserve_is_kept_over_restarts_and_follows_the_settings(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    store, _ = open_store(tmp_path, SETTINGS)
    store.close()
    inode = layout.reserve.stat().st_ino
    store, _ = open_store(tmp_path, SETTINGS)
    assert layout.reserve.stat().st_ino == inode
    assert not store.disk_full
    store.close()
    store, _ = open_store(tmp_path, StoreSettings(segment_bytes=64 * KIB, reserve_bytes=128 * KIB))
    assert layout.reserve.stat().st_size == 128 * KIB
    store.close()
    store, _ = open_store(tmp_path, StoreSettings(segment_bytes=64 * KIB, reserve_bytes=0))
    assert not layout.reserve.exists()
    store.close()


def test_without_a_reserve_a_full_disk_is_noticed_all_the_same(tmp_path: Path) -> None:
    disk = FullDisk(MIB)
    store, _ = open_store(tmp_path, StoreSettings(segment_bytes=64 * KIB, reserve_bytes=0), disk)
    disk.room_bytes = 10 * KIB
    with pytest.raises(DiskExhausted):
        write(store, 0, 100_000)
    assert store.disk_full
    store.close()


def test_a_snapshot_in_a_thread_and_the_log_may_run_out_together(tmp_path: Path) -> None:
    """The reserve is given up once, whoever asks first."""
    disk = FullDisk(2 * MIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    write(store, 0, 100)
    disk.room_bytes = KIB
    failures: list[DiskExhausted] = []

    def snapshot() -> None:
        try:
            take_snapshot(store, 99)
        except DiskExhausted as error:
            failures.append(error)

    thread = threading.Thread(target=snapshot)
    thread.start()
    store.append(entries(100, 900))
    store.sync()
    thread.join()
    assert store.disk_full
    assert store.durable_index == 899
    store.close()
    store, recovered = open_store(tmp_path, SETTINGS)
    assert store.last_index == 899
    assert (recovered.snapshot is None) == bool(failures)
    store.close()


def filled(disk: FullDisk, path: Path) -> Store:
    """A store with sealed segments, and two snapshots in the middle and at the end of them."""
    store, _ = open_store(path, StoreSettings(segment_bytes=4 * KIB, reserve_bytes=0), disk)
    write(store, 0, 250)
    take_snapshot(store, 120)
    take_snapshot(store, 249)
    return store


def test_a_short_disk_loses_covered_segments_early_and_the_oldest_first(tmp_path: Path) -> None:
    disk = FullDisk(MIB)
    store = filled(disk, tmp_path)
    before = Layout(tmp_path).sealed_first_indexes()
    assert store.make_room() == [], "there is enough"
    disk.room_bytes = store.room().needed_bytes - 1
    store.hold("spark", 0)
    assert store.make_room() == before[:1]
    assert store.room().missing_bytes == 0
    assert store.older_snapshot_index == 120, "the log after the older snapshot is not touched"
    disk.room_bytes = MIB
    store.close()


def test_a_disk_that_is_still_short_loses_the_older_snapshot_too(tmp_path: Path) -> None:
    disk = FullDisk(MIB)
    store = filled(disk, tmp_path)
    before = Layout(tmp_path).sealed_first_indexes()
    disk.room_bytes = -MIB
    assert store.make_room() == before
    assert store.older_snapshot_index == -1
    assert not Layout(tmp_path).older_snapshot.exists()
    disk.room_bytes = MIB
    store.close()
    store, recovered = open_store(tmp_path)
    assert list(recovered.entries) == []
    assert store.snapshot_index == 249
    store.close()


def test_what_no_snapshot_covers_stays_on_a_short_disk(tmp_path: Path) -> None:
    disk = FullDisk(MIB)
    store, _ = open_store(tmp_path, StoreSettings(segment_bytes=4 * KIB, reserve_bytes=0), disk)
    write(store, 0, 250)
    disk.room_bytes = 0
    assert store.make_room() == []
    assert store.snapshot_makes_room
    disk.room_bytes = MIB
    take_snapshot(store, 249)
    assert not store.snapshot_makes_room
    store.close()


def test_a_start_on_a_disk_that_is_too_small_says_so(tmp_path: Path) -> None:
    store, recovered = open_store(tmp_path, SETTINGS, FullDisk(400 * KIB))
    assert any("too small for these settings" in note for note in recovered.notes)
    store.close()
    store, recovered = open_store(tmp_path, SETTINGS, FullDisk(2 * MIB))
    assert recovered.notes == []
    store.close()

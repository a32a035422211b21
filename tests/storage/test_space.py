"""A full disk: the reserve is given up so that the log goes on, and comes back when there is room."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.storage.errors import DiskExhausted
from penstock.storage.layout import Layout
from penstock.storage.space import PREALLOCATION_BYTES_MIN
from penstock.storage.store import StoreSettings
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
    assert not layout.reserve.exists()
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
        assert found == (size or 40)
        write(store, 0, 50)
        store.close()
        store, recovered = open_store(path, StoreSettings(segment_bytes=MIB, reserve_bytes=0))
        assert list(recovered.entries) == entries(0, 50)
        store.close()


def test_a_start_without_room_for_a_reserve_starts_full(tmp_path: Path) -> None:
    disk = FullDisk(300 * KIB)
    store, _ = open_store(tmp_path, SETTINGS, disk)
    assert store.disk_full
    assert not Layout(tmp_path).reserve.exists()
    write(store, 0, 20)
    disk.room_bytes = MIB
    assert store.try_recover_space()
    assert Layout(tmp_path).reserve.exists()
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

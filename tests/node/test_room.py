"""Free space while serving: what is reported, once, and when a snapshot is taken to free some."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from penstock.node.room import LOOK_EVERY_BYTES, LOOKS_BETWEEN_SNAPSHOTS, RoomKeeper
from penstock.storage.space import Room

NEEDED = 10 << 20


@dataclass
class FakeStore:
    """A store with as much space as a test says."""

    free_bytes: int = 10 * NEEDED
    disk_full: bool = False
    log_bytes: int = 0
    first_index: int = 7
    snapshot_makes_room: bool = False
    deletable: list[int] = field(default_factory=list)
    looks: int = 0

    def room(self) -> Room:
        self.looks += 1
        return Room(self.free_bytes, NEEDED)

    def make_room(self) -> list[int]:
        retired, self.deletable = self.deletable, []
        self.free_bytes += len(retired) * NEEDED
        return retired

    def try_recover_space(self) -> bool:
        self.disk_full = self.free_bytes < NEEDED
        return not self.disk_full


class FakeSnapshots:
    """Counts what is begun."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.done.set()
        self.begun = 0
        self.is_worth_it = False

    def begin(self) -> None:
        self.begun += 1


def keeper(store: FakeStore, snapshots: FakeSnapshots | None = None) -> RoomKeeper:
    return RoomKeeper(cast(Any, store), cast(Any, snapshots or FakeSnapshots()))


def test_low_full_and_again_free_are_each_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    room = keeper(store)

    def reported() -> list[str]:
        room.look()
        room.look()
        messages = [record.message for record in caplog.records]
        caplog.clear()
        return messages

    with caplog.at_level(logging.INFO):
        assert reported() == []
        store.free_bytes = 2 * NEEDED - 1
        (low,) = reported()
        assert low.startswith("the disk has only 20.0 MiB left; below 10.0 MiB")
        store.free_bytes, store.disk_full = 0, True
        (full,) = reported()
        assert full.startswith("the disk is full")
        store.deletable = [0, 4]
        deleted, again = reported()
        assert "2 log segments were deleted early, the history begins at entry 7" in deleted
        assert again.startswith("the disk has space again")


def test_a_snapshot_is_taken_when_space_is_low_but_not_again_and_again() -> None:
    store, snapshots = FakeStore(), FakeSnapshots()
    room = keeper(store, snapshots)
    store.snapshot_makes_room = True
    room.look()
    assert snapshots.begun == 0, "there is enough space"
    store.free_bytes = NEEDED
    for _ in range(LOOKS_BETWEEN_SNAPSHOTS):
        room.look()
    assert snapshots.begun == 1
    room.look()
    assert snapshots.begun == 2
    snapshots.is_worth_it = True
    room.look()
    assert snapshots.begun == 3
    store.snapshot_makes_room = False
    room.look()
    assert snapshots.begun == 3


def test_the_disk_is_looked_at_when_the_log_has_grown_or_the_disk_became_full() -> None:
    store = FakeStore()
    room = keeper(store)
    room.consider()
    store.log_bytes += LOOK_EVERY_BYTES - 1
    room.consider()
    assert store.looks == 0
    store.log_bytes += 1
    room.consider()
    room.consider()
    assert store.looks == 1
    store.disk_full = True
    room.consider()
    assert store.looks == 2

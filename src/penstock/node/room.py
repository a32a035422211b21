"""Free space while serving: old log segments go early when the disk gets short of it, and the operator is told.

The archive is kept for readers of the history, by age and size (``storage.archive``). On a small disk it would leave no
space for new messages. So when there is less free space than the node needs next, the oldest segments that a snapshot
covers are deleted, and a snapshot is taken first if it makes more of them superfluous. Readers get a gap.
"""

from __future__ import annotations

import logging

from penstock.node.snapshots import Snapshots
from penstock.node.storing import LogStore
from penstock.storage.space import Room

log = logging.getLogger(__name__)

LOOK_EVERY_BYTES = 256 * 1024
"""The log grows by this much between two looks at most; besides, somebody looks every few seconds."""
LOOKS_BETWEEN_SNAPSHOTS = 16
"""A snapshot that is taken to free space may fail for want of it, or free little. The next one is taken when the log
has grown by as much as that one was long, or after this many looks."""
_LOW = 2
"""The operator is warned when less than this many times the needed space is free."""
_ENOUGH = 3
"""A later shortage is reported again if there was this many times the needed space in between."""


class RoomKeeper:
    """Looks at the free space of the disk and keeps it from running out."""

    def __init__(self, store: LogStore, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots
        self._looked_at_bytes = store.log_bytes
        self._was_full = False
        self._has_warned = False
        self._looks_to_snapshot = 0

    def consider(self) -> None:
        """Look if the log has grown enough, or the disk has just become full."""
        if self._store.log_bytes - self._looked_at_bytes >= LOOK_EVERY_BYTES or self._store.disk_full != self._was_full:
            self.look()

    def look(self) -> None:
        """Free space if there is too little, and report what has changed."""
        store = self._store
        self._looked_at_bytes = store.log_bytes
        room = store.room()
        self._report(room)
        if room.missing_bytes or store.disk_full:
            self._free(room)
        if _is_low(room) or store.disk_full:
            self._consider_snapshot()
        if store.disk_full and store.try_recover_space():
            log.warning("the disk has space again: all commands are taken again")
            self._was_full = False

    def _report(self, room: Room) -> None:
        if self._store.disk_full and not self._was_full:
            log.error("the disk is full (%s free): only commands that free space are taken", _mib(room.free_bytes))
        self._was_full = self._store.disk_full
        if _is_low(room) and not self._has_warned:
            self._has_warned = True
            log.warning(
                "the disk has only %s left; below %s the oldest log segments are deleted early, and readers of the "
                "history get a gap",
                _mib(room.free_bytes),
                _mib(room.needed_bytes),
            )
        elif room.free_bytes >= _ENOUGH * room.needed_bytes:
            self._has_warned = False

    def _free(self, room: Room) -> None:
        store = self._store
        retired = store.make_room()
        if retired:
            log.warning(
                "the disk has only %s left: %d log segments were deleted early, the history begins at entry %d",
                _mib(room.free_bytes),
                len(retired),
                store.first_index,
            )

    def _consider_snapshot(self) -> None:
        """Take a snapshot if that makes segments superfluous; before space is short, since it needs some itself."""
        snapshots = self._snapshots
        self._looks_to_snapshot -= 1
        if self._store.snapshot_makes_room and (self._looks_to_snapshot <= 0 or snapshots.is_worth_it):
            self._looks_to_snapshot = LOOKS_BETWEEN_SNAPSHOTS
            if snapshots.done.is_set():
                snapshots.begin()


def _is_low(room: Room) -> bool:
    return room.free_bytes < _LOW * room.needed_bytes


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"

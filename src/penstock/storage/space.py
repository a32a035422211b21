"""When the disk is full: the reserve, and preallocation that makes do with less.

A file of `reserve_bytes` is kept aside, and is given up in two parts:

- When a write finds no space, the reserve is cut to its last part and the write tried again. `full` becomes True: from
  then on the node refuses puts, and everything else that does not free space in the end, while takes, acks and deletes
  go on in the room that was made.
- When that room is used up too, the last part is given up and `spent` becomes True. It is for the node's own work, such
  as ending leases and rolling the log: the node refuses all commands of clients, and goes on.

When space has come back, ``try_recover`` makes the reserve whole again.

Room that a file seems to have may be missing: a copy made with `cp --sparse` has the size of the original and holes
in place of zeros. So at start the blocks that the reserve and the log really have are counted, and holes are filled.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Final

from penstock.storage.disk import Disk
from penstock.storage.errors import DiskExhausted
from penstock.storage.layout import Layout

PREALLOCATION_BYTES_MIN: Final = 4 * 1024 * 1024
"""Less than this is not worth a system call on a full disk; the file grows as it is written then."""
LAST_PART: Final = 4
"""The last part of the reserve is its size divided by this."""
_BLOCK_BYTES: Final = 512
"""The unit in which the system counts the blocks of a file."""


@dataclass(frozen=True, slots=True)
class Room:
    """The free space of the disk, and how much of it the node needs for what it does next."""

    free_bytes: int
    needed_bytes: int
    """For the next two segments, the next snapshot, and what is missing of the reserve."""

    @property
    def missing_bytes(self) -> int:
        """How much has to be freed; 0 if there is enough."""
        return max(0, self.needed_bytes - self.free_bytes)


class Space:
    """The room that a node has left, and its reserve."""

    def __init__(self, disk: Disk, layout: Layout, reserve_bytes: int, segment_bytes: int) -> None:
        self.full = False
        """Whether the disk was found full and has not been seen with room since."""
        self.spent = False
        """Whether the last part of the reserve is in use, or there is none: clients may not use any more space."""
        self._disk = disk
        self._layout = layout
        self._reserve_bytes = reserve_bytes
        self._last_part_bytes = reserve_bytes // LAST_PART
        self._segment_bytes = segment_bytes
        self._held_bytes = 0
        self._lock = threading.RLock()

    def start(self) -> None:
        """Take over the reserve of the last run, or make one if there is room; else the node starts full."""
        path = self._layout.reserve
        if path.exists() and path.stat().st_size == self._reserve_bytes and not _has_holes(path.stat()):
            self._held_bytes = self._reserve_bytes
            return
        # Its size was changed, or it was in use when the last run ended, or it is a copy with holes.
        self._disk.unlink(path, "reserve.unlink")
        if self._reserve_bytes:
            self.full = True
            if not self.try_recover():
                self.spent = not self._make_reserve(self._last_part_bytes)

    def relief(self, site: str) -> bool:
        """Give up a part of the reserve for a write that found no space; False if there is none left to give.

        A snapshot is not worth the reserve: it can be made later, and the log cannot. Setting aside room for the log is
        not worth the last part: the log can grow as it is written.
        """
        if site.startswith("snapshot."):
            return False
        with self._lock:
            self.full = True
            if self._held_bytes > self._last_part_bytes:
                self._cut_reserve(self._last_part_bytes)
                return True
            if not self._held_bytes or site == "log.allocate":
                return False
            self.spent = True
            self._cut_reserve(0)
            return True

    def room(self, snapshot_bytes: int) -> Room:
        """How much space there is; `snapshot_bytes` is the length that the next snapshot may have."""
        missing_reserve = self._reserve_bytes - self._held_bytes if self.full else 0
        free_bytes = self._disk.free_bytes(self._layout.consensus)
        return Room(free_bytes, 2 * self._segment_bytes + snapshot_bytes + missing_reserve)

    def try_recover(self) -> bool:
        """If there is room for reserve and segment again, make the reserve and clear `full`. Returns `not full`."""
        with self._lock:
            if not self.full:
                return True
            missing = self._reserve_bytes - self._held_bytes
            if self._disk.free_bytes(self._layout.consensus) < missing + self._segment_bytes:
                return False
            if missing and not self._make_reserve(self._reserve_bytes):
                return False
            self.full = self.spent = False
            return True

    def preallocate(self, descriptor: int, length: int) -> None:
        """Have the file system set aside `length` bytes for a log, or less if it has no more; `full` is set then.

        Also where the file has that length already, but holes in it: what is written there would find no space.
        """
        status = os.fstat(descriptor)
        if _has_holes(status):
            length = max(length, status.st_size)
        elif length <= status.st_size:
            return
        while True:
            try:
                self._disk.allocate(descriptor, length, "log.allocate", self._layout.log)
                return
            except DiskExhausted:
                # What was set aside before space ran out is given back, or it would be missing for what comes next.
                self._disk.truncate(descriptor, status.st_size, "log.truncate", self._layout.log)
                self.relief("log.allocate")
                if length <= max(status.st_size, PREALLOCATION_BYTES_MIN):
                    return
                length = max(length // 2, status.st_size, PREALLOCATION_BYTES_MIN)

    def _cut_reserve(self, length: int) -> None:
        path = self._layout.reserve
        if length:
            descriptor = self._disk.open(path, "reserve.open")
            try:
                self._disk.truncate(descriptor, length, "reserve.truncate", path)
            finally:
                os.close(descriptor)
        else:
            self._disk.unlink(path, "reserve.unlink")
        self._held_bytes = length

    def _make_reserve(self, length: int) -> bool:
        """Make the reserve this long; False if there is no room for it after all."""
        path = self._layout.reserve
        try:
            descriptor = self._disk.open(path, "reserve.open")
            try:
                is_made = self._disk.allocate(descriptor, length, "reserve.allocate", path)
            finally:
                os.close(descriptor)
        except DiskExhausted:
            self._disk.unlink(path, "reserve.unlink")
            self._held_bytes = 0
            return False
        self._held_bytes = length if is_made else 0
        if not is_made:
            # A file system without allocation has no reserve; it is full when it is full.
            self._disk.unlink(path, "reserve.unlink")
        return True


def _has_holes(status: os.stat_result) -> bool:
    return status.st_blocks * _BLOCK_BYTES < status.st_size

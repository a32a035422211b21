"""When the disk is full: the reserve, and preallocation that makes do with less.

A file of `reserve_bytes` is kept aside. When a write finds no space, the reserve is deleted and the write tried again,
and `full` becomes True: the node refuses puts from then on, while takes, acks and deletes, which free space in the
end, go on in the room that the reserve left. When space has come back, ``try_recover`` makes the reserve anew.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from penstock.storage.disk import Disk
from penstock.storage.errors import DiskExhausted
from penstock.storage.layout import Layout

PREALLOCATION_BYTES_MIN: Final = 4 * 1024 * 1024
"""Less than this is not worth a system call on a full disk; the file grows as it is written then."""


class Space:
    """The room that a node has left, and its reserve."""

    def __init__(self, disk: Disk, layout: Layout, reserve_bytes: int, segment_bytes: int) -> None:
        self.full = False
        """Whether the disk was found full and has not been seen with room since."""
        self._disk = disk
        self._layout = layout
        self._reserve_bytes = reserve_bytes
        self._segment_bytes = segment_bytes
        self._held = False
        self._lock = threading.RLock()

    def start(self) -> None:
        """Take over the reserve of the last run, or make one if there is room; else the node starts full."""
        path = self._layout.reserve
        size = path.stat().st_size if path.exists() else -1
        if size == self._reserve_bytes:
            self._held = True
            return
        if size >= 0:
            self._disk.unlink(path, "reserve.unlink")
        if self._reserve_bytes:
            self.full = True
            self.try_recover()

    def relief(self, site: str) -> bool:
        """Give up the reserve for a write that found no space; False if there is none left to give.

        A snapshot is not worth the reserve: it can be made later, and the log cannot.
        """
        if site.startswith("snapshot."):
            return False
        with self._lock:
            self.full = True
            if not self._held:
                return False
            self._held = False
            self._disk.unlink(self._layout.reserve, "reserve.unlink")
            return True

    def try_recover(self) -> bool:
        """If there is room for reserve and segment again, make the reserve and clear `full`. Returns `not full`."""
        with self._lock:
            if not self.full:
                return True
            missing = 0 if self._held else self._reserve_bytes
            if self._disk.free_bytes(self._layout.consensus) < missing + self._segment_bytes:
                return False
            if missing and not self._make_reserve():
                return False
            self.full = False
            return True

    def preallocate(self, descriptor: int, length: int) -> None:
        """Have the file system set aside `length` bytes for a log, or less if it has no more; `full` is set then."""
        size_before = os.fstat(descriptor).st_size
        while length > size_before:
            try:
                self._disk.allocate(descriptor, length, "log.allocate", self._layout.log)
                return
            except DiskExhausted:
                # What was set aside before space ran out is given back, or it would be missing for what comes next.
                self._disk.truncate(descriptor, size_before, "log.truncate", self._layout.log)
                self.relief("log.allocate")
                if length <= PREALLOCATION_BYTES_MIN:
                    return
                length = max(length // 2, PREALLOCATION_BYTES_MIN)

    def _make_reserve(self) -> bool:
        path = self._layout.reserve
        try:
            descriptor = self._disk.create(path, "reserve.create")
            try:
                self._held = self._disk.allocate(descriptor, self._reserve_bytes, "reserve.allocate", path)
            finally:
                os.close(descriptor)
        except DiskExhausted:
            self._disk.unlink(path, "reserve.unlink")
            return False
        if not self._held:
            # A file system without allocation has no reserve; it is full when it is full.
            self._disk.unlink(path, "reserve.unlink")
        return True

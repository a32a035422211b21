"""What the tests of storage share: entries and rows that are told by their index alone, and disks that misbehave."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.storage.disk import Disk
from penstock.storage.layout import Layout
from penstock.storage.store import Recovered, Store, StoreSettings

ROW_BYTES = 16
CLUSTER_ID = bytes(range(16))
NODE_ID = 7
FAR_FUTURE_US = 1 << 62
"""A log time at which every segment is old."""
SMALL = StoreSettings(segment_bytes=4096, reserve_bytes=0)


class FastDisk(Disk):
    """A disk that does not sync: whatever these tests take away, it is never the power."""

    _sync = staticmethod(lambda _descriptor: None)
    _sync_directory = staticmethod(lambda _path: None)


class RecordingDisk(FastDisk):
    """A disk that writes down the site of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: list[str] = []

    def before(self, site: str, path: Path) -> None:
        self.sites.append(site)


class FailingDisk(FastDisk):
    """A disk whose n-th call at a site fails, and every later one there too if `for_ever`."""

    def __init__(self, site: str, number: int, nth: int = 1, *, for_ever: bool = False) -> None:
        super().__init__()
        self.armed = True
        self.failed = 0
        self._site, self._number, self._nth, self._for_ever = site, number, nth, for_ever
        self._seen = 0

    def before(self, site: str, path: Path) -> None:
        if not self.armed or site != self._site:
            return
        self._seen += 1
        if self._seen == self._nth or (self._for_ever and self._seen > self._nth):
            self.failed += 1
            raise OSError(self._number, os.strerror(self._number))


class FullDisk(FastDisk):
    """A disk with so many bytes to write or set aside; what is deleted comes back."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.room_bytes = room_bytes
        self._allocated: dict[int, int] = {}

    def free_bytes(self, path: Path) -> int:
        return self.room_bytes

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int, site: str, path: Path) -> None:
        while True:
            try:
                self._claim(descriptor, offset + len(data))
                break
            except OSError as error:
                self._make_room(error, site, path)
        super().pwrite(descriptor, data, offset, site, path)

    def allocate(self, descriptor: int, length: int, site: str, path: Path) -> bool:
        try:
            self._claim(descriptor, length)
        except OSError as error:
            relief, self.relief = self.relief, None
            try:
                self._make_room(error, site, path)
            finally:
                self.relief = relief
        return super().allocate(descriptor, length, site, path)

    def truncate(self, descriptor: int, length: int, site: str, path: Path) -> None:
        inode = os.fstat(descriptor).st_ino
        had = self._allocated.get(inode, 0)
        self.room_bytes += max(0, had - length)
        self._allocated[inode] = min(had, length)
        super().truncate(descriptor, length, site, path)

    def unlink(self, path: Path, site: str) -> None:
        if path.exists():
            self.room_bytes += self._allocated.pop(path.stat().st_ino, 0)
        super().unlink(path, site)

    def _claim(self, descriptor: int, end: int) -> None:
        inode = os.fstat(descriptor).st_ino
        more = end - self._allocated.get(inode, 0)
        if more > self.room_bytes:
            raise OSError(errno.ENOSPC, "no space")
        if more > 0:
            self.room_bytes -= more
            self._allocated[inode] = end


def stamp_us(index: int) -> int:
    """The log time of an entry: three quarters of an hour after the one before."""
    return index * 2654435761


def data_of(index: int) -> bytes:
    """The bytes of an entry: no two alike, of many lengths."""
    return struct.pack("<Q", stamp_us(index)) + bytes([index % 251]) * (index * 37 % 150)


def term_of(index: int) -> int:
    """The term of an entry."""
    return 1 + index // 40


def entry(index: int) -> tuple[int, int, bytes]:
    """A whole entry."""
    return index, term_of(index), data_of(index)


def entries(first: int, end: int) -> list[tuple[int, int, bytes]]:
    """The entries of a range."""
    return [entry(index) for index in range(first, end)]


def rows_of(index: int) -> bytes:
    """The journal rows of an entry: none, some or many."""
    count = (0, 3, 41, 1, 0, 17)[index % 6]
    return b"".join(struct.pack("<QQ", index, number) for number in range(count))


def all_rows(first: int, end: int) -> bytes:
    """The rows of a range of entries."""
    return b"".join(rows_of(index) for index in range(first, end))


def open_store(
    path: Path,
    settings: StoreSettings = SMALL,
    disk: Disk | None = None,
    node_id: int = NODE_ID,
    *,
    accept_loss: bool = False,
) -> tuple[Store, Recovered]:
    """Open a store with what these tests have in common."""
    return Store.open(
        path,
        row_bytes=ROW_BYTES,
        new_cluster_id=CLUSTER_ID,
        node_id=node_id,
        settings=settings,
        disk=disk or FastDisk(),
        accept_loss=accept_loss,
    )


def write(store: Store, first: int, end: int, *, sync: bool = True, batch: int = 1) -> None:
    """Append and apply a range of entries, some at a time."""
    for start in range(first, end, batch):
        stop = min(start + batch, end)
        store.append(entries(start, stop))
        if sync:
            store.sync()
        for index in range(start, stop):
            store.journal_append(index, rows_of(index))


def close_as_if_killed(store: Store) -> None:
    """Close the files, and leave nothing that only a stop writes."""
    store.close()
    Layout(store.data_dir).tail.unlink(missing_ok=True)


def snapshot_blocks(index: int) -> list[bytes]:
    """The blocks of a snapshot at this index."""
    return [struct.pack("<Q", index), bytes([index % 256]) * 300, b"end"]


def take_snapshot(store: Store, index: int) -> None:
    """Write and publish a snapshot at this index."""
    writer = store.begin_snapshot(index, term_of(index))
    for block in snapshot_blocks(index):
        writer.write_block(block)
    writer.finish()


def replay(store: Store, recovered: Recovered) -> list[tuple[int, int, bytes]]:
    """Do what a node does at start with the entries after the snapshot; returns them."""
    found = list(recovered.entries)
    for index, _, _ in found:
        store.journal_append(index, rows_of(index))
    return found


def joined(pieces: Iterable[bytes]) -> bytes:
    """All pieces as one."""
    return b"".join(pieces)


def files_of(path: Path) -> Iterator[Path]:
    """Every file below a directory."""
    return (found for found in sorted(path.rglob("*")) if found.is_file())

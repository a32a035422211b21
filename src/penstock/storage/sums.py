"""Checksums of a segment's log by chunks of 64 KiB: a reader of many short records need not check each of them.

    marker, Int32 version 2, UInt32 crc32c, Int64 first index, Int64 length of the log file, UInt32 sum of each chunk

The checksum covers everything after itself. A sum is the crc32c of a chunk, the last one shorter, as it was handed to
the disk; 0 says that it is not known. Sums are made from what is written, or from what a start has just read and
checked, so that damage on the disk cannot get into them. Long records are left out: they are checked quickly anyway.

The file is derived: it is written when a segment is sealed, not synced, and where it is missing or does not fit its log
each record is checked by its own checksum.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, StorageFailed, UnreadableData
from penstock.storage.layout import MARKER, VERSION, Layout, check_file_header
from penstock.storage.reading import Source
from penstock.wire.native.pieces import CHUNK_BYTES, SUM_BYTES

LONG_BYTES: Final = 2 * CHUNK_BYTES
"""A write with records of this length gets no sums: they would cost the writer more than they save readers."""
_HEADER: Final = struct.Struct("<4siIqq")
_CHECKED_FROM: Final = 12


class RunningSums:
    """The sums of a log file that grows. Feed it with every byte that is written, in order."""

    __slots__ = ("_crc", "_filled", "_is_known", "closed")

    def __init__(self) -> None:
        self.closed = array("I")
        """The sums of the chunks that are full."""
        self._crc = self._filled = 0
        self._is_known = True

    @classmethod
    def of_start(cls, source: Source, end: int) -> RunningSums:
        """The sums of a file up to `end`, which has just been read and found to be good."""
        sums = cls()
        for at in range(0, end, CHUNK_BYTES):
            sums.feed(source.read(at, min(CHUNK_BYTES, end - at)))
        return sums

    def feed(self, data: bytes, record_count: int = 1) -> None:
        """Count in the next bytes of the file, which hold that many records."""
        size = len(data)
        if self._filled + size < CHUNK_BYTES:
            if self._is_known:
                self._crc = crc32c(data, self._crc)
            self._filled += size
        else:
            self._feed_across(memoryview(data), size >= LONG_BYTES * record_count)

    def _feed_across(self, data: memoryview, is_long: bool) -> None:
        at, size = 0, len(data)
        while at < size:
            step = min(CHUNK_BYTES - self._filled, size - at)
            if is_long:
                self._is_known = False
            elif self._is_known:
                self._crc = crc32c(data[at : at + step], self._crc)
            at += step
            self._filled += step
            if self._filled == CHUNK_BYTES:
                self.closed.append(self._crc if self._is_known else 0)
                self._crc, self._filled, self._is_known = 0, 0, True

    def all(self) -> array[int]:
        """All sums, with that of the chunk that is not full."""
        last = [self._crc if self._is_known else 0] if self._filled else []
        return self.closed + array("I", last)


def encode_sums(first_index: int, log_bytes: int, sums: array[int]) -> bytes:
    """The bytes of the side file."""
    body = struct.pack("<qq", first_index, log_bytes) + little_endian(sums)
    return struct.pack("<4siI", MARKER, VERSION, crc32c(body)) + body


def read_sums(data: bytes, file: Path) -> tuple[int, int, array[int]]:
    """First index of the segment, length of its log, and the sums. Raises ``UnreadableData``."""
    check_file_header(data, file)
    if len(data) < _HEADER.size or (len(data) - _HEADER.size) % SUM_BYTES:
        raise Damaged(file, "has the wrong length", len(data))
    _, _, checksum, first_index, log_bytes = _HEADER.unpack_from(data)
    if crc32c(data[_CHECKED_FROM:]) != checksum:
        raise Damaged(file, "wrong checksum", 8)
    sums = array("I", data[_HEADER.size :])
    if sys.byteorder == "big":
        sums.byteswap()
    return first_index, log_bytes, sums


def save_sums(disk: Disk, layout: Layout, first_index: int, log_bytes: int, sums: array[int]) -> None:
    """Write the side file of a segment that was just sealed. Where it cannot be written, readers do without."""
    path = layout.sealed_sums(first_index)
    with suppress(StorageFailed):
        descriptor = disk.create(path, "sums.create")
        try:
            disk.pwrite(descriptor, encode_sums(first_index, log_bytes, sums), 0, "sums.write", path)
        finally:
            os.close(descriptor)


def load_sums(layout: Layout, first_index: int) -> array[int] | None:
    """The sums of a sealed segment, or None if the side file is missing or is of another log."""
    path = layout.sealed_sums(first_index)
    try:
        first, log_bytes, sums = read_sums(path.read_bytes(), path)
        fits = (first, log_bytes) == (first_index, layout.sealed_log(first_index).stat().st_size)
    except (OSError, UnreadableData):
        return None
    return sums if fits and len(sums) == -(-log_bytes // CHUNK_BYTES) else None


def first_wrong_chunk(log: Source, sums: array[int]) -> int | None:
    """The number of the first chunk that is not what its sum says, None if all that are known are right."""
    for number, known in enumerate(sums):
        if known and crc32c(log.read(number * CHUNK_BYTES, CHUNK_BYTES)) != known:
            return number
    return None


def sums_between(sums: array[int], start: int, end: int) -> bytes:
    """The sums of the chunks that lie wholly between two offsets of the file, as a piece has them."""
    return little_endian(sums[-(-start // CHUNK_BYTES) : end // CHUNK_BYTES])


def little_endian(sums: array[int]) -> bytes:
    """Sums as they are written."""
    if sys.byteorder == "big":
        sums = array("I", sums)
        sums.byteswap()
    return sums.tobytes()

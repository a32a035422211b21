"""Where the entries of a sealed segment lie: a side file, so that whoever reads many need not walk the log.

    marker, Int32 version 2, UInt32 crc32c, Int64 first index, Int64 length of the log file, Int64 offset of each record

The checksum covers everything after itself. The file is derived: it is written when a segment is sealed, not synced,
and where it is missing or does not fit its log the log is walked instead.
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

_HEADER: Final = struct.Struct("<4siIqq")
_CHECKED_FROM: Final = 12


def encode_offsets(first_index: int, log_bytes: int, offsets: array[int]) -> bytes:
    """The bytes of the side file."""
    body = struct.pack("<qq", first_index, log_bytes) + _little_endian(offsets).tobytes()
    return struct.pack("<4siI", MARKER, VERSION, crc32c(body)) + body


def read_offsets(data: bytes, file: Path) -> tuple[int, int, array[int]]:
    """First index of the segment, length of its log, and the offsets. Raises ``UnreadableData``."""
    check_file_header(data, file)
    if len(data) < _HEADER.size or (len(data) - _HEADER.size) % 8:
        raise Damaged(file, "has the wrong length", len(data))
    _, _, checksum, first_index, log_bytes = _HEADER.unpack_from(data)
    if crc32c(data[_CHECKED_FROM:]) != checksum:
        raise Damaged(file, "wrong checksum", 8)
    return first_index, log_bytes, _little_endian(array("q", data[_HEADER.size :]))


def save_offsets(disk: Disk, layout: Layout, first_index: int, log_bytes: int, offsets: array[int]) -> None:
    """Write the side file of a segment that was just sealed. That it cannot be written is no harm."""
    path = layout.sealed_offsets(first_index)
    with suppress(StorageFailed):
        descriptor = disk.create(path, "offsets.create")
        try:
            disk.pwrite(descriptor, encode_offsets(first_index, log_bytes, offsets), 0, "offsets.write", path)
        finally:
            os.close(descriptor)


def load_offsets(layout: Layout, first_index: int) -> array[int] | None:
    """The offsets of a sealed segment's entries, or None if the side file is missing or is not its own."""
    path = layout.sealed_offsets(first_index)
    try:
        first, log_bytes, offsets = read_offsets(path.read_bytes(), path)
        fits = (first, log_bytes) == (first_index, layout.sealed_log(first_index).stat().st_size)
    except (OSError, UnreadableData):
        return None
    return offsets if fits else None


def is_cut_short(layout: Layout, first_index: int) -> bool:
    """Whether a sealed log is not as long as the side file says that it was; False where none can tell."""
    path = layout.sealed_offsets(first_index)
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            size_bytes = layout.sealed_log(first_index).stat().st_size
            if len(head) == _HEADER.size and _HEADER.unpack(head)[4] == size_bytes:
                return False
            # Only now the whole file, to see whether it can be believed.
            first, log_bytes, _ = read_offsets(head + file.read(), path)
    except (OSError, UnreadableData):
        return False
    return first == first_index and log_bytes != size_bytes


def _little_endian(offsets: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return offsets
    swapped = array("q", offsets)
    swapped.byteswap()
    return swapped

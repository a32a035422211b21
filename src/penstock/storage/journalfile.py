"""The files of the journal of events: how blocks and the tail are written and read.

    header   marker, Int32 version 2, Int32 row length, Int32 0, Int64 first index of the segment
    blocks   UInt32 magic, UInt32 crc32c, Int64 first index, Int64 last index, UInt32 row count, UInt32 flags, rows

    tail     marker, Int32 version 2, UInt32 crc32c, Int64 first index, Int64 last index, rows

A checksum covers everything of its block, or of the tail, but itself. A block's indexes say which entries it covers:
one block goes on where the last one ended, also over entries without rows. A block that begins later leaves a gap: the
rows of those entries are lost. The flag 1 says that the block is complete although it has few rows, because the log
entries that it covers are long; there is no other flag. A row begins with the UInt64 index of its entry; the rest of it
is the engine's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.storage.errors import Damaged
from penstock.storage.layout import MARKER, VERSION, check_file_header
from penstock.storage.reading import Source

HEADER: Final = struct.Struct("<4siiiq")
HEADER_BYTES: Final = HEADER.size
BLOCK: Final = struct.Struct("<IIqqII")
BLOCK_HEADER_BYTES: Final = BLOCK.size
BLOCK_MAGIC: Final = 0x4B4C4256
LONG_LOG: Final = 1
"""The flag of a block that was closed because of the length of the log it covers."""
ROW_BYTES_MIN: Final = 8
ROW_BYTES_MAX: Final = 64 * 1024

_BLOCK_CHECKED: Final = struct.Struct("<IqqII")
_TAIL: Final = struct.Struct("<4siIqq")
_INDEX: Final = struct.Struct("<Q")


class Block(NamedTuple):
    """Where a block lies, and which entries it covers."""

    offset: int
    first_index: int
    last_index: int
    row_count: int
    end: int
    has_long_log: bool = False
    """Whether it was closed because of the length of the log it covers."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Rows that are not in a block yet, and the entries they cover."""

    first_index: int
    last_index: int
    rows: bytes


def encode_header(first_index: int, row_bytes: int) -> bytes:
    """The first bytes of a journal file."""
    return HEADER.pack(MARKER, VERSION, row_bytes, 0, first_index)


def decode_header(data: bytes, file: Path) -> tuple[int, int]:
    """First index and row length of a journal file."""
    check_file_header(data, file)
    if len(data) < HEADER_BYTES:
        raise Damaged(file, "ends inside its header", len(data))
    _, _, row_bytes, zero, first_index = HEADER.unpack_from(data)
    if zero or first_index < 0 or not ROW_BYTES_MIN <= row_bytes <= ROW_BYTES_MAX:
        raise Damaged(file, "the header is impossible", 8)
    return first_index, row_bytes


def encode_block(first_index: int, last_index: int, rows: bytes, row_bytes: int, has_long_log: bool = False) -> bytes:
    """One whole block."""
    count, flags = len(rows) // row_bytes, LONG_LOG if has_long_log else 0
    checksum = crc32c(rows, crc32c(_BLOCK_CHECKED.pack(BLOCK_MAGIC, first_index, last_index, count, flags)))
    return BLOCK.pack(BLOCK_MAGIC, checksum, first_index, last_index, count, flags) + rows


def read_block_header(
    source: Source, size_bytes: int, offset: int, row_bytes: int, expected: int
) -> Block | str | None:
    """The block at this offset, None at the end of the file, or what is wrong; the rows are not looked at."""
    head = source.read(offset, BLOCK_HEADER_BYTES)
    if not head:
        return None
    if len(head) < BLOCK_HEADER_BYTES:
        return "the file ends inside a block's header"
    magic, _, first_index, last_index, count, flags = BLOCK.unpack(head)
    if magic != BLOCK_MAGIC or flags not in (0, LONG_LOG):
        return "no block begins here"
    if first_index < expected or last_index < first_index:
        return f"a block of entries {first_index} to {last_index} where {expected} is expected"
    end = offset + BLOCK_HEADER_BYTES + count * row_bytes
    if end > size_bytes:
        return "the file ends inside a block"
    return Block(offset, first_index, last_index, count, end, flags == LONG_LOG)


def read_block_rows(source: Source, block: Block) -> bytes | None:
    """The rows of a block, or None if its checksum is wrong."""
    data = source.read(block.offset, block.end - block.offset)
    if len(data) != block.end - block.offset:
        return None
    _, checksum, first_index, last_index, count, flags = BLOCK.unpack_from(data)
    found = first_index, last_index, count, flags == LONG_LOG
    if found != (block.first_index, block.last_index, block.row_count, block.has_long_log):
        return None
    rows = data[BLOCK_HEADER_BYTES:]
    if checksum != crc32c(rows, crc32c(data[8:BLOCK_HEADER_BYTES], crc32c(data[:4]))):
        return None
    return rows


def iterate_blocks(source: Source, file: Path) -> Iterator[Block]:
    """The blocks of a file by their headers, unread; raises ``Damaged`` where the next one should be and is not."""
    expected, row_bytes = decode_header(source.read(0, HEADER_BYTES), file)
    offset, size_bytes = HEADER_BYTES, source.size_bytes
    while block := read_block_header(source, size_bytes, offset, row_bytes, expected):
        if isinstance(block, str):
            raise Damaged(file, block, offset)
        yield block
        offset, expected = block.end, block.last_index + 1


def encode_tail(tail: Tail) -> bytes:
    """The bytes of the side file."""
    head = _TAIL.pack(MARKER, VERSION, 0, tail.first_index, tail.last_index)
    checksum = crc32c(tail.rows, crc32c(head[12:], crc32c(head[:8])))
    return head[:8] + checksum.to_bytes(4, "little") + head[12:] + tail.rows


def decode_tail(data: bytes, file: Path, row_bytes: int) -> Tail:
    """Read the side file's bytes."""
    check_file_header(data, file)
    if len(data) < _TAIL.size or (len(data) - _TAIL.size) % row_bytes:
        raise Damaged(file, "has the wrong length", len(data))
    _, _, checksum, first_index, last_index = _TAIL.unpack_from(data)
    rows = data[_TAIL.size :]
    if checksum != crc32c(rows, crc32c(data[12 : _TAIL.size], crc32c(data[:8]))):
        raise Damaged(file, "wrong checksum", 8)
    return Tail(first_index, last_index, rows)


def rows_between(rows: bytes, row_bytes: int, first_index: int, last_index: int) -> bytes:
    """The rows of these entries out of rows in the order of their entries."""
    start = _position_of(rows, row_bytes, first_index)
    return rows[start * row_bytes : _position_of(rows, row_bytes, last_index + 1) * row_bytes]


def _position_of(rows: bytes, row_bytes: int, index: int) -> int:
    """The number of rows of entries before `index`."""
    low, high = 0, len(rows) // row_bytes
    while low < high:
        middle = (low + high) // 2
        if _INDEX.unpack_from(rows, middle * row_bytes)[0] < index:
            low = middle + 1
        else:
            high = middle
    return low

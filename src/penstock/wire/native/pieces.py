"""What a piece of the history holds: blocks of events and records of the log, found in its bytes and checked.

    block    UInt32 magic, UInt32 crc32c, Int64 first index, Int64 last index, UInt32 count, UInt32 0, events
    record   Int32 term, Int32 length, UInt32 magic, UInt32 crc32c, Int64 index, Int64 durable, the entry's bytes

These lie in a piece as they lie in the files of a node, which looks at nothing on the way. Whoever takes a piece in
checks it, once (``check_piece``); from then on it is trusted.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.engine.journal import ROW_BYTES
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece

BLOCK: Final = Struct("<IIqqII")
"""Magic, checksum, first index, last index, count, 0."""
RECORD: Final = Struct("<iiIIqq")
"""Term, length, magic, checksum, index, durable."""
LENGTH_END: Final = 8
"""A record's length counts from here."""
OFFSET_BYTES: Final = 8
_BLOCK_MAGIC: Final = 0x4B4C4256
_RECORD_MAGIC: Final = 0x4B534E50
_ENVELOPE_BYTES: Final = RECORD.size - LENGTH_END


class BlockSpan(NamedTuple):
    """The entries that a block covers, and from where to where its events lie."""

    first_index: int
    last_index: int
    start: int
    end: int


def spans(blocks: bytes) -> Iterator[BlockSpan]:
    """The blocks of a checked piece, in order."""
    at, size = 0, len(blocks)
    while at < size:
        _, _, first_index, last_index, count, _ = BLOCK.unpack_from(blocks, at)
        start = at + BLOCK.size
        at = start + count * ROW_BYTES
        yield BlockSpan(first_index, last_index, start, at)


def read_offsets(piece: JournalPiece) -> array[int]:
    """Where the record of each entry begins, and where the last one ends, as offsets in the node's file."""
    offsets = array("q", piece.offsets)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def check_piece(piece: JournalPiece) -> None:
    """See that everything in a piece is what was written. Raises ``BadPiece``."""
    if piece.last_index < piece.first_index:
        raise BadPiece("blocks", 0, "it covers no entry: who asks for what follows would never come to an end")
    _check_blocks(piece.blocks)
    if piece.offsets or piece.log:
        _check_log(piece)


def _check_blocks(blocks: bytes) -> None:
    data, at, size = memoryview(blocks), 0, len(blocks)
    while at < size:
        start = at + BLOCK.size
        if start > size:
            raise BadPiece("blocks", at, "ends inside a block's header")
        magic, checksum, _, _, count, _ = BLOCK.unpack_from(data, at)
        end = start + count * ROW_BYTES
        # The checksum covers everything but itself.
        if magic != _BLOCK_MAGIC or end > size or crc32c(data[at + 8 : end], crc32c(data[at : at + 4])) != checksum:
            raise BadPiece("blocks", at, "wrong checksum of a block")
        at = end


def _check_log(piece: JournalPiece) -> None:
    if len(piece.offsets) != (piece.last_index - piece.first_index + 2) * OFFSET_BYTES:
        raise BadPiece("offsets", 0, f"not one of each entry from {piece.first_index} to {piece.last_index}")
    offsets, log = read_offsets(piece), memoryview(piece.log)
    base, index, unpack = offsets[0], piece.first_index, RECORD.unpack_from
    if len(log) < offsets[-1] - base:
        raise BadPiece("log", len(log), f"ends before entry {piece.last_index}")
    for start, end in pairwise(offsets):
        if not RECORD.size <= end - start <= len(log):
            raise BadPiece("offsets", (index - piece.first_index) * OFFSET_BYTES, f"entry {index} does not fit")
        at = start - base
        _, length, magic, checksum, found, _ = unpack(log, at)
        # A mark may follow an entry, so a record may end before the next one begins.
        stop = at + LENGTH_END + length
        if magic != _RECORD_MAGIC or found != index or length <= _ENVELOPE_BYTES or stop > end - base:
            raise BadPiece("log", at, f"no record of entry {index} begins here")
        if crc32c(log[at + 16 : stop], crc32c(log[at : at + 12])) != checksum:
            raise BadPiece("log", at, f"wrong checksum of entry {index}")
        index += 1

"""What a piece of the history holds: blocks of events and records of the log, found in its bytes and checked.

    block    UInt32 magic, UInt32 crc32c, Int64 first index, Int64 last index, UInt32 count, UInt32 flags, events
    record   Int32 term, Int32 length, UInt32 magic, UInt32 crc32c, Int64 index, 8 bytes proof, the entry's bytes

These lie in a piece as they lie in the files of a node, which looks at nothing on the way. Whoever takes a piece in
checks it, once (``check_piece``); from then on it is trusted.

Where the piece has checksums of whole chunks of the log, records inside good chunks are not checked one by one: only
their heads are looked at, which a reader with numpy does for thousands at once (``HeadsCheck``). Where a chunk is not
what its checksum says, the records themselves decide.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.engine.journal import ROW_BYTES
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece

BLOCK: Final = Struct("<IIqqII")
"""Magic, checksum, first index, last index, count, flags."""
RECORD: Final = Struct("<iiIIqq")
"""Term, length, magic, checksum, index, proof."""
LENGTH_END: Final = 8
"""A record's length counts from here."""
OFFSET_BYTES: Final = 8
_BLOCK_MAGIC: Final = 0x4B4C4256
RECORD_MAGIC: Final = 0x4B534E50
ENVELOPE_BYTES: Final = RECORD.size - LENGTH_END


CHUNK_BYTES: Final = 64 * 1024
"""The log's file has a checksum for each of its chunks, counted from its start."""
SUM_BYTES: Final = 4


class Span(NamedTuple):
    """Records of a piece, by their numbers in it, and the range of the log that they lie in."""

    first: int
    end: int
    log_start: int
    log_end: int


HeadsCheck = Callable[[JournalPiece, "array[int]", Span], None]
"""Checks the heads of records whose bytes are known to be good, given the offsets of all records of the piece. Raises
``BadPiece``."""


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


def check_piece(piece: JournalPiece, check_heads: HeadsCheck | None = None) -> None:
    """See that everything in a piece is what was written. Raises ``BadPiece``."""
    if piece.last_index < piece.first_index:
        raise BadPiece("blocks", 0, "it covers no entry: who asks for what follows would never come to an end")
    _check_blocks(piece.blocks)
    if piece.offsets or piece.log:
        _check_log(piece, check_heads or check_each_head)


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


def _check_log(piece: JournalPiece, check_heads: HeadsCheck) -> None:
    count = piece.last_index - piece.first_index + 1
    if len(piece.offsets) != (count + 1) * OFFSET_BYTES:
        raise BadPiece("offsets", 0, f"not one of each entry from {piece.first_index} to {piece.last_index}")
    offsets = read_offsets(piece)
    base = offsets[0]
    if len(piece.log) < offsets[-1] - base:
        raise BadPiece("log", len(piece.log), f"ends before entry {piece.last_index}")
    number = 0
    for start, end in _good_chunks(piece, base):
        # Records that lie wholly in good chunks; where offsets are out of order, checking their heads finds that.
        first = bisect_left(offsets, base + start, number, count)
        following = bisect_right(offsets, base + end, first, count + 1) - 1
        if following > first:
            _check_records(piece, offsets, number, first)
            check_heads(piece, offsets, Span(first, following, start, end))
            number = following
    _check_records(piece, offsets, number, count)


def _good_chunks(piece: JournalPiece, base: int) -> Iterator[tuple[int, int]]:
    """Ranges of the log, as long as possible, whose chunks have the checksums that the piece says."""
    sums = array("I", piece.sums[: len(piece.sums) // SUM_BYTES * SUM_BYTES])
    if sys.byteorder == "big":
        sums.byteswap()
    log = memoryview(piece.log)
    at = begun = -base % CHUNK_BYTES
    for known in sums:
        end = at + CHUNK_BYTES
        if end > len(log):
            break
        if not known or crc32c(log[at:end]) != known:
            if at > begun:
                yield begun, at
            begun = end
        at = end
    if at > begun:
        yield begun, at


def check_each_head(piece: JournalPiece, offsets: array[int], span: Span) -> None:
    """See that records whose bytes are good begin where the offsets say. Raises ``BadPiece``."""
    base, log, unpack = offsets[0], piece.log, RECORD.unpack_from
    for number in range(span.first, span.end):
        at, end = offsets[number] - base, offsets[number + 1] - base
        index = piece.first_index + number
        if at < span.log_start or end > span.log_end or end - at < RECORD.size:
            raise BadPiece("offsets", number * OFFSET_BYTES, f"entry {index} does not fit")
        _, length, magic, _, found, _ = unpack(log, at)
        if magic != RECORD_MAGIC or found != index or not ENVELOPE_BYTES < length <= end - at - LENGTH_END:
            raise BadPiece("log", at, f"no record of entry {index} begins here")


def _check_records(piece: JournalPiece, offsets: array[int], first: int, end: int) -> None:
    """Check some records, by their number in the piece, each by its own checksum."""
    log, base, unpack, seed = memoryview(piece.log), offsets[0], RECORD.unpack_from, piece.seed
    index = piece.first_index + first
    for start, following in pairwise(offsets[first : end + 1]):
        if not RECORD.size <= following - start <= len(log):
            raise BadPiece("offsets", (index - piece.first_index) * OFFSET_BYTES, f"entry {index} does not fit")
        at = start - base
        _, length, magic, checksum, found, _ = unpack(log, at)
        # A mark may follow an entry, so a record may end before the next one begins.
        stop = at + LENGTH_END + length
        if magic != RECORD_MAGIC or found != index or length <= ENVELOPE_BYTES or stop > following - base:
            raise BadPiece("log", at, f"no record of entry {index} begins here")
        if crc32c(log[at + 16 : stop], crc32c(log[at : at + 12], seed)) != checksum:
            raise BadPiece("log", at, f"wrong checksum of entry {index}")
        index += 1

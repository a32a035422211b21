"""Events as rows of numpy: a piece of the history, checked and laid bare, without a step per row.

The journal has rows of fixed width, so a whole piece is one array. Blocks and records of the log are checked here, one
checksum each: what is damaged on the way or in a file is told, and never becomes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from penstock.client.errors import BadAnswer
from penstock.client.events import BLOCK, RECORD_HEADER_BYTES
from penstock.engine.journal import ROW_BYTES
from penstock.wire.native.messages import JournalPiece

Int64s = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]

# What the engine counts without sign is read with one, as Spark has no other: no number ever comes that far.
ROW: Final = np.dtype(
    [
        ("index", "<i8"),
        ("n", "<i4"),
        ("item", "<i4"),
        ("kind", "u1"),
        ("door", "u1"),
        ("reason", "u1"),
        ("zero", "u1"),
        ("deliveries", "<i4"),
        ("time_us", "<i8"),
        ("owner", "<i8"),
        ("queue", "<i8"),
        ("record", "<i8"),
        ("key", "<i8"),
        ("value", "<i8"),
        ("other_queue", "<i8"),
        ("other_record", "<i8"),
        ("payload_index", "<i8"),
        ("payload_offset", "<u4"),
        ("payload_bytes", "<u4"),
        ("headers_offset", "<u4"),
        ("headers_bytes", "<u4"),
    ]
)
"""A row of the journal (``engine.journal``)."""

_RECORD: Final = np.dtype(
    [("term", "<i4"), ("length", "<i4"), ("magic", "<u4"), ("crc", "<u4"), ("index", "<i8"), ("durable", "<i8")]
)
_BLOCK_MAGIC: Final = 0x4B4C4256
_RECORD_MAGIC: Final = 0x4B534E50
_OFFSET_BYTES: Final = 8
_CRC_OFFSET: Final = 12
_LENGTH_END: Final = 8
"""A record's length counts from here."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries whose events are lost."""

    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class Records:
    """The log of a piece: where the bytes of each of its entries lie."""

    first_index: int
    log: bytes
    starts: Int64s
    ends: Int64s
    terms: npt.NDArray[np.int32]


def read_rows(piece: JournalPiece) -> tuple[Rows, list[Gap]]:
    """The events of a piece in order, and what it lacks. Raises ``BadAnswer`` for damaged blocks."""
    data, at = memoryview(piece.blocks), 0
    parts: list[memoryview] = []
    gaps: list[Gap] = []
    expected = piece.first_index
    while at < len(data):
        start = at + BLOCK.size
        if start > len(data):
            raise _damaged("block of events", at)
        magic, checksum, first, last, count, _ = BLOCK.unpack_from(data, at)
        end = start + count * ROW_BYTES
        if magic != _BLOCK_MAGIC or end > len(data):
            raise _damaged("block of events", at)
        if crc32c(data[start:end], crc32c(data[at + 8 : start], crc32c(data[at : at + 4]))) != checksum:
            raise _damaged("block of events", at)
        if first > expected:
            gaps.append(Gap(expected, min(first - 1, piece.last_index)))
        expected = max(expected, last + 1)
        parts.append(data[start:end])
        at = end
    if expected <= piece.last_index:
        gaps.append(Gap(expected, piece.last_index))
    rows = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), ROW)
    first_row, last_row = np.searchsorted(rows["index"], [piece.first_index, piece.last_index + 1])
    return rows[first_row:last_row], gaps


def read_records(piece: JournalPiece) -> Records | None:
    """Where the entries of a piece lie in its log; None if it came without. Raises ``BadAnswer`` for damaged ones."""
    if not piece.offsets:
        return None
    count = piece.last_index - piece.first_index + 1
    not_whole = BadAnswer("ReadJournal", f"the log of entries {piece.first_index} to {piece.last_index} is not whole")
    if len(piece.offsets) != (count + 1) * _OFFSET_BYTES:
        raise not_whole
    log = memoryview(piece.log)
    offsets = np.frombuffer(piece.offsets, "<i8").astype(np.int64)
    offsets -= offsets[0]
    begins, limits = offsets[:-1], offsets[1:]
    if limits[-1] > len(log) or (limits - begins < RECORD_HEADER_BYTES).any():
        raise not_whole
    heads = np.frombuffer(log, np.uint8)[begins[:, None] + np.arange(RECORD_HEADER_BYTES)].view(_RECORD)[:, 0]
    # A mark may follow an entry, so a record may end before the next one begins.
    ends = begins + _LENGTH_END + heads["length"]
    right = (heads["magic"] == _RECORD_MAGIC) & (heads["index"] == np.arange(piece.first_index, piece.last_index + 1))
    right &= (heads["length"] >= RECORD_HEADER_BYTES - _LENGTH_END) & (ends <= limits)
    if not right.all():
        raise _damaged("record of the log", int(begins[np.argmin(right)]))
    for at, end, checksum in zip(begins.tolist(), ends.tolist(), heads["crc"].tolist(), strict=True):
        if crc32c(log[at + _CRC_OFFSET + 4 : end], crc32c(log[at : at + _CRC_OFFSET])) != checksum:
            raise _damaged("record of the log", at)
    return Records(piece.first_index, piece.log, begins + RECORD_HEADER_BYTES, ends, heads["term"])


def _damaged(what: str, at: int) -> BadAnswer:
    return BadAnswer("ReadJournal", f"a {what} at byte {at} of the piece is damaged")

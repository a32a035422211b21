"""Events as rows of numpy: a piece of the history, checked and laid bare, without a step per row.

The journal has rows of fixed width, so a whole piece is one array. Pieces come checked from wherever the history is
read (``wire.native.pieces``): what is damaged on the way or in a file is told there, and never becomes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.spark.source.heads import values_at
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import LENGTH_END, RECORD, spans

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
    """The events of a checked piece in order, and what it lacks."""
    data = memoryview(piece.blocks)
    parts: list[memoryview] = []
    gaps: list[Gap] = []
    expected = piece.first_index
    for block in spans(piece.blocks):
        if block.first_index > expected:
            gaps.append(Gap(expected, min(block.first_index - 1, piece.last_index)))
        expected = max(expected, block.last_index + 1)
        parts.append(data[block.start : block.end])
    if expected <= piece.last_index:
        gaps.append(Gap(expected, piece.last_index))
    rows = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), ROW)
    first_row, last_row = np.searchsorted(rows["index"], [piece.first_index, piece.last_index + 1])
    return rows[first_row:last_row], gaps


def run_starts(values: Int64s) -> Int64s:
    """Where a value begins that differs from the one before it: events of one queue often follow each other."""
    if not len(values):
        return np.empty(0, np.int64)
    return np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))


def read_records(piece: JournalPiece) -> Records | None:
    """Where the entries of a checked piece lie in its log; None if it came without."""
    if not piece.offsets:
        return None
    begins = np.frombuffer(piece.offsets, "<i8")[:-1].astype(np.int64)
    begins -= begins[0]
    # A record begins with its term and its length, which are read as one number.
    both = values_at(piece.log, begins, "<i8")
    ends = begins + LENGTH_END + (both >> 32)
    return Records(piece.first_index, piece.log, begins + RECORD.size, ends, both.astype(np.int32))

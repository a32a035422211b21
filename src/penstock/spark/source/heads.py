"""Checking the heads of many log records at once, with numpy (``wire.native.pieces.HeadsCheck``)."""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import ENVELOPE_BYTES, LENGTH_END, OFFSET_BYTES, RECORD, RECORD_MAGIC, Span

_LENGTH_AT: Final = 4
_INDEX_AT: Final = 16
_LOW_BITS: Final = 0xFFFFFFFF


def check_heads(piece: JournalPiece, offsets: array[int], span: Span) -> None:
    """See that records whose bytes are good begin where the offsets say. Raises ``BadPiece``."""
    bounds = np.asarray(offsets)[span.first : span.end + 1] - offsets[0]
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    fits = (starts >= span.log_start) & (bounds[1:] <= span.log_end) & (sizes >= RECORD.size)
    if not fits.all():
        number = span.first + int(np.argmin(fits))
        raise BadPiece("offsets", number * OFFSET_BYTES, f"entry {piece.first_index + number} does not fit")
    # Length and magic stand beside each other: reading both as one number takes one look into memory instead of two.
    both = values_at(piece.log, starts + _LENGTH_AT, "<i8")
    lengths = both & _LOW_BITS
    indexes = np.arange(piece.first_index + span.first, piece.first_index + span.end)
    good = (lengths > ENVELOPE_BYTES) & (lengths <= sizes - LENGTH_END)
    good &= both >> 32 == RECORD_MAGIC
    good &= values_at(piece.log, starts + _INDEX_AT, "<i8") == indexes
    if not good.all():
        place = int(np.argmin(good))
        raise BadPiece("log", int(starts[place]), f"no record of entry {indexes[place]} begins here")


def values_at(data: bytes, places: npt.NDArray[np.int64], kind: str) -> npt.NDArray[Any]:
    """The numbers of one kind at these places, which may be any; each lies wholly in the data."""
    size = np.dtype(kind).itemsize
    every: npt.NDArray[Any] = np.ndarray((max(0, len(data) - size + 1),), kind, data, strides=(1,))
    return every[places]

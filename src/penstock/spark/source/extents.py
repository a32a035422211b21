"""Bytes that lie somewhere in a buffer, as a column of Arrow.

Payloads follow each other in the log with a little between them. An Arrow array over the very buffer, whose values are
by turns what lies between and a payload, costs nothing per byte; taking every second value of it copies the payloads
once, into the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.client.errors import BadAnswer
from penstock.spark.source.rows import Int64s, Records, Rows

FETCHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Older entries are fetched in groups of about this length."""
_OFFSET_MAX: Final = 2**31 - 1

Fetch = Callable[[list[int]], dict[int, bytes]]
"""Gives single entries of the log by index; those that are gone are missing."""


@dataclass(frozen=True, slots=True)
class _Extents:
    """Bytes of some entries: row ``rows[k]`` has ``sizes[k]`` of them at ``starts[k]`` of the buffer."""

    buffer: bytes
    rows: Int64s
    starts: Int64s
    sizes: Int64s


def gather(rows: Rows, part: str, wanted: npt.NDArray[np.bool_], records: Records | None, fetch: Fetch) -> pa.Array:
    """The payloads or headers (`part`) of the rows that are wanted; null elsewhere, and where the bytes are gone."""
    # Rows name their place in the array of values; the first value is the empty one, and null is negative.
    places = np.full(len(rows), -1)
    chosen = np.flatnonzero(wanted)
    sizes = rows[f"{part}_bytes"][chosen].astype(np.int64)
    is_empty = sizes == 0
    if is_empty.any():
        places[chosen[is_empty]] = 0
        chosen, sizes = chosen[~is_empty], sizes[~is_empty]
    values: list[pa.Array] = [pa.array([b""], pa.binary())]
    base = 1
    for extents in _find(rows, part, chosen, sizes, records, fetch):
        if len(extents.rows):
            array, positions = _values(extents)
            if records is None or extents.buffer is not records.log:
                # Of whole older entries only these bytes are kept.
                array, positions = array.take(pa.array(positions)), np.arange(len(positions))
            places[extents.rows] = base + positions
            values.append(array)
            base += len(array)
    if len(values) == 2 and not is_empty.any():
        return _take(values[1], places - 1)
    return _take(pa.concat_arrays(values), places)


def _find(
    rows: Rows, part: str, chosen: Int64s, sizes: Int64s, records: Records | None, fetch: Fetch
) -> Iterator[_Extents]:
    """Where the bytes of the chosen rows lie: in the log of the piece, or in older entries."""
    if records is not None:
        entries = rows["payload_index"][chosen] - records.first_index
        here = (entries >= 0) & (entries < len(records.starts))
        if here.all():
            yield _in_piece(rows, part, sizes, chosen, entries, records)
            return
        yield _in_piece(rows, part, sizes[here], chosen[here], entries[here], records)
        chosen, sizes = chosen[~here], sizes[~here]
    for some in _by_length(rows, part, sizes, chosen):
        yield _in_entries(rows, part, sizes[some], chosen[some], fetch)


def _by_length(rows: Rows, part: str, sizes: Int64s, chosen: Int64s) -> Iterator[Int64s]:
    """The chosen rows in groups whose older entries are not too long to be in memory together.

    An entry is at least as long as the rows that refer to it say.
    """
    if not len(chosen):
        return
    wanted, entries = np.unique(rows["payload_index"][chosen], return_inverse=True)
    lengths = np.zeros(len(wanted), np.int64)
    np.maximum.at(lengths, entries, rows[f"{part}_offset"][chosen] + sizes)
    groups = (np.cumsum(lengths) - lengths) // FETCHED_BYTES_MAX
    of_rows = groups[entries]
    for group in np.unique(groups):
        yield np.flatnonzero(of_rows == group)


def _take(values: pa.Array, places: Int64s) -> pa.Array:
    missing = places < 0
    if not missing.any():
        return values.take(pa.array(places))
    if missing.all():
        return pa.nulls(len(places), pa.binary())
    return values.take(pa.array(places, mask=missing))


def _in_piece(rows: Rows, part: str, sizes: Int64s, chosen: Int64s, entries: Int64s, records: Records) -> _Extents:
    starts = records.starts[entries] + rows[f"{part}_offset"][chosen]
    _check(starts + sizes, records.ends[entries])
    return _Extents(records.log, chosen, starts, sizes)


def _in_entries(rows: Rows, part: str, sizes: Int64s, chosen: Int64s, fetch: Fetch) -> _Extents:
    """Bytes of entries before the piece, as a publication refers to them; what is gone is left out."""
    wanted, entries = np.unique(rows["payload_index"][chosen], return_inverse=True)
    fetched = fetch(wanted.tolist())
    bodies = [fetched.get(index, b"") for index in wanted.tolist()]
    ends = np.cumsum([len(body) for body in bodies])
    begins = ends - [len(body) for body in bodies]
    there = np.array([index in fetched for index in wanted.tolist()])[entries]
    chosen, entries, sizes = chosen[there], entries[there], sizes[there]
    starts = begins[entries] + rows[f"{part}_offset"][chosen]
    _check(starts + sizes, ends[entries])
    return _Extents(b"".join(bodies), chosen, starts, sizes)


def _check(ends: Int64s, limits: Int64s) -> None:
    """Arrow trusts offsets blindly, so they are looked at here."""
    if (ends > limits).any():
        raise BadAnswer("ReadJournal", "an event names bytes behind the end of their entry")


def _values(extents: _Extents) -> tuple[pa.Array, Int64s]:
    """An array that holds all the bytes, and where in it each of them is."""
    buffer, starts, sizes = extents.buffer, extents.starts, extents.sizes
    is_addressable = len(buffer) <= _OFFSET_MAX
    if is_addressable and _rises(starts, sizes):
        return _interleaved(buffer, starts, sizes), np.arange(0, 2 * len(starts), 2)
    pairs, positions = np.unique(np.stack((starts, sizes), axis=1), axis=0, return_inverse=True)
    positions = positions.reshape(-1)
    starts, sizes = pairs[:, 0], pairs[:, 1]
    if is_addressable and _rises(starts, sizes):
        return _interleaved(buffer, starts, sizes), 2 * positions
    # Bytes that overlap can be named, but no engine of ours does so.
    pieces = [buffer[at : at + size] for at, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
    return pa.array(pieces, pa.binary()), positions


def _rises(starts: Int64s, sizes: Int64s) -> bool:
    return bool((starts[1:] >= starts[:-1] + sizes[:-1]).all())


def _interleaved(buffer: bytes, starts: Int64s, sizes: Int64s) -> pa.Array:
    """Value 2k is the k-th of these bytes, between them lies what is between."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts + sizes
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)], null_count=0
    )

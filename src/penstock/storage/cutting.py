"""Cutting a long history into ranges of about equal size, by what the heads of its blocks say.

A ``Table`` says of one segment how many events and bytes there are up to the end of each block. The tables of sealed
segments never change, so whoever has made them keeps them. The ``Cutter`` goes over the tables in order; a range may
span segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.storage.journalfile import Block
from penstock.storage.pieces import Records
from penstock.wire.native.messages import CUTS_MAX, Cut

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Table:
    """How much a segment holds up to the end of each of its blocks, from the first one given."""

    ends: array[int]
    """The last entry of each block, ascending."""
    rows: array[int]
    """The events up to there."""
    bytes: array[int]
    """The bytes of events and log up to there."""


def table_of(blocks: Sequence[Block], records: Records, first_index: int, last_index: int) -> Table:
    """The table of a segment, or of its part from `first_index` on, which ends at `last_index`.

    Entries that no block covers count with the block after them; at the end they are a block without events.
    """
    ends, rows, sizes = array("q"), array("q"), array("q")
    start = records.offset_of(first_index)
    row_count = block_bytes = 0
    for block in blocks:
        row_count += block.row_count
        block_bytes += block.end - block.offset
        ends.append(block.last_index)
        rows.append(row_count)
        sizes.append(block_bytes + records.offset_of(block.last_index + 1) - start)
    if not ends or ends[-1] < last_index:
        ends.append(last_index)
        rows.append(row_count)
        sizes.append(block_bytes + records.offset_of(last_index + 1) - start)
    return Table(ends, rows, sizes)


def nothing_up_to(last_index: int) -> Table:
    """The table of entries that are not there."""
    return Table(array("q", [last_index]), array("q", [0]), array("q", [0]))


class Cutter:
    """Cuts the entries from `first_index` to `last_index` into consecutive ranges, each as long as possible.

    A range has at most `rows_max` events and `bytes_max` bytes (0: no limit), but at least one block. What it counts
    are whole blocks, so at its ends it may hold a little less than it says. There are at most `count_max` ranges (0 or
    more than that: ``CUTS_MAX``).
    """

    def __init__(self, first_index: int, last_index: int, rows_max: int, bytes_max: int, count_max: int) -> None:
        self._next = first_index
        self._last_index = last_index
        self._rows_max = rows_max or _UNLIMITED
        self._bytes_max = bytes_max or _UNLIMITED
        self._count_max = min(count_max or CUTS_MAX, CUTS_MAX)
        self._cuts: list[Cut] = []
        self._end = -1
        """The last entry of the range that is under way; -1 while it is empty."""
        self._rows = self._bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether the next table would change nothing."""
        return len(self._cuts) >= self._count_max or self._next > self._last_index

    def add(self, table: Table) -> None:
        """Go on with the next segment."""
        position = bisect_left(table.ends, self._next)
        stop = min(bisect_left(table.ends, self._last_index) + 1, len(table.ends))
        while position < stop and not self.is_done:
            rows_before = table.rows[position - 1] if position else 0
            bytes_before = table.bytes[position - 1] if position else 0
            fitting = min(
                bisect_right(table.rows, self._rows_max - self._rows + rows_before, position, stop),
                bisect_right(table.bytes, self._bytes_max - self._bytes + bytes_before, position, stop),
            )
            if fitting == position and self._end < 0:
                fitting = position + 1
            if fitting > position:
                self._end = min(table.ends[fitting - 1], self._last_index)
                self._rows += table.rows[fitting - 1] - rows_before
                self._bytes += table.bytes[fitting - 1] - bytes_before
                self._next = self._end + 1
                position = fitting
            if position < stop:
                self._close()

    def finish(self) -> list[Cut]:
        """The ranges."""
        if self._end >= 0 and len(self._cuts) < self._count_max:
            self._close()
        return self._cuts

    def _close(self) -> None:
        self._cuts.append(Cut(self._end, self._rows, self._bytes))
        self._end = -1
        self._rows = self._bytes = 0

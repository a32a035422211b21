"""The journal and the log of an open store as raw pieces, for readers of the whole history.

What a piece is and how it is read stands in ``pieces``. What is live is settled in the thread that owns the store, by
the methods of ``Feed``. The reading, which is what they return, may happen in another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from penstock.storage.cutting import Table, table_of
from penstock.storage.errors import Damaged
from penstock.storage.journal import Journal
from penstock.storage.journalfile import iterate_blocks
from penstock.storage.layout import Layout
from penstock.storage.log import Log
from penstock.storage.offsets import load_offsets
from penstock.storage.pieces import Events, Part, Records, open_descriptor, read_entry, read_piece
from penstock.storage.reading import FileSource
from penstock.storage.scan import scan_sealed
from penstock.storage.segmenthead import read_segment_head
from penstock.storage.sums import load_sums
from penstock.wire.native.messages import JournalPiece

_SEALED_KEPT: Final = 8
"""Where blocks and records lie in so many sealed segments is kept at hand, for readers that go on where they were."""
_TABLES_KEPT: Final = 1024
"""Tables of so many sealed segments are kept, some ten kilobytes each, so that cutting reads no file twice."""


class Feed:
    """Cuts the history into pieces."""

    def __init__(self, layout: Layout, log: Log, journal: Journal) -> None:
        self._layout = layout
        self._log = log
        self._journal = journal
        # Readers go on where they were. The size is part of the name: a segment may be taken back and sealed again.
        self._sealed_events = lru_cache(_SEALED_KEPT)(self._find_sealed_events)
        self._sealed_records = lru_cache(_SEALED_KEPT)(self._find_sealed_records)
        self._sealed_tables = lru_cache(_TABLES_KEPT)(self._find_sealed_table)

    def piece(
        self, first_index: int, last_index: int, bytes_max: int, with_log: bool, part: Part | None = None
    ) -> Callable[[], JournalPiece]:
        """Work for a thread: to read a piece from an entry on, which is here and applied.

        It ends at `last_index`, or earlier: with its segment, or where it would grow beyond `bytes_max`. Of a piece
        that is longer than `part` allows only that part is read.
        """
        following = self._log.segment_after(first_index)
        last_index = min(last_index, self._journal.last_index if following is None else following - 1)
        if last_index < first_index:
            raise ValueError(f"entry {first_index} is not applied, the last one is {self._journal.last_index}")
        segment = self._log.first_index if following is None else self._log.archive.segment_of(first_index)
        assert segment is not None, "an entry before the live segment lies in an archived one"
        events = self._live_events(first_index, last_index) if segment == self._journal.first_index else None
        records = self._live_records() if following is None else None

        def read() -> JournalPiece:
            found = events or self._sealed_events(segment, _size_bytes(self._layout.sealed_events(segment)))
            entries = records or self._sealed_records(segment, _size_bytes(self._layout.sealed_log(segment)))
            return read_piece(found, entries, first_index, last_index, bytes_max, with_log, part)

        return read

    def tables(self, first_index: int, last_index: int) -> list[Callable[[], Table]]:
        """Work for a thread, segment by segment: to tell how much there is of these entries, which are applied."""
        last_index = min(last_index, self._journal.last_index)
        firsts = self._log.segments
        found: list[Callable[[], Table]] = []
        for position in range(bisect_right(firsts, first_index) - 1, bisect_right(firsts, last_index)):
            segment, is_live = firsts[position], position + 1 == len(firsts)
            end = last_index if is_live else firsts[position + 1] - 1
            if segment == self._journal.first_index:
                found.append(self._live_table(segment, max(first_index, segment), min(last_index, end), is_live))
            else:
                found.append(partial(self._sealed_table, segment, end))
        return found

    def _live_table(self, segment: int, first_index: int, last_index: int, log_is_live: bool) -> Callable[[], Table]:
        blocks = self._journal.heads_between(first_index, last_index)
        live = self._live_records() if log_is_live else None

        def make() -> Table:
            records = live or self._sealed_records(segment, _size_bytes(self._layout.sealed_log(segment)))
            return table_of(blocks, records, first_index, last_index)

        return make

    def _sealed_table(self, segment: int, last_index: int) -> Table:
        sizes = _size_bytes(self._layout.sealed_events(segment)), _size_bytes(self._layout.sealed_log(segment))
        return self._sealed_tables(segment, last_index, *sizes)

    def entries(self) -> Callable[[int], bytes | None]:
        """A function for a thread: the bytes of any single entry that was here when this was called, else None."""
        oldest, live_first, last = self._log.oldest_index, self._log.first_index, self._log.last_index
        firsts = list(self._log.archive.first_indexes)
        live = self._live_records()

        def read(index: int) -> bytes | None:
            if not oldest <= index <= last:
                return None
            if index >= live_first:
                return read_entry(live, index)
            segment = firsts[bisect_right(firsts, index) - 1]
            path = self._layout.sealed_log(segment)
            try:
                return read_entry(self._sealed_records(segment, _size_bytes(path)), index)
            except Damaged:
                if path.exists():
                    raise
                return None  # it has been let go of

        return read

    def _live_events(self, first_index: int, last_index: int) -> Events:
        blocks, unwritten = self._journal.blocks_between(first_index, last_index)
        file = open_descriptor(self._journal.dup(), self._layout.live_events)
        return Events(blocks, file, () if unwritten is None else (unwritten,))

    def _live_records(self) -> Records:
        log = self._log
        file = open_descriptor(log.dup(), self._layout.log)
        return Records(log.first_index, log.offsets, log.end, file, log.head.seed, log.sums)

    def _find_sealed_events(self, segment: int, size_bytes: int) -> Events:
        path = self._layout.sealed_events(segment)
        if not size_bytes:
            return Events([], path)  # a segment from before a gap has none
        with FileSource(path) as source:
            return Events(list(iterate_blocks(source, path)), path)

    def _find_sealed_table(self, segment: int, last_index: int, events_bytes: int, log_bytes: int) -> Table:
        blocks = self._find_sealed_events(segment, events_bytes).blocks
        return table_of(blocks, self._find_sealed_records(segment, log_bytes), segment, last_index)

    def _find_sealed_records(self, segment: int, size_bytes: int) -> Records:
        path = self._layout.sealed_log(segment)
        offsets = load_offsets(self._layout, segment)
        with FileSource(path) as source:
            seed = read_segment_head(source, path).seed
            if offsets is None:
                offsets = scan_sealed(source, path, segment).offsets
        return Records(segment, offsets, size_bytes, path, seed, load_sums(self._layout, segment))


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

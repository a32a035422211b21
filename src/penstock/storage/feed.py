"""The journal and the log as raw pieces, for readers of the whole history.

A piece covers entries of one segment: whole journal blocks as they lie in their file, and the records of the same
entries as they lie in the log, with the offset of each. Nothing is looked into on the way, so a piece costs a few reads
however many events it holds; whoever gets it checks and decodes it.

What is live is settled in the thread that owns the store, by ``Feed.piece``. The reading, which is what it returns, may
happen in another.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from operator import attrgetter
from pathlib import Path
from typing import Final

from penstock.storage.errors import Damaged
from penstock.storage.journal import Journal
from penstock.storage.journalfile import Block, iterate_blocks
from penstock.storage.layout import Layout
from penstock.storage.log import Log
from penstock.storage.offsets import load_offsets
from penstock.storage.reading import DescriptorSource, FileSource, MemorySource
from penstock.storage.records import Walk
from penstock.storage.scan import scan_sealed

_last_index: Final = attrgetter("last_index")
_SEALED_KEPT: Final = 8
"""Tables of so many sealed segments are kept at hand, for readers that go on where they were."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some entries' events and bytes."""

    first_index: int
    last_index: int
    blocks: bytes
    """Blocks of the journal, one behind the other; the first and the last may hold events of entries around these."""
    offsets: bytes
    """Where the record of each entry begins, and where the last one ends: Int64, little-endian, from the file's start.
    """
    log: bytes
    """The log from the first of these offsets on. Empty, as the offsets are, if it was not asked for."""


@dataclass(frozen=True, slots=True)
class _Events:
    """Where the journal's part of a piece comes from."""

    blocks: Sequence[Block]
    file: FileIO | Path
    unwritten: tuple[Block, bytes] | None = None
    """The block that is still in memory, encoded; its place in the file is none."""


@dataclass(frozen=True, slots=True)
class _Records:
    """Where the log's part of a piece comes from."""

    first_index: int
    offsets: array[int]
    end: int
    file: FileIO | Path

    def offset_of(self, index: int) -> int:
        """Where the record of an entry begins, or the last one ends."""
        position = index - self.first_index
        return self.offsets[position] if position < len(self.offsets) else self.end

    def table(self, first_index: int, last_index: int) -> bytes:
        """Where the records of these entries begin, and where the last one ends: Int64, little-endian."""
        offsets = self.offsets[first_index - self.first_index : last_index + 1 - self.first_index]
        offsets.append(self.offset_of(last_index + 1))
        if sys.byteorder == "big":
            offsets.byteswap()
        return offsets.tobytes()


class Feed:
    """Cuts the history into pieces."""

    def __init__(self, layout: Layout, log: Log, journal: Journal) -> None:
        self._layout = layout
        self._log = log
        self._journal = journal
        # Readers go on where they were. The size is part of the name: a segment may be taken back and sealed again.
        self._sealed_events = lru_cache(_SEALED_KEPT)(self._find_sealed_events)
        self._sealed_records = lru_cache(_SEALED_KEPT)(self._find_sealed_records)

    def piece(self, first_index: int, last_index: int, bytes_max: int, with_log: bool) -> Callable[[], Piece]:
        """Work for a thread: to read a piece from an entry on, which is here and applied.

        It ends at `last_index`, or earlier: with its segment, or where it would grow beyond `bytes_max`.
        """
        following = self._log.segment_after(first_index)
        last_index = min(last_index, self._journal.last_index if following is None else following - 1)
        if last_index < first_index:
            raise ValueError(f"entry {first_index} is not applied, the last one is {self._journal.last_index}")
        segment = self._log.first_index if following is None else self._log.archive.segment_of(first_index)
        assert segment is not None, "an entry before the live segment lies in an archived one"
        events = self._live_events(first_index, last_index) if segment == self._journal.first_index else None
        records = self._live_records() if following is None else None

        def read() -> Piece:
            found = events or self._sealed_events(segment, _size_bytes(self._layout.sealed_events(segment)))
            entries = records or self._sealed_records(segment, _size_bytes(self._layout.sealed_log(segment)))
            return _read_piece(found, entries, first_index, last_index, bytes_max, with_log)

        return read

    def entries(self) -> Callable[[int], bytes | None]:
        """A function for a thread: the bytes of any single entry that was here when this was called, else None."""
        oldest, live_first, last = self._log.oldest_index, self._log.first_index, self._log.last_index
        firsts = list(self._log.archive.first_indexes)
        live = self._live_records()

        def read(index: int) -> bytes | None:
            if not oldest <= index <= last:
                return None
            if index >= live_first:
                return _read_entry(live, index)
            segment = firsts[bisect_right(firsts, index) - 1]
            size_bytes = _size_bytes(self._layout.sealed_log(segment))
            return _read_entry(self._sealed_records(segment, size_bytes), index) if size_bytes else None

        return read

    def _live_events(self, first_index: int, last_index: int) -> _Events:
        blocks, unwritten = self._journal.blocks_between(first_index, last_index)
        # An object, not a number: it is closed also if nobody reads.
        return _Events(blocks, FileIO(self._journal.dup(), "rb"), unwritten)

    def _live_records(self) -> _Records:
        log = self._log
        return _Records(log.first_index, log.offsets, log.end, FileIO(log.dup(), "rb"))

    def _find_sealed_events(self, segment: int, size_bytes: int) -> _Events:
        path = self._layout.sealed_events(segment)
        if not size_bytes:
            return _Events([], path)  # a segment from before a gap has none
        with FileSource(path) as source:
            return _Events(list(iterate_blocks(source, path)), path)

    def _find_sealed_records(self, segment: int, size_bytes: int) -> _Records:
        path = self._layout.sealed_log(segment)
        offsets = load_offsets(self._layout, segment)
        if offsets is None:
            with FileSource(path) as source:
                offsets = scan_sealed(source, path, segment).offsets
        return _Records(segment, offsets, size_bytes, path)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_piece(
    events: _Events, records: _Records, first_index: int, last_index: int, bytes_max: int, with_log: bool
) -> Piece:
    blocks, last_index = _choose(events, records, first_index, last_index, bytes_max, with_log)
    on_disk = [block for block in blocks if block.offset >= 0]
    data = _read(events.file, on_disk[0].offset, on_disk[-1].end) if on_disk else b""
    if len(on_disk) < len(blocks):
        assert events.unwritten is not None
        data += events.unwritten[1]
    if not with_log:
        return Piece(first_index, last_index, data, b"", b"")
    start, end = records.offset_of(first_index), records.offset_of(last_index + 1)
    return Piece(first_index, last_index, data, records.table(first_index, last_index), _read(records.file, start, end))


def _choose(
    events: _Events, records: _Records, first_index: int, last_index: int, bytes_max: int, with_log: bool
) -> tuple[list[Block], int]:
    """The blocks of a piece, at least one if there is any, and the piece's last entry."""
    candidates = events.blocks[bisect_left(events.blocks, first_index, key=_last_index) :]
    if events.unwritten is not None:
        candidates = [*candidates, events.unwritten[0]]
    start = records.offset_of(first_index)
    chosen: list[Block] = []
    size = 0
    for block in candidates:
        if block.first_index > last_index:
            break
        end = min(block.last_index, last_index)
        size += block.end - block.offset
        log_bytes = records.offset_of(end + 1) - start if with_log else 0
        if chosen and size + log_bytes > bytes_max:
            return chosen, chosen[-1].last_index
        chosen.append(block)
    return chosen, last_index


def _read_entry(records: _Records, index: int) -> bytes:
    start = records.offset_of(index)
    data = _read(records.file, start, records.offset_of(index + 1))
    walk = Walk(MemorySource(data), offset=0, expected=index)
    for _, _, entry in walk:
        return entry
    file = records.file if isinstance(records.file, Path) else Path(str(records.file.name))
    raise Damaged(file, walk.fault or "an entry is missing", start)


def _read(file: FileIO | Path, start: int, end: int) -> bytes:
    if isinstance(file, Path):
        with FileSource(file) as source:
            return source.read(start, end - start)
    return DescriptorSource(file.fileno(), Path(str(file.name))).read(start, end - start)

"""Segments of a history that lie in files, read only and checked to the byte.

A node hands its files out as they are, and its readers check what they get. Whoever reads the files themselves wants to
know which of them is bad and where, so here everything is checked: each block of the journal and each record of the log
that is given out, and that the blocks cover every entry. Files are looked at when they are needed, and not before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from penstock.engine.journal import ROW_BYTES
from penstock.storage.cutting import Table, table_of
from penstock.storage.errors import Damaged, NotADataDirectory
from penstock.storage.journalfile import HEADER_BYTES, Block, decode_header, iterate_blocks
from penstock.storage.layout import Layout, sealed_first_index
from penstock.storage.offsets import is_cut_short, load_offsets
from penstock.storage.pieces import Events, Records, last_index_of, read_piece
from penstock.storage.reading import FileIdentity, FileSource
from penstock.storage.records import MARK_BYTES, Entry, index_of_mark, read_entries
from penstock.storage.scan import scan_sealed
from penstock.storage.segmenthead import read_segment_head
from penstock.storage.sums import load_sums
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import HeadsCheck, check_each_head, check_piece, spans

_BLOCKS_KEPT: Final = 32
"""Sealed journals whose heads are kept: some 200 KB each."""
_BESIDE_LOGS: Final = {path.suffix for path in Layout(Path()).beside_sealed(0)}
"""Files that lie in an archive beside the logs, and belong to them."""


class Segment:
    """The entries from `first_index` to `last_index`, with their events."""

    def __init__(
        self,
        first_index: int,
        last_index: int,
        files: tuple[Path, Path],
        find_records: Callable[[], Records],
        find_events: Callable[[], Events],
    ) -> None:
        self.first_index = first_index
        self.last_index = last_index
        self.log_file, self.events_file = files
        self._find_records = find_records
        self._find_events = find_events

    @cached_property
    def records(self) -> Records:
        """Where its entries lie."""
        return self._find_records()

    @cached_property
    def events(self) -> Events:
        """Where its events lie."""
        return self._find_events()

    @cached_property
    def table(self) -> Table:
        """How much it holds up to the end of each block."""
        return table_of(self.events.heads, self.records, self.first_index, self.last_index)

    def entries(self) -> Iterator[Entry]:
        """All of its entries, checked as they are read."""
        records, stop = self.records, self.last_index + 1
        with FileSource(self.log_file) as source:
            first, begun = self.first_index, records.first_index
            yield from read_entries(
                source, self.log_file, records.offsets, begun, records.end, first, stop, records.seed
            )

    def piece(
        self,
        first_index: int,
        last_index: int,
        bytes_max: int,
        with_log: bool,
        check_heads: HeadsCheck = check_each_head,
    ) -> JournalPiece:
        """A piece of it, checked; raises ``Damaged`` where it is not what was written."""
        last_index = min(last_index, self.last_index)
        piece = read_piece(self.events, self.records, first_index, last_index, bytes_max, with_log)
        try:
            check_piece(piece, check_heads)
        except BadPiece as bad:
            raise Damaged(*self._place(piece, bad)) from bad
        expected = piece.first_index
        for block in spans(piece.blocks):
            self._check_covered(expected, min(block.first_index, piece.last_index + 1))
            expected = block.last_index + 1
        self._check_covered(expected, piece.last_index + 1)
        return piece

    def _check_covered(self, expected: int, following: int) -> None:
        if expected < following:
            raise Damaged(self.events_file, f"lacks the events of entries {expected} to {following - 1}")

    def _place(self, piece: JournalPiece, bad: BadPiece) -> tuple[Path, str, int | None]:
        """The file that something bad in a piece comes from, what is wrong, and where in the file."""
        if bad.part != "blocks":
            return self.log_file, bad.reason, self.records.offset_of(piece.first_index) + bad.at
        heads = self.events.heads
        offset = heads[bisect_left(heads, piece.first_index, key=last_index_of)].offset
        return self.events_file, bad.reason, offset + bad.at if offset >= 0 else None


def sealed_segment(layout: Layout, first_index: int, last_index: int) -> Segment:
    """An archived segment that ends with this entry."""
    log, events = layout.sealed_log(first_index), layout.sealed_events(first_index)

    def find_records() -> Records:
        with FileSource(log) as source:
            head = read_segment_head(source, log)
            offsets = load_offsets(layout, first_index)
            if offsets is None:
                offsets = scan_sealed(source, log, first_index).offsets
            size_bytes = source.size_bytes
        if len(offsets) != last_index - first_index + 1:
            found = first_index + len(offsets) - 1
            raise Damaged(log, f"ends with entry {found}, {last_index} should be its last", size_bytes)
        return Records(first_index, offsets, size_bytes, log, head.seed, load_sums(layout, first_index))

    def find_events() -> Events:
        with FileSource(events) as source:
            of_segment, row_bytes = decode_header(source.read(0, HEADER_BYTES), events)
            if (of_segment, row_bytes) != (first_index, ROW_BYTES):
                reason = f"is of the segment at {of_segment} with events of {row_bytes} bytes"
                raise Damaged(events, f"{reason}, not of the one at {first_index} with {ROW_BYTES}", 8)
            blocks = _sealed_blocks(FileIdentity.of(source.descriptor, events))
        if blocks and blocks[-1].last_index > last_index:
            reason = f"has events up to entry {blocks[-1].last_index}, its log ends with {last_index}"
            raise Damaged(events, reason, blocks[-1].offset)
        return Events(blocks, events)

    return Segment(first_index, last_index, (log, events), find_records, find_events)


@lru_cache(_BLOCKS_KEPT)
def _sealed_blocks(file: FileIdentity) -> list[Block]:
    """The heads of a sealed journal's blocks: a process that reads one part of a history often reads another."""
    with FileSource(file.path) as source:
        return list(iterate_blocks(source, file.path))


def closing_index(layout: Layout, first_index: int) -> int:
    """The last entry of a sealed log, by the mark that closes it. Raises ``Damaged`` where it was cut short."""
    log = layout.sealed_log(first_index)
    with FileSource(log) as source:
        head = read_segment_head(source, log)
        size_bytes = source.size_bytes
        mark = source.read(max(size_bytes - MARK_BYTES, head.size_bytes), MARK_BYTES)
        last_index = index_of_mark(mark, head.seed)
    if last_index is None or is_cut_short(layout, first_index):
        raise Damaged(log, "does not end with the mark that closed the segment: it was cut short", size_bytes)
    return last_index


def loose_segments(paths: Iterable[Path]) -> list[Segment]:
    """Sealed segments by the paths of their logs, in order; between them there may be holes."""
    logs: dict[int, Path] = {}
    for path in paths:
        first_index = sealed_first_index(path)
        if first_index is not None:
            logs[first_index] = path
        elif path.suffix not in _BESIDE_LOGS:
            reason = "is no segment of an archive: their logs have names of twenty digits and end in .log"
            raise NotADataDirectory(path, reason)
    segments: list[Segment] = []
    for first_index, path in sorted(logs.items()):
        if segments and segments[-1].last_index >= first_index:
            before = segments[-1]
            raise Damaged(path, f"begins at entry {first_index}, the segment before it ends with {before.last_index}")
        layout = Layout(path.parent, archive=path.parent)
        segments.append(sealed_segment(layout, first_index, closing_index(layout, first_index)))
    return segments

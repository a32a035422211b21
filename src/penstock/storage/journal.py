"""The journal of a running node: what applying the log yielded, as rows, in blocks that are cut the same everywhere.

A block is closed at the first entry boundary where it has 512 rows or more or covers 1 MiB of log entries or more, and
where a segment of the log ends. So its rows and the log that they refer to are read together in one go. Since
entries are applied later than they are appended, the journal passes from one segment to the next on its own, when the
first entry of the next one is applied: it closes its block, syncs, becomes archive/<first index>.events, and begins
anew.

The journal is derived from the log. It is not synced on the commit path, and what is lost of it is rebuilt by applying
the log again from the snapshot on. So before a snapshot is published everything up to its index must be safe: the
closed blocks are synced, and the rows that are still in memory go into the side file events/tail.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from operator import attrgetter
from pathlib import Path
from typing import Final

from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged
from penstock.storage.journalfile import (
    BLOCK_HEADER_BYTES,
    HEADER_BYTES,
    Block,
    Tail,
    encode_block,
    encode_header,
    encode_tail,
    iterate_blocks,
    read_block_rows,
    rows_between,
)
from penstock.storage.layout import Layout
from penstock.storage.reading import DescriptorSource, FileSource, Source

BLOCK_ROWS: Final = 512
"""A block is closed when it has this many rows, at the end of an entry."""
BLOCK_LOG_BYTES: Final = 1024 * 1024
"""A block is closed when the entries that it covers have this many bytes. Marks of the log do not count: they are not
the same on all nodes."""

SYNC_AHEAD_BYTES: Final = 2 * 1024 * 1024

_NEVER: Final = 1 << 63
_first_index_of: Final = attrgetter("first_index")
_last_index_of: Final = attrgetter("last_index")


@dataclass(frozen=True, slots=True)
class JournalGap:
    """Entries whose rows are lost for good: they lie before the snapshot, so they cannot be applied again."""

    first_index: int
    last_index: int

    def __str__(self) -> str:
        return f"the journal lacks entries {self.first_index} to {self.last_index}"


class Journal:
    """The journal's live file and the block in memory."""

    def __init__(self, disk: Disk, layout: Layout, row_bytes: int, segment_after: Callable[[int], int | None]) -> None:
        self.first_index = 0
        """The first index of the segment that the journal is in."""
        self.last_index = -1
        """The last entry whose rows are here."""
        self._disk = disk
        self._layout = layout
        self._row_bytes = row_bytes
        self._close_bytes = BLOCK_ROWS * row_bytes
        self._segment_after = segment_after
        self._boundary = _NEVER
        self._descriptor = -1
        self._end = self._synced_end = HEADER_BYTES
        self._blocks: list[Block] = []
        self._rows = bytearray()
        self._rows_first = 0
        self._log_bytes = 0
        """The length of the entries that the block in memory covers."""

    def adopt(self, descriptor: int, first_index: int, blocks: list[Block], last_index: int, rows: bytes) -> None:
        """Go on with a file whose good blocks are these; `rows` up to `last_index` come after them."""
        self._descriptor = descriptor
        self.first_index, self.last_index = first_index, last_index
        self._blocks = blocks
        self._end = self._synced_end = blocks[-1].end if blocks else HEADER_BYTES
        self._rows = bytearray(rows)
        self._rows_first = blocks[-1].last_index + 1 if blocks else first_index
        self._log_bytes = 0
        self.segments_changed()

    @property
    def open_first_index(self) -> int:
        """The first entry that the block in memory covers, or will."""
        return self._rows_first

    def set_open_log_bytes(self, log_bytes: int) -> None:
        """Say how long the entries are whose rows were taken over into the block in memory (``adopt``, ``refill``)."""
        self._log_bytes = log_bytes

    def segments_changed(self) -> None:
        """The log has begun a segment or taken one back."""
        boundary = self._segment_after(self.first_index)
        self._boundary = _NEVER if boundary is None else boundary

    def append(self, index: int, rows: bytes, entry_bytes: int) -> None:
        """Add the rows of one applied entry, each entry once and in order; what is here already is passed over."""
        if index <= self.last_index:
            return
        if index != self.last_index + 1 or len(rows) % self._row_bytes:
            raise ValueError(f"{len(rows)} bytes of rows for entry {index} after {self.last_index}")
        if index >= self._boundary:
            self._seal()
        self._rows += rows
        self.last_index = index
        self._log_bytes += entry_bytes
        if len(self._rows) >= self._close_bytes:
            self._close_block()
        elif self._log_bytes >= BLOCK_LOG_BYTES:
            self._close_block(has_long_log=True)

    def refill(self, tail: Tail) -> None:
        """Take over rows that were saved from memory, as far as they are not here already."""
        if self.last_index + 1 >= self._boundary:
            self._seal()
        self._rows += rows_between(tail.rows, self._row_bytes, self.last_index + 1, tail.last_index)
        self.last_index = tail.last_index

    def skip_to(self, index: int) -> None:
        """Go on at a later entry and leave a gap; into its segment, if that is another one."""
        if self._rows_first <= self.last_index:
            self._close_block()
        while index >= self._boundary:
            self._seal()
        self.last_index = index - 1
        self._rows_first = index

    def rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        """The rows of these entries in order, many at a time; entries that the journal lacks are passed over.

        What there is now is settled by the call; the iterator may be used in another thread while the journal grows.
        """
        open_rows = rows_between(bytes(self._rows), self._row_bytes, first_index, last_index)
        blocks = [
            block for block in self._blocks if block.first_index <= last_index and block.last_index >= first_index
        ]
        # An object, not a number: it is closed also if the iterator is never used.
        live = os.fdopen(self.dup(), "rb", buffering=0) if blocks else None
        sealed_last = min(last_index, self.first_index - 1)
        return self._iterate_rows(first_index, last_index, sealed_last, live, blocks, open_rows)

    def _iterate_rows(
        self,
        first_index: int,
        last_index: int,
        sealed_last: int,
        live: FileIO | None,
        blocks: list[Block],
        open_rows: bytes,
    ) -> Iterator[bytes]:
        yield from self._sealed_rows(first_index, sealed_last)
        if live is not None:
            with live:
                source = DescriptorSource(live.fileno(), self._layout.live_events)
                for block in blocks:
                    rows = self._rows_in(source, self._layout.live_events, block, first_index, last_index)
                    if rows:
                        yield rows
        if open_rows:
            yield open_rows

    def blocks_between(self, first_index: int, last_index: int) -> tuple[list[Block], tuple[Block, bytes] | None]:
        """The closed blocks of the live file that hold events of these entries, and the open one, encoded, if it does.

        The open one ends with the last entry that was applied, and lies nowhere: its offset is negative.
        """
        blocks = self.heads_between(first_index, last_index)
        if not blocks or blocks[-1].offset >= 0:
            return blocks, None
        data = encode_block(self._rows_first, self.last_index, bytes(self._rows), self._row_bytes)
        return blocks[:-1], (blocks[-1], data)

    def heads_between(self, first_index: int, last_index: int) -> list[Block]:
        """The blocks of the live file that hold events of these entries, with the open one as it stands, unencoded."""
        start = bisect_left(self._blocks, first_index, key=_last_index_of)
        blocks = self._blocks[start : bisect_right(self._blocks, last_index, start, key=_first_index_of)]
        if self._rows_first <= min(last_index, self.last_index):
            size_bytes = BLOCK_HEADER_BYTES + len(self._rows)
            count = len(self._rows) // self._row_bytes
            blocks.append(Block(-size_bytes, self._rows_first, self.last_index, count, 0))
        return blocks

    def tail(self, last_index: int) -> Tail:
        """The rows in memory up to this entry."""
        rows = rows_between(bytes(self._rows), self._row_bytes, self._rows_first, last_index)
        return Tail(self._rows_first, last_index, rows)

    def save_tail(self, tail: Tail) -> None:
        """Put rows that were in memory where a restart finds them. May run in another thread."""
        replace_file(
            self._disk, self._layout.temp / self._layout.tail.name, self._layout.tail, encode_tail(tail), "tail"
        )

    def save_all(self) -> None:
        """Put the rows in memory beside the file, so that whoever reads it after a stop need not apply the log again.

        The tail that is replaced may hold rows that no synced block has, so what has been written is synced first.
        """
        if self._descriptor >= 0:
            self.sync(self._descriptor)
            self.save_tail(self.tail(self.last_index))

    def dup(self) -> int:
        """A descriptor of the live file that stays good when the file is sealed."""
        return os.dup(self._descriptor)

    def sync_ahead(self) -> Callable[[], None] | None:
        """Work for a thread: to sync the blocks written since the last time, once they are many; else None.

        Not needed for safety. It keeps the sync at the end of a segment short, for which the whole node waits.
        """
        if self._end - self._synced_end < SYNC_AHEAD_BYTES:
            return None
        self._synced_end = self._end
        descriptor = self.dup()

        def work() -> None:
            try:
                self.sync(descriptor)
            finally:
                os.close(descriptor)

        return work

    def sync(self, descriptor: int) -> None:
        """Return when the blocks written so far to this descriptor (see ``dup``) are on disk. May run in a thread."""
        self._disk.fdatasync(descriptor, "journal.sync", self._layout.live_events)

    def close(self) -> None:
        """Close the file; the rows in memory are rebuilt by the next start."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _close_block(self, *, has_long_log: bool = False) -> None:
        block = encode_block(self._rows_first, self.last_index, bytes(self._rows), self._row_bytes, has_long_log)
        self._disk.pwrite(self._descriptor, block, self._end, "journal.write", self._layout.live_events)
        count = len(self._rows) // self._row_bytes
        end = self._end + len(block)
        self._blocks.append(Block(self._end, self._rows_first, self.last_index, count, end, has_long_log))
        self._end = end
        self._log_bytes = 0
        self._rows_first = self.last_index + 1
        self._rows.clear()

    def _seal(self) -> None:
        """End the file at the boundary of its log segment and begin the next."""
        disk, layout = self._disk, self._layout
        if self._rows_first <= self.last_index:
            self._close_block()
        disk.fdatasync(self._descriptor, "journal.sync", layout.live_events)
        disk.rename(layout.live_events, layout.sealed_events(self.first_index), "journal.seal")
        disk.fsync_directory(layout.archive, "journal.sync_directory")
        disk.fsync_directory(layout.events, "journal.sync_directory")
        first_index = self._boundary
        descriptor = create_journal(disk, layout, first_index, self._row_bytes)
        os.close(self._descriptor)
        self.adopt(descriptor, first_index, [], max(self.last_index, first_index - 1), b"")

    def _sealed_rows(self, first_index: int, last_index: int) -> Iterator[bytes]:
        firsts = self._layout.sealed_first_indexes()
        start = max(bisect_right(firsts, first_index) - 1, 0)
        for first in firsts[start:]:
            path = self._layout.sealed_events(first)
            # A segment may be retired while this runs, or have no journal from before a gap.
            if first > last_index or not path.exists():
                continue
            with FileSource(path) as source:
                for block in iterate_blocks(source, path):
                    # Checked before it is passed over: a damaged index must not hide rows.
                    rows = self._rows_in(source, path, block, first_index, last_index)
                    if block.first_index > last_index:
                        break
                    if rows:
                        yield rows

    def _rows_in(self, source: Source, file: Path, block: Block, first_index: int, last_index: int) -> bytes:
        rows = read_block_rows(source, block)
        if rows is None:
            raise Damaged(file, "wrong checksum of a block", block.offset)
        return rows_between(rows, self._row_bytes, first_index, last_index)


def create_journal(disk: Disk, layout: Layout, first_index: int, row_bytes: int) -> int:
    """Put an empty journal in place of the live one, and open it."""
    header = encode_header(first_index, row_bytes)
    replace_file(disk, layout.temp / layout.live_events.name, layout.live_events, header, "journal")
    return disk.open(layout.live_events, "journal.open")

"""The history in a data directory, of a node that runs or of one that does not, read without a lock and never written.

What a start would do is done here in memory: the torn end of the log is left out, and the events that were in memory
when the node stopped are found again by applying the log from the snapshot on (``recovery`` does the same to the
files). While a node runs, what it has in its memory cannot be known, and what it has not applied must not be: then the
history reaches as far as the closed blocks of the journal do, or the tail that was saved with the snapshot.

What a start refuses is an error here as well: a log of another cluster, and a log that ends before what the journal,
its tail or the snapshot reached (``evidence``). Sealed segments can still be read by themselves.
"""

from __future__ import annotations

import errno
import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache, partial
from io import FileIO
from pathlib import Path

from penstock.engine import snapshot as engine_snapshot
from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage import snapshot
from penstock.storage.archive import Archive
from penstock.storage.cutting import Table
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, StorageFailed, UnreadableData
from penstock.storage.evidence import find_lost_entries
from penstock.storage.journal import BLOCK_LOG_BYTES, BLOCK_ROWS
from penstock.storage.journalfile import (
    HEADER_BYTES,
    Block,
    Tail,
    decode_header,
    decode_tail,
    encode_block,
    rows_between,
)
from penstock.storage.layout import Layout
from penstock.storage.lock import is_held
from penstock.storage.metadata import load_metadata
from penstock.storage.pieces import Events, Records
from penstock.storage.reading import DescriptorSource, FileIdentity, FileSource
from penstock.storage.records import Entry, Walk, read_entries
from penstock.storage.recovery import first_index_of, good_blocks
from penstock.storage.scan import LogScan, scan_live
from penstock.storage.segmentfiles import Segment, closing_index, sealed_segment
from penstock.storage.segmenthead import read_segment_head
from penstock.storage.skipped import NOTHING_SKIPPED, Skipped, load_skipped

log = logging.getLogger(__name__)

Encoded = tuple[Block, bytes]
"""A block that lies in no file, and its bytes."""


class DataFiles:
    """A data directory as it was when this was made."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        if layout.snapshot_new.exists() or layout.log_new.exists():
            raise Damaged(layout.log_new, "an import or restore was interrupted; start the node once to settle it")
        metadata = load_metadata(layout)
        self._cluster_id = None if metadata is None else metadata.cluster_id
        self.cluster = "" if self._cluster_id is None else self._cluster_id.hex()
        """The cluster's id; empty if that is not known."""
        # What may get another name comes first: its descriptor stays good, and the archive then has all that lacks.
        self._log = _opened(layout.log)
        self._journal = _opened(layout.live_events)
        self._tail = _read_tail(layout)
        self._snapshot = _opened(layout.snapshot)
        self.snapshot_index = -1 if self._snapshot is None else self._snapshot_header()
        """Up to where the snapshot covers the log; -1 without one."""
        self._archive = Archive(Disk(), layout)
        self._segments: dict[int, Segment] = {}
        if self._log is None and not (layout.next_log.exists() and self._archive.first_indexes):
            raise Damaged(layout.log, "is missing")

    def close(self) -> None:
        """Let go of the files."""
        for file in (self._log, self._journal, self._snapshot):
            if file is not None:
                file.close()

    # How far it reaches.

    @cached_property
    def _running(self) -> bool:
        """Whether a node has it open. Only what is live asks: listing the system's locks takes milliseconds."""
        return is_held(self._layout)

    @property
    def first_index(self) -> int:
        """The oldest entry that is kept."""
        return self._firsts[0]

    @cached_property
    def applied_index(self) -> int:
        """The last entry whose events can be told."""
        return self.saved_index if self._running else self._log_last

    @property
    def sealed_index(self) -> int:
        """The last entry of the segments whose log and journal are sealed: told without a look at what is live."""
        return min(self._journal_first, self._live_first) - 1

    def segment_of(self, index: int) -> Segment:
        """The segment that an entry is in, which is kept and applied; of one that is partly saved the part."""
        firsts = self._firsts
        position = bisect_right(firsts, index) - 1
        first_index = begin = firsts[position]
        end = firsts[position + 1] - 1 if position + 1 < len(firsts) else self._log_last
        last_index, is_saved = end, True
        if end > self.sealed_index:
            last_index, saved_index = min(end, self.applied_index), self.saved_index
            is_saved = index <= saved_index
            if begin <= saved_index < last_index:
                # To make the events that are in no file takes long. Who reads others does not wait for them.
                first_index, last_index = (begin, saved_index) if is_saved else (saved_index + 1, last_index)
        segment = self._segments.get(first_index)
        if segment is None:
            kind = Segment if is_saved else _Unsaved
            segment = self._segments[first_index] = self._segment(kind, begin, end, first_index, last_index)
        return segment

    def _segment(self, kind: type[Segment], begin: int, end: int, first_index: int, last_index: int) -> Segment:
        """The entries from `first_index` to `last_index` of the segment from `begin` to `end`."""
        sealed = sealed_segment(self._layout, begin, end)
        log_is_live = begin == self._live_first
        journal_is_live = begin >= self._journal_first
        return kind(
            first_index,
            last_index,
            (
                self._layout.log if log_is_live else sealed.log_file,
                self._layout.live_events if journal_is_live else sealed.events_file,
            ),
            self._live_records if log_is_live else lambda: sealed.records,
            partial(self._live_events, first_index, last_index) if journal_is_live else lambda: sealed.events,
        )

    @cached_property
    def _live_first(self) -> int:
        """The first entry of raft.log, or the one that it would have."""
        if self._log is None:
            return closing_index(self._layout, self._archive.first_indexes[-1]) + 1
        source = self._log_source
        head = read_segment_head(source, self._layout.log)
        if self._cluster_id is not None:
            head.check_cluster(self._cluster_id, self._layout.log)
        walk = Walk.of_segment(source, head)
        next(iter(walk), None)
        if walk.first_index is not None:
            return walk.first_index
        return self._scan.first_index

    @cached_property
    def _firsts(self) -> list[int]:
        """The first index of each segment, the live one last; all entries from the first one on are here."""
        live = oldest = self._live_first
        self._archive.first_indexes = [first for first in self._archive.first_indexes if first < live]
        for first in reversed(self._archive.first_indexes):
            if self._cluster_id is not None:
                self._archive.check_cluster(first, self._cluster_id)
            last = closing_index(self._layout, first)
            if last != oldest - 1:
                # It is from before a snapshot took the log's place, unless its journal knows that there was more.
                if self._layout.sealed_events(first).exists():
                    _ = sealed_segment(self._layout, first, last).events
                break
            oldest = first
        if oldest > self.snapshot_index + 1:
            file = self._layout.log if oldest == live else self._layout.sealed_log(oldest)
            raise Damaged(file, f"begins at entry {oldest}, entries from {self.snapshot_index + 1} on are missing")
        return [*(first for first in self._archive.first_indexes if first >= oldest), live]

    # The log.

    @property
    def _log_source(self) -> DescriptorSource:
        assert self._log is not None
        return DescriptorSource(self._log.fileno(), self._layout.log)

    @cached_property
    def _log_last(self) -> int:
        """The last entry of the log. Raises ``EntriesLost`` if it had more."""
        last_index = self._live_first - 1 if self._log is None else self._scan.last_index
        # A running node goes on writing, first the log and then the journal: the journal is read later than the log.
        if not self._running:
            self._check_end(last_index)
        return last_index

    def _check_end(self, last_index: int) -> None:
        """See whether other files tell of entries that the log should have, as a start does."""
        scan = self._archive.scan(self._archive.first_indexes[-1]) if self._log is None else self._scan
        lost = find_lost_entries(self._layout, last_index, self.snapshot_index, was_promised=scan.was_promised)
        if lost is None:
            return
        if is_held(self._layout):
            raise _begun_to_write(self._layout.log)
        if lost.was_synced:
            raise lost.error()
        log.warning("%s %s (a power cut may do that in the modes interval and none)", lost.log, lost)

    @cached_property
    def _scan(self) -> LogScan:
        """What raft.log holds."""
        source = self._log_source
        first_index = first_index_of(source, self._layout, self._archive)
        if not self._running:
            file = FileIdentity.of(_file(self._log).fileno(), self._layout.log)
            return _scan_stopped(file, first_index, self.snapshot_index + 1)
        return _scan_growing(source, self._layout.log, first_index, self.snapshot_index + 1)

    def _live_records(self) -> Records:
        assert self._log is not None
        return Records(self._live_first, self._scan.offsets, self._scan.end, self._log, self._scan.head.seed)

    def entries(self, first_index: int, last_index: int) -> Iterator[Entry]:
        """These entries, checked as they are read."""
        live = self._live_first
        yield from self._archive.entries_from(first_index, min(last_index + 1, live))
        if last_index >= live:
            index, scan = max(first_index, live), self._scan
            yield from read_entries(
                self._log_source, self._layout.log, scan.offsets, live, scan.end, index, last_index + 1, scan.head.seed
            )

    # The journal.

    @cached_property
    def _journal_first(self) -> int:
        """The first index of the segment that the journal is in: the one after the last whose journal is sealed."""
        firsts = self._firsts
        sealed = [first for first in firsts if self._layout.sealed_events(first).exists()]
        position = bisect_right(firsts, sealed[-1]) if sealed else 0
        return firsts[position] if position < len(firsts) else self._log_last + 1

    @cached_property
    def _blocks(self) -> list[Block]:
        """The good blocks of events/live.events, as far as the log goes."""
        first = self._journal_first
        if self._journal is None or first not in self._firsts:
            return []
        source = DescriptorSource(self._journal.fileno(), self._layout.live_events)
        try:
            if decode_header(source.read(0, HEADER_BYTES), self._layout.live_events) != (first, ROW_BYTES):
                return []
        except UnreadableData:
            pass  # its blocks tell for themselves whether they are the ones that belong here
        position = self._firsts.index(first)
        end = self._firsts[position + 1] - 1 if position + 1 < len(self._firsts) else self._log_last
        blocks, _, _ = good_blocks(source, ROW_BYTES, first, end)
        return blocks

    @cached_property
    def _blocks_last(self) -> int:
        return self._blocks[-1].last_index if self._blocks else self._journal_first - 1

    @cached_property
    def saved_index(self) -> int:
        """The last entry whose events are in files."""
        return max(self._blocks_last, self._tail_block[0].last_index if self._tail_block else -1)

    @cached_property
    def _tail_block(self) -> Encoded | None:
        """What the tail adds to the blocks."""
        tail, first_index = self._tail, self._blocks_last + 1
        if tail is None or not tail.first_index <= first_index <= min(tail.last_index, self._log_last):
            return None
        last_index = min(tail.last_index, self._log_last)
        return _encoded(first_index, last_index, rows_between(tail.rows, ROW_BYTES, first_index, last_index))

    @cached_property
    def _unwritten(self) -> list[Encoded]:
        """The blocks that a start would write behind those that are there."""
        saved = [] if self._tail_block is None else [self._tail_block]
        if self._running or self.saved_index >= self._log_last:
            return saved
        boundaries = set(self._firsts[1:])
        rows = bytearray()
        log_bytes = 0
        begun = max(self.saved_index, self.snapshot_index) + 1
        for index, found, entry_bytes in self._replay(self._engine_at_snapshot(), self._log_last):
            if index <= self.saved_index:
                continue
            rows += found
            log_bytes += entry_bytes
            is_full = len(rows) >= BLOCK_ROWS * ROW_BYTES or log_bytes >= BLOCK_LOG_BYTES
            if is_full or index + 1 in boundaries or index == self._log_last:
                saved.append(_encoded(begun, index, bytes(rows)))
                begun, log_bytes = index + 1, 0
                rows.clear()
        return saved

    def _live_events(self, first_index: int, last_index: int) -> Events:
        """The events of a segment whose journal is not sealed."""
        blocks = self._blocks if first_index == self._journal_first else []
        if blocks and last_index <= blocks[-1].last_index:
            return Events(blocks, _file(self._journal))
        known = [] if self._tail_block is None else [self._tail_block]
        made = known if last_index <= self.saved_index else self._unwritten
        unwritten = [each for each in made if first_index <= each[0].first_index <= last_index]
        return Events(blocks, _file(self._journal or self._log), unwritten)

    # The state.

    def snapshot_blocks(self) -> Iterator[bytes]:
        """The blocks of the snapshot; none without one."""
        if self._snapshot is not None:
            source = DescriptorSource(self._snapshot.fileno(), self._layout.snapshot)
            for _, block in snapshot.iterate_blocks(source, self._layout.snapshot):
                yield block

    def engine(self) -> Engine:
        """The state at the last entry that was applied, or at the snapshot if that is later."""
        engine = self._engine_at_snapshot()
        for _ in self._replay(engine, self.applied_index):
            pass
        return engine

    def _engine_at_snapshot(self) -> Engine:
        if self._snapshot is None:
            return Engine()
        try:
            return engine_snapshot.restore(self.snapshot_blocks())
        except engine_snapshot.SnapshotError as error:
            raise Damaged(self._layout.snapshot, str(error)) from error

    def _replay(self, engine: Engine, last_index: int) -> Iterator[tuple[int, bytes, int]]:
        return replayed(engine, self.entries(engine.state.index + 1, last_index), load_skipped(self._layout))

    def _snapshot_header(self) -> int:
        source = DescriptorSource(_file(self._snapshot).fileno(), self._layout.snapshot)
        return snapshot.decode_header(source.read(0, snapshot.HEADER_BYTES), self._layout.snapshot)[0]


class _Unsaved(Segment):
    """Entries whose events are in no file, and are made by applying the log from the snapshot on."""

    @cached_property
    def table(self) -> Table:
        """One block, to be read by one reader: whoever wants some of it has to make all. Its events are guessed."""
        records, first_index, last_index = self.records, self.first_index, self.last_index
        log_bytes = records.offset_of(last_index + 1) - records.offset_of(first_index)
        return Table(array("q", [last_index]), array("q", [last_index - first_index + 1]), array("q", [log_bytes]))


def replayed(
    engine: Engine, entries: Iterator[Entry], skipped: Skipped = NOTHING_SKIPPED
) -> Iterator[tuple[int, bytes, int]]:
    """Apply entries; yields the index, the events and the length of each."""
    st = engine.state
    for index, term, data in entries:
        engine.apply(index, term, skipped.entry_to_apply(index, data))
        yield index, b"".join(st.rows), len(data)
        st.rows.clear()
        st.woken.clear()
        st.broadcasts.clear()
        engine.sweep()


@lru_cache(1)
def _scan_stopped(file: FileIdentity, first_index: int | None, next_after_base: int) -> LogScan:
    """What a log holds that nobody writes to. Kept: a process that reads one part of a history often reads another."""
    with FileSource(file.path) as source:
        if FileIdentity.of(source.descriptor, file.path) != file:
            raise _begun_to_write(file.path)
        return scan_live(source, file.path, first_index, next_after_base)


def _begun_to_write(path: Path) -> Damaged:
    return Damaged(path, "a node has begun to write to it while it was read; read it again")


def _scan_growing(source: DescriptorSource, file: Path, first_index: int | None, next_after_base: int) -> LogScan:
    """The whole records of a log that a node is writing to; what follows them may be half written."""
    offsets = array("q")
    head = read_segment_head(source, file)
    walk = Walk.of_segment(source, head, expected=first_index, offsets=offsets)
    for _ in walk:
        pass
    first = next_after_base if walk.first_index is None else walk.first_index
    last = first + len(offsets) - 1
    return LogScan(
        first, last, walk.term, walk.offset, walk.entry_bytes, offsets, walk.term_starts, walk.opening_term, head
    )


def _encoded(first_index: int, last_index: int, rows: bytes) -> Encoded:
    data = encode_block(first_index, last_index, rows, ROW_BYTES)
    return Block(-len(data), first_index, last_index, len(rows) // ROW_BYTES, 0), data


def _read_tail(layout: Layout) -> Tail | None:
    """The rows that were in memory when the snapshot was made; None if there are none, or none that can be read."""
    if not layout.tail.exists():
        return None
    try:
        with FileSource(layout.tail) as source:
            return decode_tail(source.read(0, source.size_bytes), layout.tail, ROW_BYTES)
    except UnreadableData:
        return None


def _opened(path: Path) -> FileIO | None:
    try:
        return FileIO(path, "rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed("read", path, error.errno or errno.EIO) from error


def _file(file: FileIO | None) -> FileIO:
    assert file is not None, "there is a log, or there are no entries"
    return file

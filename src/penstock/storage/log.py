"""The log of a running node: raft.log, which grows, and the roll by which it becomes a sealed segment.

A roll happens before the entry that no longer fits, so that all nodes with the same settings cut their logs at the same
entries, however the entries came in batches:

    1. the next segment is made in temp/ with its opening mark, preallocated, synced with its directory
    2. raft.log gets a last mark, is trimmed to its end and synced      everything before is durable from here on
    3. raft.log becomes archive/<first index>.log, both directories are synced
    4. temp/raft.log becomes raft.log, the directory is synced

A crash in between leaves raft.log missing with its successor in temp/, or a raft.log without entries. Both are undone
at start (``recovery``): the sealed segment becomes raft.log again, as if the roll had not begun.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.storage.archive import Archive, Retention
from penstock.storage.disk import Disk
from penstock.storage.errors import StorageFailed
from penstock.storage.layout import Layout
from penstock.storage.offsets import save_offsets
from penstock.storage.reading import DescriptorSource
from penstock.storage.records import (
    ENTRY_BYTES_MAX,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    Entry,
    encode_mark,
    encode_record_header,
    encode_segment_start,
    read_entries,
    record_bytes_at,
)
from penstock.storage.scan import LogScan
from penstock.storage.segmenthead import SALT_BYTES, SegmentHead
from penstock.storage.space import Space
from penstock.storage.sums import RunningSums, save_sums


@dataclass(frozen=True, slots=True)
class LogRules:
    """What does not change while a log is open."""

    segment_bytes: int
    """The length of entries after which a new segment begins."""
    cluster_id: bytes
    is_promised: bool = True
    """Whether entries are applied and answered only after they are synced: mode durable. Each record says so."""


class Log:
    """The entries on disk, live and sealed.

    One thread appends. ``sync`` may run in another meanwhile: it says durable only what was appended when it began,
    and a roll waits for it.
    """

    def __init__(
        self,
        disk: Disk,
        layout: Layout,
        space: Space,
        archive: Archive,
        rules: LogRules,
        descriptor: int,
        scan: LogScan,
    ) -> None:
        self.archive = archive
        self.durable_index = -1
        """The last index known to be on disk; set by ``sync`` and by a roll."""
        self.log_bytes = 0
        """The length of all entries appended since the log was opened."""
        self.segments_changed: Callable[[], None] = lambda: None
        """Called when a segment was begun or taken back."""
        self._disk = disk
        self._layout = layout
        self._space = space
        self._rules = rules
        self._segment_bytes = rules.segment_bytes
        self._lock = threading.Lock()
        self._failure: StorageFailed | None = None
        self._adopt(descriptor, scan)
        self.oldest_index = archive.contiguous_from(self.first_index)
        """The first index from which all entries can still be read, if there are any."""

    def _adopt(self, descriptor: int, scan: LogScan) -> None:
        self._descriptor = descriptor
        self.head = scan.head
        """The head of the live segment."""
        self.first_index = scan.first_index
        """The first index of the live segment."""
        self.last_index = scan.last_index
        self.last_term = scan.last_term
        self._end = scan.end
        self._entry_bytes = scan.entry_bytes
        self._offsets = scan.offsets
        self._term_starts = scan.term_starts
        self._opening_term = scan.opening_term
        self._marked = False
        self._sums = RunningSums.of_start(DescriptorSource(descriptor, self._layout.log), self._end)

    @property
    def segments(self) -> list[int]:
        """The first index of each segment, the live one last."""
        return [*self.archive.first_indexes, self.first_index]

    @property
    def offsets(self) -> array[int]:
        """Where each entry's record begins in the live segment; grows with it."""
        return self._offsets

    @property
    def end(self) -> int:
        """Where the live segment's next record goes."""
        return self._end

    @property
    def sums(self) -> array[int]:
        """The checksums of the live segment's full chunks; grows with it."""
        return self._sums.closed

    def segment_after(self, first_index: int) -> int | None:
        """The first index of the segment after this one, or None if it is the live one."""
        if first_index >= self.first_index:
            return None
        firsts = self.archive.first_indexes
        position = bisect_right(firsts, first_index)
        return firsts[position] if position < len(firsts) else self.first_index

    def append(self, entries: Sequence[Entry]) -> None:
        """Write the entries behind the last one, in one system call unless a segment ends among them; not synced."""
        if self._failure is not None:
            raise self._failure
        parts: list[bytes] = []
        size = 0
        index_before, term_before, durable = self.last_index, self.last_term, self.durable_index
        offsets, starts, is_promised = self._offsets, self._term_starts, self._rules.is_promised
        for index, term, data in entries:
            if index != index_before + 1 or term < term_before or not 0 < len(data) <= ENTRY_BYTES_MAX:
                self._forget_unwritten()
                raise ValueError(
                    f"entry {index} of term {term} with {len(data)} bytes cannot follow {index_before} of {term_before}"
                )
            record_bytes = RECORD_HEADER_BYTES + len(data)
            if self._entry_bytes + size + record_bytes > self._segment_bytes and index > self.first_index:
                self._write(parts, size, index_before, term_before)
                self._roll(index, term_before)
                parts, size, durable = [], 0, self.durable_index
                offsets, starts = self._offsets, self._term_starts
            offset = self._end + size
            offsets.append(offset)
            if term != term_before or not starts:
                starts.append((index, term))
            parts.append(encode_record_header(index, term, data, durable, self.head, offset, is_promised))
            parts.append(data)
            size += record_bytes
            index_before, term_before = index, term
        self._write(parts, size, index_before, term_before)

    def _forget_unwritten(self) -> None:
        """Take back what a refused batch left in the tables."""
        del self._offsets[self.last_index - self.first_index + 1 :]
        while self._term_starts and self._term_starts[-1][0] > self.last_index:
            self._term_starts.pop()

    def _write(self, parts: list[bytes], size: int, last_index: int, last_term: int) -> None:
        if not parts:
            return
        data = b"".join(parts)
        try:
            self._disk.pwrite(self._descriptor, data, self._end, "log.write", self._layout.log)
        except StorageFailed as error:
            self._failure = error
            raise
        self._sums.feed(data, len(parts) // 2)
        self._end += size
        self._entry_bytes += size
        self.log_bytes += size
        self._marked = False
        self.last_index, self.last_term = last_index, last_term

    def sync(self) -> int:
        """Return when everything appended before the call is on disk; the answer is its last index.

        A failure is final: the system may have dropped what it could not write, and would not say so a second time.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            last_index = self.last_index
            try:
                self._disk.fdatasync(self._descriptor, "log.sync", self._layout.log)
            except StorageFailed as error:
                self._failure = error
                raise
            if last_index > self.durable_index:
                self.durable_index = last_index
            return last_index

    def mark(self) -> bool:
        """Write down that everything is synced, for an idle node; not synced itself. False if there is no need."""
        if self._failure is not None:
            raise self._failure
        if self._marked or self.durable_index < self.last_index or not self._offsets:
            return False
        try:
            self._end_with_mark()
        except StorageFailed as error:
            self._failure = error
            raise
        return True

    def _end_with_mark(self) -> None:
        if not self._marked:
            mark = encode_mark(
                self.last_index, self.last_term, self.durable_index, self.head, self._end, self._rules.is_promised
            )
            self._disk.pwrite(self._descriptor, mark, self._end, "log.write", self._layout.log)
            self._sums.feed(mark)
            self._end += MARK_BYTES
            self._marked = True

    def restate_promise(self, was_promised: bool) -> None:
        """Write down a change of mode, durably: what the next start finds lost is judged by the mode it was written in.

        To be called after a sync, before the first entry is appended.
        """
        if was_promised != self._rules.is_promised and self.head.is_salted:
            self._end_with_mark()
            self._disk.fdatasync(self._descriptor, "log.sync", self._layout.log)

    def restart_at(self, first_index: int, last_term: int) -> None:
        """Begin a new segment at a later index, because a snapshot is ahead of all entries."""
        self._roll(first_index, last_term)
        self.oldest_index = first_index

    def retire(self, rules: Retention) -> list[int]:
        """Delete archived segments that may go (``Archive.retire``)."""
        retired = self.archive.retire(rules, self.first_index)
        self.oldest_index = max(self.oldest_index, self.segments[0])
        if (missing := self.archive.find_missing()) is not None:
            self.oldest_index = max(self.oldest_index, self.segment_after(missing) or self.first_index)
        return retired

    def truncate_from(self, index: int) -> None:
        """Drop the entries from `index` on, in sealed segments too; durable when it returns.

        The caller answers for it that none of them is committed.
        """
        if not self.oldest_index <= index <= self.last_index + 1:
            raise ValueError(f"cannot drop from {index} on: there are {self.oldest_index} to {self.last_index}")
        if self._failure is not None:
            raise self._failure
        try:
            with self._lock:
                self._cut_live(max(index, self.first_index))
                # Also when the live segment is empty now: the next entry may still fit into the one before.
                while index <= self.first_index and self._take_back():
                    self._cut_live(max(index, self.first_index))
        except StorageFailed as error:
            self._failure = error
            raise
        self.segments_changed()

    def term_of(self, index: int) -> int | None:
        """The term of the entry, or None if it is not here (any more)."""
        if not self.oldest_index <= index <= self.last_index:
            return None
        starts = self._term_starts
        if index < self.first_index:
            first = self.archive.segment_of(index)
            assert first is not None, "an index from the oldest on lies in a segment"
            starts = self.archive.scan(first).term_starts
        position = bisect_right(starts, index, key=_first_of_run)
        return starts[position - 1][1] if position else None

    def read(self, first: int, last: int) -> Iterator[Entry]:
        """The entries from `first` to `last`, both included, as far as they are here; checked as they are read."""
        if first < self.oldest_index:
            raise ValueError(f"entry {first} is gone, the oldest is {self.oldest_index}")
        end = min(last, self.last_index) + 1
        yield from self.archive.read(first, min(end, self.first_index))
        source = DescriptorSource(self._descriptor, self._layout.log)
        index = max(first, self.first_index)
        yield from read_entries(
            source, self._layout.log, self._offsets, self.first_index, self._end, index, end, self.head.seed
        )

    def entries_from(self, index: int) -> Iterator[Entry]:
        """All entries from `index` on in order, for the replay at start."""
        yield from self.archive.entries_from(index, self.first_index)
        yield from self.read(max(index, self.first_index), self.last_index)

    def fail(self, failure: StorageFailed) -> None:
        """Refuse everything from now on, because of something that failed beside the log."""
        self._failure = failure

    def preallocate(self) -> None:
        """Set aside room for the rest of the segment, where a full disk did not allow it before."""
        self._space.preallocate(self._descriptor, self._segment_bytes)

    def close(self, *, sync: bool = True) -> None:
        """Sync what is not yet synced, unless something has failed before, and close the file."""
        if self._descriptor < 0:
            return
        try:
            if sync and self._failure is None and self.durable_index < self.last_index:
                self.sync()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def dup(self) -> int:
        """A descriptor of the live segment that stays good over a roll."""
        return os.dup(self._descriptor)

    def take_back_if_empty(self) -> bool:
        """Undo a roll after which no entry was written."""
        return not self._offsets and self._take_back()

    def _roll(self, first_index: int, last_term: int) -> None:
        try:
            with self._lock:
                self._roll_locked(first_index, last_term)
        except StorageFailed as error:
            self._failure = error
            raise
        self.segments_changed()

    def _roll_locked(self, first_index: int, last_term: int) -> None:
        disk, layout = self._disk, self._layout
        descriptor, scan = create_segment(disk, layout, self._space, self._rules, first_index, last_term)
        if self._offsets:
            self._end_with_mark()
            disk.truncate(self._descriptor, self._end, "log.truncate", layout.log)
            disk.fdatasync(self._descriptor, "log.sync", layout.log)
            disk.rename(layout.log, layout.sealed_log(self.first_index), "log.seal")
            disk.fsync_directory(layout.archive, "log.sync_directory")
            disk.fsync_directory(layout.consensus, "log.sync_directory")
            self.archive.add(self.first_index)
            save_offsets(disk, layout, self.first_index, self._end, self._offsets)
            save_sums(disk, layout, self.first_index, self._end, self._sums.all())
        publish_segment(disk, layout)
        os.close(self._descriptor)
        self._adopt(descriptor, scan)
        self.durable_index = first_index - 1

    def _take_back(self) -> bool:
        """Make the last sealed segment the live one again, in place of one without entries."""
        disk, layout = self._disk, self._layout
        if not self.archive.first_indexes:
            return False
        scan = self.archive.scan(self.archive.first_indexes[-1])
        if scan.last_index != self.first_index - 1:
            return False
        unseal(disk, layout, self.archive)
        descriptor = disk.open(layout.log, "log.open")
        os.close(self._descriptor)
        self._adopt(descriptor, scan)
        self.preallocate()
        return True

    def _cut_live(self, index: int) -> None:
        position = index - self.first_index
        if position >= len(self._offsets):
            return
        source = DescriptorSource(self._descriptor, self._layout.log)
        for offset in self._offsets[position:]:
            self._entry_bytes -= record_bytes_at(source, offset)
        self._end = self._offsets[position]
        self._marked = False
        self.last_index = index - 1
        self._forget_unwritten()
        self.last_term = self._term_starts[-1][1] if self._term_starts else self._opening_term
        self.durable_index = min(self.durable_index, self.last_index)
        self._sums = RunningSums.of_start(source, self._end)
        cut_segment(self._disk, self._layout, self._space, self._segment_bytes, self._descriptor, self._end)


def create_segment(
    disk: Disk, layout: Layout, space: Space, rules: LogRules, first_index: int, last_term: int
) -> tuple[int, LogScan]:
    """Make the next segment in temp/, preallocated and synced; its name is what proves a roll to be under way."""
    head = SegmentHead.new(rules.cluster_id, disk.random_bytes(SALT_BYTES))
    descriptor = disk.create(layout.next_log, "log.create")
    try:
        space.preallocate(descriptor, rules.segment_bytes)
        start = encode_segment_start(first_index, last_term, head, rules.is_promised)
        disk.pwrite(descriptor, start, 0, "log.write", layout.next_log)
        disk.fdatasync(descriptor, "log.sync", layout.next_log)
        disk.fsync_directory(layout.temp, "log.sync_directory")
    except BaseException:
        os.close(descriptor)
        raise
    scan = LogScan(first_index, first_index - 1, last_term, len(start), 0, array("q"), [], last_term, head)
    return descriptor, scan


def publish_segment(disk: Disk, layout: Layout) -> None:
    """Give the segment in temp/ its name."""
    disk.rename(layout.next_log, layout.log, "log.publish")
    disk.fsync_directory(layout.consensus, "log.sync_directory")


def unseal(disk: Disk, layout: Layout, archive: Archive) -> int:
    """Give the last sealed segment the name raft.log; returns its first index."""
    first_index = archive.take_back()
    disk.unlink(layout.sealed_offsets(first_index), "log.unlink")
    disk.unlink(layout.sealed_sums(first_index), "log.unlink")
    disk.unlink(layout.sealed_parquet(first_index), "log.unlink")
    disk.rename(layout.sealed_log(first_index), layout.log, "log.unseal")
    disk.fsync_directory(layout.consensus, "log.sync_directory")
    disk.fsync_directory(layout.archive, "log.sync_directory")
    return first_index


def cut_segment(disk: Disk, layout: Layout, space: Space, segment_bytes: int, descriptor: int, end: int) -> None:
    """Drop everything from `end` on, and have zeros there again.

    The file is truncated rather than overwritten with zeros: a crash amid zeros would leave a hole with good records
    behind it, which looks like damage; a truncation happens whole or not at all.
    """
    disk.truncate(descriptor, end, "log.truncate", layout.log)
    disk.fdatasync(descriptor, "log.sync", layout.log)
    space.preallocate(descriptor, segment_bytes)


def _first_of_run(run: tuple[int, int]) -> int:
    return run[0]

"""Telling a torn tail from damage: how raft.log is read at start.

A write that a crash cut short leaves a bad record at the end of the log: a *torn tail*, which nobody was told about,
so it is cut off. Damage to bytes that were once synced looks the same, and cutting there would lose what was
acknowledged. The records themselves tell the two apart. Every record carries `durable`, the last index that was safely
on disk when it was written. So after a bad record the rest of the file is searched for good ones: if any of them says
that the bad record's index was durable, the file is damaged and refused. If none does, the bad record was never
synced: cut.

The search must not take bytes of a payload for a record, or a client could turn a torn tail into damage. In segments of
version 3 each header has a tag that clients cannot compute (``segmenthead``). If the bad record's header has the right
tag, its length is right and nothing before its end is looked at. If not, only records with the right tag count.
Version 2 has no tags: there a record inside the bad one's extent counts only if a chain of good records leads from it
past the extent's end or to the log's end.

What was acknowledged can hardly be cut: an acknowledged entry was synced, the next record that is written says so, and
on an idle node that is a mark, 50 ms later. Only damage to the very last batch within those 50 ms, or to both the last
batch and its mark, is taken for a torn tail.

Without syncs (modes `interval` and `none`) pages may reach the disk out of order: a hole followed by good records whose
`durable` lies before the hole. That is a torn tail too, and ends at the hole.

A bad region of exactly one mark's length with a good record right after it can only have been a mark (an entry's
record is longer). No entry is missing then, and the mark is written again, byte for byte.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.errors import Damaged
from penstock.storage.reading import WINDOW_BYTES, Source, WindowSource
from penstock.storage.records import (
    ENVELOPE_BYTES,
    LENGTH_MAX,
    MAGIC,
    MAGIC_BYTES,
    MAGIC_OFFSET,
    MARK_BYTES,
    RECORD,
    RECORD_HEADER_BYTES,
    Walk,
)
from penstock.storage.segmenthead import SegmentHead, read_segment_head

_ZEROS: Final = bytes(WINDOW_BYTES)
_SEARCH_BYTES_MAX: Final = 16 * 1024 * 1024 * 1024
"""How much one search may checksum; payloads made to look like records cannot make it endless."""
_CANDIDATE_COST_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of a log that a crash cut short, and that was cut off."""

    file: Path
    offset: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: cut {self.length} bytes at offset {self.offset} ({self.reason})"


@dataclass(frozen=True, slots=True)
class LostMark:
    """A mark that is damaged, and what it said."""

    offset: int
    index: int
    term: int


@dataclass(slots=True)
class LogScan:
    """What one segment holds."""

    first_index: int
    """The index of its first entry, or the one that its first entry would have."""
    last_index: int
    last_term: int
    end: int
    """Where the next record goes."""
    entry_bytes: int
    offsets: array[int]
    """Where each entry's record begins."""
    term_starts: list[tuple[int, int]]
    opening_term: int
    """The term of what came before the first entry, 0 if unknown."""
    head: SegmentHead
    torn: TornTail | None = None
    lost_marks: list[LostMark] = field(default_factory=list)
    """Damaged marks between good records, to be written again."""
    was_promised: bool = True
    """Whether the last record was written in mode durable."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A good record somewhere after a bad one."""

    offset: int
    end: int
    index: int
    term: int
    durable: int
    is_mark: bool

    @property
    def next_index(self) -> int:
        """The index of the entry that is here, or that follows a mark."""
        return self.index + self.is_mark


def scan_sealed(source: Source, file: Path, first_index: int | None, term: int = 0) -> LogScan:
    """Check a whole archived segment: anything wrong in it is damage, since it was synced before it was sealed.

    `first_index` is the index that its first entry must have; None to believe the file.
    """
    head = read_segment_head(source, file)
    offsets: array[int] = array("q")
    walk = Walk.of_segment(source, head, expected=first_index, term=term, offsets=offsets)
    for _ in walk:
        pass
    check_sealed_end(walk, source, file)
    return _scan_of(walk, offsets, walk.first_index or 0, head)


def check_sealed_end(walk: Walk, source: Source, file: Path) -> None:
    """Raise if the walk over an archived segment stopped at anything but its end."""
    if walk.fault is None and _last_nonzero(source, walk.offset) > walk.offset:
        raise Damaged(file, "bytes after the end of a sealed segment", walk.offset)
    if walk.fault is not None:
        raise Damaged(file, walk.fault, walk.offset)


def scan_live(source: Source, file: Path, first_index: int | None, next_after_base: int, term: int = 0) -> LogScan:
    """Read raft.log, and decide what to do with a bad record in it; raises ``Damaged`` where it cannot be cut.

    `first_index` is the index that its first entry must have, where that is known from elsewhere; `next_after_base` the
    index after the snapshot's (0 without one), which the log can begin at at the latest.
    """
    head = read_segment_head(source, file)
    offsets: array[int] = array("q")
    walk = Walk.of_segment(source, head, expected=first_index, term=term, offsets=offsets)
    lost_marks: list[LostMark] = []
    while True:
        for _ in walk:
            pass
        bad_offset = walk.offset
        tail_end = _last_nonzero(source, bad_offset)
        if tail_end == bad_offset:
            torn = None
            break
        verdict = _judge(source, file, head, walk, next_after_base)
        if verdict is None:
            torn = TornTail(file, bad_offset, tail_end - bad_offset, walk.fault or "bytes after the end of the log")
            break
        # A lone mark was lost: step over it and go on, as often as it takes.
        lost_marks.append(LostMark(bad_offset, verdict.next_index - 1, walk.term))
        walk = _walk_on(walk, source, head, verdict, offsets)
    if walk.first_index is None:
        walk.first_index = walk.expected = next_after_base
    scan = _scan_of(walk, offsets, walk.first_index, head)
    scan.torn, scan.lost_marks = torn, lost_marks
    return scan


def _walk_on(walk: Walk, source: Source, head: SegmentHead, found: _Found, offsets: array[int]) -> Walk:
    expected = found.next_index
    next_walk = Walk(source, offset=found.offset, seed=head.seed, expected=expected, term=walk.term, offsets=offsets)
    next_walk.first_index = expected if walk.first_index is None else walk.first_index
    next_walk.entry_bytes, next_walk.term_starts = walk.entry_bytes, walk.term_starts
    next_walk.opening_term, next_walk.proof = walk.opening_term, walk.proof
    return next_walk


def _scan_of(walk: Walk, offsets: array[int], first_index: int, head: SegmentHead) -> LogScan:
    return LogScan(
        first_index=first_index,
        last_index=first_index + len(offsets) - 1,
        last_term=walk.term,
        end=walk.offset,
        entry_bytes=walk.entry_bytes,
        offsets=offsets,
        term_starts=walk.term_starts,
        opening_term=walk.opening_term,
        head=head,
        was_promised=walk.proof == 0 or head.is_promised(walk.proof),
    )


def _judge(source: Source, file: Path, head: SegmentHead, walk: Walk, next_after_base: int) -> _Found | None:
    """Decide about the bad record at which the walk stopped.

    Returns None for a torn tail; the record after it if the bad one was a mark; raises ``Damaged`` otherwise.
    """
    reason = walk.fault or "the log ends here, and goes on later"
    first: _Found | None = None
    bad_index = 0
    for found in _Search(source, file, head, walk).good_records():
        if first is None:
            first = found
            if found.offset - walk.offset == MARK_BYTES and walk.expected in (None, found.next_index):
                return found
            # If no entry is missing before the first good record, what is bad belongs to the entry before it.
            latest = next_after_base if walk.expected is None else walk.expected
            bad_index = min(latest, found.next_index - 1)
        if found.durable >= bad_index:
            raise Damaged(
                file,
                f"{reason}; the record of index {found.index} at offset {found.offset} says that everything up to "
                f"index {found.durable} was safely on disk",
                walk.offset,
            )
    return None


class _Search:
    """The search for good records behind a bad one."""

    def __init__(self, source: Source, file: Path, head: SegmentHead, walk: Walk) -> None:
        self._source = WindowSource(source)
        self._head = head
        self._size = source.size_bytes
        self._file = file
        self._bad_offset = walk.offset
        self._expected = walk.expected
        self._fault = walk.fault
        self._budget = _SEARCH_BYTES_MAX

    def good_records(self) -> Iterator[_Found]:
        """Every good record, in order, that is not part of the bad one's payload (see the head of this module)."""
        extent_end = self._claimed_end()
        at = extent_end if self._head.is_salted and extent_end > self._bad_offset else self._bad_offset + 1
        last_index = -1 if self._expected is None else self._expected - 1
        while (found := self._next_good(at, last_index)) is not None:
            if found.offset < extent_end:
                chain_end, leads_out = self._follow(found, extent_end)
                if not leads_out:
                    at = chain_end
                    continue
                extent_end = found.offset
            yield found
            at = found.end
            last_index = found.next_index - 1

    def _next_good(self, at: int, last_index: int) -> _Found | None:
        while (hit := self._source.find(MAGIC_BYTES, at + MAGIC_OFFSET)) is not None:
            offset = hit - MAGIC_OFFSET
            found = self._good_record(offset)
            if found is not None and found.next_index > last_index:
                return found
            at = offset + 1
        return None

    def _good_record(self, offset: int) -> _Found | None:
        header = self._source.read(offset, RECORD_HEADER_BYTES)
        if len(header) < RECORD_HEADER_BYTES:
            return None
        term, length, magic, checksum, index, proof = RECORD.unpack(header)
        if magic != MAGIC or not ENVELOPE_BYTES <= length <= LENGTH_MAX or offset + 8 + length > self._size:
            return None
        is_mark, durable = length == ENVELOPE_BYTES, self._head.durable(index, proof)
        if not self._is_possible(offset, index, durable, is_mark):
            return None
        if not self._head.is_genuine(offset, term, length, index, proof):
            return None
        self._budget -= length + _CANDIDATE_COST_BYTES
        if self._budget < 0:
            raise Damaged(self._file, f"{self._fault}; too much behind it looks like records", self._bad_offset)
        body = self._source.read(offset + 16, length - 8)
        if crc32c(body, crc32c(header[:12], self._head.seed)) != checksum:
            return None
        return _Found(offset, offset + 8 + length, index, term, durable, is_mark)

    def _is_possible(self, offset: int, index: int, durable: int, is_mark: bool) -> bool:
        """Whether our own writer could have written these at this place."""
        if index < -1 or durable < -1 or durable > index - (not is_mark):
            return False
        if self._expected is None:
            return True
        entries_between_max = (offset - self._bad_offset) // (RECORD_HEADER_BYTES + 1)
        return self._expected - 1 <= index <= self._expected + entries_between_max

    def _claimed_end(self) -> int:
        """The end of the bad record by its own word, or its beginning if its header cannot be believed."""
        offset = self._bad_offset
        header = self._source.read(offset, RECORD_HEADER_BYTES)
        if len(header) < RECORD_HEADER_BYTES:
            return offset
        term, length, magic, _, index, proof = RECORD.unpack(header)
        if magic != MAGIC or not ENVELOPE_BYTES <= length <= LENGTH_MAX or offset + 8 + length > self._size:
            return offset
        is_genuine = self._head.is_genuine(offset, term, length, index, proof)
        return offset + 8 + int(length) if is_genuine else offset

    def _follow(self, found: _Found, extent_end: int) -> tuple[int, bool]:
        """Follow good records from `found`; where that ends, and whether it leads to the log's end or out."""
        here: _Found | None = found
        end = found.end
        while here is not None:
            end = here.end
            if end > extent_end or not any(self._source.read(end, 8)):
                return end, True
            here = self._good_record(end)
        return end, False


def _last_nonzero(source: Source, offset: int) -> int:
    """The end of the last byte from `offset` on that is not zero; `offset` if all are."""
    size, end = source.size_bytes, offset
    position = offset
    while position < size:
        window = source.read(position, WINDOW_BYTES)
        if not window:
            break
        if window != _ZEROS[: len(window)]:
            end = position + len(window.rstrip(b"\0"))
        position += len(window)
    return end

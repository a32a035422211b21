"""The sealed segments of the log: reading them, and letting go of those that are no longer needed."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock.engine.entries import stamp_of
from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged, StorageError
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource, MemorySource
from penstock.storage.records import MARK_BYTES, Entry, Walk, index_of_mark, read_entries
from penstock.storage.scan import LogScan, check_sealed_end, scan_sealed
from penstock.storage.segmenthead import read_segment_head

log = logging.getLogger(__name__)

_FIRST_READ_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Retention:
    """What one run of retention may delete. Times are log time: a wrong system clock must not delete anything."""

    covered_end: int
    """Segments that end before this entry are not needed for a start."""
    now_us: int
    kept_since_us: int
    """Log time jumped here (``engine.state``): every older segment counts as sealed at this moment."""
    age_us_max: int
    bytes_max: int
    missing_bytes: int = 0
    """How much space the disk lacks: as much as that goes whatever its age, and though somebody holds it."""

    def is_old(self, sealed_us: int | None) -> bool:
        """Whether a segment that was sealed at this log time, None if that is unknown, may go for its age."""
        return sealed_us is not None and self.now_us - max(sealed_us, self.kept_since_us) > self.age_us_max


class Archive:
    """The archived segments, known by their first indexes. A segment reaches to the beginning of the next one."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self.first_indexes = layout.sealed_first_indexes()
        self._disk = disk
        self._layout = layout
        self._scanned: tuple[int, LogScan] | None = None
        self._holds: dict[str, int] = {}
        self._first_stamps_us: dict[int, int] = {}
        """By first index: the log time of a segment's first entry, where it has been read."""
        self._missing: set[int] = set()
        """Segments that somebody else has removed, by first index."""

    def segment_of(self, index: int) -> int | None:
        """The first index of the archived segment that would hold this entry, or None if it is older than all."""
        position = bisect_right(self.first_indexes, index)
        return self.first_indexes[position - 1] if position else None

    def last_of(self, first_index: int) -> int:
        """The last index of one segment, by the mark that closes it where that is the file's end."""
        path = self._layout.sealed_log(first_index)
        with FileSource(path) as source:
            head = read_segment_head(source, path)
            mark = source.read(max(source.size_bytes - MARK_BYTES, head.size_bytes), MARK_BYTES)
        last_index = index_of_mark(mark, head.seed)
        return self.scan(first_index).last_index if last_index is None else last_index

    def check_clusters(self, cluster_id: bytes) -> None:
        """Raise ``WrongCluster`` if a segment is of another cluster."""
        for first_index in self.first_indexes:
            self.check_cluster(first_index, cluster_id)

    def check_cluster(self, first_index: int, cluster_id: bytes) -> None:
        """Raise ``WrongCluster`` if this segment is of another cluster."""
        path = self._layout.sealed_log(first_index)
        with FileSource(path) as source:
            read_segment_head(source, path).check_cluster(cluster_id, path)

    def contiguous_from(self, live_first: int) -> int:
        """The oldest index from which every entry up to `live_first` is here.

        Older segments that end earlier are from before a snapshot took the log's place.
        """
        oldest = live_first
        for first_index in reversed(self.first_indexes):
            if self.last_of(first_index) != oldest - 1:
                break
            oldest = first_index
        return oldest

    def scan(self, first_index: int) -> LogScan:
        """Where the entries of one segment lie. The last answer is kept: whoever reads an archive reads on."""
        if self._scanned is None or self._scanned[0] != first_index:
            path = self._layout.sealed_log(first_index)
            with FileSource(path) as source:
                self._scanned = first_index, scan_sealed(source, path, first_index)
        return self._scanned[1]

    def add(self, first_index: int) -> None:
        """A segment was sealed."""
        self.first_indexes.append(first_index)

    def take_back(self) -> int:
        """The last segment becomes the live one again."""
        self._scanned = None
        self._first_stamps_us.clear()
        return self.first_indexes.pop()

    def entries_from(self, index: int, end: int) -> Iterator[Entry]:
        """All entries from `index` on and before `end`, checked as they are read."""
        first_index = self.segment_of(index)
        if first_index is None:
            return
        for position in range(self.first_indexes.index(first_index), len(self.first_indexes)):
            if index >= end:
                return
            first = self.first_indexes[position]
            path = self._layout.sealed_log(first)
            with FileSource(path) as source:
                walk = Walk.of_segment(source, read_segment_head(source, path), expected=first)
                for entry in walk:
                    if entry[0] == index and index < end:
                        yield entry
                        index += 1
                check_sealed_end(walk, source, path)
            following = self.first_indexes[position + 1] if position + 1 < len(self.first_indexes) else end
            if index < min(following, end):
                raise Damaged(path, f"ends before entry {index}, the next segment begins at {following}", walk.offset)

    def read(self, index: int, end: int) -> Iterator[Entry]:
        """The entries from `index` on and before `end`, found by the position of the first one; all are here."""
        while index < end:
            first = self.segment_of(index)
            if first is None:
                return
            scan = self.scan(first)
            path = self._layout.sealed_log(first)
            stop = min(end, scan.last_index + 1)
            with FileSource(path) as source:
                yield from read_entries(source, path, scan.offsets, first, scan.end, index, stop, scan.head.seed)
            index = stop

    def hold(self, name: str, index: int) -> None:
        """Keep the segments from this entry on for a named reader, as long as the archive is within its size."""
        self._holds[name] = index

    def release(self, name: str) -> None:
        """The named reader needs nothing any more."""
        self._holds.pop(name, None)

    def retire(self, rules: Retention, live_first: int) -> list[int]:
        """Delete the oldest segments while they may go; returns their first indexes.

        A segment may go if it is covered, and it is past the age and nobody holds it, or the archive is over its size,
        or the disk is short of space.
        """
        self.find_missing()
        retired: list[int] = []
        sizes = {first: self._size_bytes(first) for first in self.first_indexes}
        total_bytes = sum(sizes.values())
        bytes_max = min(rules.bytes_max, total_bytes - rules.missing_bytes)
        held_from = min(self._holds.values(), default=None)
        for first, end in pairwise([*self.first_indexes, live_first]):
            if end > rules.covered_end:
                break
            is_held = held_from is not None and end > held_from
            if total_bytes <= bytes_max and (is_held or not rules.is_old(self._sealed_us(end))):
                break
            self._delete(first)
            total_bytes -= sizes[first]
            retired.append(first)
        if retired:
            self.first_indexes = self.first_indexes[len(retired) :]
            self._scanned = None
            for first in retired:
                self._first_stamps_us.pop(first, None)
        return retired

    def find_missing(self) -> int | None:
        """Look for segments that somebody else has removed, and report each once.

        Returns the first index of the last one; the history before its end has a hole.
        """
        for first in self.first_indexes:
            path = self._layout.sealed_log(first)
            if first not in self._missing and not path.exists():
                self._missing.add(first)
                log.error("%s is gone, and this node did not remove it: the history before its end has a gap", path)
        return max(self._missing, default=None)

    def _delete(self, first: int) -> None:
        # The journal first: a segment is known by its log, so what a crash leaves is retired again.
        for path in self._layout.beside_sealed(first):
            self._disk.unlink(path, "retention.unlink")
        self._disk.unlink(self._layout.sealed_log(first), "retention.unlink")
        # One after the other: what is left has no hole, whatever the system had written down when it stopped.
        self._disk.fsync_directory(self._layout.archive, "retention.sync_directory")

    def _sealed_us(self, end: int) -> int | None:
        """The log time of the first entry that follows a segment which ends before entry `end`; None if unknown.

        Where the next segment cannot be read, a later one answers: the segment is not younger than that says.
        """
        for first in self.first_indexes:
            if first >= end and (stamp_us := self._first_stamp_us(first)) is not None:
                return stamp_us
        return _first_stamp_us(self._layout.log)

    def _first_stamp_us(self, first: int) -> int | None:
        stamp_us = self._first_stamps_us.get(first)
        if stamp_us is None and (stamp_us := _first_stamp_us(self._layout.sealed_log(first))) is not None:
            self._first_stamps_us[first] = stamp_us
        return stamp_us

    def _size_bytes(self, first: int) -> int:
        paths = (self._layout.sealed_log(first), *self._layout.beside_sealed(first))
        return sum(path.stat().st_size for path in paths if path.exists())


def _first_stamp_us(path: Path) -> int | None:
    """The log time of a segment's first entry; None if the file has none that can be read."""
    try:
        with FileSource(path) as source:
            head = read_segment_head(source, path)
            # Nearly always the first entry is short, and a walk reads far more than that at a time.
            start = MemorySource(source.read(0, _FIRST_READ_BYTES))
            entry = next(iter(Walk.of_segment(start, head)), None) or next(iter(Walk.of_segment(source, head)), None)
    except StorageError:
        return None
    return None if entry is None else stamp_of(entry[2])

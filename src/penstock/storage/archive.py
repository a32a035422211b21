"""The sealed segments of the log: reading them, and letting go of those that are no longer needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from penstock.storage.disk import Disk
from penstock.storage.errors import Damaged
from penstock.storage.layout import FILE_HEADER_BYTES, Layout, check_file_header
from penstock.storage.reading import FileSource
from penstock.storage.records import MARK_BYTES, Entry, Walk, index_of_mark, read_entries
from penstock.storage.scan import LogScan, check_sealed_end, scan_sealed


class Archive:
    """The archived segments, known by their first indexes. A segment reaches to the beginning of the next one."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self.first_indexes = layout.sealed_first_indexes()
        self._disk = disk
        self._layout = layout
        self._scanned: tuple[int, LogScan] | None = None
        self._holds: dict[str, int] = {}

    def segment_of(self, index: int) -> int | None:
        """The first index of the archived segment that would hold this entry, or None if it is older than all."""
        position = bisect_right(self.first_indexes, index)
        return self.first_indexes[position - 1] if position else None

    def last_of(self, first_index: int) -> int:
        """The last index of one segment, by the mark that closes it where that is the file's end."""
        path = self._layout.sealed_log(first_index)
        with FileSource(path) as source:
            mark = source.read(max(source.size_bytes - MARK_BYTES, FILE_HEADER_BYTES), MARK_BYTES)
        last_index = index_of_mark(mark)
        return self.scan(first_index).last_index if last_index is None else last_index

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
                check_file_header(source.read(0, FILE_HEADER_BYTES), path)
                walk = Walk(source, expected=first)
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
                yield from read_entries(source, path, scan.offsets, first, scan.end, index, stop)
            index = stop

    def hold(self, name: str, index: int) -> None:
        """Keep the segments from this entry on for a named reader, as long as the archive is within its size."""
        self._holds[name] = index

    def release(self, name: str) -> None:
        """The named reader needs nothing any more."""
        self._holds.pop(name, None)

    def retire(self, now_s: float, covered_end: int, age_s_max: float, bytes_max: int, live_first: int) -> list[int]:
        """Delete the oldest segments while they may go; returns their first indexes.

        A segment may go if all of it lies before `covered_end`, and it is past the age and nobody holds it, or the
        archive is over its size.
        """
        retired: list[int] = []
        sizes = {first: self._size_bytes(first) for first in self.first_indexes}
        total_bytes = sum(sizes.values())
        held_from = min(self._holds.values(), default=None)
        for first, end in pairwise([*self.first_indexes, live_first]):
            is_old = now_s - self._layout.sealed_log(first).stat().st_mtime > age_s_max
            is_held = held_from is not None and end > held_from
            if end > covered_end or not (total_bytes > bytes_max or (is_old and not is_held)):
                break
            # The journal first: a segment is known by its log, so what a crash leaves is retired again.
            for path in self._layout.beside_sealed(first):
                self._disk.unlink(path, "retention.unlink")
            self._disk.unlink(self._layout.sealed_log(first), "retention.unlink")
            # One after the other: what is left has no hole, whatever the system had written down when it stopped.
            self._disk.fsync_directory(self._layout.archive, "retention.sync_directory")
            total_bytes -= sizes[first]
            retired.append(first)
        if retired:
            self.first_indexes = self.first_indexes[len(retired) :]
            self._scanned = None
        return retired

    def _size_bytes(self, first: int) -> int:
        paths = (self._layout.sealed_log(first), *self._layout.beside_sealed(first))
        return sum(path.stat().st_size for path in paths if path.exists())

"""The whole history out of files, by the same methods as over the network (``client.history``).

The files are a node's data directory or a copy of it, sealed segments by themselves, or the files of version 1. They
are read only; no lock is taken. What is given out is checked, and what cannot be read as it was written raises the
errors of ``errors``, with file and offset.

    data directory   all of it; of a node that runs, up to what the closed blocks of its journal hold (``datafiles``)
    segments         what their logs and journals hold; names of queues only as far as they were made there. Where
                     one is missing between others, reading raises ``EntriesGone`` with the first that follows
    version 1        what importing the files would do, as a history of its own; its time is the log file's
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Protocol

from penstock.engine import snapshot as engine_snapshot
from penstock.engine.entries import ENTRY
from penstock.engine.journal import QUEUE_CREATED, QUEUE_DELETED, ROW, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.engine.names import DEFAULT_QUEUE
from penstock.storage.cutting import Cutter, nothing_up_to
from penstock.storage.datafiles import DataFiles, replayed
from penstock.storage.errors import Damaged, EntriesGone, NotADataDirectory, UnreadableData
from penstock.storage.inspect import kind_of, version_of
from penstock.storage.journalfile import BLOCK, BLOCK_HEADER_BYTES
from penstock.storage.layout import Layout, sealed_first_index
from penstock.storage.pieces import find_time, read_entry
from penstock.storage.reading import FileSource
from penstock.storage.segmentfiles import Segment, loose_segments
from penstock.wire.native.messages import Cut, JournalPiece, Reach
from penstock.wire.native.pieces import HeadsCheck, check_each_head

_POLL_EVERY_S: Final = 0.2
_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Small enough that its bytes are still in the processor's cache when they are decoded: a fifth faster than 16 MiB."""
_KIND_OFFSET: Final = 16
"""Where in a row its kind stands."""
_NAMES_QUEUES: Final = (QUEUE_CREATED, QUEUE_DELETED)
_first_index_of: Final = attrgetter("first_index")


class _Files(Protocol):
    """What there is to be read, as it is at one time."""

    @property
    def cluster(self) -> str:
        """The id of the cluster, empty if it is not known."""

    @property
    def first_index(self) -> int:
        """The oldest entry that is kept."""

    @property
    def applied_index(self) -> int:
        """The last entry whose events can be told."""

    @property
    def snapshot_index(self) -> int:
        """Up to where a snapshot tells the state; -1 without one."""

    @property
    def saved_index(self) -> int:
        """The last entry whose events are in files; those of later ones take long to tell."""

    @property
    def sealed_index(self) -> int:
        """The last entry that is known to be there without a look at what is live."""

    def segment_of(self, index: int) -> Segment:
        """The segment that an entry is in, which is applied. Raises ``EntriesGone`` where it lies in a hole."""

    def snapshot_blocks(self) -> Iterator[bytes]:
        """The blocks of that snapshot."""

    def engine(self) -> Engine:
        """The state after the last entry."""

    def close(self) -> None:
        """Let go of the files."""


class HistoryFiles:
    """The history that some files hold. Use it in a ``with`` block; not from two threads at once.

    `path` is a data directory, its consensus/, a folder of sealed segments or a directory of version 1, or one or more
    segments by the paths of their logs. ``check_heads`` may be a quicker way to check many records at once.
    """

    def __init__(self, path: Path | str | Sequence[Path | str], check_heads: HeadsCheck = check_each_head) -> None:
        paths = [Path(path)] if isinstance(path, Path | str) else [Path(each) for each in path]
        self._paths = paths
        self._check_heads = check_heads
        self._temporary: TemporaryDirectory[str] | None = None
        self._seen = _state_of(paths)
        self._names: tuple[int, dict[int, str]] | None = None
        self._files = self._open()

    def __enter__(self) -> HistoryFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def reach(self, after: int = -1, wait_seconds: float = 0.0) -> Reach:
        """How far the history reaches now; waits for an entry after ``after`` if that is asked for."""
        give_up_s = time.monotonic() + wait_seconds
        self._look_again()
        while self._files.applied_index <= after and (left_s := give_up_s - time.monotonic()) > 0:
            time.sleep(min(_POLL_EVERY_S, left_s))
            self._look_again()
        files = self._files
        last = self._entry(files.applied_index)
        stamp_us = 0 if last is None else ENTRY.unpack_from(last)[0]
        return Reach(files.cluster, files.first_index, files.applied_index, stamp_us)

    def queue_names(self) -> dict[int, str]:
        """The names of queues by uid, as far as the snapshot and the saved events after it tell them."""
        files = self._files
        if self._names is None:
            self._names = files.snapshot_index, {0: DEFAULT_QUEUE} | dict(_names_in(files.snapshot_blocks()))
        known_index, names = self._names
        first_index = max(known_index + 1, files.first_index)
        if first_index <= files.saved_index:
            self._names = files.saved_index, names | dict(self._names_made(first_index, files.saved_index))
        return dict(self._names[1])

    def find_time(self, time_us: int) -> int:
        """The first entry that was stamped at a time or later; one behind the last if there is none."""
        return find_time(self._entry_from, self._files.first_index, self._files.applied_index, time_us)

    def entries(self, indexes: list[int]) -> dict[int, bytes]:
        """Single entries by index; those that are gone are missing."""
        found = {index: self._entry(index) for index in indexes}
        return {index: entry for index, entry in found.items() if entry is not None}

    def cuts(
        self, first_index: int, last_index: int, *, rows_max: int = 0, bytes_max: int = 0, count_max: int = 0
    ) -> list[Cut]:
        """These entries as consecutive ranges (``client.history.HistoryReader.cuts``)."""
        last_index = min(last_index, self._files.applied_index)
        self._check(first_index, last_index)
        cutter = Cutter(first_index, last_index, rows_max, bytes_max, count_max)
        while first_index <= last_index and not cutter.is_done:
            try:
                segment = self._files.segment_of(first_index)
                table, first_index = segment.table, segment.last_index + 1
            except EntriesGone as gone:
                # Who reads it is told. Here a hole has nothing to count.
                table, first_index = nothing_up_to(gone.first_index - 1), gone.first_index
            except Damaged:
                self._look_again()
                self._check(first_index, last_index)  # a node may have let go of the file
                raise
            cutter.add(table)
        return cutter.finish()

    def pieces(
        self, first_index: int, last_index: int, *, bytes_max: int = _PIECE_BYTES, with_log: bool = True
    ) -> Iterator[JournalPiece]:
        """The history of these entries, both included, piece by piece, checked.

        Raises ``EntriesGone`` where it begins later, and an ``UnreadableData`` where it is not what was written.
        """
        while first_index <= last_index:
            self._check(first_index, last_index)
            try:
                segment = self._files.segment_of(first_index)
                piece = segment.piece(first_index, last_index, bytes_max, with_log, self._check_heads)
            except Damaged:
                self._look_again()
                self._check(first_index, last_index)  # a node may have let go of the file
                raise
            yield piece
            first_index = piece.last_index + 1

    def segment_end(self, first_index: int) -> int:
        """The last entry of the segment that begins here. Raises ``EntriesGone`` if it is no longer kept."""
        self._check(first_index, first_index)
        return self._files.segment_of(first_index).last_index

    def state(self) -> tuple[int, Iterator[bytes]]:
        """The whole state at one index, as blocks of a snapshot of the engine."""
        engine = self._files.engine()
        return engine.state.index, engine_snapshot.begin(engine)

    # What is behind it.

    def _open(self) -> _Files:
        path = self._paths[0]
        if len(self._paths) == 1 and path.is_file() and sealed_first_index(path) is None:
            path = path.parent  # raft.log stands for its directory
        if len(self._paths) > 1 or path.is_file():
            return _Loose(loose_segments(self._paths))
        if not path.is_dir():
            raise NotADataDirectory(path, "does not exist")
        consensus = path / "consensus" if (path / "consensus").is_dir() else path
        layout = Layout(path, consensus=consensus)
        if any(file.exists() for file in (layout.log, layout.snapshot, layout.metadata)):
            return self._open_version1(path) if _is_version1(layout) else DataFiles(layout)
        segments = loose_segments(sorted(each for each in path.iterdir() if sealed_first_index(each) is not None))
        if not segments:
            raise NotADataDirectory(path, "has neither consensus/, nor raft.log, nor segments of an archive")
        return _Loose(segments)

    def _open_version1(self, directory: Path) -> _Files:
        # Only here: files of version 1 are rare, and their reader brings the protocol's types with it.
        from penstock.storage.history_version1 import Version1History

        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="penstock-version1-")
        return Version1History(directory, Path(self._temporary.name))

    def _look_again(self) -> None:
        """See what has changed in the files since the last time."""
        seen = _state_of(self._paths)
        if seen != self._seen:
            files = self._open()
            if files.cluster != self._files.cluster:
                self._names = None
            self._files.close()
            self._files, self._seen = files, seen

    def _check(self, first_index: int, last_index: int) -> None:
        files = self._files
        if first_index < files.first_index:
            raise EntriesGone(self._paths[0], first_index, files.first_index)
        is_there = first_index <= files.sealed_index or first_index <= files.applied_index
        if first_index > last_index or not is_there:
            raise ValueError(f"entries {first_index} to {last_index} where the last one is {files.applied_index}")

    def _entry(self, index: int) -> bytes | None:
        files = self._files
        if index < files.first_index or (index > files.sealed_index and index > files.applied_index):
            return None
        try:
            return read_entry(files.segment_of(index).records, index)
        except EntriesGone:
            return None

    def _entry_from(self, index: int) -> bytes | None:
        """An entry, or the first that is kept behind it."""
        try:
            self._files.segment_of(index)
        except EntriesGone as gone:
            return self._entry(gone.first_index)
        return self._entry(index)

    def _names_made(self, first_index: int, last_index: int) -> Iterator[tuple[int, str]]:
        """The names that queues were given, or had when they were deleted, in these entries."""
        for piece in self._kept_pieces(first_index, last_index):
            for row in _rows_of(piece.blocks, _NAMES_QUEUES):
                _, _, _, _, _, _, _, _, _, uid, _, _, _, _, _, index, offset, length, _, _ = row
                entry = self._entry(index)
                if entry is not None:
                    yield uid, entry[offset : offset + length].decode()

    def _kept_pieces(self, first_index: int, last_index: int) -> Iterator[JournalPiece]:
        """The events of these entries, without those in holes."""
        while first_index <= last_index:
            try:
                for piece in self.pieces(first_index, last_index, with_log=False):
                    yield piece
                    first_index = piece.last_index + 1
            except EntriesGone as gone:
                first_index = gone.first_index


class _Loose:
    """Sealed segments without the directory that they were in."""

    cluster = ""
    snapshot_index = -1

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.first_index = segments[0].first_index
        self.applied_index = self.saved_index = self.sealed_index = segments[-1].last_index

    def segment_of(self, index: int) -> Segment:
        """The segment that an entry is in. Raises ``EntriesGone`` where it lies in a hole."""
        position = bisect_right(self._segments, index, key=_first_index_of)
        segment = self._segments[position - 1]
        if index > segment.last_index:
            following = self._segments[position]
            raise EntriesGone(following.log_file, index, following.first_index)
        return segment

    def snapshot_blocks(self) -> Iterator[bytes]:
        """There is no snapshot."""
        return iter(())

    def engine(self) -> Engine:
        """The state, which can be told only if the segments begin with the first entry."""
        if self.first_index:
            reason = f"begins at entry {self.first_index}: without what came before, the state cannot be told"
            raise NotADataDirectory(self._segments[0].log_file, reason)
        for before, after in pairwise(self._segments):
            if before.last_index + 1 < after.first_index:
                reason = f"entries {before.last_index + 1} to {after.first_index - 1} are missing before it"
                raise NotADataDirectory(after.log_file, f"{reason}: the state cannot be told")
        engine = Engine()
        for _ in replayed(engine, chain.from_iterable(segment.entries() for segment in self._segments)):
            pass
        return engine

    def close(self) -> None:
        """Nothing is open."""


def _is_version1(layout: Layout) -> bool:
    """Whether the files are those of the original system; what cannot be told is left to whoever opens them."""
    for path in (layout.log, layout.snapshot, layout.metadata):
        if path.exists():
            with FileSource(path) as source:
                try:
                    return version_of(source, path, kind_of(path)) == 1
                except UnreadableData:
                    return False
    return False


def _state_of(paths: Sequence[Path]) -> list[tuple[Path, int, int, int]]:
    """What changes when the history in these files does."""
    found = []
    for path in paths:
        consensus = path / "consensus" if (path / "consensus").is_dir() else path
        names = ("raft.log", "raft.snapshot", "events/live.events", "archive", "lock")
        for file in (consensus, *(consensus / name for name in names)):
            if file.exists():
                stat = file.stat()
                found.append((file, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return found


def _names_in(blocks: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    """The names of queues, and of deleted ones, out of a snapshot."""
    for number, block in enumerate(blocks):
        if block[1] in (engine_snapshot.QUEUE, engine_snapshot.FORMER_NAMES):
            kind, values = engine_snapshot.decode_block(number, block)
            yield from [values[1:3]] if kind == engine_snapshot.QUEUE else values[1]


def _rows_of(blocks: bytes, kinds: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The rows of some kinds out of whole blocks."""
    at = 0
    while at < len(blocks):
        count = BLOCK.unpack_from(blocks, at)[4]
        start, at = at + BLOCK_HEADER_BYTES, at + BLOCK_HEADER_BYTES + count * ROW_BYTES
        found = blocks[start + _KIND_OFFSET : at : ROW_BYTES]
        for kind in kinds:
            position = found.find(kind)
            while position >= 0:
                yield ROW.unpack_from(blocks, start + position * ROW_BYTES)
                position = found.find(kind, position + 1)

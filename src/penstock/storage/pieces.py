"""Reading pieces of the history from files, whoever found the files.

A piece covers entries of one segment: whole journal blocks as they lie in their file, and the records of the same
entries as they lie in the log, with the offset of each. Nothing is looked into on the way, so a piece costs a few reads
however many events it holds.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.storage.errors import Damaged
from penstock.storage.journalfile import Block
from penstock.storage.reading import DescriptorSource, FileSource, MemorySource
from penstock.storage.records import Walk
from penstock.wire.native.messages import JournalPiece

last_index_of: Final = attrgetter("last_index")
_STAMP: Final = Struct("<q")
"""What an entry begins with (``engine.entries``)."""


@dataclass(frozen=True, slots=True)
class Events:
    """Where the journal's part of a segment comes from."""

    blocks: Sequence[Block]
    """The blocks that lie in the file."""
    file: FileIO | Path
    unwritten: Sequence[tuple[Block, bytes]] = ()
    """Blocks that are in memory, encoded, and follow those of the file; their place in it is none."""

    @property
    def heads(self) -> Sequence[Block]:
        """All blocks, in order."""
        return [*self.blocks, *(block for block, _ in self.unwritten)] if self.unwritten else self.blocks


@dataclass(frozen=True, slots=True)
class Records:
    """Where the log's part of a segment comes from."""

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


def read_piece(
    events: Events, records: Records, first_index: int, last_index: int, bytes_max: int, with_log: bool
) -> JournalPiece:
    """A piece from an entry on; it ends at `last_index`, or earlier where it would grow beyond `bytes_max`."""
    blocks, last_index = _choose(events, records, first_index, last_index, bytes_max, with_log)
    on_disk = [block for block in blocks if block.offset >= 0]
    data = read_bytes(events.file, on_disk[0].offset, on_disk[-1].end) if on_disk else b""
    if len(on_disk) < len(blocks):
        chosen = {block.first_index for block in blocks[len(on_disk) :]}
        data = b"".join([data, *(encoded for block, encoded in events.unwritten if block.first_index in chosen)])
    if not with_log:
        return JournalPiece(first_index, last_index, data, b"", b"")
    start, end = records.offset_of(first_index), records.offset_of(last_index + 1)
    log = read_bytes(records.file, start, end)
    return JournalPiece(first_index, last_index, data, records.table(first_index, last_index), log)


def _choose(
    events: Events, records: Records, first_index: int, last_index: int, bytes_max: int, with_log: bool
) -> tuple[list[Block], int]:
    """The blocks of a piece, at least one if there is any, and the piece's last entry."""
    heads = events.heads
    candidates = heads[bisect_left(heads, first_index, key=last_index_of) :]
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


def read_entry(records: Records, index: int) -> bytes:
    """The bytes of one entry, checked."""
    start = records.offset_of(index)
    data = read_bytes(records.file, start, records.offset_of(index + 1))
    walk = Walk(MemorySource(data), offset=0, expected=index)
    for _, _, entry in walk:
        return entry
    raise Damaged(_path_of(records.file), walk.fault or "an entry is missing", start)


def find_time(read: Callable[[int], bytes | None], first_index: int, last_index: int, time_us: int) -> int:
    """The first of these entries that was stamped at a time or later, one behind the last if there is none.

    `read` gives an entry's bytes, or None for one that has been let go of.
    """
    low, high = first_index, last_index + 1
    while low < high:
        middle = (low + high) // 2
        entry = read(middle)
        if entry is None or _STAMP.unpack_from(entry)[0] < time_us:
            low = middle + 1
        else:
            high = middle
    return low


def open_descriptor(descriptor: int, path: Path) -> FileIO:
    """A descriptor as a file that is closed also if nobody reads it, and that knows its path."""
    file = FileIO(descriptor, "rb")
    file.name = str(path)
    return file


def read_bytes(file: FileIO | Path, start: int, end: int) -> bytes:
    """A range of a file's bytes."""
    if isinstance(file, Path):
        with FileSource(file) as source:
            return source.read(start, end - start)
    return DescriptorSource(file.fileno(), _path_of(file)).read(start, end - start)


def _path_of(file: FileIO | Path) -> Path:
    return file if isinstance(file, Path) else Path(str(file.name))

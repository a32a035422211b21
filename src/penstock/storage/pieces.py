"""Reading pieces of the history from files, whoever found the files.

A piece covers entries of one segment: whole journal blocks as they lie in their file, and the records of the same
entries as they lie in the log, with the offset of each. Nothing is looked into on the way, so a piece costs a few reads
however many events it holds.

A piece has at least one entry, and an entry may be longer than an answer to a client may be. Then the piece is read in
parts (``Part``). The bytes of a piece are the same for each part, but for what may be added at their ends: a mark may
follow the last entry, and an open block may grow. A block that does not fit into one part has more rows than an open
one can have.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
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
from penstock.storage.sums import sums_between
from penstock.wire.native.messages import JournalPiece

last_index_of: Final = attrgetter("last_index")
_first_index_of: Final = attrgetter("first_index")
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
    seed: int
    sums: array[int] | None = None
    """The checksums of the file's chunks, as far as they are known (``sums``)."""
    """What the checksums of the segment's records start from."""

    def offset_of(self, index: int) -> int:
        """Where the record of an entry begins, or the last one ends."""
        position = index - self.first_index
        return self.offsets[position] if position < len(self.offsets) else self.end

    def last_within(self, first_index: int, last_index: int, bytes_max: int) -> int:
        """The last of these entries up to which there are no more bytes of the log than that; at least the first."""
        if self.offset_of(last_index + 1) - self.offset_of(first_index) <= bytes_max:
            return last_index
        first, last = first_index - self.first_index, last_index - self.first_index
        position = bisect_right(self.offsets, self.offsets[first] + bytes_max, first + 1, last + 1)
        return self.first_index + max(position - 2, first)

    def sums_of(self, start: int, end: int) -> bytes:
        """The checksums of the chunks that lie wholly between two offsets; none if they are not known."""
        return b"" if self.sums is None else sums_between(self.sums, start, end)

    def table(self, first_index: int, last_index: int) -> bytes:
        """Where the records of these entries begin, and where the last one ends: Int64, little-endian."""
        offsets = self.offsets[first_index - self.first_index : last_index + 1 - self.first_index]
        offsets.append(self.offset_of(last_index + 1))
        if sys.byteorder == "big":
            offsets.byteswap()
        return offsets.tobytes()


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a piece is wanted, where a piece may be longer than one answer."""

    bytes_max: int
    """The most bytes of blocks and log in one part."""
    blocks_from: int = 0
    log_from: int = 0

    @property
    def is_first(self) -> bool:
        """Whether the piece is still to be chosen."""
        return not self.blocks_from and not self.log_from

    def ranges(self, blocks_bytes: int, log_bytes: int) -> tuple[slice, slice]:
        """The bytes of the blocks and of the log that this part holds."""
        blocks = slice(self.blocks_from, min(blocks_bytes, self.blocks_from + self.bytes_max))
        room = self.bytes_max - max(0, blocks.stop - blocks.start) if blocks.stop == blocks_bytes else 0
        return blocks, slice(self.log_from, min(log_bytes, self.log_from + room))


def read_piece(
    events: Events,
    records: Records,
    first_index: int,
    last_index: int,
    bytes_max: int,
    with_log: bool,
    part: Part | None = None,
) -> JournalPiece:
    """A piece from an entry on; it ends at `last_index`, or earlier where it would grow beyond `bytes_max`.

    A piece of one entry may be longer. With `part` no more than that part of it is read.
    """
    if part is None or part.is_first:
        blocks, last_index = _choose(events, records, first_index, last_index, bytes_max, with_log)
    else:
        blocks = _overlapping(events.heads, first_index, last_index)
    start = records.offset_of(first_index)
    blocks_bytes = sum(block_bytes(block) for block in blocks)
    log_bytes = records.offset_of(last_index + 1) - start if with_log else 0
    if part is None or (part.is_first and blocks_bytes + log_bytes <= part.bytes_max):
        data = _read_blocks(events, blocks, slice(0, blocks_bytes))
        if not with_log:
            return JournalPiece(first_index, last_index, data, b"", b"")
        log = read_bytes(records.file, start, start + log_bytes)
        table, sums = records.table(first_index, last_index), records.sums_of(start, start + log_bytes)
        return JournalPiece(first_index, last_index, data, table, log, records.seed, sums=sums)
    of_blocks, of_log = part.ranges(blocks_bytes, log_bytes)
    offsets = records.table(first_index, last_index) if with_log and part.is_first else b""
    data = _read_blocks(events, blocks, of_blocks)
    log = read_bytes(records.file, start + of_log.start, start + of_log.stop) if of_log.stop > of_log.start else b""
    sums = records.sums_of(start, start + log_bytes) if offsets else b""
    return JournalPiece(first_index, last_index, data, offsets, log, records.seed, blocks_bytes, log_bytes, sums)


def block_bytes(block: Block) -> int:
    """The length of a block, header and all."""
    return block.end - block.offset


def _overlapping(heads: Sequence[Block], first_index: int, last_index: int) -> list[Block]:
    """The blocks that hold events of these entries."""
    start = bisect_left(heads, first_index, key=last_index_of)
    return list(heads[start : bisect_right(heads, last_index, start, key=_first_index_of)])


def _read_blocks(events: Events, blocks: Sequence[Block], wanted: slice) -> bytes:
    """Some bytes of these blocks, which follow each other."""
    on_disk = [block for block in blocks if block.offset >= 0]
    data = b""
    file_bytes = on_disk[-1].end - on_disk[0].offset if on_disk else 0
    if wanted.start < file_bytes:
        offset = on_disk[0].offset
        data = read_bytes(events.file, offset + wanted.start, offset + min(wanted.stop, file_bytes))
    if wanted.stop <= file_bytes:
        return data
    chosen = {block.first_index for block in blocks[len(on_disk) :]}
    unwritten = b"".join(encoded for block, encoded in events.unwritten if block.first_index in chosen)
    return data + unwritten[max(0, wanted.start - file_bytes) : wanted.stop - file_bytes]


def _choose(
    events: Events, records: Records, first_index: int, last_index: int, bytes_max: int, with_log: bool
) -> tuple[list[Block], int]:
    """The blocks of a piece, at least one if there is any, and the piece's last entry.

    A piece ends with a block, or inside its only one where the log of that block's entries is too long: the next piece
    has the block once more.
    """
    start = records.offset_of(first_index)
    chosen: list[Block] = []
    size = 0
    for block in _overlapping(events.heads, first_index, last_index):
        end = min(block.last_index, last_index)
        size += block_bytes(block)
        log_bytes = records.offset_of(end + 1) - start if with_log else 0
        if size + log_bytes > bytes_max:
            if chosen:
                return chosen, chosen[-1].last_index
            # A block is sent with every piece that ends inside it: so the log has at least as much room as the block.
            return [block], records.last_within(
                first_index, end, max(bytes_max - size, size) if with_log else log_bytes
            )
        chosen.append(block)
    if with_log:
        # Entries behind the last block have no events, but their log counts.
        covered = min(chosen[-1].last_index, last_index) if chosen else first_index
        last_index = max(covered, records.last_within(first_index, last_index, bytes_max - size))
    return chosen, last_index


def read_entry(records: Records, index: int) -> bytes:
    """The bytes of one entry, checked."""
    start = records.offset_of(index)
    data = read_bytes(records.file, start, records.offset_of(index + 1))
    walk = Walk(MemorySource(data), offset=0, seed=records.seed, expected=index)
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

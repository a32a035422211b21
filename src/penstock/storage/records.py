"""The records of raft.log: how one is written, and how a file of them is walked.

    record    Int32 term, Int32 length, data
    data      envelope of 24 bytes, then the entry's bytes
    envelope  UInt32 magic, UInt32 crc32c, Int64 index, 8 bytes proof
    proof     version 3: UInt32 index - durable, its highest bit set in mode durable, UInt32 tag
              version 2: Int64 durable

The checksum covers the whole record with its own field left out; in version 3 it starts from the segment's seed. The
tag is a keyed hash of the record's offset and header (``segmenthead``). `durable` is the last index known to be synced
when the record was written, -1 for none. A record without entry bytes is a *mark*: it is not an entry, and its index is
that of the last entry before it. Each segment opens with a mark, so that also an empty one knows where it stands, and
an idle node writes one after its last batch. Term 0 and length 0 (eight zero bytes) end a preallocated file, and so
does its end.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.storage.errors import Damaged
from penstock.storage.reading import WINDOW_BYTES, MemorySource, Source
from penstock.storage.segmenthead import UNSALTED, SegmentHead

Entry = tuple[int, int, bytes]
"""Index, term, and the bytes that the engine's commands were encoded to (at least one)."""

RECORD: Final = struct.Struct("<iiIIqq")
"""Term, length, magic, checksum, index, proof."""
RECORD_HEADER_BYTES: Final = RECORD.size
ENVELOPE_BYTES: Final = 24
MARK_BYTES: Final = RECORD_HEADER_BYTES
MAGIC: Final = 0x4B534E50
MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")
MAGIC_OFFSET: Final = 8
ENTRY_BYTES_MAX: Final = 64 * 1024 * 1024 - 1024
LENGTH_MAX: Final = ENVELOPE_BYTES + ENTRY_BYTES_MAX

_WRITTEN: Final = struct.Struct("<iiIIq8s")
_CHECKED: Final = struct.Struct("<iiIq8s")
"""The header as the checksum sees it: without the checksum."""


def encode_record_header(
    index: int,
    term: int,
    data: bytes,
    durable: int,
    head: SegmentHead = UNSALTED,
    offset: int = 0,
    is_promised: bool = True,
) -> bytes:
    """The 32 bytes that stand before the entry's own, in a segment with this head, at this offset."""
    length = ENVELOPE_BYTES + len(data)
    proof = head.proof(offset, term, length, index, durable, is_promised)
    checksum = crc32c(data, crc32c(_CHECKED.pack(term, length, MAGIC, index, proof), head.seed))
    return _WRITTEN.pack(term, length, MAGIC, checksum, index, proof)


def encode_record(
    index: int, term: int, data: bytes, durable: int, head: SegmentHead = UNSALTED, offset: int = 0
) -> bytes:
    """One whole record."""
    return encode_record_header(index, term, data, durable, head, offset) + data


def encode_mark(
    last_index: int,
    last_term: int,
    durable: int,
    head: SegmentHead = UNSALTED,
    offset: int = 0,
    is_promised: bool = True,
) -> bytes:
    """A record without an entry, which says how far the log had come."""
    return encode_record_header(last_index, last_term, b"", durable, head, offset, is_promised)


def index_of_mark(data: bytes, seed: int = 0) -> int | None:
    """The index in a good mark, or None if these bytes are none."""
    if len(data) != MARK_BYTES:
        return None
    _, length, magic, checksum, index, _ = RECORD.unpack(data)
    is_mark = magic == MAGIC and length == ENVELOPE_BYTES and crc32c(data[16:], crc32c(data[:12], seed)) == checksum
    return index if is_mark else None


def encode_segment_start(
    first_index: int, last_term: int, head: SegmentHead = UNSALTED, is_promised: bool = True
) -> bytes:
    """The first bytes of a segment: its head and the opening mark. What came before it is synced."""
    mark = encode_mark(first_index - 1, last_term, first_index - 1, head, head.size_bytes, is_promised)
    return head.encode() + mark


def encode_log(first_index: int, last_term: int, entries: Iterable[Entry], head: SegmentHead = UNSALTED) -> bytes:
    """A whole log file, for an import: all entries count as synced, since the file is before it is used."""
    log = bytearray(encode_segment_start(first_index, last_term, head))
    last = first_index - 1
    for index, term, data in entries:
        if index != last + 1 or not data:
            raise ValueError(f"entry {index} after {last}: entries are contiguous and have bytes")
        log += encode_record(index, term, data, last, head, len(log))
        last, last_term = index, term
    if last >= first_index:
        log += encode_mark(last, last_term, last, head, len(log))
    return bytes(log)


class Walk:
    """Reads the records of one file in order, once, and remembers how far it came and why it stopped.

    Iterate over it for the entries; marks are checked and passed over. When the iteration ends, `offset` is where it
    stopped and `fault` says what is wrong there, or is None at the file's end or its end marker.
    """

    def __init__(
        self,
        source: Source,
        *,
        offset: int,
        seed: int,
        expected: int | None = None,
        term: int = 0,
        offsets: array[int] | None = None,
    ) -> None:
        self.offset = offset
        self.expected = expected
        """The index the next entry must have; None until a first record tells."""
        self.first_index = expected
        """The index the file's first entry has or would have."""
        self.term = term
        """The term of the last record, below which no later one may fall."""
        self.opening_term = term
        """The term of what came before the first entry."""
        self.term_starts: list[tuple[int, int]] = []
        """First index and term of each run of equal terms."""
        self.entry_bytes = 0
        """The length of all entries' records, marks left out."""
        self.fault: str | None = None
        self.proof = 0
        """That of the last good record (``SegmentHead.proof``)."""
        self._source = source
        self._seed = seed
        self._offsets = offsets

    @classmethod
    def of_segment(
        cls,
        source: Source,
        head: SegmentHead,
        *,
        expected: int | None = None,
        term: int = 0,
        offsets: array[int] | None = None,
    ) -> Walk:
        """A walk over a whole segment from its first record on."""
        return cls(source, offset=head.size_bytes, seed=head.seed, expected=expected, term=term, offsets=offsets)

    def __iter__(self) -> Iterator[Entry]:
        # One loop with local names: a start reads hundreds of thousands of records through it.
        read, size = self._source.read, self._source.size_bytes
        unpack, offsets, starts = RECORD.unpack_from, self._offsets, self.term_starts
        expected, last_term, entry_bytes = self.expected, self.term, self.entry_bytes
        base, at, buffer, fault, seed = self.offset, 0, b"", None, self._seed
        last_proof = self.proof
        try:
            while True:
                if at + RECORD_HEADER_BYTES > len(buffer):
                    base += at
                    buffer, at = read(base, WINDOW_BYTES), 0
                    if len(buffer) < RECORD_HEADER_BYTES:
                        fault = "the file ends inside a record's header" if any(buffer[:8]) else None
                        return
                term, length, magic, checksum, index, proof = unpack(buffer, at)
                if magic != MAGIC:
                    fault = f"no record begins here (magic {magic:08x})" if term or length else None
                    return
                if not ENVELOPE_BYTES <= length <= LENGTH_MAX:
                    fault = f"impossible length {length}" if term or length else None
                    return
                end = at + 8 + length
                if end > len(buffer):
                    base += at
                    if base + 8 + length > size:
                        at, fault = 0, f"the file ends inside a record of {8 + length} bytes"
                        return
                    buffer, at, end = read(base, max(WINDOW_BYTES, 8 + length)), 0, 8 + length
                body = buffer[at + 16 : end]
                if crc32c(body, crc32c(buffer[at : at + 12], seed)) != checksum:
                    fault = "wrong checksum"
                    return
                is_mark = length == ENVELOPE_BYTES
                if expected is None:
                    expected = self.first_index = index + is_mark
                if index + is_mark != expected:
                    fault = f"{'a mark of ' if is_mark else ''}index {index} where {expected - is_mark} is expected"
                    return
                if term != last_term or not starts:
                    if term < last_term or (is_mark and starts):
                        fault = f"term {term} after term {last_term}"
                        return
                    if not starts:
                        self.opening_term = term if is_mark else last_term
                    last_term = term
                    if not is_mark:
                        starts.append((index, term))
                last_proof = proof
                if is_mark:
                    at = end
                    continue
                expected = index + 1
                entry_bytes += end - at
                if offsets is not None:
                    offsets.append(base + at)
                at = end
                yield index, term, body[16:]
        finally:
            self.offset, self.fault, self.proof = base + at, fault, last_proof
            self.expected, self.term, self.entry_bytes = expected, last_term, entry_bytes


def read_entries(
    source: Source, file: Path, offsets: array[int], first_index: int, end_offset: int, index: int, end: int, seed: int
) -> Iterator[Entry]:
    """The entries from `index` on and before `end` of a segment whose records lie at `offsets`, checked once more."""
    while index < end:
        start = offsets[index - first_index]
        count = bisect_right(offsets, start + WINDOW_BYTES, index - first_index + 1, end - first_index) + first_index
        stop = offsets[count - first_index] if count - first_index < len(offsets) else end_offset
        walk = Walk(MemorySource(source.read(start, stop - start)), offset=0, seed=seed, expected=index)
        for entry in walk:
            yield entry
            index += 1
        if walk.fault is not None or index != count:
            raise Damaged(file, walk.fault or "an entry is missing", start + walk.offset)


def record_bytes_at(source: Source, offset: int) -> int:
    """The length of the record at this offset, which is known to be good."""
    length: int = RECORD.unpack(source.read(offset, RECORD_HEADER_BYTES))[1]
    return 8 + length

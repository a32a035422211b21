"""Where records lie: a table from record id to record, in chunks that can be copied on write.

Ids are dense, so a chunk is a list of slots for consecutive ids; it goes when its last record ends. A flat dictionary
would stop the world when it grows (16 ms at a million records, 750 ms at five), chunks never do. The chunk is also the
unit of a snapshot: freezing marks all of them, and the first change to a frozen one works on a copy.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from penstock.engine.records import DELAYED, Record

CHUNK_BITS = 10
CHUNK_SLOTS = 1 << CHUNK_BITS
_SLOT_MASK = CHUNK_SLOTS - 1


class Chunk:
    """Slots for ``CHUNK_SLOTS`` consecutive ids."""

    __slots__ = ("frozen", "idle", "lifted", "live", "slots")

    def __init__(self, slots: list[Record | None], live: int) -> None:
        self.slots = slots
        self.live = live
        self.frozen = False
        self.idle = False
        """It is known that none of its records waits. Only saves looking again."""
        self.lifted = False
        """A purge set it aside, and what survived in it is back in the table."""


class ChunkTable:
    """Records by id."""

    __slots__ = ("_first_busy", "_tail", "chunks", "numbers")

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        self.numbers: list[int] = []
        """The numbers of the chunks, in order."""
        self._first_busy = 0
        """No record waits in a chunk below this."""
        self._tail = -1
        """The chunk that is being filled; it stays though empty, or put, take, ack in turn would make and drop it."""

    def get(self, record_id: int) -> Record | None:
        """The record with this id, if there is one."""
        chunk = self.chunks.get(record_id >> CHUNK_BITS)
        return None if chunk is None else chunk.slots[record_id & _SLOT_MASK]

    def writable(self, number: int) -> Chunk:
        """The chunk of this number, made or thawed so that its slots may be changed."""
        chunk = self.chunks.get(number)
        if chunk is None:
            chunk = self.chunks[number] = Chunk([None] * CHUNK_SLOTS, 0)
            insort(self.numbers, number)
            if number > self._tail:
                former = self.chunks.get(self._tail)
                if former is not None and not former.live:
                    self._drop(self._tail)
                self._tail = number
        elif chunk.frozen:
            chunk = self.chunks[number] = Chunk(chunk.slots.copy(), chunk.live)
        chunk.idle = False
        return chunk

    def _drop(self, number: int) -> None:
        del self.chunks[number]
        del self.numbers[bisect_left(self.numbers, number)]

    def add(self, record: Record) -> None:
        """Fill the empty slot of a new record."""
        record_id = record.id
        chunk = self.chunks.get(record_id >> CHUNK_BITS)
        if chunk is None or chunk.frozen:
            chunk = self.writable(record_id >> CHUNK_BITS)
        chunk.slots[record_id & _SLOT_MASK] = record
        chunk.live += 1
        chunk.idle = False

    def replace(self, record: Record) -> None:
        """Put a changed record into the slot of its former self."""
        record_id = record.id
        chunk = self.chunks[record_id >> CHUNK_BITS]
        if chunk.frozen:
            chunk = self.writable(record_id >> CHUNK_BITS)
        chunk.slots[record_id & _SLOT_MASK] = record
        if record.state <= DELAYED:  # ready or delayed: it waits
            chunk.idle = False
            if record_id >> CHUNK_BITS < self._first_busy:
                self._first_busy = record_id >> CHUNK_BITS

    def remove(self, record_id: int) -> None:
        """Empty the slot of a record that ended."""
        number = record_id >> CHUNK_BITS
        chunk = self.chunks[number]
        if chunk.frozen:
            chunk = self.writable(number)
        chunk.slots[record_id & _SLOT_MASK] = None
        chunk.live -= 1
        if not chunk.live and number != self._tail:
            self._drop(number)

    def freeze(self) -> list[tuple[int, Chunk]]:
        """Mark all chunks as shared with a snapshot, and return them in order; who has written one clears its mark."""
        frozen = [(number, chunk) for number in self.numbers if (chunk := self.chunks[number]).live]
        for _, chunk in frozen:
            chunk.frozen = True
        return frozen

    def scan(self, first_id: int) -> Iterator[Record]:
        """Records in the order of their ids, from ``first_id`` on."""
        for number in self.numbers[bisect_left(self.numbers, first_id >> CHUNK_BITS) :]:
            yield from self.scan_chunk(number, first_id)

    def scan_chunk(self, number: int, first_id: int = 0) -> Iterator[Record]:
        """The records of one chunk in the order of their ids, from ``first_id`` on."""
        chunk = self.chunks.get(number)
        if chunk is None:
            return
        slots = chunk.slots if number > first_id >> CHUNK_BITS else chunk.slots[first_id & _SLOT_MASK :]
        for record in slots:
            if record is not None:
                yield record

    def first_waiting(self, chunks_max: int) -> Record | None:
        """The ready or delayed record with the least id.

        A chunk in which none waits is looked through once and then passed over until one of its records comes back. If
        ``chunks_max`` chunks had to be looked through in vain, a record before the first is returned in its place.
        """
        seen: Record | None = None
        for number in self.numbers[bisect_left(self.numbers, self._first_busy) :]:
            self._first_busy = number
            chunk = self.chunks[number]
            if chunk.idle:
                continue
            if not chunks_max:
                return seen
            for record in chunk.slots:
                if record is not None:
                    if record.state <= DELAYED:
                        return record
                    seen = record
            chunk.idle = True
            chunks_max -= 1
        return seen

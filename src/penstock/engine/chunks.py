"""Where records lie: a table from record id to record, in chunks that can be copied on write.

Ids are dense, so a chunk is a list of slots for consecutive ids; it goes when its last record ends. A flat dictionary
would stop the world when it grows (16 ms at a million records, 750 ms at five), chunks never do. The chunk is also the
unit of a snapshot: freezing marks all of them, and the first change to a frozen one works on a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.records import Record

CHUNK_BITS = 10
CHUNK_SLOTS = 1 << CHUNK_BITS
CHUNK_BYTES = 8 * CHUNK_SLOTS
"""What a chunk costs in memory besides its records, however few they are."""
_SLOT_MASK = CHUNK_SLOTS - 1


class Chunk:
    """Slots for ``CHUNK_SLOTS`` consecutive ids."""

    __slots__ = ("frozen", "live", "slots")

    def __init__(self, slots: list[Record | None], live: int) -> None:
        self.slots = slots
        self.live = live
        self.frozen = False


class ChunkTable:
    """Records by id."""

    __slots__ = ("_tail", "chunks")

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
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
            if number > self._tail:
                former = self.chunks.get(self._tail)
                if former is not None and not former.live:
                    del self.chunks[self._tail]
                self._tail = number
        elif chunk.frozen:
            chunk = self.chunks[number] = Chunk(chunk.slots.copy(), chunk.live)
        return chunk

    def add(self, record: Record) -> None:
        """Fill the empty slot of a new record."""
        record_id = record.id
        chunk = self.chunks.get(record_id >> CHUNK_BITS)
        if chunk is None or chunk.frozen:
            chunk = self.writable(record_id >> CHUNK_BITS)
        chunk.slots[record_id & _SLOT_MASK] = record
        chunk.live += 1

    def replace(self, record: Record) -> None:
        """Put a changed record into the slot of its former self."""
        record_id = record.id
        chunk = self.chunks[record_id >> CHUNK_BITS]
        if chunk.frozen:
            chunk = self.writable(record_id >> CHUNK_BITS)
        chunk.slots[record_id & _SLOT_MASK] = record

    def remove(self, record_id: int) -> None:
        """Empty the slot of a record that ended."""
        number = record_id >> CHUNK_BITS
        chunk = self.chunks[number]
        if chunk.frozen:
            chunk = self.writable(number)
        chunk.slots[record_id & _SLOT_MASK] = None
        chunk.live -= 1
        if not chunk.live and number != self._tail:
            del self.chunks[number]

    def freeze(self) -> list[tuple[int, Chunk]]:
        """Mark all chunks as shared with a snapshot, and return them in order; who has written one clears its mark."""
        frozen = [(number, chunk) for number, chunk in sorted(self.chunks.items()) if chunk.live]
        for _, chunk in frozen:
            chunk.frozen = True
        return frozen

    def scan(self, first_id: int) -> Iterator[Record]:
        """Records in the order of their ids, from ``first_id`` on."""
        first_number = first_id >> CHUNK_BITS
        for number in sorted(n for n in self.chunks if n >= first_number):
            chunk = self.chunks.get(number)
            if chunk is None:
                continue
            slots = chunk.slots if number > first_number else chunk.slots[first_id & _SLOT_MASK :]
            for record in slots:
                if record is not None:
                    yield record

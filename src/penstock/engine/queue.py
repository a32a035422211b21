"""A queue: its settings, its records by id and in order, and its figures.

This is the state of one queue and the steps that keep its parts in agreement. What commands mean stands in ``putting``,
``taking``, ``returning`` and ``operating``.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.engine.chunks import CHUNK_BITS, Chunk, ChunkTable
from penstock.engine.commands import QueueSettings
from penstock.engine.dedup import DedupKeys
from penstock.engine.order import KeyOrder
from penstock.engine.records import BURIED, DELAYED, LEASED, READY, Record

RECORD_BYTES = 350
"""What a record costs in memory besides its payload, about."""


class LeaseGroup(Struct, gc=False):
    """The records that one take or extension gave the same deadline; goes when the last of them is free."""

    ids: list[int]
    left: int
    owner: int


LeaseName = tuple[int, int]
"""A lease group's name in its queue: (serial, until_us)."""


class Totals(Struct, array_like=True, gc=False):
    """How many records this queue has seen come and go, by way."""

    put: int = 0
    delivered: int = 0
    acked: int = 0
    returned: int = 0
    expired: int = 0
    dead_lettered: int = 0
    ended_otherwise: int = 0


class Queue:
    """One queue's state."""

    __slots__ = (
        "counts",
        "dedup",
        "leases",
        "name",
        "next_id",
        "next_place",
        "order",
        "paused",
        "payload_bytes",
        "purged",
        "settings",
        "table",
        "totals",
        "uid",
    )

    def __init__(self, uid: int, name: str, settings: QueueSettings) -> None:
        self.uid = uid
        self.name = name
        self.settings = settings
        self.paused = False
        self.next_id = 1
        self.next_place = 1
        self.table = ChunkTable()
        self.order = KeyOrder(settings.descending)
        self.counts = [0, 0, 0, 0]
        """Records by state."""
        self.payload_bytes = 0
        self.leases: dict[LeaseName, LeaseGroup] = {}
        self.dedup = DedupKeys()
        self.totals = Totals()
        self.purged: list[dict[int, Chunk]] = []
        """Chunks as a purge found them: what waited in them is gone, what was leased or buried lives on."""

    def occupied(self) -> int:
        """How many records count against the size limit."""
        counts = self.counts
        return counts[READY] + counts[DELAYED] + counts[LEASED]

    def get(self, record_id: int) -> Record | None:
        """The living record with this id."""
        record = self.table.get(record_id)
        if record is None and self.purged:
            return self._lift(record_id)
        return record

    def _lift(self, record_id: int) -> Record | None:
        """Bring a leased or buried record over a purge back into the table."""
        number, slot = record_id >> CHUNK_BITS, record_id & ((1 << CHUNK_BITS) - 1)
        for layer in self.purged:
            chunk = layer.get(number)
            if chunk is not None:
                record = chunk.slots[slot]
                if record is not None and record.state in (LEASED, BURIED):
                    if chunk.frozen:
                        chunk = layer[number] = Chunk(chunk.slots.copy(), chunk.live)
                    chunk.slots[slot] = None
                    self.table.add(record)
                    return record
        return None

    def scan(self, first_id: int) -> Iterator[Record]:
        """The living records in the order of their ids, from ``first_id`` on."""
        # However far the sweeping of a purge has come on this node, a scan must see the same records on every node.
        for layer in self.purged:
            survivors = [
                record
                for chunk in layer.values()
                for record in chunk.slots
                if record is not None and record.state in (LEASED, BURIED)
            ]
            for record in survivors:
                self._lift(record.id)
        return self.table.scan(first_id)

    def admit(self, record: Record) -> None:
        """Add a new record in the state it says."""
        self.table.add(record)
        self.counts[record.state] += 1
        self.payload_bytes += len(record.payload)
        if record.state == READY:
            self.order.append(record)

    def change(self, old: Record, new: Record) -> None:
        """Put ``new`` in the place of ``old``, whatever their states."""
        if old.state == READY:
            self.order.remove(old)
        self.table.replace(new)
        if new.state == READY:
            self.order.insert(new)
        self.counts[old.state] -= 1
        self.counts[new.state] += 1

    def drop(self, record: Record) -> None:
        """Take a record that ended out of the queue."""
        if record.state == READY:
            self.order.remove(record)
        self.counts[record.state] -= 1
        self.payload_bytes -= len(record.payload)
        self.table.remove(record.id)

    def draw_place(self) -> int:
        """The next place: behind all that were drawn before."""
        place = self.next_place
        self.next_place = place + 1
        return place

"""A queue: its settings, its records by id and in order, and its figures.

This is the state of one queue and the steps that keep its parts in agreement. What commands mean stands in ``putting``,
``taking``, ``returning`` and ``operating``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from penstock.engine.chunks import CHUNK_BITS, Chunk, ChunkTable
from penstock.engine.commands import QueueSettings
from penstock.engine.dedup import DedupKeys
from penstock.engine.memory import (
    CHUNK_BYTES,
    DEDUP_KEY_BYTES,
    LEASE_GROUP_BYTES,
    LEASED_BYTES,
    ORDER_KEY_BYTES,
    QUEUE_BYTES,
    RECORD_BYTES,
    SharedBodies,
    options_bytes,
    text_bytes,
    tries_bytes,
)
from penstock.engine.order import KeyOrder
from penstock.engine.records import BURIED, DELAYED, LEASED, READY, Record
from penstock.engine.sortedblocks import SortedBlocks

_CHUNKS_LOOKED_THROUGH_MAX: Final = 64
"""What a look for the oldest record may cost: about a millisecond. The next one continues."""
_id = attrgetter("id")


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


class Frozen(NamedTuple):
    """The chunks of one number as a snapshot found them."""

    living: Chunk | None
    purged: Sequence[Chunk] = ()
    """As purges found them: only their leased and buried records live."""

    def records(self) -> list[Record]:
        """The living records in the order of their ids."""
        records: list[Record] = []
        if self.living is not None:
            records = [record for record in self.living.slots if record is not None]
        for chunk in self.purged:
            records += [record for record in chunk.slots if record is not None and record.state in (LEASED, BURIED)]
        if self.purged:
            records.sort(key=_id)
        return records

    def thaw(self) -> None:
        """Let the chunks change again."""
        for chunk in (self.living, *self.purged):
            if chunk is not None:
                chunk.frozen = False


class Queue:
    """One queue's state."""

    __slots__ = (
        "bodies",
        "buried",
        "counted_bytes",
        "counts",
        "dedup",
        "holders",
        "leases",
        "name",
        "next_id",
        "next_place",
        "options_bytes",
        "order",
        "paused",
        "payload_bytes",
        "purged",
        "settings",
        "shared_headers_bytes",
        "shared_payload_bytes",
        "stale",
        "table",
        "totals",
        "uid",
        "unswept",
        "unswept_chunks",
        "unswept_records",
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
        """The payloads of all records, of those too that were purged and are not swept yet."""
        self.options_bytes = 0
        """What these records have beyond payload and key (``memory.options_bytes``)."""
        self.buried = SortedBlocks[int]()
        """The ids of the records that are buried."""
        self.shared_payload_bytes = self.shared_headers_bytes = 0
        """The part of both that these records share with others."""
        self.bodies = SharedBodies()
        """The account of what is shared, one for all queues."""
        self.leases: dict[LeaseName, LeaseGroup] = {}
        self.holders: dict[int, None] = {}
        """The owners to whom leases of this queue are bound."""
        self.dedup = DedupKeys()
        self.totals = Totals()
        self.purged: list[dict[int, Chunk]] = []
        """Chunks as a purge found them: what waited in them is gone, what was leased or buried lives on."""
        self.unswept: list[dict[int, Chunk]] = []
        """Chunks of a purge or of the queue's end that still hold memory."""
        self.unswept_chunks = self.unswept_records = 0
        self.stale: set[Queue] = set()
        """The account's set of queues that changed since it counted them."""
        self.counted_bytes = (0, 0, 0, 0, 0)
        """What the account has counted for this queue, by kind."""

    def memory_by_kind(self) -> tuple[int, int, int, int, int]:
        """What the queue costs, in the order of the first kinds of ``engine.memory``."""
        records = sum(self.counts) + self.unswept_records
        chunks = len(self.table.chunks) + self.unswept_chunks
        return (
            QUEUE_BYTES + text_bytes(self.name) + CHUNK_BYTES * chunks,
            RECORD_BYTES * records + self.payload_bytes - self.shared_payload_bytes + ORDER_KEY_BYTES * self.order.keys,
            self.options_bytes - self.shared_headers_bytes,
            LEASE_GROUP_BYTES * len(self.leases) + LEASED_BYTES * self.counts[LEASED],
            DEDUP_KEY_BYTES * len(self.dedup.ids) + self.dedup.key_bytes,
        )

    def count_in(self, record: Record) -> None:
        """Count the memory of a record that is added."""
        self.payload_bytes += len(record.payload)
        self.options_bytes += options_bytes(record)
        extras = record.extras
        if extras is not None and extras.shared:
            self.shared_payload_bytes += len(record.payload)
            self.shared_headers_bytes += len(extras.headers)
            self.bodies.hold(extras.shared, len(record.payload) + len(extras.headers))

    def count_out(self, record: Record) -> None:
        """Count the memory of a record no longer."""
        self.payload_bytes -= len(record.payload)
        self.options_bytes -= options_bytes(record)
        extras = record.extras
        if extras is not None and extras.shared:
            self.shared_payload_bytes -= len(record.payload)
            self.shared_headers_bytes -= len(extras.headers)
            self.bodies.let_go(extras.shared, len(record.payload) + len(extras.headers))

    def set_aside(self, records: int) -> dict[int, Chunk]:
        """Detach all chunks. Their memory, and that of ``records`` records, counts until it is swept."""
        layer = self.table.chunks
        self.unswept.append(layer)
        self.unswept_chunks += len(layer)
        self.unswept_records += records
        self.stale.add(self)
        return layer

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
                    self.stale.add(self)
                    return record
        return None

    def scan(self, first_id: int) -> Iterator[Record]:
        """The living records in the order of their ids, from ``first_id`` on."""
        # However far the sweeping of a purge has come on this node, a scan must see the same records on every node.
        if self.purged:
            return self._scan_over_purges(first_id)
        return self.table.scan(first_id)

    def _scan_over_purges(self, first_id: int) -> Iterator[Record]:
        for number in self.chunk_numbers(first_id):
            yield from self.scan_chunk(number, first_id)

    def chunk_numbers(self, first_id: int) -> list[int]:
        """The numbers of the chunks that may have records from ``first_id`` on, in order."""
        first_number = first_id >> CHUNK_BITS
        numbers = self.table.numbers[bisect_left(self.table.numbers, first_number) :]
        if not self.purged:
            return numbers
        return sorted({*numbers, *(number for layer in self.purged for number in layer if number >= first_number)})

    def scan_chunk(self, number: int, first_id: int) -> Iterator[Record]:
        """The living records of one chunk, from ``first_id`` on; first, those that survived a purge are lifted."""
        for layer in self.purged:
            chunk = layer.get(number)
            if chunk is None or chunk.lifted:
                continue
            for record in chunk.slots.copy():
                if record is not None and record.state in (LEASED, BURIED):
                    self._lift(record.id)
            layer[number].lifted = True
        return self.table.scan_chunk(number, first_id)

    def oldest_us(self) -> int:
        """When the oldest record that waits was published; 0 when none waits. Ids are given in the order of time."""
        if not self.counts[READY] and not self.counts[DELAYED]:
            return 0
        record = self.table.first_waiting(_CHUNKS_LOOKED_THROUGH_MAX)
        return 0 if record is None else record.published_us

    def freeze(self) -> list[Frozen]:
        """Mark all chunks as shared with a snapshot, and return them in order."""
        if not self.purged:
            return [Frozen(chunk) for _, chunk in self.table.freeze()]
        living, purged = dict(self.table.freeze()), dict[int, list[Chunk]]()
        for layer in self.purged:
            for number, chunk in layer.items():
                chunk.frozen = True
                purged.setdefault(number, []).append(chunk)
        return [Frozen(living.get(number), purged.get(number, ())) for number in sorted({*living, *purged})]

    def admit(self, record: Record) -> None:
        """Add a new record in the state it says."""
        state = record.state
        self.table.add(record)
        self.counts[state] += 1
        if record.extras is None and record.tries is None:
            self.payload_bytes += len(record.payload)
        else:
            self.count_in(record)
        self.stale.add(self)
        if state == READY:
            self.order.append(record)

    def change(self, old: Record, new: Record) -> None:
        """Put ``new`` in the place of ``old``, whatever their states."""
        before, after = old.state, new.state
        if before == READY:
            self.order.remove(old)
        self.table.replace(new)
        if after == READY:
            self.order.insert(new)
        counts = self.counts
        counts[before] -= 1
        counts[after] += 1
        if after == BURIED:
            self.buried.add(new.id)
        elif before == BURIED:
            self.buried.discard(old.id)
        if old.extras is None and new.extras is None:
            if old.tries is not new.tries:
                self.options_bytes += tries_bytes(new.tries) - tries_bytes(old.tries)
        else:
            self.options_bytes += options_bytes(new) - options_bytes(old)
        self.stale.add(self)

    def drop(self, record: Record) -> None:
        """Take a record that ended out of the queue."""
        state = record.state
        if state == READY:
            self.order.remove(record)
        elif state == BURIED:
            self.buried.discard(record.id)
        self.counts[state] -= 1
        if record.extras is None and record.tries is None:
            self.payload_bytes -= len(record.payload)
        else:
            self.count_out(record)
        self.stale.add(self)
        self.table.remove(record.id)

    def draw_place(self) -> int:
        """The next place: behind all that were drawn before."""
        place = self.next_place
        self.next_place = place + 1
        return place

"""What the state costs in memory: one account, by kind, that is always up to date.

The figures are those of CPython on a 64-bit machine: an object with its header, its part of the containers that hold
it, and what the allocator loses. ``tests/engine/test_memory.py`` compares them with the memory of a real process, kind
by kind; a new kind of state needs its row there.

What a queue holds is not added up record by record. A queue keeps counters, from which its memory follows in a few
multiplications (``Queue.memory_by_kind``). A change marks the queue as stale, and reading the account brings the
stale queues up to date. So a read costs nothing per queue, a command costs one mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine.records import BURIED, DELAYED, FIRST_TRY, Record, Tries

if TYPE_CHECKING:
    from penstock.engine.commands import Item
    from penstock.engine.queue import Queue

# Kinds of memory. The first five belong to queues, in the order of ``Queue.memory_by_kind``.
QUEUES: Final = 0
RECORDS: Final = 1
OPTIONS: Final = 2
LEASES: Final = 3
DEDUP: Final = 4
STAGED: Final = 5
JOBS: Final = 6
NAMES: Final = 7

KIND_NAMES: Final = (
    "queues",
    "records",
    "options",
    "leases",
    "deduplication",
    "staged",
    "jobs",
    "names",
)
"""Each kind as operators see it. ``options`` is what only some records have: headers, delays, expiries, origins."""

QUEUE_BYTES: Final = 1_830
CHUNK_BYTES: Final = 8_400
RECORD_BYTES: Final = 155
"""A record with its place in the order, the object around its payload included."""
ORDER_KEY_BYTES: Final = 85
"""What a key adds for the first of its records that are ready."""
TRIES_BYTES: Final = 48
EXTRAS_BYTES: Final = 96
INT_BYTES: Final = 32
BYTES_OBJECT_BYTES: Final = 41
ORIGIN_BYTES: Final = 160
TIMER_BYTES: Final = 150
BUCKET_BYTES: Final = 330
LEASE_GROUP_BYTES: Final = 520
"""A take's or an extension's group: its names, its list, its timer."""
LEASED_BYTES: Final = 8
DEDUP_KEY_BYTES: Final = 180
PRODUCER_BYTES: Final = 320
ANSWER_BYTES: Final = 210
OWNER_BYTES: Final = 450
STAGED_BYTES: Final = 1_150
PART_BYTES: Final = 500
ITEM_BYTES: Final = 150
PAYLOAD_BYTES: Final = 100
OPTIONS_BYTES: Final = 270
BODY_BYTES: Final = 200
JOB_BYTES: Final = 700
BINDING_BYTES: Final = 240
NAME_BYTES: Final = 90


def tries_bytes(tries: Tries | None) -> int:
    """What a record costs for what it has been through: nothing at first, when the object is one for all."""
    return 0 if tries is None or tries is FIRST_TRY or tries == FIRST_TRY else TRIES_BYTES


def options_bytes(record: Record) -> int:
    """What a record costs beyond ``RECORD_BYTES`` and its payload."""
    tries, extras = record.tries, record.extras
    size = 0 if tries is None or tries is FIRST_TRY else tries_bytes(tries)
    if extras is None:
        return size
    size += EXTRAS_BYTES
    if extras.available_at_us:
        size += INT_BYTES + (TIMER_BYTES if record.state == DELAYED else 0)
    if extras.expires_at_us:
        size += INT_BYTES + (TIMER_BYTES if record.state != BURIED else 0)
    if extras.lease_ms:
        size += INT_BYTES
    if extras.headers:
        size += BYTES_OBJECT_BYTES + len(extras.headers)
    if extras.shared:
        size -= 2 * BYTES_OBJECT_BYTES  # the objects around payload and headers are those of another record
    if extras.dedup_key is not None:
        size += text_bytes(extras.dedup_key)
    if extras.origin is not None:
        size += ORIGIN_BYTES
    if extras.failure:
        size += text_bytes(extras.failure) + INT_BYTES
    return size


def text_bytes(text: str) -> int:
    """What a text costs, whatever its characters."""
    return text.__sizeof__()


def items_bytes(puts: list[tuple[str, list[Item]]]) -> int:
    """What items cost that wait to be put, with the places of their payloads in their entry."""
    size = 0
    for _, items in puts:
        for item in items:
            size += ITEM_BYTES
            if item.payload:
                size += PAYLOAD_BYTES + len(item.payload)
            if item.options is not None:
                size += OPTIONS_BYTES + len(bytes(item.options.headers))
                if item.options.dedup_key is not None:
                    size += text_bytes(item.options.dedup_key)
    return size


class SharedBodies:
    """Payloads and headers that several records share, each counted once while a record holds it."""

    __slots__ = ("_holders", "size_bytes")

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self.size_bytes = 0

    def hold(self, position: int, content_bytes: int) -> None:
        """One more record holds the body of the message at this position."""
        holders = self._holders.get(position, 0)
        self._holders[position] = holders + 1
        if not holders:
            self.size_bytes += BODY_BYTES + content_bytes

    def let_go(self, position: int, content_bytes: int) -> None:
        """A record that held it has ended."""
        holders = self._holders[position] - 1
        if holders:
            self._holders[position] = holders
        else:
            del self._holders[position]
            self.size_bytes -= BODY_BYTES + content_bytes


class StateMemory:
    """Bytes by kind."""

    __slots__ = ("_bytes", "stale", "total_bytes")

    def __init__(self) -> None:
        self._bytes = [0] * len(KIND_NAMES)
        self.total_bytes = 0
        self.stale: set[Queue] = set()
        """Queues that changed since they were last added up."""

    def change(self, kind: int, delta_bytes: int) -> None:
        """Add to a kind, or take from it."""
        self._bytes[kind] += delta_bytes
        self.total_bytes += delta_bytes

    def settle(self) -> int:
        """Bring the stale queues up to date; returns the total."""
        for queue in self.stale:
            now, before = queue.memory_by_kind(), queue.counted_bytes
            for kind, size in enumerate(now):
                self.change(kind, size - before[kind])
            queue.counted_bytes = now
        self.stale.clear()
        return self.total_bytes

    def forget(self, queue: Queue) -> None:
        """A queue is gone, with all that it held."""
        for kind, size in enumerate(queue.counted_bytes):
            self.change(kind, -size)
        self.stale.discard(queue)
        queue.stale = set()  # what is left to be swept of it no longer concerns the account

    def of(self, kind: int) -> int:
        """The bytes of one kind."""
        if self.stale:
            self.settle()
        return self._bytes[kind]

    def by_kind(self) -> dict[str, int]:
        """The bytes of each kind by its name."""
        self.settle()
        return dict(zip(KIND_NAMES, self._bytes, strict=True))

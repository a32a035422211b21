"""The whole replicated state, and the moment at which it is being changed.

Handlers get this one object: the queues and all else that the log builds, the calendar of timers, and the moment, that
is which command of which entry is being applied, through which door, for whom, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.engine.bindings import Bindings
from penstock.engine.commands import INT64_MAX, Broadcast, QueueSettings
from penstock.engine.journal import ROW
from penstock.engine.locating import LARGE_BYTES, NEAR_BYTES, find_part
from penstock.engine.memory import BUCKET_BYTES, JOB_BYTES, OWNER_BYTES, SharedBodies, StateMemory
from penstock.engine.names import DEFAULT_QUEUE
from penstock.engine.producers import Producers
from penstock.engine.queue import LeaseName, Queue
from penstock.engine.records import DELAYED, Lease, Record
from penstock.engine.staged import StagedBatches
from penstock.engine.timers import DELAY_END, EXPIRY, LEASE_END, Timers

if TYPE_CHECKING:
    from penstock.engine.jobs import Job

LEASES_PER_OWNER_MAX: Final = 10_000
OWNER_TERM_SHIFT: Final = 32
"""An owner is (term, connection): the term stands above these bits."""
POSITION_BITS: Final = 16
_DELIVERIES_SHOWN_MAX: Final = 0xFFFFFFFF
STAGED_FOR_US: Final = 24 * 3600 * 1_000_000
"""How long what is staged is kept where the leader does not say."""


class Bound:
    """The leases of one queue that are bound to one connection."""

    __slots__ = ("leases", "names")

    def __init__(self) -> None:
        self.leases = 0
        self.names: set[LeaseName] = set()


class Owner:
    """The leases that are bound to one connection."""

    __slots__ = ("leases", "queues")

    def __init__(self) -> None:
        self.leases = 0
        self.queues: dict[int, Bound] = {}
        """By the queue's uid."""

    def hold(self, queue: Queue, name: LeaseName, number: int, count: int) -> None:
        """Bind ``count`` leases of a group to this owner, whose number is given."""
        bound = self.queues.get(queue.uid)
        if bound is None:
            bound = self.queues[queue.uid] = Bound()
            queue.holders[number] = None
        bound.names.add(name)
        bound.leases += count
        self.leases += count

    def let_go(self, queue_uid: int, count: int) -> None:
        """``count`` leases ended; their group may have others."""
        self.queues[queue_uid].leases -= count
        self.leases -= count

    def forget_group(self, queue: Queue, name: LeaseName, number: int) -> None:
        """The last lease of a group ended."""
        bound = self.queues[queue.uid]
        bound.names.discard(name)
        if not bound.names:
            del self.queues[queue.uid]
            del queue.holders[number]

    def forget_queue(self, queue_uid: int) -> None:
        """A queue is gone, with all its leases."""
        self.leases -= self.queues.pop(queue_uid).leases


class State:
    """What the log has built so far."""

    def __init__(self) -> None:
        self.index = -1
        self.memory = StateMemory()
        self.bodies = SharedBodies()
        self.term = 0
        self.stamp_us = 0
        self.by_name: dict[str, Queue] = {}
        self.by_uid: dict[int, Queue] = {}
        self.leaving: dict[int, Queue] = {}
        """Deleted queues whose memory is not free yet."""
        self.former_names: dict[int, str] = {}
        """Names of deleted queues, the last ones: whoever reads old events wants to know whose they were."""
        self.timers = Timers()
        self.owners: dict[int, Owner] = {}
        self.owner_names: dict[int, str] = {}
        """Names of the connections that have one, while they live (``engine.owners``)."""
        self.owners_gone: dict[int, int] = {}
        """Owners whose leases are released entry by entry, and for what reason."""
        self.producers = Producers()
        self.producers_kept_until_us = 0
        """Nobody is to be forgotten before. Only saves looking: it is no part of the state."""
        self.staged = StagedBatches()
        self.published: dict[str, int] = {}
        self.bindings = Bindings()
        self.jobs: dict[int, Job] = {}
        self.payload_bytes_max = self.queues_max = INT64_MAX
        """Limits that the leader's ``NewTerm`` brought."""
        self.wall_offset_us = 0
        """How far log time is ahead of the leader's wall clock, as the last ``Tick`` with one said."""
        self.kept_since_us = 0
        """When log time last jumped by more than ``JUMP_US_MAX`` between two terms: no segment is older than this."""
        self.staged_for_us = STAGED_FOR_US
        """How long what is staged is kept, by the same."""
        self.rules = 0
        """By which of ``commands.RULES`` entries are applied now."""
        self.add_queue(Queue(0, DEFAULT_QUEUE, QueueSettings()))

        # The moment.
        self.previous_stamp_us = 0
        """The stamp of the entry before."""
        self.n = 0
        self.item = 0
        self.spare = 0
        """How many records the commands of this entry may still touch beyond those that they name."""
        self.door = 0
        self.owner = 0
        self.position = 0
        self.body = b""
        self.body_offset = 0

        # What this entry yields besides answers; emptied by whoever applies.
        self.rows: list[bytes] = []
        self.woken: set[str] = set()
        """Queues that got records to serve."""
        self.broadcasts: list[Broadcast] = []
        self.leases_ended: list[tuple[int, int, int]] = []
        """(owner, record id, token) of each lease that this entry ended, except by an ack of its holder. ``apply``
        empties it, because only a live node looks at it."""
        self.trash: list[Callable[[], bool]] = []
        """Work that only frees memory, each in small steps; true when it has ended."""

    def from_wall(self, wall_us: int) -> int:
        """A wall-clock time as log time; 0 stays "not set"."""
        return max(1, wall_us + self.wall_offset_us) if wall_us else 0

    def to_wall(self, log_us: int) -> int:
        """A log time as wall-clock time, for people; 0 stays "not set"."""
        return max(1, log_us - self.wall_offset_us) if log_us else 0

    def add_queue(self, queue: Queue) -> None:
        """Add a new queue, or put a restored one in the place of the one that every state begins with."""
        former = self.by_uid.get(queue.uid)
        if former is not None:
            self.memory.forget(former)
        self.by_name[queue.name] = queue
        self.by_uid[queue.uid] = queue
        queue.bodies = self.bodies
        queue.stale = self.memory.stale
        queue.stale.add(queue)

    def row(
        self,
        kind: int,
        queue_uid: int = 0,
        record_id: int = 0,
        key: int = 0,
        deliveries: int = 0,
        reason: int = 0,
        value: int = 0,
        other_queue: int = 0,
        other_record: int = 0,
        payload_index: int | None = None,
        payload: tuple[int, int] = (0, 0),
        headers: tuple[int, int] = (0, 0),
    ) -> None:
        """Write one event into the journal."""
        self.rows.append(
            ROW.pack(
                self.index,
                self.n,
                self.item,
                kind,
                self.door,
                reason,
                min(deliveries, _DELIVERIES_SHOWN_MAX),
                self.stamp_us,
                self.owner,
                queue_uid,
                record_id,
                key,
                value,
                other_queue,
                other_record,
                self.index if payload_index is None else payload_index,
                *payload,
                *headers,
            )
        )
        self.item += 1

    def record_row(
        self,
        kind: int,
        queue: Queue,
        record: Record,
        reason: int = 0,
        value: int = 0,
        payload: tuple[int, int] = (0, 0),
    ) -> None:
        """Write an event of a record that is in its queue: as ``row``, with less to pass on."""
        tries, index = record.tries, self.index
        deliveries = tries.deliveries if tries is not None else 0
        if deliveries > _DELIVERIES_SHOWN_MAX:
            deliveries = _DELIVERIES_SHOWN_MAX
        self.rows.append(
            ROW.pack(
                *(index, self.n, self.item, kind, self.door, reason, deliveries, self.stamp_us, self.owner),
                *(queue.uid, record.id, record.key, value, 0, 0, index, *payload, 0, 0),
            )
        )
        self.item += 1

    def locate(self, part: bytes, start: int = 0) -> tuple[int, int]:
        """Where bytes of the command's body lie in the entry: (offset, length); (0, 0) where they are not in it."""
        length = len(part)
        found = self.body.find(part, start, start + length + NEAR_BYTES) if length < LARGE_BYTES else -1
        if found < 0:
            found = find_part(self.body, part, start)
        return (self.body_offset + found, length) if found >= 0 else (0, 0)

    def end_lease(self, queue: Queue, record_id: int, lease: Lease) -> None:
        """A record is no longer held under this lease; reported to the door that pushed it to its holder."""
        self.leases_ended.append((lease.owner, record_id, lease.token))
        group = queue.leases[lease.serial, lease.until_us]
        if group.left > 1 and lease.until_us:
            group.left -= 1
        else:
            self.leave_group(queue, lease)

    def leave_group(self, queue: Queue, lease: Lease) -> None:
        """One record is no longer held under this lease."""
        name = (lease.serial, lease.until_us)
        group = queue.leases[name]
        group.left -= 1
        owner = self.owners.get(group.owner)
        if owner is not None and not lease.until_us:
            owner.let_go(queue.uid, 1)
        if group.left:
            return
        del queue.leases[name]
        if lease.until_us:
            self.timers.cancel(lease.until_us, (LEASE_END, queue.uid, *name))
        elif owner is not None:
            owner.forget_group(queue, name, group.owner)
            if not owner.queues:
                del self.owners[group.owner]

    def forget_timers(self, queue_uid: int, record: Record) -> None:
        """Cancel what was to happen to a record that ends."""
        extras = record.extras
        if extras is not None:
            if record.state == DELAYED:
                self.timers.cancel(extras.available_at_us, (DELAY_END, queue_uid, record.id))
            if extras.expires_at_us:
                self.timers.cancel(extras.expires_at_us, (EXPIRY, queue_uid, record.id))

    def end(self, queue: Queue, record: Record) -> None:
        """Take a record out of its queue for good, with its lease and its timers."""
        if record.lease is not None:
            self.end_lease(queue, record.id, record.lease)
        self.forget_timers(queue.uid, record)
        queue.drop(record)

    def memory_bytes(self) -> int:
        """What the whole state costs in memory, about."""
        memory = self.memory
        total_bytes = memory.settle() if memory.stale else memory.total_bytes
        return total_bytes + sum(self._other_memory())

    def memory_by_kind(self) -> dict[str, int]:
        """The same by the name of each kind."""
        timers, owners, producers, jobs, bindings, shared = self._other_memory()
        by_kind = self.memory.by_kind()
        by_kind["jobs"] += jobs
        other = {"producers": producers, "bindings": bindings, "timers": timers, "owners": owners}
        return {**by_kind, "shared bodies": shared, **other}

    def _other_memory(self) -> tuple[int, int, int, int, int, int]:
        """What follows from the size of a few containers: timers, owners, producers, jobs, bindings, shared bodies."""
        return (
            BUCKET_BYTES * self.timers.buckets,
            OWNER_BYTES * len(self.owners),
            self.producers.size_bytes,
            JOB_BYTES * len(self.jobs),
            self.bindings.size_bytes,
            self.bodies.size_bytes,
        )

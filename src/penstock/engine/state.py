"""The whole replicated state, and the moment at which it is being changed.

Handlers get this one object: the queues and all else that the log builds, the calendar of timers, and the moment, that
is which command of which entry is being applied, through which door, for whom, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.engine.chunks import CHUNK_BYTES
from penstock.engine.commands import INT64_MAX, Broadcast, QueueSettings
from penstock.engine.journal import ROW
from penstock.engine.names import DEFAULT_QUEUE
from penstock.engine.producers import Producers
from penstock.engine.queue import RECORD_BYTES, LeaseName, Queue
from penstock.engine.records import DELAYED, Lease, Record
from penstock.engine.timers import DELAY_END, EXPIRY, LEASE_END, Timers
from penstock.engine.views import BindingView

if TYPE_CHECKING:
    from penstock.engine.jobs import Job
    from penstock.engine.staging import Staged

LEASES_PER_OWNER_MAX: Final = 10_000
OWNER_TERM_SHIFT: Final = 32
"""An owner is (term, connection): the term stands above these bits."""
POSITION_BITS: Final = 16
FIND_SLACK_BYTES: Final = 48
"""How far beyond a part's length to look for it first: the frame of a plain item is shorter than this."""


class Owner:
    """The leases that are bound to one connection."""

    __slots__ = ("groups", "leases")

    def __init__(self) -> None:
        self.leases = 0
        self.groups: set[tuple[int, LeaseName]] = set()


class State:
    """What the log has built so far."""

    def __init__(self) -> None:
        self.index = -1
        self.term = 0
        self.stamp_us = 0
        self.by_name: dict[str, Queue] = {}
        self.by_uid: dict[int, Queue] = {}
        self.former_names: dict[int, str] = {}
        """Names of deleted queues, the last ones: whoever reads old events wants to know whose they were."""
        self.timers = Timers()
        self.owners: dict[int, Owner] = {}
        self.producers = Producers()
        self.producers_kept_until_us = 0
        """Nobody is to be forgotten before. Only saves looking: it is no part of the state."""
        self.staged: dict[tuple[str, int, int, int], Staged] = {}
        self.published: dict[str, int] = {}
        self.bindings: dict[str, BindingView] = {}
        self.jobs: dict[int, Job] = {}
        self.payload_bytes_max = self.queues_max = INT64_MAX
        """Limits that the leader's ``NewTerm`` brought."""
        self.staged_bytes = 0
        """The payloads of what is staged, which count as memory though nobody sees them."""
        self.add_queue(Queue(0, DEFAULT_QUEUE, QueueSettings()))

        # The moment.
        self.n = 0
        self.item = 0
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
        self.trash: list[Callable[[], bool]] = []
        """Work that only frees memory, each in small steps; true when it has ended."""

    def add_queue(self, queue: Queue) -> None:
        self.by_name[queue.name] = queue
        self.by_uid[queue.uid] = queue

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
                min(deliveries, 0xFFFFFFFF),
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

    def record_row(self, kind: int, queue: Queue, record: Record, reason: int = 0, value: int = 0) -> None:
        """Write an event of a record that is in its queue."""
        tries = record.tries
        self.row(kind, queue.uid, record.id, record.key, tries.deliveries if tries else 0, reason, value)

    def locate(self, part: bytes, start: int = 0) -> tuple[int, int]:
        """Where bytes of the command's body lie in the entry: (offset, length); (0, 0) where they are not in it."""
        length = len(part)
        # Near first: a search over a long body for a long part would begin with a costly preparation.
        found = self.body.find(part, start, start + length + FIND_SLACK_BYTES)
        if found < 0:
            found = self.body.find(part, start)
        return (self.body_offset + found, length) if found >= 0 else (0, 0)

    def leave_group(self, queue: Queue, lease: Lease) -> None:
        """One record is no longer held under this lease."""
        name = (lease.serial, lease.until_us)
        group = queue.leases[name]
        group.left -= 1
        owner = self.owners.get(group.owner)
        if owner is not None and not lease.until_us:
            owner.leases -= 1
        if group.left:
            return
        del queue.leases[name]
        if lease.until_us:
            self.timers.cancel(lease.until_us, (LEASE_END, queue.uid, *name))
        elif owner is not None:
            owner.groups.discard((queue.uid, name))
            if not owner.groups:
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
            self.leave_group(queue, record.lease)
        self.forget_timers(queue.uid, record)
        queue.drop(record)

    def memory_bytes(self) -> int:
        """What the records cost in memory, about."""
        return self.staged_bytes + sum(
            q.payload_bytes + RECORD_BYTES * sum(q.counts) + CHUNK_BYTES * len(q.table.chunks)
            for q in self.by_uid.values()
        )

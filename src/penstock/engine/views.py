"""What can be seen of the state without changing it: the shapes in which queues, records and events are shown.

The functions that fill them stand in ``engine.reading``.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.engine import journal
from penstock.engine.commands import QueueSettings

STATE_NAMES = ("ready", "delayed", "leased", "buried")
"""A record's states by number."""


class QueueView(Struct, array_like=True, gc=False):
    """A queue and its figures."""

    name: str
    uid: int
    settings: QueueSettings
    paused: bool
    ready: int
    delayed: int
    leased: int
    buried: int
    payload_bytes: int
    oldest_us: int
    """When the oldest record that waits was published, about; 0 when none waits."""
    put: int
    delivered: int
    acked: int
    returned: int
    expired: int
    dead_lettered: int
    ended_otherwise: int
    """Deleted, purged or moved away."""
    dedup_keys: int = 0
    """How many deduplication keys it remembers, of the setting ``dedup_keys_max`` at most."""


class Origin(Struct, array_like=True, gc=False):
    """Where a dead letter or a moved record came from, and what it had been through there."""

    queue: str
    queue_uid: int
    id: int
    published_us: int
    moved_us: int
    deliveries: int
    failures: int
    releases: int
    timeouts: int
    reason: int


class RecordView(Struct, array_like=True, gc=False):
    """A record with all that is known of it."""

    id: int
    key: int
    payload: bytes
    state: int
    place: int
    published_us: int
    deliveries: int
    failures: int
    releases: int
    timeouts: int
    available_at_us: int = 0
    expires_at_us: int = 0
    lease_until_us: int = 0
    """0 while leased: bound to its holder's connection."""
    token: int = 0
    owner: int = 0
    headers: bytes = b""
    dedup_key: str | None = None
    reason: int = 0
    origin: Origin | None = None
    lease_ms: int = 0
    """How long takes of it last by its own wish; 0 where it has none."""
    failure: str = ""
    """The text of its last failure."""
    holder: str = ""
    """The name of the connection that holds it, where that has one."""


class Page(Struct, array_like=True, gc=False):
    """Some records, and the cursor to go on from; 0 when there are no more."""

    records: list[RecordView]
    cursor: int


class JobView(Struct, array_like=True, gc=False):
    """A redrive under way, or one that ended lately."""

    id: int
    queue: str
    target: str | None
    moved: int
    skipped: int
    done: bool


class StagedView(Struct, array_like=True, gc=False):
    """What is staged for one batch of a query."""

    query: str
    batch: int
    partitions: int
    attempts: int
    records: int
    size_bytes: int
    """What it costs in memory."""
    began_us: int
    """When the first part came, as the wall clock shows it; 0 where an earlier version staged it."""
    ends_us: int
    """When the first of its attempts is dropped, as the wall clock shows it."""


class BindingView(Struct, array_like=True, gc=False):
    """A binding of topic messages to a queue."""

    name: str
    spec: str
    type: str
    queue: str
    timeout_ms: int
    paused: bool


class EventView(Struct, array_like=True, gc=False):
    """One event of the journal, as a person reads it. Kinds, reasons and doors are named in ``engine.journal``."""

    index: int
    n: int
    item: int
    kind: int
    door: int
    reason: int
    time_us: int
    owner: int
    queue_uid: int
    id: int
    key: int
    deliveries: int
    value: int
    other_queue_uid: int
    other_id: int
    text: str = ""
    """What failed and why, of a nack, a bury or a dead letter; empty where none was given or is kept any more."""
    owner_name: str = ""
    """The name of the connection that asked for it, where that had one."""

    @property
    def kind_name(self) -> str:
        """What happened, in words; the number of a kind that this version does not know."""
        return journal.KINDS[self.kind][0] if self.kind in journal.KINDS else f"event {self.kind}"

    @property
    def reason_name(self) -> str:
        """Why, in words; empty where there is no reason."""
        return journal.REASONS.get(self.reason, f"reason {self.reason}")

    @property
    def door_name(self) -> str:
        """Through which door, in words."""
        return journal.DOORS.get(self.door, f"door {self.door}")

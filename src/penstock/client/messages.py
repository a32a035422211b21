"""What a taker holds: messages under a lease. And what a reader sees: records as they stand in a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from penstock.client.errors import LeaseLost
from penstock.client.failures import reason_name, short_failure
from penstock.client.protocol import Handle
from penstock.client.units import Seconds, decode_headers, to_datetime, to_datetime_or_none, to_ms
from penstock.engine import commands as c
from penstock.engine.answers import Delivery, Handled
from penstock.engine.views import STATE_NAMES, RecordView
from penstock.engine.views import Origin as OriginView

A = TypeVar("A")


class Caller(Protocol):
    """Whoever can send a request and wait for its answer."""

    async def call(self, request: object, answer: type[A]) -> A:
        """Send a request, and wait for its answer."""


class LeasedMessage:
    """What is known of a message that was taken, and the requests that settle it; each style of client puts its own
    methods on top."""

    __slots__ = ("_caller", "_delivery", "_headers", "lost", "queue", "settled", "token")

    def __init__(self, caller: Caller, queue: str, token: int, delivery: Delivery) -> None:
        self._caller = caller
        self._delivery = delivery
        self._headers: dict[str, str] | None = None
        self.queue = queue
        """The name of the queue that it came from."""
        self.token = token
        """The fencing token of the lease: greater for every later take."""
        self.settled = False
        """It was acknowledged, given back or buried."""
        self.lost = False
        """The lease turned out to have ended before."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue!r} id={self.id} key={self.key} deliveries={self.deliveries}>"

    @property
    def id(self) -> int:
        """The message's number in its queue, from 1; it never changes."""
        return self._delivery.id

    @property
    def key(self) -> int:
        """Its priority: the smallest comes first, unless the queue says otherwise."""
        return self._delivery.key

    @property
    def payload(self) -> bytes:
        """What it carries."""
        return self._delivery.payload

    @property
    def text(self) -> str:
        """What it carries, as UTF-8 text."""
        return self._delivery.payload.decode()

    @property
    def headers(self) -> dict[str, str]:
        """What was said about it."""
        if self._headers is None:
            self._headers = decode_headers(self._delivery.headers)
        return self._headers

    @property
    def deliveries(self) -> int:
        """How often it was taken, this time included."""
        return self._delivery.deliveries

    @property
    def published_at(self) -> datetime:
        """When it was put, in UTC."""
        return to_datetime(self._delivery.published_us)

    @property
    def lease_until(self) -> datetime | None:
        """When the lease that it was taken under ends; None for a lease that lasts as long as the connection."""
        return to_datetime_or_none(self._delivery.lease_until_us)

    @property
    def lease_until_us(self) -> int:
        """As ``lease_until``, in microseconds of the log's time; 0 for a lease bound to the connection."""
        return self._delivery.lease_until_us

    @property
    def failure(self) -> str:
        """The text of its last failure: what a worker said, or the exception that it raised."""
        return self._delivery.failure

    @property
    def handle(self) -> Handle:
        """Names the lease: id and token. Whoever has it can settle the message."""
        return self.id, self.token

    async def _ack(self) -> None:
        self._settle(await self._caller.call(c.Ack(self.queue, [self.handle]), Handled))

    async def _give_back(self, how: int, delay: Seconds, failure: str = "") -> None:
        request = c.Return(self.queue, [self.handle], how, to_ms(delay), 0, short_failure(failure))
        self._settle(await self._caller.call(request, Handled))

    async def _extend(self, lease: Seconds) -> None:
        self._check(await self._caller.call(c.Extend(self.queue, [self.handle], to_ms(lease)), Handled))

    async def _bury(self, failure: str) -> None:
        self._settle(await self._caller.call(c.Bury(self.queue, [self.handle], short_failure(failure)), Handled))

    def _settle(self, handled: Handled) -> None:
        self._check(handled)
        self.settled = True

    def _check(self, handled: Handled) -> None:
        if handled.lost:
            self.lost = True
            raise LeaseLost(f"the lease of record {self.id} in {self.queue!r} ended before")


class Message(LeasedMessage):
    """A message that was taken: yours until its lease ends, unless you end it before."""

    __slots__ = ()

    async def ack(self) -> None:
        """The work is done: the message ends. Raises ``LeaseLost`` if the lease ended before."""
        await self._ack()

    async def nack(self, *, delay: Seconds = 0, failure: str = "") -> None:
        """The work failed: the message goes back to its place, or comes back after ``delay``.

        failure: what failed and why, for people; at most 1 KiB of it is kept.
        """
        await self._give_back(c.NACK, delay, failure)

    async def release(self, *, delay: Seconds = 0) -> None:
        """Give the message back unharmed: no failure is counted."""
        await self._give_back(c.RELEASE, delay)

    async def extend(self, lease: Seconds) -> None:
        """Let the lease last ``lease`` from now. Raises ``LeaseLost`` if it ended before."""
        await self._extend(lease)

    async def bury(self, *, failure: str = "") -> None:
        """Set the message aside until somebody kicks, moves or deletes it. ``failure`` says why."""
        await self._bury(failure)


Leased: TypeAlias = LeasedMessage | Handle
"""A lease: the message itself, or its handle (id, token)."""


def handles_of(leases: Iterable[Leased]) -> tuple[Sequence[Leased], list[Handle]]:
    """Leases as a sequence, and their handles."""
    kept = list(leases)
    return kept, [lease.handle if isinstance(lease, LeasedMessage) else lease for lease in kept]


def one_or_many(leases: Leased | Iterable[Leased]) -> Iterable[Leased]:
    """A single lease as a list of one. A tuple that begins with a number is a handle."""
    if isinstance(leases, LeasedMessage):
        return [leases]
    if isinstance(leases, tuple) and len(leases) == 2 and isinstance(leases[0], int):
        return [(leases[0], leases[1])]
    return leases


def mark(leases: Sequence[Leased], handled: Handled, *, settled: bool = True) -> Handled:
    """Note on the messages among ``leases`` what became of them."""
    lost = set(handled.lost)
    for position, lease in enumerate(leases):
        if isinstance(lease, LeasedMessage) and not lease.settled:
            lease.lost = lease.lost or position in lost
            lease.settled = settled and position not in lost
    return handled


class Origin(Struct, frozen=True):
    """Where a dead letter or a moved record came from, and what it had been through there."""

    queue: str
    queue_uid: int
    id: int
    published_at: datetime
    moved_at: datetime
    deliveries: int
    failures: int
    releases: int
    timeouts: int
    reason: str
    """Why it left: ``nack``, ``operator``, …"""

    @classmethod
    def of(cls, origin: OriginView) -> Origin:
        """An origin from the wire's form."""
        return cls(
            queue=origin.queue,
            queue_uid=origin.queue_uid,
            id=origin.id,
            published_at=to_datetime(origin.published_us),
            moved_at=to_datetime(origin.moved_us),
            deliveries=origin.deliveries,
            failures=origin.failures,
            releases=origin.releases,
            timeouts=origin.timeouts,
            reason=reason_name(origin.reason),
        )


class Record(Struct, frozen=True):
    """A record as it stands in its queue, with all that is known of it."""

    queue: str
    id: int
    key: int
    payload: bytes
    state: str
    """``ready``, ``delayed``, ``leased`` or ``buried``."""
    headers: dict[str, str]
    published_at: datetime
    available_at: datetime | None
    expires_at: datetime | None
    lease_until: datetime | None
    deliveries: int
    failures: int
    releases: int
    timeouts: int
    place: int
    """Records of one key go in the order of their places."""
    token: int
    owner: int
    dedup_key: str | None
    reason: str
    """Why it was buried, moved or became a dead letter, such as ``nack`` or ``lease timeout``; empty for none."""
    origin: Origin | None
    """Where a dead letter or moved record came from."""
    lease: float = 0
    """How long takes of it last by its own wish, in seconds; 0 where it has none."""
    failure: str = ""
    """The text of its last failure: what a worker said, or the exception that it raised."""
    holder: str = ""
    """The name of the connection that holds it (``connect(name=…)``); empty where that has none."""

    @property
    def text(self) -> str:
        """What it carries, as UTF-8 text."""
        return self.payload.decode()

    @classmethod
    def of(cls, queue: str, view: RecordView) -> Record:
        """A record from the wire's form."""
        return cls(
            queue=queue,
            id=view.id,
            key=view.key,
            payload=view.payload,
            state=STATE_NAMES[view.state],
            headers=decode_headers(view.headers),
            published_at=to_datetime(view.published_us),
            available_at=to_datetime_or_none(view.available_at_us),
            expires_at=to_datetime_or_none(view.expires_at_us),
            lease_until=to_datetime_or_none(view.lease_until_us),
            deliveries=view.deliveries,
            failures=view.failures,
            releases=view.releases,
            timeouts=view.timeouts,
            place=view.place,
            token=view.token,
            owner=view.owner,
            dedup_key=view.dedup_key,
            reason=reason_name(view.reason),
            origin=None if view.origin is None else Origin.of(view.origin),
            lease=view.lease_ms / 1000,
            failure=view.failure,
            holder=view.holder,
        )

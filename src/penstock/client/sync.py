"""The blocking client: the same names as the asynchronous one, which it runs in a background thread.

A client may be used by several threads at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType

from msgspec import UNSET, UnsetType

from penstock.client import aio, messages
from penstock.client.backoff import Backoff
from penstock.client.errors import Refused
from penstock.client.items import ItemLike, PutResult
from penstock.client.link import Link
from penstock.client.messages import Leased, LeasedMessage, Record
from penstock.client.portal import Portal, ThreadPortal
from penstock.client.protocol import ANSWER_BYTES_MAX
from penstock.client.queue import KeyRange
from penstock.client.queue import Queue as AioQueue
from penstock.client.subscription import DEFAULT_WINDOW
from penstock.client.subscription import Subscription as AioSubscription
from penstock.client.units import Payload, Seconds
from penstock.engine import commands as c
from penstock.engine.answers import Created, Handled, Published
from penstock.engine.views import BindingView, EventView, JobView, QueueView, StagedView
from penstock.wire.native.messages import NodeStatus


def connect_sync(
    url: str | None = None,
    *,
    name: str = "",
    connect_timeout: float = 5.0,
    retry_timeout: float = 30.0,
    call_timeout: float | None = None,
    ping_interval: float = 20.0,
    reconnect: Backoff | None = None,
    frame_bytes_max: int = ANSWER_BYTES_MAX,
) -> Client:
    """Connect to a node or a cluster: ``with connect_sync() as client`` or ``client = connect_sync()``.

    The parameters are those of ``connect``.
    """
    connecting = aio.connect(
        url,
        name=name,
        connect_timeout=connect_timeout,
        retry_timeout=retry_timeout,
        call_timeout=call_timeout,
        ping_interval=ping_interval,
        reconnect=reconnect,
        frame_bytes_max=frame_bytes_max,
    )
    portal = ThreadPortal()
    try:
        return Client(portal, portal.call(connecting.open()))
    except BaseException:
        portal.close()
        raise


class Message(LeasedMessage):
    """A message that was taken: yours until its lease ends, unless you end it before."""

    __slots__ = ("_portal",)
    _portal: Portal

    @classmethod
    def of(cls, portal: Portal, message: messages.Message) -> Message:
        """The blocking form of a message."""
        blocking = cls(message._caller, message.queue, message.token, message._delivery)
        blocking.settled = message.settled
        blocking._portal = portal
        return blocking

    def ack(self) -> None:
        """The work is done: the message ends. Raises ``LeaseLost`` if the lease ended before."""
        self._portal.call(self._ack())

    def nack(self, *, delay: Seconds = 0, failure: str = "") -> None:
        """The work failed: the message goes back to its place, or comes back after ``delay``.

        failure: what failed and why, for people; at most 1 KiB of it is kept.
        """
        self._portal.call(self._give_back(c.NACK, delay, failure))

    def release(self, *, delay: Seconds = 0) -> None:
        """Give the message back unharmed: no failure is counted."""
        self._portal.call(self._give_back(c.RELEASE, delay))

    def extend(self, lease: Seconds) -> None:
        """Let the lease last ``lease`` from now. Raises ``LeaseLost`` if it ended before."""
        self._portal.call(self._extend(lease))

    def bury(self, *, failure: str = "") -> None:
        """Set the message aside until somebody kicks, moves or deletes it. ``failure`` says why."""
        self._portal.call(self._bury(failure))


class Subscription:
    """Messages of a queue as they come: a context manager and an iterator."""

    def __init__(self, portal: Portal, inner: AioSubscription) -> None:
        self._portal = portal
        self._inner = inner
        self._entered = False

    def __enter__(self) -> Subscription:
        self._entered = True
        self._portal.call(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self if self._entered else self._iterate()

    def _iterate(self) -> Iterator[Message]:
        with self:
            yield from self

    def __next__(self) -> Message:
        message = self._portal.call(self._inner.take_next())
        if message is None:
            raise StopIteration
        return Message.of(self._portal, message)

    def close(self) -> None:
        """End the subscription. Iterations over it stop, and what nobody has asked for yet goes back."""
        self._portal.call(self._inner.close())


class Queue:
    """A queue, by name; whether it exists, the node knows. Got from ``client.queue(name)``."""

    __slots__ = ("_inner", "_portal", "name")

    def __init__(self, portal: Portal, inner: AioQueue) -> None:
        self._portal = portal
        self._inner = inner
        self.name = inner.name

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def put(
        self,
        payload: Payload,
        key: int = 0,
        *,
        delay: Seconds = 0,
        expires: Seconds | datetime = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        lease: Seconds = 0,
        create: bool = False,
    ) -> PutResult:
        """Put a message. It is durable when this returns. The parameters are those of the asynchronous queue."""
        work = self._inner.put(
            payload,
            key,
            delay=delay,
            expires=expires,
            at=at,
            headers=headers,
            dedup_key=dedup_key,
            lease=lease,
            create=create,
        )
        return self._portal.call(work)

    def put_many(self, items: Iterable[ItemLike]) -> list[PutResult]:
        """Put messages, all or none. A refusal names the first that is refused by its ``position``."""
        return self._portal.call(self._inner.put_many(items))

    def put_each(self, items: Iterable[ItemLike], *, create: bool = False) -> list[PutResult | Refused]:
        """Put messages in one request, each judged by itself: in their order, a result or the refusal for each."""
        return self._portal.call(self._inner.put_each(items, create=create))

    def take(self, *, wait: Seconds | None = 0, lease: Seconds | None = None, final: bool = False) -> Message | None:
        """Take the first message; None if there is none, after having waited for one."""
        message = self._portal.call(self._inner.take(wait=wait, lease=lease, final=final))
        return None if message is None else Message.of(self._portal, message)

    def take_many(
        self, count: int, *, wait: Seconds | None = 0, lease: Seconds | None = None, final: bool = False
    ) -> list[Message]:
        """Take up to ``count`` messages in order; waits only while there is none at all."""
        return self._messages(self._portal.call(self._inner.take_many(count, wait=wait, lease=lease, final=final)))

    def ack_and_take(
        self, messages: Leased | Iterable[Leased], *, wait: Seconds | None = 0, lease: Seconds | None = None
    ) -> Message | None:
        """Acknowledge, and take the next message, in one request."""
        message = self._portal.call(self._inner.ack_and_take(messages, wait=wait, lease=lease))
        return None if message is None else Message.of(self._portal, message)

    def ack_and_take_many(
        self, messages: Iterable[Leased], count: int, *, wait: Seconds | None = 0, lease: Seconds | None = None
    ) -> list[Message]:
        """Acknowledge, and take up to ``count`` messages, in one request."""
        return self._messages(self._portal.call(self._inner.ack_and_take_many(messages, count, wait=wait, lease=lease)))

    def subscribe(self, *, window: int = DEFAULT_WINDOW, lease: Seconds | None = None) -> Subscription:
        """Messages as they come, up to ``window`` at a time without an ack: a context manager and iterator."""

        async def make() -> AioSubscription:
            return self._inner.subscribe(window=window, lease=lease)

        return Subscription(self._portal, self._portal.call(make()))

    def __iter__(self) -> Iterator[Message]:
        return iter(self.subscribe())

    def _messages(self, taken: list[messages.Message]) -> list[Message]:
        return [Message.of(self._portal, message) for message in taken]

    def ack(self, messages: Iterable[Leased]) -> Handled:
        """Acknowledge messages (or handles) in one request: how many, and the positions of leases that had ended."""
        return self._portal.call(self._inner.ack(messages))

    def nack(self, messages: Iterable[Leased], *, delay: Seconds = 0, failure: str = "") -> Handled:
        """The work on these failed: they go back to their places, or come back after ``delay``.

        failure: what failed and why, for people; at most 1 KiB of it is kept.
        """
        return self._portal.call(self._inner.nack(messages, delay=delay, failure=failure))

    def release(self, messages: Iterable[Leased], *, delay: Seconds = 0) -> Handled:
        """Give these back unharmed."""
        return self._portal.call(self._inner.release(messages, delay=delay))

    def extend(self, messages: Iterable[Leased], lease: Seconds) -> Handled:
        """Let these leases last ``lease`` from now."""
        return self._portal.call(self._inner.extend(messages, lease))

    def peek(self, count: int = 1) -> list[Record]:
        """The records that would be taken next, untouched."""
        return self._portal.call(self._inner.peek(count))

    def get(self, id: int) -> Record:
        """One record by its id, in whatever state."""
        return self._portal.call(self._inner.get(id))

    def browse(
        self, *, state: str | None = None, key_range: KeyRange | None = None, page: int = 100
    ) -> Iterator[Record]:
        """All records in the order of their ids, of one state or key range if asked for, read page by page."""
        records = self._inner.browse(state=state, key_range=key_range, page=page)

        async def step() -> Record | None:
            return await anext(records, None)

        while (record := self._portal.call(step())) is not None:
            yield record

    def history(self, id: int) -> list[EventView]:
        """The life of one message, also after it ended, as far back as the journal is kept: its last 10,000 events.

        ``kind_name``, ``reason_name`` and ``door_name`` of an event say in words what the numbers mean.
        """
        return self._portal.call(self._inner.history(id))

    def info(self) -> QueueView:
        """The queue's settings and figures."""
        return self._portal.call(self._inner.info())

    def edit(self, id: int, *, key: int | None = None, delay: Seconds | None = None) -> None:
        """Change the key or the delay of a record that waits."""
        self._portal.call(self._inner.edit(id, key=key, delay=delay))

    def delete(self, ids: int | Iterable[int]) -> Handled:
        """End records in any state, whoever holds them. A single id that is not there raises ``NoSuchRecord``."""
        return self._portal.call(self._inner.delete(ids))

    def move(self, ids: int | Iterable[int], target: str) -> Handled:
        """Move waiting or buried records to another queue. A single id that is not there raises ``NoSuchRecord``."""
        return self._portal.call(self._inner.move(ids, target))

    def bury(self, ids: int | Iterable[int], *, failure: str = "") -> Handled:
        """Set records aside in any state, as an operator. A single id that is not there raises ``NoSuchRecord``.

        failure: why, for people; at most 1 KiB of it is kept.
        """
        return self._portal.call(self._inner.bury(ids, failure=failure))

    def kick(self, ids: int | Iterable[int] = (), *, count: int = 0) -> int:
        """Make buried or delayed records ready: those named, or the first ``count`` buried ones. Tells how many."""
        return self._portal.call(self._inner.kick(ids, count=count))

    def redrive(
        self,
        target: str | None = None,
        *,
        key_range: KeyRange | None = None,
        reason: str | int = 0,
        count_max: int = 0,
        rate_per_s: int = 0,
        new_key: int | None = None,
    ) -> int:
        """Move the records that match, step by step, to ``target`` or back to where each came from: a job's number."""
        work = self._inner.redrive(
            target, key_range=key_range, reason=reason, count_max=count_max, rate_per_s=rate_per_s, new_key=new_key
        )
        return self._portal.call(work)

    def purge(self) -> int:
        """End all ready and delayed records. Tells how many."""
        return self._portal.call(self._inner.purge())

    def create(
        self,
        *,
        implementation: str = "h4",
        size_max: int | None = None,
        payload_bytes_max: int | None = None,
        key_range: KeyRange | None = None,
        descending: bool | None = None,
        lease: Seconds | None = None,
        deliveries_max: int | None = None,
        dead_letter: str | None = None,
        expires: Seconds | None = None,
        dead_letter_expired: bool | None = None,
        dedup_window: Seconds | None = None,
        dedup_keys_max: int | None = None,
        if_absent: bool = False,
    ) -> Created:
        """Make the queue. The parameters are those of the asynchronous queue."""
        work = self._inner.create(
            implementation=implementation,
            size_max=size_max,
            payload_bytes_max=payload_bytes_max,
            key_range=key_range,
            descending=descending,
            lease=lease,
            deliveries_max=deliveries_max,
            dead_letter=dead_letter,
            expires=expires,
            dead_letter_expired=dead_letter_expired,
            dedup_window=dedup_window,
            dedup_keys_max=dedup_keys_max,
            if_absent=if_absent,
        )
        return self._portal.call(work)

    def set(
        self,
        *,
        size_max: int | UnsetType | None = UNSET,
        payload_bytes_max: int | UnsetType | None = UNSET,
        lease: Seconds | UnsetType = UNSET,
        deliveries_max: int | UnsetType = UNSET,
        dead_letter: str | UnsetType | None = UNSET,
        expires: Seconds | UnsetType = UNSET,
        dead_letter_expired: bool | UnsetType = UNSET,
        dedup_window: Seconds | UnsetType = UNSET,
        dedup_keys_max: int | UnsetType = UNSET,
    ) -> None:
        """Change settings; what is not said stays. None takes a limit or the dead-letter queue away."""
        work = self._inner.set(
            size_max=size_max,
            payload_bytes_max=payload_bytes_max,
            lease=lease,
            deliveries_max=deliveries_max,
            dead_letter=dead_letter,
            expires=expires,
            dead_letter_expired=dead_letter_expired,
            dedup_window=dedup_window,
            dedup_keys_max=dedup_keys_max,
        )
        self._portal.call(work)

    def drop(self) -> None:
        """Delete the queue with all it holds."""
        self._portal.call(self._inner.drop())

    def pause(self) -> None:
        """Stop takes; puts go on."""
        self._portal.call(self._inner.pause())

    def resume(self) -> None:
        """Let takes go on."""
        self._portal.call(self._inner.resume())


class Client:
    """A connection to Penstock that mends itself. Got from ``connect_sync``; usable from any thread."""

    __slots__ = ("_inner", "_portal")

    def __init__(self, portal: ThreadPortal, inner: aio.Client) -> None:
        self._portal = portal
        self._inner = inner

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. Calls that are unanswered raise; subscriptions end."""
        if not self._inner.link.closed:
            self._portal.call(self._inner.close())
        self._portal.close()

    @property
    def link(self) -> Link:
        """What carries the requests; for tools that look under the bonnet."""
        return self._inner.link

    def queue(self, name: str = "") -> Queue:
        """The queue of that name; the empty name is the default queue. Asks the node nothing."""
        return Queue(self._portal, self._inner.queue(name))

    def queues(self) -> list[QueueView]:
        """All queues with their settings and figures, in the order in which they were made."""
        return self._portal.call(self._inner.queues())

    def status(self) -> NodeStatus:
        """The node's own figures."""
        return self._portal.call(self._inner.status())

    def ping(self) -> float:
        """Ask the node for a sign of life. Tells how long it took, in seconds."""
        return self._portal.call(self._inner.ping())

    def put_many(self, puts: Mapping[str, Iterable[ItemLike]]) -> dict[str, list[PutResult]]:
        """Put messages into several queues, all or none. ``puts`` and the result are by queue name."""
        return self._portal.call(self._inner.put_many(puts))

    def jobs(self) -> list[JobView]:
        """Redrives under way, and those that ended lately."""
        return self._portal.call(self._inner.jobs())

    def cancel_job(self, job: int) -> None:
        """Stop a redrive that is under way."""
        self._portal.call(self._inner.cancel_job(job))

    def stage(
        self,
        query: str,
        batch: int,
        puts: Mapping[str, Iterable[ItemLike]],
        *,
        partition: int = 0,
        attempt: int = 0,
        part: int = 0,
        is_last: bool = False,
    ) -> int:
        """Leave messages of one attempt at one partition of a batch; nobody sees them before ``publish``."""
        return self._portal.call(
            self._inner.stage(query, batch, puts, partition=partition, attempt=attempt, part=part, is_last=is_last)
        )

    def publish(
        self, query: str, batch: int, attempts: Iterable[tuple[int, int]], *, records: int = 0, is_last: bool = False
    ) -> Published:
        """Make the named (partition, attempt) pairs of a batch visible: once, however often it is asked.

        With ``records`` there must be exactly so many, or nothing is published (``BatchIncomplete``). With ``is_last``
        the query is forgotten then.
        """
        return self._portal.call(self._inner.publish(query, batch, attempts, records=records, is_last=is_last))

    def abort(self, query: str, batch: int) -> None:
        """Drop what is staged for a batch."""
        self._portal.call(self._inner.abort(query, batch))

    def staged(self) -> list[StagedView]:
        """The batches that are staged and not published, of all writers; 10,000 at most."""
        return self._portal.call(self._inner.staged())

    def broadcast(
        self,
        channel: int,
        tag: bytes,
        body: Payload,
        *,
        spec: str = "",
        type: str = "",
        expires_at: datetime | None = None,
    ) -> int:
        """Send a topic message to live subscribers and into the queues bound to it. Tells into how many."""
        return self._portal.call(self._inner.broadcast(channel, tag, body, spec=spec, type=type, expires_at=expires_at))

    def bind(
        self, name: str, queue: str, *, spec: str = "", type: str = "", timeout: Seconds = 3600, paused: bool = False
    ) -> None:
        """Copy topic messages of a spec and type (empty: any) into a queue from now on, under ``name``."""
        self._portal.call(self._inner.bind(name, queue, spec=spec, type=type, timeout=timeout, paused=paused))

    def unbind(self, name: str) -> None:
        """Forget a binding; its queue stays."""
        self._portal.call(self._inner.unbind(name))

    def bindings(self) -> list[BindingView]:
        """The bindings of topic messages to queues."""
        return self._portal.call(self._inner.bindings())

"""The asynchronous client, for asyncio with or without uvloop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from penstock.client.backoff import Backoff
from penstock.client.endpoints import Endpoint, default_url, parse_url
from penstock.client.items import ItemLike, PutResult, command_puts, put_results
from penstock.client.link import RECONNECT, Link, Options
from penstock.client.protocol import ANSWER_BYTES_MAX
from penstock.client.queue import Queue
from penstock.client.units import Payload, Seconds, to_bytes, to_ms, to_us
from penstock.engine import commands as c
from penstock.engine.answers import Done, Published, PutManyAnswer
from penstock.engine.commands import INT64_MAX
from penstock.engine.views import BindingView, JobView, QueueView, StagedView
from penstock.wire.native import messages as m
from penstock.wire.native.messages import NodeStatus


def connect(
    url: str | None = None,
    *,
    name: str = "",
    connect_timeout: float = 5.0,
    retry_timeout: float = 30.0,
    call_timeout: float | None = None,
    ping_interval: float = 20.0,
    reconnect: Backoff | None = None,
    frame_bytes_max: int = ANSWER_BYTES_MAX,
) -> Connecting:
    """Connect to a node or a cluster: ``async with connect() as client`` or ``client = await connect()``.

    url: ``penstock://host:port``, several endpoints separated by commas; they are tried in turn. Without
    it: the variable PENSTOCK_URL, else ``penstock://127.0.0.1:2602``. name: what the nodes
    are told of who this is. connect_timeout: for each attempt at an endpoint. retry_timeout: how long a broken
    connection is retried before the calls in flight raise. call_timeout: how long a call waits for its answer; None
    for as long as the connection lives. ping_interval: how often an idle connection is tried. All in seconds.
    reconnect: the waits between attempts to reconnect. frame_bytes_max: the longest answer that is read.
    """
    options = Options(
        connect_timeout=connect_timeout,
        retry_timeout=retry_timeout,
        call_timeout=call_timeout,
        ping_interval=ping_interval,
        backoff=reconnect if reconnect is not None else RECONNECT,
        frame_bytes_max=frame_bytes_max,
    )
    return Connecting(parse_url(default_url() if url is None else url), options, name)


class Connecting:
    """A client that is about to be: await it, or enter it."""

    def __init__(self, endpoints: tuple[Endpoint, ...], options: Options, name: str) -> None:
        self._endpoints = endpoints
        self._options = options
        self._name = name
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self.open().__await__()

    async def open(self) -> Client:
        """Connect."""
        # Never 0, which on the wire means that there is no producer.
        producer = 1 + secrets.randbelow(INT64_MAX)
        link = Link(self._endpoints, self._options, producer, self._name)
        await link.open()
        return Client(link)

    async def __aenter__(self) -> Client:
        self._client = await self.open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


class Client:
    """A connection to Penstock that mends itself. Got from ``connect``; usable from the event loop that made it."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. Calls that are unanswered raise; subscriptions end."""
        await self._link.close()

    @property
    def link(self) -> Link:
        """What carries the requests; for tools that look under the bonnet."""
        return self._link

    def queue(self, name: str = "") -> Queue:
        """The queue of that name; the empty name is the default queue. Asks the node nothing."""
        return Queue(self._link, name)

    async def queues(self) -> list[QueueView]:
        """All queues with their settings and figures, in the order in which they were made."""
        return await self._link.call(m.ListQueues(), list[QueueView])

    async def status(self) -> NodeStatus:
        """The node's own figures."""
        return await self._link.call(m.Status(), NodeStatus)

    async def ping(self) -> float:
        """Ask the node for a sign of life. Tells how long it took, in seconds."""
        before = time.perf_counter()
        await self._link.call(m.Ping(), Done)
        return time.perf_counter() - before

    async def put_many(self, puts: Mapping[str, Iterable[ItemLike]]) -> dict[str, list[PutResult]]:
        """Put messages into several queues, all or none. ``puts`` and the result are by queue name.

        A refusal names the first message that is refused by its ``position``, counted over all queues in their order.
        """
        command = c.PutMany(command_puts(puts))
        answer = await self._link.call(command, PutManyAnswer)
        return {
            queue: put_results(result, len(items))
            for (queue, items), result in zip(command.puts, answer.puts, strict=True)
        }

    # Jobs that run in the node.

    async def jobs(self) -> list[JobView]:
        """Redrives under way, and those that ended lately."""
        return await self._link.call(m.ListJobs(), list[JobView])

    async def cancel_job(self, job: int) -> None:
        """Stop a redrive that is under way."""
        await self._link.call(c.CancelJob(job), Done)

    # Exactly-once writers.

    async def stage(
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
        """Leave messages of one attempt at one partition of a batch; nobody sees them before ``publish``.

        ``part`` numbers the stages of an attempt from 0, so that a repeat is recognised. Say ``is_last`` where you will
        say it to ``publish``. Tells how many are staged.
        """
        request = c.Stage(query, batch, partition, attempt, part, command_puts(puts), is_last)
        return (await self._link.call(request, Done)).count

    async def publish(
        self, query: str, batch: int, attempts: Iterable[tuple[int, int]], *, records: int = 0, is_last: bool = False
    ) -> Published:
        """Make the named (partition, attempt) pairs of a batch visible: once, however often it is asked.

        With ``records`` there must be exactly so many, or nothing is published (``BatchIncomplete``). With ``is_last``
        the query is forgotten then, of which else the last batch is remembered for ever: asked once more, it adds
        nothing, but raises ``BatchNotStaged``.
        """
        return await self._link.call(c.Publish(query, batch, list(attempts), records, is_last), Published)

    async def abort(self, query: str, batch: int) -> None:
        """Drop what is staged for a batch."""
        await self._link.call(c.Abort(query, batch), Done)

    # Topics.

    async def staged(self) -> list[StagedView]:
        """The batches that are staged and not published, of all writers; 10,000 at most."""
        return await self._link.call(m.ListStaged(), list[StagedView])

    async def broadcast(
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
        request = c.Broadcast(channel, tag, to_bytes(body), spec, type, to_us(expires_at) if expires_at else 0)
        return (await self._link.call(request, Done)).count

    async def bind(
        self, name: str, queue: str, *, spec: str = "", type: str = "", timeout: Seconds = 3600, paused: bool = False
    ) -> None:
        """Copy topic messages of a spec and type (empty: any) into a queue from now on, under ``name``."""
        await self._link.call(c.Bind(name, spec, type, queue, to_ms(timeout), paused), Done)

    async def unbind(self, name: str) -> None:
        """Forget a binding; its queue stays."""
        await self._link.call(c.Unbind(name), Done)

    async def bindings(self) -> list[BindingView]:
        """The bindings of topic messages to queues."""
        return await self._link.call(m.ListBindings(), list[BindingView])

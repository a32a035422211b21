"""The link to a cluster: one connection at a time, made again when it breaks, and the calls that outlive it.

Callers wait here for room among the requests in flight, for a connection, and for their answers. A link belongs to the
event loop that it was made in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from penstock.client.backoff import Backoff
from penstock.client.clock import LogClock
from penstock.client.connection import Connection
from penstock.client.endpoints import Endpoint
from penstock.client.errors import (
    ClientClosed,
    ConnectionLost,
    HandshakeRefused,
    OutcomeUnknown,
    PenstockError,
    Timeout,
    refused,
)
from penstock.client.protocol import ANSWER_BYTES_MAX, IN_FLIGHT_MAX, Call, Handle, Session
from penstock.engine import commands as c
from penstock.engine.answers import Handled, Taken
from penstock.engine.errors import NOT_LEADER, STOPPING, Refusal
from penstock.wire.native import messages as m

CLOSE_SECONDS_MAX: Final = 1.0
"""How long a close waits for what is still on its way."""
RETRY_SECONDS_MAX: Final = 3600.0
"""Repeats are safe while the node remembers the producer, which is a day: this stays well below."""
RECONNECT: Final = Backoff(first=0.05, factor=2.0, cap=2.0, jitter=0.5)
"""The waits between rounds of attempts to reconnect; the first round comes at once."""

A = TypeVar("A")


class Options(Struct, frozen=True):
    """How a link behaves. Times in seconds."""

    connect_timeout: float = 5.0
    retry_timeout: float = 30.0
    ping_interval: float = 20.0
    call_timeout: float | None = None
    backoff: Backoff = RECONNECT
    frame_bytes_max: int = ANSWER_BYTES_MAX
    """The longest frame that is read."""

    def __post_init__(self) -> None:
        if not (self.connect_timeout > 0 and self.ping_interval > 0 and 0 <= self.retry_timeout <= RETRY_SECONDS_MAX):
            raise ValueError(f"timeouts are above 0, and retry_timeout is at most {RETRY_SECONDS_MAX:g} s: {self!r}")


class Sink(Protocol):
    """Who gets the pushes of a subscription."""

    number: int

    def pushed(self, taken: Taken) -> None:
        """Records came."""

    def lost(self) -> None:
        """The connection ended, and the subscription with it."""

    def failed(self, error: PenstockError) -> None:
        """There will be no more."""

    async def close(self) -> None:
        """End the subscription, and give back what nobody has asked for yet."""


class Link:
    """Calls a cluster, whatever becomes of single connections."""

    def __init__(self, endpoints: tuple[Endpoint, ...], options: Options, producer: int, client: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._endpoints = endpoints
        self._options = options
        self._session = Session(producer, client, options.frame_bytes_max)
        self._connection: Connection | None = None
        self._ready = False
        """A connection is open and takes bytes: what every call looks at first."""
        self._opened = asyncio.Event()
        self._resumed = asyncio.Event()
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._keeper: asyncio.Task[None] | None = None
        self._side_tasks: set[asyncio.Task[Any]] = set()
        self._outage_timer: asyncio.TimerHandle | None = None
        self._turn = 0
        """Which endpoint is next."""
        self._attempts = 0
        """Connections tried since the last real answer."""
        self._last_error = ""
        self._move_reason = ""
        """Set while answers are handed out: this connection is of no more use, and why."""
        self.clock = LogClock()
        self.welcome: m.Welcome | None = None
        """What the node of the last connection told of itself."""
        self.closed = False

    @property
    def connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    @property
    def producer(self) -> int:
        """The number under which the nodes know this client's commands."""
        return self._session.producer

    @property
    def in_flight(self) -> int:
        """How many requests are without an answer."""
        return len(self._session.calls)

    async def open(self) -> None:
        """Connect to the first endpoint that answers; raises the last one's error if none does."""
        for _ in self._endpoints:
            try:
                connection = await self._dial()
                break
            except PenstockError as error:
                last = error
        else:
            raise last
        self._keeper = self._loop.create_task(self._keep(connection))

    async def call(
        self,
        request: Any,
        answer: type[A],  # For the type checker alone: the codec knows which answer belongs to a request.
        *,
        wait_seconds: float = 0.0,
        sink: Sink | None = None,
    ) -> A:
        """Send a request and wait for its answer, over as many connections as it takes.

        ``wait_seconds`` is how long the request asks the node to wait.
        """
        call = await self._send(request, wait_seconds, sink)
        future: asyncio.Future[A] = call.waiter
        limit = self._options.call_timeout
        timer = None if limit is None else self._loop.call_later(limit + wait_seconds, self._expire, call, limit)
        try:
            return await future
        except asyncio.CancelledError:
            call.waiter = None
            if future.done() and not future.cancelled() and future.exception() is None:
                # Answered in the same moment: what was taken reached nobody.
                self._give_back(call, future.result())
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _send(self, request: Any, wait_seconds: float, sink: Sink | None) -> Call:
        """Wait for room among the requests in flight and for a connection, then send."""
        await self._slots.acquire()
        try:
            if not self._ready:
                await self._passage()
            wait_until = self._loop.time() + wait_seconds if wait_seconds else None
            call = self._session.call(request, self._loop.create_future(), wait_until=wait_until)
        except BaseException:
            self._slots.release()
            raise
        call.counted = True
        if sink is not None:
            sink.number = call.number
            self._session.sinks[call.number] = sink
        assert self._connection is not None
        self._connection.send(call.frame)
        return call

    def _expire(self, call: Call, limit: float) -> None:
        """The caller has waited long enough. The call stays in flight, and what it may yet take is given back."""
        waiter, call.waiter = call.waiter, None
        if waiter is not None and not waiter.done():
            reason = f"it was not answered within {limit:g} s"
            unknown = OutcomeUnknown(call.name, call.number, reason)
            waiter.set_exception(unknown if call.is_command else Timeout(call.name, limit))

    async def _passage(self) -> None:
        """Wait until there is a connection that takes bytes."""
        while not self._ready:
            if self.closed:
                raise ClientClosed
            if self._connection is not None:
                await self._resumed.wait()
                continue
            try:
                async with asyncio.timeout(self._options.retry_timeout):
                    await self._opened.wait()
            except TimeoutError:
                raise self._connection_lost() from None

    def forget(self, number: int) -> None:
        """Stop handing on the pushes of a subscription."""
        self._session.sinks.pop(number, None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside; the link keeps the task alive."""
        task = self._loop.create_task(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)
        return task

    async def close(self) -> None:
        """End the link. What is unanswered raises, by whether it may have been done."""
        if self.closed:
            return
        if self.connected:
            last_words = {*self._side_tasks, *(self.spawn(sink.close()) for sink in self._session.sinks.values())}
            if last_words:
                await asyncio.wait(last_words, timeout=CLOSE_SECONDS_MAX)
        self.closed = True
        self._open_gates()
        if self._keeper is not None:
            self._keeper.cancel()
        if self._outage_timer is not None:
            self._outage_timer.cancel()
        for sink in list(self._session.sinks.values()):
            sink.failed(ClientClosed())
        self._session.sinks.clear()
        for call in list(self._session.calls.values()):
            unknown = call.is_command and (call.outstanding or call.doubtful)
            reason = "the client was closed before the answer came"
            self._fail(call, OutcomeUnknown(call.name, call.number, reason) if unknown else ClientClosed())
        for task in list(self._side_tasks):
            task.cancel()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
            await asyncio.wait({connection.over}, timeout=CLOSE_SECONDS_MAX)
            connection.abort("the client was closed")

    # What a connection reports.

    def replied(self, connection: Connection, data: bytes) -> None:
        """Hand out the answers in what came."""
        for call, status, value in self._session.receive(data):
            if call is None:
                sink, pushed = value
                if status == m.PUSH:
                    sink.pushed(pushed)
                else:
                    self._subscription_refused(sink, pushed)
            elif status == m.ANSWER:
                self._answered(call, value)
            else:
                self._refused(call, value)
        if self._move_reason:
            # Only now, so that all the answers which came together have been heard.
            reason, self._move_reason = self._move_reason, ""
            connection.abort(reason)

    def _answered(self, call: Call, answer: Any) -> None:
        waiter = call.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)
        elif call.op == m.STATUS:
            self.clock.set(answer.log_time_us, self._loop.time())
        else:
            self._give_back(call, answer)
        if call.counted:
            self._attempts = 0
            self._slots.release()

    def flow_changed(self, connection: Connection) -> None:
        """Let callers wait while the socket has enough to send."""
        if connection is self._connection:
            self._open_gates()

    def tick(self, connection: Connection) -> None:
        """Ask for the node's status: that keeps the connection alive, and our idea of the node's time fresh."""
        if connection is self._connection:
            self._attempts = 0
            self._ask_status(connection)

    def _ask_status(self, connection: Connection) -> None:
        connection.send(self._session.call(m.Status(), None).frame)

    def ended(self, connection: Connection, reason: str) -> None:
        """Sort out what was in flight; the keeper makes the next connection."""
        if connection is not self._connection:
            return
        self._connection = None
        self._last_error = reason
        self._open_gates()
        dropped, sinks = self._session.lost()
        for call in dropped:
            self._fail(call, self._lost_error(call))
        self._outage_timer = self._loop.call_later(self._options.retry_timeout, self._give_up)
        for sink in sinks:
            sink.lost()

    def _open_gates(self) -> None:
        connection = self._connection
        self._ready = connection is not None and not connection.paused and not self.closed
        if connection is not None or self.closed:
            self._opened.set()
        else:
            self._opened.clear()
        if connection is None or not connection.paused:
            self._resumed.set()
        else:
            self._resumed.clear()

    # Making connections.

    async def _keep(self, connection: Connection) -> None:
        """Make a new connection whenever one ends, until the link is closed."""
        while True:
            # By wait, which leaves the future alone when the keeper is cancelled.
            await asyncio.wait({connection.over})
            connection = await self._redial()

    async def _redial(self) -> Connection:
        while True:
            rounds = self._attempts // len(self._endpoints)
            if rounds:
                await asyncio.sleep(self._options.backoff.delay(rounds))
            try:
                return await self._dial()
            except PenstockError as error:
                self._last_error = str(error)

    async def _dial(self) -> Connection:
        """Connect to the endpoint whose turn it is. If that fails, it is the next one's turn."""
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._attempts += 1
        connection = Connection(self._session, self, self._options.ping_interval)
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._loop.create_connection(lambda: connection, endpoint.host, endpoint.port)
                await self._while_alive(connection.shaken, connection, endpoint)
                hello: asyncio.Future[m.Welcome] = self._loop.create_future()
                connection.send(self._session.hello(hello).frame)
                welcome = await self._while_alive(hello, connection, endpoint)
                if connection.over.done():
                    raise ConnectionLost(str(endpoint), connection.over.result())
        except BaseException as error:
            self._turn += 1
            connection.abort("it could not be opened")
            self._drop_hello()
            if isinstance(error, HandshakeRefused):
                raise HandshakeRefused(error.reason, str(endpoint)) from None
            if isinstance(error, TimeoutError):
                reason = f"no answer within {self._options.connect_timeout:g} s"
                raise ConnectionLost(str(endpoint), reason) from None
            if isinstance(error, OSError | UnicodeError):  # the latter for a host that cannot be a name
                raise ConnectionLost(str(endpoint), getattr(error, "strerror", None) or str(error)) from error
            raise
        self._begin(connection, welcome)
        return connection

    async def _while_alive(self, wanted: asyncio.Future[A], connection: Connection, endpoint: Endpoint) -> A:
        """Wait for a step of the opening, but not beyond the end of the connection."""
        either: set[asyncio.Future[Any]] = {wanted, connection.over}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        raise ConnectionLost(str(endpoint), connection.over.result())

    def _drop_hello(self) -> None:
        for call in list(self._session.calls.values()):
            if call.op == m.HELLO:
                del self._session.calls[call.number]

    def _begin(self, connection: Connection, welcome: m.Welcome) -> None:
        """A connection is open: repeat what is unanswered, then let the callers in."""
        if self._outage_timer is not None:
            self._outage_timer.cancel()
        if self.welcome is not None and self.welcome.cluster != welcome.cluster:
            self._disown_doubtful()
        self.welcome = welcome
        connection.send(self._session.repeat(self._loop.time()))
        self._connection = connection
        self._open_gates()
        self._ask_status(connection)

    def _disown_doubtful(self) -> None:
        """Another cluster answers at this address: it cannot know what the first one did."""
        for call in list(self._session.calls.values()):
            if call.is_command and call.doubtful:
                reason = "the connection was lost, and another cluster answers there now"
                self._fail(call, OutcomeUnknown(call.name, call.number, reason))

    # How calls end without an answer.

    def _refused(self, call: Call, refusal: Any) -> None:
        if isinstance(refusal, PenstockError):
            self._fail(call, refusal)
        elif self._leads_elsewhere(refusal) and self._has_patience(call):
            self._session.keep(call, refusal, self._loop.time())
            self._move_on(refusal)
        else:
            self._fail(call, call.error_for(refusal))

    def _subscription_refused(self, sink: Sink, refusal: Refusal | PenstockError) -> None:
        """A subscription that was made before has ended; or another node, or the same one later, may go on with it."""
        if isinstance(refusal, PenstockError):
            sink.failed(refusal)
        elif self._leads_elsewhere(refusal):
            self._move_on(refusal)
        else:
            sink.failed(refused(refusal))

    def _leads_elsewhere(self, refusal: Refusal) -> bool:
        """Whether a refusal means: ask another node, or the same one later."""
        return refusal.code == STOPPING or (refusal.code == NOT_LEADER and len(self._endpoints) > 1)

    def _has_patience(self, call: Call) -> bool:
        if not call.counted or call.waiter is None or call.waiter.done():
            return False
        return call.refused_at is None or self._loop.time() - call.refused_at < self._options.retry_timeout

    def _move_on(self, refusal: Refusal) -> None:
        if not self._move_reason:
            self._turn += refusal.code == NOT_LEADER
            self._move_reason = f"the node refused: {refusal.name}"

    def _fail(self, call: Call, error: PenstockError) -> None:
        self._session.calls.pop(call.number, None)
        if call.waiter is not None and not call.waiter.done():
            call.waiter.set_exception(error)
        if call.counted:
            self._slots.release()

    def _give_up(self) -> None:
        """The connection could not be made again in time."""
        for call in list(self._session.calls.values()):
            if call.op != m.HELLO:
                self._fail(call, self._lost_error(call))

    def _lost_error(self, call: Call) -> PenstockError:
        if call.is_command and call.doubtful:
            return OutcomeUnknown(call.name, call.number, f"the connection was lost ({self._last_error})")
        if call.refusal is not None:
            return call.error_for(call.refusal)
        return self._connection_lost()

    def _connection_lost(self) -> ConnectionLost:
        return ConnectionLost(", ".join(map(str, self._endpoints)), self._last_error or "the connection was lost")

    def _give_back(self, call: Call, answer: Any) -> None:
        """Return records that were taken for a caller who has gone."""
        queue, handles = call.unclaimed(answer)
        if handles and not self.closed:
            self.spawn(self.give_back(queue, handles))

    async def give_back(self, queue: str, handles: list[Handle]) -> None:
        """Return records that reached nobody, as though never taken. Where that fails, their leases run out."""
        with contextlib.suppress(PenstockError):
            await self.call(c.Return(queue, handles, c.UNSENT), Handled)

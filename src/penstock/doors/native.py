"""The native door: our own protocol, after the handshake (docs/protocols/native.md).

Commands go into the log as they came, once they are known to decode. Reads are answered from the state when everything
submitted before them has been applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter
from typing import Any

import msgspec

from penstock import __version__
from penstock.doors.connection import Connection
from penstock.doors.listening import Doorkeeper
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import reading
from penstock.engine.answers import Answer, Done, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NATIVE
from penstock.node.history import history
from penstock.node.node import Node
from penstock.storage.errors import StorageError
from penstock.wire.native import messages as m
from penstock.wire.native.errors import FrameError
from penstock.wire.native.frames import HEADER, Frame, FrameReader

_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_UNREADABLE = (ValueError, RecursionError)
"""What decoding raises for a body that is not what it should be."""
_SUBSCRIPTIONS_MAX = 1_000
_FOREVER_MS = c.DURATION_MS_MAX
_HEADER_REST = HEADER.size - 4
_GIVES_BACK = frozenset({c.ACK, c.ACK_TAKE, c.RETURN, c.BURY})
_pack_header = HEADER.pack


class NativeConnection(Connection):
    """A client that speaks the native protocol."""

    def __init__(self, node: Node, keeper: Doorkeeper, frame_bytes_max: int) -> None:
        super().__init__(node, keeper, "native")
        self._reader = FrameReader(frame_bytes_max)
        self._producer = 0
        self._subscriptions: dict[int, Subscription] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._frames: Iterator[Frame] | None = None
        self._unread: list[bytes] = []
        self._long_answers = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Take requests; while the connection is busy they are set aside, not carried out."""
        if self._frames is not None:
            self._unread.append(data)
        else:
            self._frames = self._reader.feed(data)
            self._take_frames()
            self.node.end_of_input()

    def resumed(self) -> None:
        """Go on with what was set aside."""
        if self._frames is not None:
            self._take_frames()

    def _take_frames(self) -> None:
        """Carry out requests until there are no more, or the connection is busy."""
        frames = self._frames
        try:
            while frames is not None:
                if self.busy():
                    self._regulate()
                    return
                frame = next(frames, None)
                if frame is not None:
                    self._take_frame(*frame)
                elif self._unread:
                    frames = self._frames = self._reader.feed(self._unread.pop(0))
                else:
                    frames = self._frames = None
        except FrameError as problem:
            self._frames = None
            self.close(str(problem))

    def _take_frame(self, code: int, request: int, body: bytes) -> None:
        decoder = c.DECODERS.get(code)
        if decoder is None or code in c.INTERNAL_OPS:
            self._request(code, request, body)
            return
        try:
            args = decoder.decode(body)
            if code == c.PUT or code == c.PUT_MANY or code == c.STAGE:
                _check_headers(args)
        except _UNREADABLE as problem:
            self.refuse(request, Refusal(e.BAD_REQUEST, str(problem)))
            return
        if code in _GIVES_BACK and self._subscriptions:
            self._take_back(args)
        self.submit(Command(code, DOOR_NATIVE, self.owner, self._producer, request, body, args), request)

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Write an answer as a frame."""
        body = c.encode(answer)
        status = m.REFUSED if answer.__class__ is Refusal else m.ANSWER
        self.write(_pack_header(_HEADER_REST + len(body), status, ref) + body)

    def send(self, request: int, answer: Any) -> None:
        """Write any answer to a request that is no command."""
        if not self.closed:
            self.reply(request, None, answer)  # type: ignore[arg-type]

    def refuse(self, request: int, refusal: Refusal) -> None:
        """Write a refusal."""
        self.reply(request, None, refusal)  # type: ignore[arg-type]

    def gone(self) -> None:
        """The client left: no more pushes."""
        for subscription in self._subscriptions.values():
            self.node.stop_waiting(subscription)
        self._subscriptions.clear()  # they lead back here, and nobody collects cycles in a hurry
        for task in self._background:
            task.cancel()

    # Requests that are no commands.

    def _request(self, code: int, request: int, body: bytes) -> None:
        decoder = m.DECODERS.get(code)
        if decoder is None:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"there is no request {code}"))
            return
        try:
            args = decoder.decode(body)
        except _UNREADABLE as problem:
            self.refuse(request, Refusal(e.BAD_REQUEST, str(problem)))
            return
        if code == m.HELLO:
            self._producer = args.producer
            self.send(request, self._welcome())
        elif code == m.PING:
            self.send(request, Done())
        elif code == m.SUBSCRIBE:
            self._subscribe(request, args)
        elif code == m.UNSUBSCRIBE:
            subscription = self._subscriptions.pop(args.subscription, None)
            if subscription is not None:
                subscription.end()
            self.send(request, Done(int(subscription is not None)))
        else:
            self.node.read(lambda: self._read(code, request, args))

    def _read(self, code: int, request: int, args: Any) -> None:
        if self.closed:
            return
        feeding = self.node.feeding
        if code == m.HISTORY:
            self._later(request, history(self.node, args.queue, args.id))
        elif code == m.READ_JOURNAL:
            self._later(request, self._when_writable(request, lambda: feeding.piece(args)))
        elif code == m.READ_ENTRIES:
            self._later(request, self._when_writable(request, lambda: feeding.entries(args)))
        elif code == m.READ_SNAPSHOT:
            self._later(request, self._when_writable(request, lambda: feeding.states.read(args)))
        elif code == m.SNAPSHOT:
            self._later(request, feeding.states.snapshot(args))
        elif code == m.FIND_TIME:
            self._later(request, feeding.find_time(args))
        elif code == m.CUT_JOURNAL:
            self._later(request, feeding.cuts(args))
        elif code == m.LATEST:
            self._later(request, feeding.latest(args))
        elif code == m.QUEUE_NAMES:
            self.send(request, feeding.queue_names())
        elif code == m.STATUS:
            self.send(request, self._status())
        else:
            self.send(request, _READS[code](self.node.engine.state, args))

    def _later(self, request: int, work: Coroutine[Any, Any, Any]) -> None:
        """Answer when something that takes its time is done."""
        self.in_flight += 1
        task = self._loop.create_task(self._answer_with(request, work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _answer_with(self, request: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await work
            if answer is not None:
                self.send(request, answer)
        except (StorageError, OSError) as problem:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"the history cannot be read: {problem}"))
        finally:
            self.in_flight -= 1
            if self.closed and not self.in_flight:
                self.node.forget(self, self.owner)

    async def _when_writable(self, request: int, read: Callable[[], Coroutine[Any, Any, bytes | Refusal]]) -> Any:
        """Send an answer that is long: one at a time, and only when the client has read what was sent before."""
        async with self._long_answers:
            await self._writable.wait()
            answer = await read()
            if isinstance(answer, Refusal) or self.closed:
                return answer
            began_s = perf_counter()
            self.write(_pack_header(_HEADER_REST + len(answer), m.ANSWER, request))
            self.write(answer)
            self.flush()
            self.node.feeding.sent(began_s)
        return None

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writable.set()
        super().resume_writing()

    def _welcome(self) -> m.Welcome:
        node = self.node
        limit = node.limits.payload_bytes_max
        return m.Welcome(__version__, node.store.cluster_id.hex(), node.node_id, node.consensus.term, limit)

    def _status(self) -> m.NodeStatus:
        node, st = self.node, self.node.engine.state
        return m.NodeStatus(
            version=__version__,
            cluster=node.store.cluster_id.hex(),
            node=node.node_id,
            term=node.consensus.term,
            leader=node.consensus.leader,
            applied_index=st.index,
            log_time_us=node.clock.now_us(),
            snapshot_index=node.store.snapshot_index,
            mode=node.mode,
            connections=node.connections_open,
            records=sum(sum(queue.counts) for queue in st.by_uid.values()),
            memory_bytes=st.memory_bytes(),
            memory_bytes_max=node.limits.memory_bytes_max,
            disk_full=node.store.disk_full,
            uptime_ms=node.uptime_ms(),
        )

    # Pushing.

    def _subscribe(self, request: int, args: m.Subscribe) -> None:
        if request in self._subscriptions:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"request {request} is a subscription already"))
        elif len(self._subscriptions) >= _SUBSCRIPTIONS_MAX:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"a connection has at most {_SUBSCRIPTIONS_MAX} subscriptions"))
        elif args.queue not in self.node.engine.state.by_name:
            self.node.read(lambda: self._subscribe_now(request, args))  # its queue may be on its way
        else:
            self._subscribe_now(request, args)

    def _subscribe_now(self, request: int, args: m.Subscribe) -> None:
        if args.queue not in self.node.engine.state.by_name:
            self.refuse(request, Refusal(e.NO_SUCH_QUEUE, f"there is no queue {args.queue!r}"))
            return
        self._subscriptions[request] = subscription = Subscription(self, request, args)
        self.send(request, Done())
        subscription.refill()

    def drop_subscription(self, request: int, refusal: Refusal) -> None:
        """A subscription cannot go on, its queue was deleted or the node stops: the client is told under its number."""
        del self._subscriptions[request]
        self.refuse(request, refusal)

    def _take_back(self, args: Any) -> None:
        """Leases are being given up: the windows that they were pushed in have room again."""
        for subscription in self._subscriptions.values():
            if subscription.queue == args.queue:
                subscription.give_up(args.handles)


class Subscription:
    """A window of records that are pushed to a client and not yet given up. A sink of its own for its takes."""

    __slots__ = (
        "_connection",
        "_ended",
        "_held",
        "_lease_ms",
        "_refill_set",
        "_request",
        "_taking",
        "_window",
        "queue",
    )

    def __init__(self, connection: NativeConnection, request: int, args: m.Subscribe) -> None:
        self._connection = connection
        self._request = request
        self.queue = args.queue
        self._window = args.window
        self._lease_ms = args.lease_ms
        self._held: set[tuple[int, int]] = set()
        self._taking = False
        self._refill_set = False
        self._ended = False

    def refill(self) -> None:
        """Ask for as many records as the window has room for; the take waits until there are some."""
        self._refill_set = False
        room = self._window - len(self._held)
        connection = self._connection
        if self._taking or room <= 0 or self._ended or connection.closed:
            return
        self._taking = True
        connection.in_flight += 1
        args = c.Take(self.queue, min(room, c.RECORDS_PER_TAKE_MAX), self._lease_ms, _FOREVER_MS)
        command = Command(c.TAKE, DOOR_NATIVE, connection.owner, 0, 0, c.encode(args), args)
        connection.node.submit(command, self, 0)

    def give_up(self, handles: list[tuple[int, int]]) -> None:
        """Some of its records are done or given back."""
        self._held.difference_update(handles)
        if not self._refill_set and not self._taking:
            self._refill_set = True
            asyncio.get_running_loop().call_soon(self.refill)

    def end(self) -> None:
        """The client wants no more."""
        self._ended = True
        self._connection.node.stop_waiting(self)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """Records for the client, or none because the node stops or the subscription ended."""
        self._taking = False
        connection = self._connection
        if not isinstance(answer, Taken):
            if not connection.closed and not self._ended:
                assert isinstance(answer, Refusal)
                connection.drop_subscription(self._request, answer)
        elif answer.records:
            if connection.closed or self._ended:
                connection.node.return_unsent(command, answer)
            else:
                token = answer.token
                self._held.update([(record.id, token) for record in answer.records])
                body = c.encode(answer)
                connection.write(_pack_header(_HEADER_REST + len(body), m.PUSH, self._request) + body)
                self.refill()
        connection.in_flight -= 1
        if connection.closed and not connection.in_flight:
            connection.node.forget(connection, connection.owner)

    def flush(self) -> None:
        """The connection flushes."""


_READS: dict[int, Callable[[Any, Any], Any]] = {
    m.LIST_QUEUES: lambda st, _: reading.list_queues(st),
    m.SHOW_QUEUE: lambda st, args: reading.show_queue(st, args.queue),
    m.PEEK: lambda st, args: reading.peek(st, args.queue, args.count),
    m.BROWSE: lambda st, args: reading.browse(st, args.queue, args.state, args.key_range, args.cursor, args.count),
    m.GET: lambda st, args: reading.get(st, args.queue, args.id),
    m.LIST_JOBS: lambda st, _: reading.list_jobs(st),
    m.LIST_BINDINGS: lambda st, _: reading.list_bindings(st),
}


def _check_headers(args: Any) -> None:
    """Headers are kept as they came, so they are looked at once, here."""
    groups = [args.items] if isinstance(args, c.Put) else [items for _, items in args.puts]
    for items in groups:
        for item in items:
            options = item.options
            if options is not None and options.headers is not c.NO_RAW and bytes(options.headers) != b"\xc0":
                _HEADERS.decode(options.headers)

"""The native door: our own protocol, after the handshake (docs/protocols/native.md).

Commands go into the log as they came, once they are known to decode. Reads are answered from the state when everything
submitted before them has been applied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter
from typing import Any

import msgspec

from penstock import __version__
from penstock.doors.connection import MEASURED_FROM_BYTES, Connection
from penstock.doors.doorkeeper import HOARD_BYTES, Doorkeeper
from penstock.doors.reads import Reads
from penstock.doors.subscription import Handle, Subscription
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import reading
from penstock.engine.answers import AckTaken, Answer, Done, Handled, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NATIVE
from penstock.node.history import history
from penstock.node.node import Node
from penstock.storage.errors import StorageError
from penstock.wire.native import messages as m
from penstock.wire.native.errors import FrameError
from penstock.wire.native.frames import FRAME_BYTES_MAX, FRAME_BYTES_MAX_LEAST, HEADER, Frame, FrameReader

_HEADERS = msgspec.msgpack.Decoder(dict[str, str])
_UNREADABLE = (ValueError, RecursionError)
"""What decoding raises for a body that is not what it should be."""
_HEADER_REST = HEADER.size - 4
_GIVES_BACK = frozenset({c.ACK, c.ACK_TAKE, c.RETURN, c.BURY})
_BYTES_PER_UNIT = 1024
"""A request of this length takes about as long again as a short one."""
_PUSHED_BYTES = 200
_TASK_BYTES = 4 * 1024
"""What a pushed lease costs in the indexes of the connection, and what a task costs."""
PUSHED_UNREAD_BYTES_MAX = 4 * 1024 * 1024
"""While a client has more than this to read, its subscriptions push nothing."""
_pack_header = HEADER.pack


class NativeConnection(Connection):
    """A client that speaks the native protocol."""

    def __init__(self, node: Node, keeper: Doorkeeper, frame_bytes_max: int) -> None:
        super().__init__(node, keeper, "native")
        self._reader = FrameReader(frame_bytes_max)
        self._request_bytes_max = frame_bytes_max
        self._answer_bytes_max = FRAME_BYTES_MAX
        """The longest frame that the client reads."""
        self._producer = 0
        self._unsaid_name = ""
        """The name of the client, until it is in the log: a client that only looks leaves no trace there."""
        self._is_silent = True
        self._subscriptions: dict[int, Subscription] = {}
        self._pushed: dict[Handle, Subscription] = {}
        """Leases that were pushed and fill a place in the window of their subscription."""
        self._background: set[asyncio.Task[None]] = set()
        self._reads = Reads()
        self._frames: Iterator[Frame] | None = None
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self.is_waiting = False
        """Whether its turn is over and the next one has not come."""
        self._held_back: set[Subscription] = set()
        """Subscriptions that take nothing until the client has read what was pushed."""
        self._long_answers = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Take requests; while the connection is busy they are set aside, not carried out."""
        if self._is_silent:
            self._is_silent = False
            self.sent_first_request()
        if self._frames is not None:
            self._unread.append(data)
            self._unread_bytes += len(data)
        else:
            self._frames = self._reader.feed(data)
            self._take_frames()
            self.node.end_of_input()
        if self._reader.kept_bytes or self._unread_bytes:
            self.came_bytes += len(data)
            self.measure()
            self.watch()
        elif self.in_flight_bytes > MEASURED_FROM_BYTES or self._measured_bytes or self._pushed:
            self.measure()

    def received_bytes(self) -> int:
        """Frames that are not complete, and what waits behind those that are being taken."""
        return self._reader.kept_bytes + self._unread_bytes

    def has_half_request(self) -> bool:
        """Whether a frame has come in part."""
        return self._reader.kept_bytes > 0

    def index_bytes(self) -> int:
        """The index of pushed leases, and the tasks that work on answers."""
        return len(self._pushed) * _PUSHED_BYTES + len(self._background) * _TASK_BYTES

    def give_up(self, reason: str) -> None:
        """A client that sends a long frame while memory is short is refused under the number of that request."""
        request = self._reader.half_request()
        if request is not None and not self._writing_paused:
            self.refuse(request, Refusal(e.MEMORY_FULL, reason, (self.keeper.buffer_bytes_max,)))
            self.close(reason)
        else:
            self.abort(reason)

    # Turns.

    def resumed(self) -> None:
        """Go on with what was set aside."""
        self._reads.run(self)
        if self._frames is not None and not self.is_waiting:
            self._take_frames()

    def wait_for_turn(self) -> None:
        """Go on when the others had their turn; until then nothing is read from the client."""
        self.is_waiting = self.input_full = True
        self.keeper.turns.wait(self)
        self._regulate()

    def take_turn(self) -> None:
        """The next turn has come."""
        self.is_waiting = self.input_full = False
        if self.closed:
            return
        try:
            self.resumed()
        except Exception as problem:
            self.broken(problem)
            return
        self._regulate()
        self.node.end_of_input()
        if self.is_measured:
            self.measure()

    def _take_frames(self) -> None:
        """Carry out requests until there are no more, the connection is busy, or its turn is over."""
        turns = self.keeper.turns
        busy, take_frame = self.busy, self._take_frame
        try:
            while self._frames is not None:
                for code, request, body in self._frames:
                    take_frame(code, request, body)
                    turns.left -= 1 + len(body) // _BYTES_PER_UNIT
                    if turns.left <= 0 and turns.is_over() and not self.is_waiting:
                        self.wait_for_turn()
                    if self.is_waiting:
                        return
                    if busy():
                        self._regulate()
                        return
                if self._unread:
                    piece = self._unread.popleft()
                    self._unread_bytes -= len(piece)
                    self._frames = self._reader.feed(piece)
                else:
                    self._frames = None
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
        if self._unsaid_name:
            self._say_name()
        if self._pushed and code in _GIVES_BACK:
            self._take_back(args.queue, args.handles)
        self.submit(Command(code, DOOR_NATIVE, self.owner, self._producer, request, body, args), request)

    def _say_name(self) -> None:
        """The client does something for the first time: its name goes into the log before that."""
        args = c.NameOwner(self.owner, self._unsaid_name)
        self._unsaid_name = ""
        self.submit(Command(c.NAME_OWNER, DOOR_NATIVE, self.owner, 0, 0, c.encode(args), args), 0)

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Write an answer as a frame."""
        if command is not None:
            if command.op == c.NAME_OWNER:
                return  # nobody asked for it
            if self._pushed and command.op == c.EXTEND:
                self._after_extend(command.args, answer)
        body = c.encode(answer)
        if _HEADER_REST + len(body) > self._answer_bytes_max:
            answer = self._shortened(command, answer, len(body))
            body = c.encode(answer)
        status = m.REFUSED if answer.__class__ is Refusal else m.ANSWER
        self.write(_pack_header(_HEADER_REST + len(body), status, ref) + body)

    def _shortened(self, command: Command | None, answer: Any, body_bytes: int) -> Any:
        """What the client gets in place of an answer that is longer than it can read; records come back unsent."""
        taken = answer.taken if isinstance(answer, AckTaken) else answer
        if isinstance(taken, Taken) and command is not None:
            self.node.return_unsent(command, taken)
        if isinstance(answer, AckTaken):
            return AckTaken(answer.acked, Taken(taken.token, []))  # the acks are done, so it is no refusal
        return self.too_large(body_bytes)

    def too_large(self, body_bytes: int) -> Refusal:
        """The refusal for an answer that is longer than the client can read."""
        limit, size_bytes = self._answer_bytes_max, _HEADER_REST + body_bytes
        text = f"the answer has {size_bytes} bytes, this client reads frames up to {limit}; it has to allow longer ones"
        return Refusal(e.ANSWER_TOO_LARGE, text, (size_bytes, limit))

    def can_read(self, body: bytes) -> bool:
        """Whether a frame with this body is short enough for the client."""
        return _HEADER_REST + len(body) <= self._answer_bytes_max

    def send_encoded(self, request: int, body: bytes) -> None:
        """Write an answer that is encoded already."""
        if self.can_read(body):
            self.write(_pack_header(_HEADER_REST + len(body), m.ANSWER, request) + body)
        else:
            self.refuse(request, self.too_large(len(body)))

    def push(self, subscription: int, body: bytes) -> None:
        """Write records that are pushed, encoded, under the number of their subscription."""
        self.write(_pack_header(_HEADER_REST + len(body), m.PUSH, subscription) + body)

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
        self._pushed.clear()
        self.node.on_lease_ended.pop(self.owner, None)
        self._held_back.clear()
        self._reader.clear()
        self._frames = None
        self._unread.clear()
        self._unread_bytes = 0
        self.in_flight -= self._reads.end()
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
            if not args.client.isprintable():
                self.refuse(request, Refusal(e.BAD_REQUEST, "the name of a client has to be printable"))
                return
            self._producer, self._unsaid_name = args.producer, args.client
            self._answer_bytes_max = max(args.frame_bytes_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX_LEAST)
            self.send(request, self._welcome())
        elif code == m.PING:
            for number in args.waiting:
                if number in self._subscriptions:
                    self._subscriptions[number].reclaim()
            self.send(request, Done())
        elif code == m.SUBSCRIBE:
            self._subscribe(request, args)
        elif code == m.UNSUBSCRIBE:
            subscription = self._subscriptions.pop(args.subscription, None)
            if subscription is not None:
                subscription.end()
                self._forget_pushed(subscription)
            self.send(request, Done(int(subscription is not None)))
        else:
            self._reads.ask(self, code, request, args)

    def carry_out_read(self, code: int, request: int, args: Any) -> None:
        """Answer a read that is due, now or when its work is done."""
        feeding = self.node.feeding
        if code == m.HISTORY:
            self._later(request, history(self.node, args.queue, args.id))
        elif code == m.READ_JOURNAL:
            self._later(request, self._when_writable(request, lambda: feeding.piece(args, self._answer_bytes_max)))
        elif code == m.READ_ENTRIES:
            self._later(request, self._when_writable(request, lambda: feeding.entries(args, self._answer_bytes_max)))
        elif code == m.READ_SNAPSHOT:
            self._later(
                request, self._when_writable(request, lambda: feeding.states.read(args, self._answer_bytes_max))
            )
        elif code == m.SNAPSHOT:
            self._later(request, feeding.states.snapshot(args))
        elif code == m.FIND_TIME:
            self._later(request, feeding.find_time(args))
        elif code == m.CUT_JOURNAL:
            self._later(request, feeding.cuts(args))
        elif code == m.LATEST:
            self._later(request, feeding.latest(args, self.owner))
        elif code == m.STATUS:
            self.send(request, self._status())
        else:
            self.send(request, _READS[code](self.node.engine.state, args))

    def _later(self, request: int, work: Coroutine[Any, Any, Any]) -> None:
        """Answer when something that takes its time is done."""
        self.in_flight += 1
        task = self._loop.create_task(self._answer_with(request, work))
        self._background.add(task)
        # Not at the end of the coroutine: a task that is cancelled before its first step never gets there.
        task.add_done_callback(lambda done: self._answered_later(done, work))

    async def _answer_with(self, request: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await work
            if answer is not None:
                self.send(request, answer)
        except (StorageError, OSError) as problem:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"the history cannot be read: {problem}"))

    def _answered_later(self, task: asyncio.Task[None], work: Coroutine[Any, Any, Any]) -> None:
        self._background.discard(task)
        work.close()
        self.request_ended()
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            self.broken(problem)
        elif self._reading_paused:
            self._regulate()

    async def _when_writable(self, request: int, read: Callable[[], Coroutine[Any, Any, bytes | Refusal]]) -> Any:
        """Send an answer that is long: one at a time, and only when the client has read what was sent before."""
        async with self._long_answers:
            await self._writable.wait()
            answer = await read()
            if isinstance(answer, Refusal) or self.closed:
                return answer
            if not self.can_read(answer):
                return self.too_large(len(answer))
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
        held_back, self._held_back = self._held_back, set()
        for subscription in held_back:
            subscription.refill()

    def _welcome(self) -> m.Welcome:
        node = self.node
        limits = node.limits.payload_bytes_max, self._request_bytes_max
        return m.Welcome(__version__, node.store.cluster_id.hex(), node.node_id, node.consensus.term, *limits)

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
            memory_bytes=node.limits.used_bytes(st),
            memory_bytes_max=node.limits.memory_bytes_max,
            disk_full=node.store.disk_full,
            uptime_ms=node.uptime_ms(),
            buffer_bytes=node.account.total,
            connections_max=self.keeper.connections_max,
            memory=node.limits.by_kind(st),
        )

    # Pushing.

    def _subscribe(self, request: int, args: m.Subscribe) -> None:
        if args.queue not in self.node.engine.state.by_name:
            self.node.read(lambda: self._subscribe_now(request, args), self)  # its queue may be on its way
        else:
            self._subscribe_now(request, args)

    def _subscribe_now(self, request: int, args: m.Subscribe) -> None:
        if self.closed:
            return
        # Checked only now: other subscriptions may have been made while this one waited for its queue.
        if request in self._subscriptions:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"request {request} is a subscription already"))
            return
        if len(self._subscriptions) >= m.SUBSCRIPTIONS_MAX:
            self.refuse(request, Refusal(e.BAD_REQUEST, f"{m.SUBSCRIPTIONS_MAX} subscriptions is the limit"))
            return
        if self._unsaid_name:
            self._say_name()
        if args.queue not in self.node.engine.state.by_name:
            self.refuse(request, Refusal(e.NO_SUCH_QUEUE, f"there is no queue {args.queue!r}"))
            return
        self._subscriptions[request] = subscription = Subscription(self, request, args)
        self.node.on_lease_ended[self.owner] = self._lease_ended
        self.send(request, Done())
        subscription.refill()

    def drop_subscription(self, request: int, refusal: Refusal) -> None:
        """A subscription cannot go on, its queue was deleted or the node stops: the client is told under its number."""
        subscription = self._subscriptions.pop(request, None)
        if subscription is not None:
            self._forget_pushed(subscription)
        self.refuse(request, refusal)

    def is_full_of_pushes(self) -> bool:
        """Whether the client has to read before more is pushed to it."""
        limit_bytes = HOARD_BYTES if self.keeper.is_short_of_memory else PUSHED_UNREAD_BYTES_MAX
        return self.unsent_bytes > limit_bytes

    def hold_back(self, subscription: Subscription) -> None:
        """Let a subscription go on when the client has read what was written."""
        self._held_back.add(subscription)

    def note_pushed(self, subscription: Subscription, handles: list[Handle]) -> None:
        """These leases fill places in the window of a subscription."""
        for handle in handles:
            self._pushed[handle] = subscription

    def _forget_pushed(self, subscription: Subscription) -> None:
        for handle in subscription.held:
            self._pushed.pop(handle, None)

    def _lease_ended(self, handle: Handle) -> None:
        """A lease of this connection ended without the client's doing: it timed out, or its record was deleted."""
        subscription = self._pushed.get(handle)
        if subscription is not None:
            subscription.ended.append(handle)

    def _take_back(self, queue: str, handles: list[Handle]) -> None:
        """The client gives up leases: the windows that they were pushed in have places again.

        A client that settles leases is working, so the places of its ended leases come back at the same time.
        """
        pushed = self._pushed
        affected: set[Subscription] = set()
        for handle in handles:
            subscription = pushed.get(handle)
            if subscription is not None and subscription.queue == queue:
                del pushed[handle]
                subscription.held.discard(handle)
                affected.add(subscription)
        for subscription in affected:
            subscription.reclaim()

    def _pushers(self, queue: str, handles: list[Handle]) -> set[Subscription]:
        """The subscriptions to a queue by which these leases were pushed."""
        found = {self._pushed[handle] for handle in handles if handle in self._pushed}
        return {subscription for subscription in found if subscription.queue == queue}

    def _after_extend(self, args: c.Extend, answer: Answer) -> None:
        """An extension was answered: the leases that it did not find give their places back."""
        pushers = self._pushers(args.queue, args.handles)
        if isinstance(answer, Handled):
            self._take_back(args.queue, [args.handles[position] for position in answer.lost])
        elif isinstance(answer, Refusal) and answer.code == e.NO_SUCH_QUEUE:
            self._take_back(args.queue, args.handles)
        for subscription in pushers:
            subscription.reclaim()

    def let_go(self, handles: list[Handle]) -> None:
        """These leases have ended and fill no place any more."""
        for handle in handles:
            self._pushed.pop(handle, None)


_READS: dict[int, Callable[[Any, Any], Any]] = {
    m.SHOW_QUEUE: lambda st, args: reading.show_queue(st, args.queue),
    m.PEEK: lambda st, args: reading.peek(st, args.queue, args.count),
    m.BROWSE: lambda st, args: reading.browse(st, args.queue, args.state, args.key_range, args.cursor, args.count),
    m.GET: lambda st, args: reading.get(st, args.queue, args.id),
}


def _check_headers(args: Any) -> None:
    """Headers are kept as they came, so they are looked at once, here."""
    groups = [args.items] if isinstance(args, c.Put) else [items for _, items in args.puts]
    for items in groups:
        for item in items:
            options = item.options
            if options is not None and options.headers is not c.NO_RAW and bytes(options.headers) != b"\xc0":
                _HEADERS.decode(options.headers)

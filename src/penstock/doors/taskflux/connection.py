"""One TaskFlux client: its packets in, their answers out, strictly one after the other.

    READY ──Enqueue──▶ ENQUEUED ──K──▶ BUSY ──▶ READY        (with acknowledgements)
      │                    └─────N──────────────▶ READY
      ├─────Dequeue──▶ BUSY ──record──▶ DELIVERED ──K or N──▶ BUSY ──▶ READY
      │                  └───none──────────────────────────────────────▶ READY
      └─────the others──▶ BUSY ──▶ READY

READY, ENQUEUED and DELIVERED wait for the client, each with its timeout; BUSY waits for the node and reads no packet.
What the client sends meanwhile stays in the codec, unparsed and bounded. CLOSING reads nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.doors.connection import Connection
from penstock.doors.listening import Doorkeeper
from penstock.doors.native import NativeConnection
from penstock.doors.taskflux import translation
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import Answer, Handled, PutAnswer, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_TASKFLUX, REASON_ACK_TIMEOUT
from penstock.node.node import Node
from penstock.settings.schema import ListenerSettings
from penstock.wire.native.messages import MINOR as NATIVE_MINOR
from penstock.wire.taskflux import NEED_DATA, Dialect, ErrorCode, Limits, ServerConnection, valid_queue_name
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.errors import PayloadTooLong, ProtocolError

Addresses: TypeAlias = Callable[[], tuple[list[str], int, int]]
"""Tells the client addresses of all nodes, the leader's id (negative: none is known), and the id of this node."""

_READY: Final = 0
_ENQUEUED: Final = 1
_DELIVERED: Final = 2
_BUSY: Final = 3
_CLOSING: Final = 4

_PACKETS_PER_TURN: Final = 64
"""So many packets of one client are served in a row where the node need not be waited for; then others have a turn."""
_INPUT_SLACK_BYTES: Final = 1024 * 1024
"""How much beyond one payload a client may send ahead while it waits for an answer."""


class TaskFluxConnection(Connection):
    """A client that speaks one of the TaskFlux dialects, or asks for the native protocol in its handshake."""

    tells_why_turned_away = True

    def __init__(
        self,
        node: Node,
        keeper: Doorkeeper,
        listener: ListenerSettings,
        *,
        limits: Limits,
        addresses: Addresses,
        frame_bytes_max: int,
    ) -> None:
        super().__init__(node, keeper, "taskflux")
        self._codec = ServerConnection(Dialect(listener.dialect), limits)
        self._acks = listener.acks
        self._addresses = addresses
        self._frame_bytes_max = frame_bytes_max
        self._input_bytes_max = limits.payload_bytes_max + _INPUT_SLACK_BYTES
        self._state = _READY
        self._is_silent = True
        self._serving = False
        self._serve_set = False
        self._turn_over = False
        self._enqueued: c.Put | None = None
        self._held_queue = ""
        self._held: list[tuple[int, int]] = []
        self._idle_timeout_s = listener.idle_timeout_ms / 1000
        self._ack_timeout_s = listener.ack_timeout_ms / 1000
        self._waiting_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        super().connection_made(transport)
        if not self.transport.is_closing():
            self._waiting_since_s = self._loop.time()
            self._arm(min(self._idle_timeout_s, self._ack_timeout_s))

    def data_received(self, data: bytes) -> None:
        """Take bytes, and serve what they complete."""
        if self._state == _READY:
            self._waiting_since_s = self._loop.time()
        self.came_bytes += len(data)
        self._codec.receive_data(data)
        self._serve()
        self.node.end_of_input()
        if self._codec.buffered_bytes or self._enqueued is not None or self.is_measured:
            self.measure()

    def resume_writing(self) -> None:
        """The client reads its answers again: go on with its packets."""
        super().resume_writing()
        self._waiting_since_s = self._loop.time()
        self._serve()

    def close(self, reason: str) -> None:
        """End the connection, after what was written; no further packet is served."""
        self._state = _CLOSING
        super().close(reason)

    def silent_for_too_long(self, reason: str) -> None:
        """After the handshake the door's own idle timeout applies."""
        if self._codec.in_handshake:
            super().silent_for_too_long(reason)

    def received_bytes(self) -> int:
        """Packets that are not parsed yet, and a record whose acknowledgement has not come."""
        enqueued = self._enqueued
        return self._codec.buffered_bytes + (len(enqueued.items[0].payload) if enqueued is not None else 0)

    def gone(self) -> None:
        """The client left; what it holds is released by the base class."""
        self._state = _CLOSING
        self._enqueued = None
        self._disarm()

    # Packets.

    def _serve(self) -> None:
        """Take packets while the client is to be waited for; returns when the node is, or none is whole.

        An answer may come within ``submit``: it finds ``_serving`` set and leaves the next packet to this loop.
        """
        if self._serving:
            return
        self._serving = True
        self._turn_over = False
        packets_left = _PACKETS_PER_TURN
        next_event = self._codec.next_event
        try:
            while self._state < _BUSY and not self._writing_paused:
                if not packets_left or self._turn_over:
                    self._serve_soon()
                    break
                packets_left -= 1
                event = next_event()
                if event is NEED_DATA:
                    break
                if self._state == _READY:
                    _ON_PACKET[event.__class__](self, event)
                else:
                    self._on_acknowledgement(event)
        except ProtocolError as problem:
            self._on_broken(problem)
        finally:
            self._serving = False
        input_full = self._codec.buffered_bytes > self._input_bytes_max
        if input_full != self.input_full:
            self.input_full = input_full
            self._regulate()

    def _serve_soon(self) -> None:
        """Go on after the others had their turn; what was written goes out before, so that it can press back."""
        self.flush()
        if not self._serve_set:
            self._serve_set = True
            self._loop.call_soon(self._serve_again)

    def _serve_again(self) -> None:
        self._serve_set = False
        if not self.closed:
            self._serve()

    def _say(self, reply: m.Reply) -> None:
        self.write(self._codec.send(reply))

    def _submit(self, op: int, args: Any) -> None:
        self._state = _BUSY
        if self._is_silent:
            self._is_silent = False
            self.sent_first_request()
        self.submit(Command(op, DOOR_TASKFLUX, self.owner, 0, 0, c.encode(args), args), 0)

    def _on_broken(self, problem: ProtocolError) -> None:
        """The client broke the protocol. Only too long a payload can be told in the protocol's own words."""
        if self._state == _DELIVERED:
            self._give_back(c.NACK)
        elif isinstance(problem, PayloadTooLong) and self._state == _READY:
            self._say(m.PayloadSizeViolation(problem.length_max))
        self.close(str(problem))

    # The handshake.

    def _on_authorization(self, _event: m.AuthorizationRequest) -> None:
        self._say(m.AuthorizationResponse())

    def _on_bootstrap(self, _event: m.BootstrapRequest) -> None:
        if self.turned_away:
            self._refuse_bootstrap(self.turned_away)
            return
        self._say(m.BootstrapResponse())

    def _refuse_bootstrap(self, reason: str) -> None:
        self._say(m.BootstrapResponse(False, reason))
        self.close(reason)

    def _on_unsupported(self, event: m.UnsupportedVersion) -> None:
        self._refuse_bootstrap(event.reason)

    def _on_native(self, event: m.NativeRequested) -> None:
        if not 0 <= event.minor <= NATIVE_MINOR:
            reason = f"version {event.minor} of the native protocol is not spoken here, {NATIVE_MINOR} is"
            self._refuse_bootstrap(reason)
            return
        if self.turned_away:
            self._refuse_bootstrap(self.turned_away)
            return
        self._say(m.BootstrapResponse())
        self.flush()
        self._state = _CLOSING
        self._disarm()
        successor = NativeConnection(self.node, self.keeper, self._frame_bytes_max)
        self.hand_over(successor, self._codec.trailing_data)

    # Commands.

    def _on_enqueue(self, event: m.Enqueue) -> None:
        if not valid_queue_name(event.queue):
            self._say(translation.bad_name(self._codec.dialect))
            return
        args = c.Put(event.queue.decode(), [c.Item(event.key, event.payload)])
        if self._acks and not self._codec.dialect.length_framed:
            self._enqueued = args
            self._state = _ENQUEUED
            self._say(_OK)
        else:
            self._submit(c.PUT, args)

    def _on_dequeue(self, event: m.Dequeue) -> None:
        if not valid_queue_name(event.queue):
            self._say(translation.bad_name(self._codec.dialect))
            return
        final = not self._acks or self._codec.dialect.length_framed
        # A lease of length 0 is bound to the connection.
        self._submit(c.TAKE, c.Take(event.queue.decode(), 1, 0, event.timeout_ms, False, final))

    def _on_count(self, event: m.Count) -> None:
        if not valid_queue_name(event.queue):
            self._say(translation.bad_name(self._codec.dialect))
            return
        queue = event.queue.decode()
        self._read(lambda: translation.count_of(self.node.engine.state, queue, self._codec.dialect))

    def _on_list(self, _event: m.ListQueues) -> None:
        self._turn_over = True  # its answer may be long
        self._read(lambda: translation.list_of(self.node.engine.state))

    def _on_create(self, event: m.CreateQueue) -> None:
        problem = translation.judge_create(event, self._codec.dialect)
        if problem is None and not valid_queue_name(event.queue):
            problem = translation.bad_name(self._codec.dialect)
        if problem is not None:
            self._say(problem)
            return
        self._submit(c.CREATE_QUEUE, c.CreateQueue(event.queue.decode(), translation.settings_of(event)))

    def _on_delete(self, event: m.DeleteQueue) -> None:
        if not valid_queue_name(event.queue):
            self._say(translation.bad_name(self._codec.dialect))
            return
        self._submit(c.DELETE_QUEUE, c.DeleteQueue(event.queue.decode()))

    def _on_metadata(self, _event: m.ClusterMetadataRequest) -> None:
        addresses, leader_id, node_id = self._addresses()
        self._say(m.ClusterMetadata(addresses, leader_id if leader_id >= 0 else None, node_id))

    def _on_stray(self, _event: m.Acknowledge | m.NegativeAcknowledge) -> None:
        """An acknowledgement that nobody waits for changes nothing."""

    def _read(self, look: Callable[[], m.Reply]) -> None:
        """Answer from the state, once all that was submitted before has been applied."""
        self._state = _BUSY
        if self._is_silent:
            self._is_silent = False
            self.sent_first_request()
        self.node.read(lambda: self._on_read(look), self)

    def _on_read(self, look: Callable[[], m.Reply]) -> None:
        if self._state != _BUSY:
            return  # the client has left meanwhile
        self._waiting_since_s = self._loop.time()
        self._state = _READY
        consensus = self.node.consensus
        self._say(look() if consensus.is_leader else translation.not_leader(consensus.leader))
        self._serve()

    # Acknowledgements.

    def _on_acknowledgement(self, event: m.Event) -> None:
        """What came while an acknowledgement was awaited; anything else is a refusal, and ends the connection."""
        self._waiting_since_s = self._loop.time()
        kind = event.__class__
        delivered = self._state == _DELIVERED
        args, self._enqueued = self._enqueued, None
        if kind is m.Acknowledge:
            if delivered:
                self._submit(c.ACK, c.Ack(self._held_queue, self._held))
            else:
                self._submit(c.PUT, args)
        elif kind is m.NegativeAcknowledge:
            if delivered:
                self._submit(c.RETURN, c.Return(self._held_queue, self._held, c.NACK))
            else:
                self._state = _READY
                self._say(_OK)
        else:
            if delivered:
                self._give_back(c.NACK)
            self.close(f"{kind.__name__} came where an acknowledgement was awaited")

    def _give_back(self, how: int, reason: int = 0) -> None:
        """Give the record that is held back, on the way out."""
        self._state = _CLOSING  # before the answer, which may come at once
        args = c.Return(self._held_queue, self._held, how, 0, reason)
        self.submit(Command(c.RETURN, DOOR_TASKFLUX, self.owner, 0, 0, c.encode(args), args), 0)

    # The node's answers.

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Say the answer, and go on with the next packet."""
        if self._state != _BUSY or self.transport.is_closing():
            self.unsent(command, answer)
            return
        self._waiting_since_s = self._loop.time()
        self._state = _READY
        if answer.__class__ is Refusal:
            self._on_refusal(command.op, answer)
        else:
            _ON_ANSWER[command.op](self, command, answer)
        self._serve()

    def _on_refusal(self, op: int, refusal: Refusal) -> None:
        if refusal.code == e.STOPPING:
            self.close(refusal.detail)
        else:
            self._say(translation.refusal_of(op, refusal, self._codec.dialect))

    def _on_put(self, command: Command, answer: PutAnswer) -> None:
        if answer.exceptions:
            _, code, figure = answer.exceptions[0]
            self._say(translation.violation_of(self.node.engine.state, command.args.queue, code, figure))
        else:
            self._say(_OK)

    def _on_taken(self, command: Command, answer: Taken) -> None:
        if not answer.records:
            self._say(_EMPTY)
            return
        record = answer.records[0]
        args = command.args
        if not args.final:
            self._state = _DELIVERED
            self._held_queue = args.queue
            self._held = [(record.id, answer.token)]
        self._say(m.DequeueResult(record.key, record.payload, record.id))

    def _on_acked(self, _command: Command, answer: Handled) -> None:
        if answer.lost:
            # Somebody took it away (an operator, a new term): it was not removed by this acknowledgement.
            self._say(m.ErrorResult(ErrorCode.UNKNOWN, "the record was no longer held by this connection"))
        else:
            self._say(_OK)

    def _on_done(self, _command: Command, _answer: Answer) -> None:
        self._say(_OK)

    # Time. One timer for the whole life of a connection: it looks when it fires, and packets only note the time.

    def _arm(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._state == _CLOSING or self.closed:
            return
        # A wait that begins after this moment ends no earlier than the next look, whatever it waits for.
        next_look_s = min(self._idle_timeout_s, self._ack_timeout_s)
        if self._state != _BUSY and not self._writing_paused:
            timeout_s = self._idle_timeout_s if self._state == _READY else self._ack_timeout_s
            left_s = self._waiting_since_s + timeout_s - self._loop.time()
            if left_s <= 0:
                self._on_timeout()
                return
            next_look_s = min(next_look_s, left_s)
        self._arm(next_look_s)

    def _on_timeout(self) -> None:
        """The client said nothing for too long: close without a message; a record that it holds goes back first."""
        if self._state == _READY:
            self.close(f"nothing came for {self._idle_timeout_s:g} s")
            return
        if self._state == _DELIVERED:
            self._give_back(c.RELEASE, REASON_ACK_TIMEOUT)
        self.close(f"no acknowledgement came for {self._ack_timeout_s:g} s")


_OK: Final = m.Ok()
_EMPTY: Final = m.DequeueEmpty()

_ON_PACKET: Final[dict[type, Callable[[TaskFluxConnection, Any], None]]] = {
    m.AuthorizationRequest: TaskFluxConnection._on_authorization,
    m.BootstrapRequest: TaskFluxConnection._on_bootstrap,
    m.UnsupportedVersion: TaskFluxConnection._on_unsupported,
    m.NativeRequested: TaskFluxConnection._on_native,
    m.Enqueue: TaskFluxConnection._on_enqueue,
    m.Dequeue: TaskFluxConnection._on_dequeue,
    m.Count: TaskFluxConnection._on_count,
    m.CreateQueue: TaskFluxConnection._on_create,
    m.DeleteQueue: TaskFluxConnection._on_delete,
    m.ListQueues: TaskFluxConnection._on_list,
    m.ClusterMetadataRequest: TaskFluxConnection._on_metadata,
    m.Acknowledge: TaskFluxConnection._on_stray,
    m.NegativeAcknowledge: TaskFluxConnection._on_stray,
}
"""What each packet means where no acknowledgement is awaited; the codec sees to it that the handshake comes first."""

_ON_ANSWER: Final[dict[int, Callable[[TaskFluxConnection, Command, Any], None]]] = {
    c.PUT: TaskFluxConnection._on_put,
    c.TAKE: TaskFluxConnection._on_taken,
    c.ACK: TaskFluxConnection._on_acked,
    c.RETURN: TaskFluxConnection._on_done,
    c.CREATE_QUEUE: TaskFluxConnection._on_done,
    c.DELETE_QUEUE: TaskFluxConnection._on_done,
}
"""What is said to each answer that is no refusal."""

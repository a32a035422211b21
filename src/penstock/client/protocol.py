"""The client's side of a native conversation, without a socket, a clock or a source of randomness.

A ``Session`` outlives its connections. It numbers requests (upwards, none twice), keeps those that are in flight, and
says after a reconnect what must be sent again. Whoever owns the socket drives it:

    data = session.begin()              a connection was made: send the handshake
    session.shake(data)                 bytes came; True once the handshake is through: then call Hello
    call = session.call(request, ...)   send call.frame
    session.receive(data)               bytes came: each reply with the call it belongs to
    session.lost()                      the connection ended: these calls will not be repeated
    session.repeat(now)                 Hello was answered on the next connection: send this first

The node knows the client's commands by its producer number and the request's number, and answers a repeat with its
first answer as long as that is among the last 1,000: so no more than ``IN_FLIGHT_MAX`` may be in flight. The owner of
the socket keeps to that, since it alone can make callers wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.client.errors import (
    BadAnswer,
    FrameTooLarge,
    HandshakeRefused,
    OutcomeUnknown,
    PenstockError,
    RequestTooLarge,
    refused,
)
from penstock.engine import commands as c
from penstock.engine.answers import AckTaken, Taken
from penstock.engine.errors import NODE_CODES, OUTCOME_UNKNOWN, Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.errors import FrameTooLong
from penstock.wire.native.frames import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MAX_LEAST,
    FrameReader,
    encode_frame,
    frame_bytes_for,
    frame_bytes_of,
)

IN_FLIGHT_MAX: Final = 1_000
"""Requests that may be unanswered at a time: as many answers as the node remembers for each producer."""
LOSSES_MAX: Final = 10
"""A request that saw so many connections end is not repeated any more: it may be what ends them."""
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""The longest frame that a client reads if nothing else is set: more than any record that a node accepts."""
WAIT_SLICE_MS: Final = 20_000
"""The longest wait that one request asks of the node; longer ones are made of several, so that a wait that was
cancelled here ends there soon."""

_INT32: Final = Struct(">i")
_HANDSHAKE: Final = b"AN" + b"B" + Struct(">iii").pack(m.MAJOR, m.MINOR, 0)
_REASON_BYTES_MAX: Final = 64 * 1024
_FIRST_READ_OP: Final = min(m.REQUESTS)
_WAITING_OPS: Final = frozenset({c.TAKE, c.ACK_TAKE})
_ATOMIC_OPS: Final = frozenset({c.PUT_MANY, c.MOVE, c.STAGE})
_decode_refusal: Final = msgspec.msgpack.Decoder(Refusal).decode
_decode_taken: Final = msgspec.msgpack.Decoder(Taken).decode

Handle = tuple[int, int]
"""A lease: record id and fencing token."""


class Call:
    """One request on its way to its answer."""

    __slots__ = (
        "counted",
        "doubtful",
        "frame",
        "losses",
        "number",
        "op",
        "outstanding",
        "refusal",
        "refused_at",
        "request",
        "wait_until",
        "waiter",
    )

    def __init__(self, number: int, op: int, frame: bytes, waiter: Any) -> None:
        self.number = number
        self.op = op
        self.frame = frame
        self.waiter = waiter
        """Who wants the answer, as the owner of the socket knows him; None when nobody does any more."""
        self.request: c.Take | c.AckTake | None = None
        """Kept where a repeat asks for less than the first time."""
        self.wait_until: float | None = None
        self.outstanding = True
        """Sent on this connection, and not answered yet."""
        self.doubtful = False
        """Was outstanding on a connection that ended, so the node may have done it."""
        self.losses = 0
        self.counted = False
        """Whether it is one of those that the owner of the socket bounds."""
        self.refusal: Refusal | None = None
        """Why the last node sent us on to another one."""
        self.refused_at: float | None = None

    @property
    def name(self) -> str:
        """The request's name, for people."""
        return operation_name(self.op)

    @property
    def is_command(self) -> bool:
        """Whether the request changes anything."""
        return self.op < _FIRST_READ_OP

    def error_for(self, refusal: Refusal) -> PenstockError:
        """What a refusal means for the caller."""
        if not self.is_command:
            return refused(refusal)
        if refusal.code == OUTCOME_UNKNOWN:
            return OutcomeUnknown(self.name, self.number, refusal.detail or "the node could not tell")
        error = refused(refusal, atomic=self.op in _ATOMIC_OPS)
        if self.doubtful and refusal.code in NODE_CODES:
            # The node turned away the repeat before the engine saw it; what became of the first one, nobody said.
            unknown = OutcomeUnknown(
                self.name, self.number, f"it was repeated after a lost connection, and then {error}"
            )
            unknown.__cause__ = error
            return unknown
        return error

    def unclaimed(self, answer: Any) -> tuple[str, list[Handle]]:
        """The leases in an answer that nobody waits for: queue and handles. They must be given back."""
        if self.request is None:
            return "", []
        taken = answer.taken if isinstance(answer, AckTaken) else answer
        if isinstance(self.request, c.Take) and self.request.final:
            return "", []
        return self.request.queue, [(record.id, taken.token) for record in taken.records]


def _decode_for_sink(status: int, body: bytes) -> Taken | Refusal:
    try:
        return _decode_taken(body) if status == m.PUSH else _decode_refusal(body)
    except ValueError as error:
        # Records that cannot be read cannot be given back either; a new connection gives the node the chance.
        raise BadAnswer(operation_name(m.SUBSCRIBE), str(error)) from None


def operation_name(op: int) -> str:
    """An operation's name, for people."""
    kind = c.TYPES.get(op) or m.REQUESTS[op]
    return kind.__name__


class Session:
    """Request numbers, requests in flight, and the conversation on the connection of the moment."""

    def __init__(self, producer: int, client: str = "", frame_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        if frame_bytes_max < FRAME_BYTES_MAX_LEAST:
            raise ValueError(f"frame_bytes_max must be at least {FRAME_BYTES_MAX_LEAST}, not {frame_bytes_max}")
        self.producer = producer
        self.client = client
        self.frame_bytes_max = frame_bytes_max
        """The longest frame that is read."""
        self.request_bytes_max = FRAME_BYTES_MAX
        """The longest frame that the node reads, as its last Welcome said."""
        self.was_welcome = False
        """Whether a node has said what it reads."""
        self.calls: dict[int, Call] = {}
        """Requests without an answer, by number."""
        self.sinks: dict[int, Any] = {}
        """Who gets the pushes of each subscription, by the number of the request that made it."""
        self._next = 1
        self._reader = FrameReader(frame_bytes_max)
        self._handshake = Handshake()

    def begin(self) -> bytes:
        """A connection was made: what to send first."""
        self._reader = FrameReader(self.frame_bytes_max)
        self._handshake = Handshake()
        return _HANDSHAKE

    def shake(self, data: bytes) -> bool:
        """Take bytes of the handshake; True once it is through. Raises ``HandshakeRefused``."""
        return self._handshake.feed(data)

    def hello(self, waiter: Any) -> Call:
        """The first request on each connection: who we are."""
        return self.call(m.Hello(self.producer, self.client, self.frame_bytes_max), waiter)

    def call(self, request: Any, waiter: Any, *, wait_until: float | None = None) -> Call:
        """Give a request its number and its frame, and keep it until it is answered.

        ``wait_until`` is the caller's time at which a waiting take has waited enough.
        """
        op = m.CODES[type(request)]
        body = c.encode(request)
        if frame_bytes_of(len(body)) > self.request_bytes_max:
            raise RequestTooLarge(operation_name(op), frame_bytes_of(len(body)), self.request_bytes_max)
        number = self._next
        self._next = number + 1
        call = Call(number, op, encode_frame(op, number, body), waiter)
        if op in _WAITING_OPS:
            call.request = request
            call.wait_until = wait_until
        self.calls[number] = call
        return call

    def receive(self, data: bytes) -> Iterator[tuple[Call | None, int, Any]]:
        """Take bytes; yield each reply as (its call, status, value). Raises ``NativeError`` or ``BadAnswer`` where the
        stream cannot go on.

        The value is an answer, a ``Refusal`` or ``BadAnswer``. What concerns a subscription that was made before comes
        without a call, with (sink, ``Taken``, ``Refusal`` or ``FrameTooLarge``) as its value.
        """
        try:
            yield from self._receive(data)
        except FrameTooLong as error:
            # The frame says whose it is, so this one fails and the others can be repeated on the next connection.
            yield from self._too_long(error)
            raise

    def _too_long(self, error: FrameTooLong) -> Iterator[tuple[Call | None, int, Any]]:
        number, is_push = error.request, error.frame_code == m.PUSH
        call = None if is_push else self.calls.pop(number, None)
        if call is not None:
            self.sinks.pop(number, None)
            yield call, m.REFUSED, FrameTooLarge(call.name, error.length, error.limit)
        elif number in self.sinks:
            sink = self.sinks.pop(number)
            yield None, m.REFUSED, (sink, FrameTooLarge(operation_name(m.SUBSCRIBE), error.length, error.limit))

    def _receive(self, data: bytes) -> Iterator[tuple[Call | None, int, Any]]:
        calls = self.calls
        for status, number, body in self._reader.feed(data):
            call = calls.pop(number, None) if status != m.PUSH else None
            if call is None:
                if number in self.sinks and status != m.ANSWER:
                    yield None, status, (self.sinks[number], _decode_for_sink(status, body))
                continue
            value: Any
            try:
                value = m.ANSWER_DECODERS[call.op].decode(body) if status == m.ANSWER else _decode_refusal(body)
            except ValueError as error:
                value, status = BadAnswer(call.name, str(error)), m.REFUSED
            if call.op == m.HELLO and status == m.ANSWER:
                # Nodes from before this field was added read what their payload limit asks for.
                self.request_bytes_max = value.frame_bytes_max or frame_bytes_for(value.payload_bytes_max)
                self.was_welcome = True
            yield call, status, value

    def keep(self, call: Call, refusal: Refusal, now: float) -> None:
        """Put a call back that was answered "not here": it waits for the next connection."""
        call.refusal = refusal
        call.refused_at = now if call.refused_at is None else call.refused_at
        call.outstanding = False
        self.calls[call.number] = call

    def lost(self) -> tuple[list[Call], list[Any]]:
        """The connection ended. The calls that will not be repeated, and the sinks whose subscriptions are gone."""
        dropped = []
        for call in list(self.calls.values()):
            if call.outstanding:
                call.outstanding = False
                call.doubtful = True
                call.losses += 1
            if not self._is_worth_repeating(call):
                dropped.append(self.calls.pop(call.number))
        ended = [sink for number, sink in self.sinks.items() if number not in self.calls]
        self.sinks = {number: sink for number, sink in self.sinks.items() if number in self.calls}
        return dropped, ended

    def _is_worth_repeating(self, call: Call) -> bool:
        if call.op == m.HELLO or call.losses >= LOSSES_MAX:
            return False
        # A take that nobody waits for is asked again: if it was done, its records must be given back.
        return call.waiter is not None or call.op in _WAITING_OPS

    def repeat(self, now: float) -> bytes:
        """A new connection is open: every call that is still unanswered, in the order of their numbers."""
        calls = [self.calls[number] for number in sorted(self.calls)]
        for call in calls:
            call.outstanding = True
            request = call.request
            if request is not None and request.wait_ms:
                left_ms = 0 if call.wait_until is None else max(0, round((call.wait_until - now) * 1000))
                wait_ms = 0 if call.waiter is None else min(request.wait_ms, left_ms)
                call.frame = encode_frame(call.op, call.number, c.encode(replace(request, wait_ms=wait_ms)))
        return b"".join(call.frame for call in calls)


class Handshake:
    """The handshake's answers: ``a`` and ``b``, each with a Boolean, and a reason where that is false."""

    def __init__(self) -> None:
        self._buffer = b""
        self._expected = b"ab"
        self.has_begun = False

    def feed(self, data: bytes) -> bool:
        """Take bytes; True once both steps were accepted. The node sends nothing more before we speak."""
        self.has_begun = True
        self._buffer += data
        while self._expected:
            if self._buffer and self._buffer[0] != self._expected[0]:
                raise HandshakeRefused(
                    "the peer does not speak the protocol: it answered the handshake with other bytes"
                )
            if len(self._buffer) < 2:
                return False
            if self._buffer[1] != 1:
                return self._refused()
            self._buffer = self._buffer[2:]
            self._expected = self._expected[1:]
        if self._buffer:
            raise HandshakeRefused("the peer sent more than the handshake asks for")
        return True

    def _refused(self) -> bool:
        if len(self._buffer) < 2 + _INT32.size:
            return False
        (length,) = _INT32.unpack_from(self._buffer, 2)
        if not 0 <= length <= _REASON_BYTES_MAX:
            raise HandshakeRefused("the peer gave a reason that cannot be read")
        start = 2 + _INT32.size
        if len(self._buffer) < start + length:
            return False
        raise HandshakeRefused(self._buffer[start : start + length].decode(errors="replace") or "no reason was given")

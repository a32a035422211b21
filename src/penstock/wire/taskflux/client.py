"""The client's side of a TaskFlux connection, without the connection.

What belongs here: how requests of each dialect are written, and which packets a server may send when.

    AUTHORIZATION ──'a' yes──▶ BOOTSTRAP ──'b' yes──▶ REPLIES
          │                        │   └──'b' yes, after a request for PENS──▶ SWITCHED
          └── 'a' no ──▶ REFUSED ◀─┴─ 'b' no

Requests may be sent ahead of their replies; the server answers in order. In SWITCHED the bytes after the Bootstrap
Response are in `trailing_data`; in REFUSED everything further is thrown away.
"""

from __future__ import annotations

import enum

from penstock.wire.taskflux.buffer import ReceiveBuffer
from penstock.wire.taskflux.errors import ProtocolError, UnexpectedPacket, UnknownMarker
from penstock.wire.taskflux.fields import checked_length
from penstock.wire.taskflux.messages import (
    NATIVE_MAJOR,
    NEED_DATA,
    AuthorizationResponse,
    BootstrapRequest,
    BootstrapResponse,
    ClusterMetadata,
    CommandResponse,
    Dialect,
    ErrorPacket,
    Limits,
    NeedData,
    NotLeader,
    Ok,
    Reply,
    Request,
)
from penstock.wire.taskflux.packets import (
    FRAMED_LEADER_UNKNOWN,
    LEADER_UNKNOWN,
    REQUEST_ENCODERS,
    encode,
)
from penstock.wire.taskflux.responses import code_from_wire, decode_framed_response, framed_response_bytes_max
from penstock.wire.taskflux.stream import FieldStream, Reading, read_leader_and_node, read_response


class _State(enum.Enum):
    AUTHORIZATION = "authorization"
    BOOTSTRAP = "bootstrap"
    REPLIES = "replies"
    SWITCHED = "switched"
    REFUSED = "refused"


class ClientConnection:
    """Turns requests into bytes of a dialect, and the bytes of a server into replies.

    Feed what was read with `receive_data`, then call `next_event` until it answers NEED_DATA. A ProtocolError means:
    close. The same error comes again from every later call.
    """

    def __init__(self, dialect: Dialect = Dialect.SEED000, limits: Limits | None = None) -> None:
        self.dialect = dialect
        """The dialect that this client speaks."""
        self._limits = limits if limits is not None else Limits()
        self._buffer = ReceiveBuffer()
        self._stream = FieldStream(self._buffer, self._limits)
        self._encoders = REQUEST_ENCODERS[dialect]
        self._state = _State.AUTHORIZATION
        self._native_asked = False
        self._reading: Reading[Reply] | None = None
        self._error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were received and not yet turned into replies."""
        return self._buffer.size

    @property
    def trailing_data(self) -> bytes:
        """After a native bootstrap: all bytes behind the Bootstrap Response, received so far."""
        if self._state is not _State.SWITCHED:
            raise ValueError("only a connection that was switched to the native protocol has trailing data")
        self._buffer.join()
        return self._buffer.data[self._buffer.offset :]

    def send(self, request: Request) -> bytes:
        """The bytes of `request`. Raises UsageError if the dialect cannot say it."""
        data = encode(request, self._encoders, self.dialect)
        if isinstance(request, BootstrapRequest):
            self._native_asked = request.major == NATIVE_MAJOR
        return data

    def receive_data(self, data: bytes) -> None:
        """Take over bytes read from the server, in pieces of any size."""
        if self._error is None and self._state is not _State.REFUSED:
            self._buffer.feed(data)

    def next_event(self) -> Reply | NeedData:
        """The next reply of the server, or NEED_DATA."""
        if self._error is not None:
            raise self._error
        if self._state is _State.SWITCHED or self._state is _State.REFUSED:
            return NEED_DATA
        if self._reading is None:
            if not self._buffer.size:
                return NEED_DATA
            # The generator lives only while a reply is incomplete: it refers to this object, which refers to it.
            self._reading = self._read_reply()
        try:
            next(self._reading)
        except StopIteration as done:
            self._reading = None
            reply: Reply = done.value
            return reply
        except ProtocolError as error:
            self._error = error
            self._reading = None
            self._buffer.clear()
            raise
        return NEED_DATA

    def _read_reply(self) -> Reading[Reply]:
        stream = self._stream
        stream.begin_reply()
        marker = yield from stream.byte()
        if self._state is _State.AUTHORIZATION or self._state is _State.BOOTSTRAP:
            return (yield from self._read_handshake(marker))
        if self.dialect.length_framed:
            return (yield from self._read_framed(marker))
        if marker == ord("k"):
            return Ok()
        if marker == ord("c"):
            return (yield from read_response(stream, self.dialect))
        if marker == ord("l"):
            leader_id = yield from stream.int32()
            return NotLeader(None if leader_id == LEADER_UNKNOWN else leader_id)
        if marker == ord("e"):
            code = code_from_wire((yield from stream.int32()), self.dialect)
            return ErrorPacket(code, (yield from stream.text("error details")))
        if marker == ord("m"):
            return (yield from self._read_metadata())
        raise _wrong_marker(marker, "a reply")

    def _read_handshake(self, marker: int) -> Reading[Reply]:
        authorizing = self._state is _State.AUTHORIZATION
        if marker != (ord("a") if authorizing else ord("b")):
            raise _wrong_marker(marker, "an Authorization Response" if authorizing else "a Bootstrap Response")
        success = (yield from self._stream.byte()) != 0
        reason = "" if success else (yield from self._stream.text("reason"))
        if not success:
            self._state = _State.REFUSED
            self._buffer.clear()
        elif authorizing:
            self._state = _State.BOOTSTRAP
        else:
            self._state = _State.SWITCHED if self._native_asked else _State.REPLIES
        return AuthorizationResponse(success, reason) if authorizing else BootstrapResponse(success, reason)

    def _read_framed(self, marker: int) -> Reading[Reply]:
        """A packet of seed 001."""
        stream = self._stream
        if marker == (ord("c") if self.dialect is Dialect.SEED001 else ord("d")):
            length_max = framed_response_bytes_max(self._limits)
            length = checked_length((yield from stream.int32()), length_max, "response body")
            response: CommandResponse = decode_framed_response((yield from stream.framed_body(length)), self._limits)
            return response
        if marker == ord("l"):
            leader_id = yield from stream.int32()
            return NotLeader(None if leader_id == FRAMED_LEADER_UNKNOWN else leader_id)
        if marker == ord("e"):
            return ErrorPacket(0, (yield from stream.text("error details")))
        raise _wrong_marker(marker, "a reply")

    def _read_metadata(self) -> Reading[ClusterMetadata]:
        stream = self._stream
        addresses: list[str] = []
        for _ in range((yield from stream.count(self._limits.addresses_max, "addresses"))):
            addresses.append((yield from stream.text("address")))
        leader_id, node_id = yield from read_leader_and_node(stream)
        return ClusterMetadata(addresses, None if leader_id == LEADER_UNKNOWN else leader_id, node_id)


def _wrong_marker(marker: int, expected: str) -> ProtocolError:
    """The error for a marker that cannot come now: a known one is only out of place."""
    return UnexpectedPacket(marker, expected) if marker in b"abceklm" else UnknownMarker(marker)

"""The server's side of a TaskFlux connection, without the connection.

What belongs here: in which order a client's packets may come, and how the dialect of a connection is recognised. The
answer to each event is the door's business; so is whether an acknowledgement is awaited.

    AUTHORIZATION ──'A'──▶ BOOTSTRAP ──'B' 1.0.x──▶ FIRST COMMAND ──'C' then E D C Q R L──▶ COMMANDS as the listener's
                               │                         │
                               ├─ 'B' PENS ──▶ SWITCHED  ├─ 'C' then 00 or 01 ──▶ COMMANDS of seed 001, answered by 'c'
                               └─ other ─────▶ REFUSED   └─ 'D' then 00 or 01 ──▶ COMMANDS of seed 001, answered by 'd'

Acknowledgements ('K', 'Q'), negative ones ('N') and 'M' are reported wherever seed 000's commands are, also before
the first command: the door ignores an acknowledgement that it does not wait for. In SWITCHED the bytes after the
Bootstrap Request are in `trailing_data`; in REFUSED everything further is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.wire.taskflux.buffer import ReceiveBuffer
from penstock.wire.taskflux.commands import (
    COMMAND_CODES,
    decode_command,
    decode_framed_command,
    framed_body_bytes_max,
)
from penstock.wire.taskflux.errors import (
    ProtocolError,
    UnexpectedPacket,
    UnknownAuthorizationMethod,
    UnknownCommand,
    UnknownMarker,
)
from penstock.wire.taskflux.fields import INT32, checked_length
from penstock.wire.taskflux.messages import (
    AUTHORIZATION_NONE,
    NEED_DATA,
    Acknowledge,
    AuthorizationRequest,
    BootstrapRequest,
    ClusterMetadataRequest,
    Dialect,
    Event,
    Limits,
    NeedData,
    NegativeAcknowledge,
    Reply,
    UnsupportedVersion,
)
from penstock.wire.taskflux.packets import BOOTSTRAP_BYTES, REPLY_ENCODERS, encode, judge_version

_Parsed: TypeAlias = tuple[Event, int] | int
"""An event and the offset after its packet, or how many bytes from the packet's start are needed."""

_COMMAND: Final = ord("C")
_DATA: Final = ord("D")
_AUTHORIZATION: Final = ord("A")
_BOOTSTRAP: Final = ord("B")

_ONE_BYTE_PACKETS: Final[dict[int, Event]] = {
    ord("K"): Acknowledge(),
    ord("Q"): Acknowledge(),
    ord("N"): NegativeAcknowledge(),
    ord("M"): ClusterMetadataRequest(),
}
"""Packets that are only a marker; the documents of the original say 'Q' where its program says 'K'."""

_LENGTH_HIGH_BYTES: Final = frozenset((0, 1))
_FRAME_HEAD_BYTES: Final = 5


class ServerConnection:
    """Turns the bytes of one client into events, and replies into bytes of the connection's dialect.

    Feed what was read with `receive_data`, then call `next_event` until it answers NEED_DATA. A ProtocolError means:
    close. The same error comes again from every later call. The caller bounds what it feeds ahead of the events it
    takes (see `buffered_bytes`).
    """

    def __init__(self, dialect: Dialect = Dialect.SEED000, limits: Limits | None = None) -> None:
        if dialect.length_framed:
            raise ValueError("a listener is seed000 or csharp; seed 001 is recognised on the first command")
        self.dialect = dialect
        """The dialect in use; seed 001 shows here after its first command."""
        self._limits = limits if limits is not None else Limits()
        self._buffer = ReceiveBuffer()
        # A plain function of the class: a bound method would tie the object to itself.
        self._parse: _Parser | None = ServerConnection._parse_authorization
        self._encoders = REPLY_ENCODERS[dialect]
        self._frame_marker = _COMMAND
        self._error: ProtocolError | None = None
        self._refused = False

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were received and not yet turned into events."""
        return self._buffer.size

    @property
    def in_handshake(self) -> bool:
        """True until a Bootstrap Request was reported."""
        return self._parse in (ServerConnection._parse_authorization, ServerConnection._parse_bootstrap)

    @property
    def trailing_data(self) -> bytes:
        """After NativeRequested: all bytes behind the Bootstrap Request that were received so far."""
        if self._parse is not None or self._refused:
            raise ValueError("only a connection that was switched to the native protocol has trailing data")
        self._buffer.join()
        return self._buffer.data[self._buffer.offset :]

    def receive_data(self, data: bytes) -> None:
        """Take over bytes read from the client, in pieces of any size."""
        if self._error is None and not self._refused:
            self._buffer.feed(data)

    def next_event(self) -> Event | NeedData:
        """The next packet of the client, or NEED_DATA."""
        buffer = self._buffer
        if self._error is not None:
            raise self._error
        if self._parse is None:
            if self._refused:
                buffer.clear()
            return NEED_DATA
        while buffer.size >= buffer.needed:
            if len(buffer.data) - buffer.offset < buffer.needed:
                buffer.join()
            try:
                parsed = self._parse(self, buffer.data, buffer.offset)
            except ProtocolError as error:
                self._error = error
                buffer.clear()
                raise
            if isinstance(parsed, int):
                buffer.needed = parsed
                continue
            event, end = parsed
            buffer.needed = 1
            buffer.advance(end)
            return event
        return NEED_DATA

    def send(self, reply: Reply) -> bytes:
        """The bytes of `reply` in the connection's dialect. Raises UsageError if it cannot be said."""
        return encode(reply, self._encoders, self.dialect)

    # --- one parser per state; each looks at data[start:], which has at least one byte ----------------------

    def _parse_authorization(self, data: bytes, start: int) -> _Parsed:
        if data[start] != _AUTHORIZATION:
            raise UnexpectedPacket(data[start], "an Authorization Request")
        if len(data) - start < 2:
            return 2
        method = data[start + 1]
        if method != AUTHORIZATION_NONE:
            raise UnknownAuthorizationMethod(method)
        self._parse = ServerConnection._parse_bootstrap
        return AuthorizationRequest(method), start + 2

    def _parse_bootstrap(self, data: bytes, start: int) -> _Parsed:
        if data[start] != _BOOTSTRAP:
            raise UnexpectedPacket(data[start], "a Bootstrap Request")
        if len(data) - start < BOOTSTRAP_BYTES:
            return BOOTSTRAP_BYTES
        event = judge_version(data, start, self.dialect)
        if isinstance(event, BootstrapRequest):
            self._parse = ServerConnection._parse_first_command
        else:
            self._parse = None
            self._refused = isinstance(event, UnsupportedVersion)
        return event, start + BOOTSTRAP_BYTES

    def _parse_first_command(self, data: bytes, start: int) -> _Parsed:
        marker = data[start]
        if marker != _COMMAND and marker != _DATA:
            return self._parse_packet(data, start)
        if len(data) - start < 2:
            return 2
        second = data[start + 1]
        if second in _LENGTH_HIGH_BYTES:
            self._recognise_framed(marker)
            return self._parse_frame(data, start)
        if marker == _COMMAND and second in COMMAND_CODES:
            self._parse = ServerConnection._parse_packet
            return self._parse_packet(data, start)
        raise UnknownCommand("first command", second)

    def _recognise_framed(self, marker: int) -> None:
        self.dialect = Dialect.SEED001 if marker == _COMMAND else Dialect.SEED001_DATA
        self._frame_marker = marker
        self._encoders = REPLY_ENCODERS[self.dialect]
        self._parse = ServerConnection._parse_frame

    def _parse_packet(self, data: bytes, start: int) -> _Parsed:
        """A packet of seed 000."""
        marker = data[start]
        if marker == _COMMAND:
            if len(data) - start < 2:
                return 2
            decoded = decode_command(data, start + 1, self._limits)
            return decoded + 1 if isinstance(decoded, int) else decoded
        event = _ONE_BYTE_PACKETS.get(marker)
        if event is not None:
            return event, start + 1
        if marker in (_AUTHORIZATION, _BOOTSTRAP):
            raise UnexpectedPacket(marker, "a command")
        raise UnknownMarker(marker)

    def _parse_frame(self, data: bytes, start: int) -> _Parsed:
        """A packet of seed 001."""
        if data[start] != self._frame_marker:
            raise UnknownMarker(data[start])
        available = len(data) - start
        if available < _FRAME_HEAD_BYTES:
            return _FRAME_HEAD_BYTES
        length: int = INT32.unpack_from(data, start + 1)[0]
        checked_length(length, framed_body_bytes_max(self._limits), "command body")
        if available < _FRAME_HEAD_BYTES + length:
            return _FRAME_HEAD_BYTES + length
        body = start + _FRAME_HEAD_BYTES
        return decode_framed_command(data, body, body + length, self._limits), body + length


_Parser: TypeAlias = Callable[[ServerConnection, bytes, int], _Parsed]

"""A connection whose requests are WebSocket messages: handshake, messages from frames, pings, and an orderly end.

The protocol is the ``websockets`` package's, driven by the transport's bytes. Only outgoing messages are framed here:
a server's frames are not masked, so that one frame, built once, can go to any number of connections.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus
from typing import Final

from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import CONNECTING, OPEN, SEND_EOF
from websockets.server import ServerProtocol

from penstock.doors.connection import Connection
from penstock.doors.listening import Doorkeeper
from penstock.doors.visitors import Visitors
from penstock.node.node import Node

log = logging.getLogger(__name__)

PING_EVERY_S: Final = 30.0
PONGS_MISSED_MAX: Final = 3
"""Pings in a row that may stay unanswered while nothing else comes either; then the peer is taken for dead."""
_CLOSE_WITHIN_S: Final = 10.0
TURN_S: Final = 0.005
"""How long one client is served before others have a turn."""
_PIECE_BYTES: Final = 4 * 1024
"""What is parsed between two looks at the clock: at most 682 messages."""
_NO_UPGRADE: Final = HTTPStatus.BAD_REQUEST
_NO_HTTP: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LENGTH_7_MAX: Final = 125
_LENGTH_16_MAX: Final = 0xFFFF
_TEXT: Final = bytes([0x80 | Opcode.TEXT])
_BINARY: Final = bytes([0x80 | Opcode.BINARY])

# A quiet logger of our own: the package would otherwise write a line for each frame when everything is logged.
_frames_log = log.getChild("frames")
_frames_log.setLevel(logging.WARNING)


def server_frame(payload: bytes, *, text: bool) -> bytes:
    """A whole message as one unmasked frame."""
    first = _TEXT if text else _BINARY
    size = len(payload)
    if size <= _LENGTH_7_MAX:
        return first + size.to_bytes() + payload
    if size <= _LENGTH_16_MAX:
        return first + b"\x7e" + size.to_bytes(2) + payload
    return first + b"\x7f" + size.to_bytes(8) + payload


class Refused(Exception):
    """Raised by ``admit``: the client gets this HTTP answer instead of a WebSocket."""

    def __init__(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8", policy: str = ""
    ) -> None:
        self.status, self.body, self.content_type, self.policy = status, body, content_type, policy
        super().__init__(f"{status.value} {status.phrase}")


class WebSocketConnection(Connection):
    """A client behind a WebSocket. Subclasses say whom they ``admit`` and take each ``message``."""

    def __init__(
        self, node: Node, keeper: Doorkeeper, door_name: str, *, message_bytes_max: int, visitors: Visitors
    ) -> None:
        super().__init__(node, keeper, door_name)
        self._visitors = visitors
        self._protocol = ServerProtocol(max_size=message_bytes_max, logger=_frames_log)
        self._fragments = bytearray()
        self._fragments_are_text = False
        self._ended = False
        """Nothing that comes is looked at any more."""
        self._leaving = False
        self._unread = bytearray()
        """What came and has to wait for its turn."""
        self._turn: asyncio.Handle | None = None
        self._waiting_pongs = 0
        self._pings_sent = 0
        self._timer: asyncio.TimerHandle | None = None

    # What subclasses say.

    def admit(self, path: str, headers: Headers) -> None:
        """Look at the request before it becomes a WebSocket. Raises ``Refused`` with another answer."""

    def message(self, payload: bytes, text: bool) -> None:
        """Take one whole message. Of a text one it is not known whether it is UTF-8."""
        raise NotImplementedError

    # What they send.

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent: after the handshake, before either side has begun to close."""
        return self._protocol.state is OPEN and not self.closed

    def send(self, payload: bytes, *, text: bool) -> None:
        """Send a message with the next flush; to a peer that has gone or is going, nothing."""
        if self.is_open:
            self.write(server_frame(payload, text=text))

    def end(self, code: CloseCode, reason: str) -> None:
        """Begin the closing handshake; the peer has a few seconds to answer."""
        if self.is_open:
            log.info("%s %s: closing: %s", self.door_name, self.peer, reason)
            self._ended = True
            self._protocol.send_close(code, reason)
            self._pass_on()

    def close(self, reason: str) -> None:
        """End the connection: tell the peer that we go, and go."""
        self._ended = True
        if self.is_open:
            self._protocol.send_close(CloseCode.GOING_AWAY)
            self._pass_on()
        super().close(reason)

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there; until its handshake is done it has as long as between two pings."""
        super().connection_made(transport)
        self._timer = self._loop.call_later(PING_EVERY_S, self._on_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        # The protocol is part of a reference cycle, and the garbage collector runs rarely: free the memory now.
        for buffer in (self._fragments, self._unread, self._protocol.reader.buffer):
            buffer.clear()
        super().connection_lost(exc)

    def received_bytes(self) -> int:
        """Bytes that wait for their turn, and those of a message that has come in part."""
        return len(self._unread) + len(self._fragments) + len(self._protocol.reader.buffer)

    def has_half_request(self) -> bool:
        """Whether a message, or the handshake, has come in part."""
        return not self._leaving and bool(self._fragments or self._protocol.reader.buffer)

    def give_up(self, reason: str) -> None:
        """Memory is short: tell the client why, and go."""
        if self.is_open:
            self._ended = True
            self._protocol.send_close(CloseCode.TRY_AGAIN_LATER, "the node is short of memory")
            self._pass_on()
            self.flush()
        self.abort(reason)

    def data_received(self, data: bytes) -> None:
        """Take in the messages that have come, or the first of them, and the others after a turn for everybody else."""
        self.came_bytes += len(data)
        if self._unread or len(data) > _PIECE_BYTES:
            self._unread += data
            if self._turn is None:
                self._take_turn()
        else:
            self._take_in(data)
            self.node.end_of_input()
            self._regulate()
        if self.has_half_request():
            self.watch()
            self.measure()
        elif self.is_measured or self._unread:
            self.measure()

    def resumed(self) -> None:
        """The connection was busy and is no more: go on with what waits for its turn."""
        if self._unread and self._turn is None:
            self._take_turn()

    def _take_turn(self) -> None:
        """Take in what is good for one turn. While there is more, and while the connection is busy, nothing is read."""
        self._turn = None
        if self.busy():
            self.input_full = False  # so that ``resumed`` is called when it is busy no more
        else:
            self._take_pieces()
            self.input_full = bool(self._unread) and not self.closed
            if self.input_full:
                self._turn = self._loop.call_soon(self._take_turn)
        self._regulate()
        if self.is_measured:
            self.measure()

    def _take_pieces(self) -> None:
        """Take in piece by piece, until nothing is left, or the turn is over."""
        until_s = time.perf_counter() + TURN_S
        while self._unread:
            piece = bytes(self._unread[:_PIECE_BYTES])
            del self._unread[:_PIECE_BYTES]
            self._take_in(piece)
            if self.busy() or time.perf_counter() >= until_s:
                break
        self.node.end_of_input()

    def _take_in(self, data: bytes) -> None:
        protocol = self._protocol
        self._waiting_pongs = 0  # whatever comes shows that the peer lives
        protocol.receive_data(data)
        events = protocol.events_received()
        # What follows the request is parsed with it: as frames, or, where it cannot be one, as the end of the protocol.
        if events and isinstance(events[0], Request) and (len(events) > 1 or protocol.eof_sent):
            log.info("%s %s: closed: it did not wait for the handshake", self.door_name, self.peer)
            self._too_late()
            return
        for event in events:
            if isinstance(event, Frame):
                if not self._ended:
                    self._take_frame(event)
            elif isinstance(event, Request):
                self._shake_hands(event)
        self._pass_on()

    def eof_received(self) -> None:
        """The peer sends no more: finish as the protocol says."""
        self._protocol.receive_eof()
        self._pass_on()

    def _take_frame(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            if frame.fin:
                self.message(bytes(frame.data), opcode is Opcode.TEXT)
            else:
                self._fragments += frame.data
                self._fragments_are_text = opcode is Opcode.TEXT
        elif opcode is Opcode.CONT:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = bytes(self._fragments), bytearray()
                self.message(whole, self._fragments_are_text)

    def _shake_hands(self, request: Request) -> None:
        try:
            self._admit_browser(request.headers)
            self.admit(request.path.partition("?")[0], request.headers)
        except Refused as refused:
            response = self._protocol.reject(refused.status, "")
            for name, value in (("Content-Type", refused.content_type), ("Content-Length", str(len(refused.body)))):
                del response.headers[name]  # else there would be two of them
                response.headers[name] = value
            if refused.policy:
                response.headers["Content-Security-Policy"] = refused.policy
            response.body = refused.body
        else:
            self.sent_first_request()
            response = self._protocol.accept(request)
            if response.status_code == HTTPStatus.UPGRADE_REQUIRED:
                response.status_code, response.reason_phrase = _NO_UPGRADE.value, _NO_UPGRADE.phrase
        self._protocol.send_response(response)

    def _admit_browser(self, headers: Headers) -> None:
        reason = self._visitors.refusal(headers, self.peer)
        if reason is not None:
            raise Refused(HTTPStatus.FORBIDDEN, f"{reason}\n".encode())

    def _pass_on(self) -> None:
        """Send what the protocol itself has to say: the handshake, pongs, the end."""
        writes = self._protocol.data_to_send()
        if writes == [SEND_EOF] and self._protocol.state is CONNECTING:
            writes = [_NO_HTTP, SEND_EOF]  # what came was no request of any kind
        for data in writes:
            if data:
                self.write(data)
            else:
                self._end_output()
        if not self._leaving and self._protocol.close_expected():
            self._leaving = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = self._loop.call_later(_CLOSE_WITHIN_S, self._too_late)

    def _end_output(self) -> None:
        """Send no more, and let the peer close: were we to, what it still sends could destroy what we said last."""
        self.flush()
        if not self.transport.is_closing():
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()

    # Liveness.

    def _on_timer(self) -> None:
        if self._protocol.state is not OPEN:
            log.info("%s %s: closed: no handshake within %d s", self.door_name, self.peer, PING_EVERY_S)
            self._too_late()
        elif self._waiting_pongs >= PONGS_MISSED_MAX:
            log.info("%s %s: closed: %d pings were not answered", self.door_name, self.peer, self._waiting_pongs)
            self._too_late()
        else:
            if not self._reading_paused:  # else no pong could be seen, and another timer runs
                self._waiting_pongs += 1
                self._pings_sent += 1
                self._protocol.send_ping(str(self._pings_sent).encode())
                self._pass_on()
            self._timer = self._loop.call_later(PING_EVERY_S, self._on_timer)

    def _too_late(self) -> None:
        self._ended = True
        self.transport.abort()


def cookie(headers: Headers, name: str) -> str | None:
    """The value of a cookie that the client sent."""
    for line in headers.get_all("Cookie"):
        for pair in line.split(";"):
            key, equals, value = pair.strip().partition("=")
            if equals and key == name:
                return value
    return None

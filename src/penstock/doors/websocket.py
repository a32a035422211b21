"""A connection whose requests are WebSocket messages: handshake, messages from frames, pings, and an orderly end.

The protocol is the ``websockets`` package's, driven by the transport's bytes. Only outgoing messages are framed here:
a server's frames are not masked, so that one frame, built once, can go to any number of connections.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from penstock.doors.connection import Connection
from penstock.doors.listening import Doorkeeper
from penstock.node.node import Node

log = logging.getLogger(__name__)

PING_EVERY_S: Final = 30.0
PONGS_MISSED_MAX: Final = 3
"""Pings in a row that may stay unanswered while nothing else comes either; then the peer is taken for dead."""
_CLOSE_WITHIN_S: Final = 10.0
_NO_UPGRADE: Final = HTTPStatus.BAD_REQUEST
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

    def __init__(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.status, self.body, self.content_type = status, body, content_type
        super().__init__(f"{status.value} {status.phrase}")


class WebSocketConnection(Connection):
    """A client behind a WebSocket. Subclasses say whom they ``admit`` and take each ``message``."""

    def __init__(self, node: Node, keeper: Doorkeeper, door_name: str, message_bytes_max: int) -> None:
        super().__init__(node, keeper, door_name)
        self._protocol = ServerProtocol(max_size=message_bytes_max, logger=_frames_log)
        self._fragments: list[bytes] = []
        self._fragments_are_text = False
        self._ended = False
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
        self._fragments.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in all messages that have come; one read is short enough to need no setting aside."""
        protocol = self._protocol
        self._waiting_pongs = 0  # whatever comes shows that the peer lives
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                if not self._ended:
                    self._take_frame(event)
            elif isinstance(event, Request):
                self._shake_hands(event)
        self._pass_on()
        self._regulate()
        self.node.end_of_input()

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
                self._fragments.append(bytes(frame.data))
                self._fragments_are_text = opcode is Opcode.TEXT
        elif opcode is Opcode.CONT:
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                whole, self._fragments = b"".join(self._fragments), []
                self.message(whole, self._fragments_are_text)

    def _shake_hands(self, request: Request) -> None:
        try:
            self.admit(urlsplit(request.path).path, request.headers)
        except Refused as refused:
            response = self._protocol.reject(refused.status, "")
            response.headers["Content-Type"] = refused.content_type
            response.headers["Content-Length"] = str(len(refused.body))
            response.body = refused.body
        else:
            response = self._protocol.accept(request)
            if response.status_code == HTTPStatus.UPGRADE_REQUIRED:
                response.status_code, response.reason_phrase = _NO_UPGRADE.value, _NO_UPGRADE.phrase
        self._protocol.send_response(response)

    def _pass_on(self) -> None:
        """Send what the protocol itself has to say: the handshake, pongs, the end."""
        for data in self._protocol.data_to_send():
            if data:
                self.write(data)
            else:
                super().close("the WebSocket was closed")
                return
        if self._protocol.close_expected() and self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(_CLOSE_WITHIN_S, self._too_late)

    # Liveness.

    def _on_timer(self) -> None:
        if self._protocol.state is not OPEN:
            log.info("%s %s: closed: no handshake within %d s", self.door_name, self.peer, PING_EVERY_S)
            self._too_late()
        elif self._waiting_pongs >= PONGS_MISSED_MAX:
            log.info("%s %s: closed: %d pings were not answered", self.door_name, self.peer, self._waiting_pongs)
            self._too_late()
        else:
            self._waiting_pongs += 1
            self._pings_sent += 1
            self._protocol.send_ping(str(self._pings_sent).encode())
            self._pass_on()
            self._timer = self._loop.call_later(PING_EVERY_S, self._on_timer)

    def _too_late(self) -> None:
        self._timer = None
        self.transport.abort()


def cookie(headers: Headers, name: str) -> str | None:
    """The value of a cookie that the client sent."""
    for line in headers.get_all("Cookie"):
        for pair in line.split(";"):
            key, equals, value = pair.strip().partition("=")
            if equals and key == name:
                return value
    return None

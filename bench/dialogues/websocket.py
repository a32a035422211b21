"""The client's side of WebSocket, as lean as a load needs it: a handshake, frames out, frames in.

Requests are framed once and sent many times, with a mask of zeros: the standard asks for a mask, and this one leaves
the payload as it is.
"""

from __future__ import annotations

import base64
import hashlib
import socket

from bench.errors import UnexpectedAnswer
from bench.load import receive_some

_KEY = base64.b64encode(b"penstock-bench-0").decode("ascii")
_ACCEPT = base64.b64encode(hashlib.sha1(f"{_KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
_END_OF_HEADERS = b"\r\n\r\n"
_MASKED = 0x80
_NO_MASK = bytes(4)
_TEXT, _BINARY = b"\x81", b"\x82"
_CLOSE = 0x88


def greet(connection: socket.socket, path: str) -> None:
    """The handshake. A server says nothing of its own accord after it, so nothing is read beyond."""
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\nCookie: id=bench\r\n\r\n".encode()
    )
    answer = b""
    while _END_OF_HEADERS not in answer:
        answer += receive_some(connection)
    if not answer.startswith(b"HTTP/1.1 101 ") or _ACCEPT not in answer or not answer.endswith(_END_OF_HEADERS):
        raise UnexpectedAnswer("the WebSocket handshake", answer)


def client_frame(payload: bytes, *, text: bool) -> bytes:
    """A whole message as one frame."""
    size = len(payload)
    if size <= 125:
        length = bytes([_MASKED | size])
    elif size <= 0xFFFF:
        length = bytes([_MASKED | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([_MASKED | 127]) + size.to_bytes(8, "big")
    return (_TEXT if text else _BINARY) + length + _NO_MASK + payload


class MessageReader:
    """Cuts a server's bytes into messages. Pings are left out: no load lasts until their answers would be missed."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of all messages that are whole now."""
        buffer = self._buffer + data if self._buffer else data
        payloads: list[bytes] = []
        at, size = 0, len(buffer)
        while size - at >= 2:
            first, length = buffer[at], buffer[at + 1]
            begin = at + 2
            if length >= 126:
                begin += 2 if length == 126 else 8
                if begin > size:
                    break
                length = int.from_bytes(buffer[at + 2 : begin], "big")
            end = begin + length
            if end > size:
                break
            if first == 0x81 or first == 0x82:
                payloads.append(buffer[begin:end])
            elif first == _CLOSE or not first & 0x80:
                raise UnexpectedAnswer("a WebSocket request", buffer[at:end])
            at = end
        self._buffer = buffer[at:]
        return payloads

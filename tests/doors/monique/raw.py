"""A WebSocket client of plain sockets, for what no well-behaved client does: not reading, and going with a reset."""

from __future__ import annotations

import socket
import struct

from penstock.wire.monique import gateway as g
from tests.doors.monique.site import WITHIN_S

_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class RawClient:
    """A client that has subscribed to everything, and then does what the test says."""

    def __init__(self, port: int, receive_bytes: int = 0) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(WITHIN_S)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.connect(("127.0.0.1", port))
        self.sock.sendall(_HANDSHAKE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read_exactly(1)
        wanted = (g.Pattern("*", "*"),)
        self.send(g.encode_request(g.Subscribe(wanted)))
        assert self.read_frame() == (2, g.encode_reply(g.Subscribed(wanted)))

    def send(self, payload: bytes) -> None:
        """Send a binary message, masked with zeros."""
        assert len(payload) < 126
        self.sock.sendall(bytes((0x82, 0x80 | len(payload))) + bytes(4) + payload)

    def read_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def read_frame(self) -> tuple[int, bytes]:
        """The opcode and the payload of the next frame."""
        first, length = self.read_exactly(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.read_exactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.read_exactly(8))
        return first & 0x0F, self.read_exactly(length)

    def reset(self) -> None:
        """Go without a word, so that the other side gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

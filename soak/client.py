"""A bare client of the native protocol: one socket, frames out, frames in. Nothing is repeated or hidden."""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Any, Final

import msgspec

from penstock.engine import commands as c
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from penstock.wire.native.frames import FrameReader, encode_frame

TIMEOUT_S: Final = 30.0
_HANDSHAKE: Final = b"AN" + b"B" + m.MAJOR.to_bytes(4, "big") + (1).to_bytes(4, "big") + (0).to_bytes(4, "big")
_WELCOME: Final = b"a\x01b\x01"
_REFUSALS: Final = msgspec.msgpack.Decoder(Refusal)


class ConnectionGone(Exception):
    """The node is gone, or has closed the connection."""

    code = "connection-gone"


def encode_request(number: int, args: Any) -> bytes:
    """The frame of a request."""
    return encode_frame(m.CODES[type(args)], number, c.encode(args))


class Connection:
    """A connection after its handshake."""

    def __init__(self, port: int, producer: int = 0) -> None:
        self._number = 0
        self._frames: deque[tuple[int, int, bytes]] = deque()
        self._reader = FrameReader()
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(_HANDSHAKE)
            answer = b""
            while len(answer) < len(_WELCOME):
                answer += self._receive_some()
        except OSError as error:
            raise ConnectionGone(str(error)) from error
        if answer != _WELCOME:
            raise ConnectionGone(f"the handshake was answered {answer!r}")
        welcome: m.Welcome = self.ask(m.Hello(producer, "soak"))
        self.term = welcome.term

    def ask(self, args: Any) -> Any:
        """Send one request and wait for its answer, which may be a ``Refusal``. Nothing else may be in flight."""
        self._number += 1
        number = 2**62 + self._number  # far from the numbers that a producer gives
        self.send(encode_request(number, args))
        status, answered, body = self.receive()
        assert answered == number, "the answer is to another request"
        return decode_answer(m.CODES[type(args)], status, body)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionGone(str(error)) from error

    def receive(self) -> tuple[int, int, bytes]:
        """Wait for one frame: status, request number, body."""
        while not self._frames:
            self._frames.extend(self._reader.feed(self._receive_some()))
        return self._frames.popleft()

    def _receive_some(self) -> bytes:
        try:
            data = self._socket.recv(1 << 18)
        except OSError as error:
            raise ConnectionGone(str(error)) from error
        if not data:
            raise ConnectionGone("closed by the node")
        return data

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def decode_answer(code: int, status: int, body: bytes) -> Any:
    """The answer to a request of this code; a ``Refusal`` where it was refused."""
    if status == m.REFUSED:
        return _REFUSALS.decode(body)
    return m.ANSWER_DECODERS[code].decode(body)

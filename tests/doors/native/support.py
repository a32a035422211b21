"""A native client of plain sockets: frames by hand, so that the door is tested and not the SDK."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from penstock.engine import commands as c
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m

HANDSHAKE = b"AN" + b"B" + struct.pack(">iii", 0x50454E53, 1, 0)
HANDSHAKE_OK = b"a\x01b\x01"


class RawClient:
    """One connection; ``send`` a request, ``receive`` the next frame."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.sock.sendall(HANDSHAKE)
        assert self.read_exactly(len(HANDSHAKE_OK)) == HANDSHAKE_OK
        self._request = 0
        self._sent: dict[int, int] = {}

    def read_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            if not piece:
                raise EOFError(f"closed after {data!r}")
            data += piece
        return data

    def send(self, args: Any) -> int:
        self._request += 1
        code = m.CODES[type(args)]
        self._sent[self._request] = code
        self.send_raw(code, self._request, msgspec.msgpack.encode(args))
        return self._request

    def send_raw(self, code: int, request: int, body: bytes) -> None:
        self._sent[request] = code
        self.sock.sendall(struct.pack(">IBQ", 9 + len(body), code, request) + body)

    def receive(self) -> tuple[int, int, Any]:
        """(status, request, decoded body)"""
        length, status, request = struct.unpack(">IBQ", self.read_exactly(13))
        body = self.read_exactly(length - 9)
        if status == m.REFUSED:
            return status, request, msgspec.msgpack.decode(body, type=Refusal)
        code = c.TAKE if status == m.PUSH else self._sent[request]
        return status, request, m.ANSWER_DECODERS[code].decode(body)

    def call(self, args: Any) -> Any:
        request = self.send(args)
        _, answered, answer = self.receive()
        assert answered == request
        return answer

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def put(queue: str, *payloads: bytes, key: int = 0) -> c.Put:
    return c.Put(queue, [c.Item(key, payload) for payload in payloads])

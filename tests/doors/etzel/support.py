"""An Etzel client made of a socket and bytes, and a node with an Etzel door whose clock a test can put forward.

Nothing of our codec is used on the client's side, so a mistake in it cannot hide behind itself.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

from penstock.doors.connection import Connection
from penstock.doors.etzel import EtzelDoor
from penstock.doors.listening import Doorkeeper
from penstock.engine.machine import Engine
from penstock.node.clock import LogClock
from penstock.node.opening import open_node
from penstock.settings import EtzelSettings, LimitsSettings, Settings
from tests.doors.conftest import WITHIN_S, DoorServer

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "etzel.json").read_text())
"""What was recorded from the original server."""
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: localhost:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)
ACCEPTED = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to that key, from RFC 6455."""


def client_frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, mask: bytes | None = b"\1\2\3\4") -> bytes:
    """A frame as a client sends it; without a mask, as none may."""
    size = len(payload)
    masked = 0x80 if mask is not None else 0
    if size <= 125:
        length = bytes([masked | size])
    elif size <= 0xFFFF:
        length = bytes([masked | 126]) + struct.pack(">H", size)
    else:
        length = bytes([masked | 127]) + struct.pack(">Q", size)
    head = bytes([(0x80 if fin else 0) | opcode]) + length
    if mask is None:
        return head + payload
    repeated = int.from_bytes((mask * (size // 4 + 1))[:size])
    return head + mask + (int.from_bytes(payload) ^ repeated).to_bytes(size)


def shrink(sock: socket.socket, size_bytes: int) -> None:
    """Let the system keep little of what is on its way; of a listening socket, those that it accepts inherit it."""
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, buffer, size_bytes)


class Closed(Exception):
    """The server closed: with this code, or with none when no close frame came."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        self.code, self.reason = code, reason
        super().__init__(code, reason)


class WebSocket:
    """A raw WebSocket, from the handshake on."""

    def __init__(self, port: int, path: str = "/connect", *, more: str = "", buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(WITHIN_S)
        if buffer_bytes:
            shrink(self.socket, buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pings = 0
        self.answer_pings = True
        self._received = b""
        self.socket.sendall(HANDSHAKE.format(path=path, more=more).encode())
        while b"\r\n\r\n" not in self._received:
            self._fill()
        head, self._received = self._received.split(b"\r\n\r\n", 1)
        self.head = head.decode()
        assert self.head.startswith("HTTP/1.1 101 "), self.head

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_frame(self, payload: bytes, opcode: int = TEXT, *, fin: bool = True) -> None:
        self.socket.sendall(client_frame(payload, opcode, fin=fin))

    def _fill(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(None)
        self._received += data

    def _read(self, count: int) -> bytes:
        while len(self._received) < count:
            self._fill()
        data, self._received = self._received[:count], self._received[count:]
        return data

    def receive_frame(self) -> tuple[int, bytes]:
        """The next frame, whatever it is: (opcode, payload)."""
        first, size = self._read(2)
        assert first & 0xF0 == 0x80, "a server's message is one frame without extensions"
        assert size < 0x80, "a server masks nothing"
        if size == 126:
            (size,) = struct.unpack(">H", self._read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._read(8))
        return first & 0x0F, self._read(size)

    def receive(self) -> bytes:
        """The next message; pings are answered on the way. Raises Closed."""
        while True:
            opcode, payload = self.receive_frame()
            if opcode in (TEXT, BINARY):
                return payload
            if opcode == PING:
                self.pings += 1
                if self.answer_pings:
                    self.send_frame(payload, PONG)
            elif opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if payload else None
                raise Closed(code, payload[2:].decode())

    def close(self, code: int = 1000) -> int | None:
        """The whole closing handshake, begun by the client: the code that the server answers."""
        self.send_frame(struct.pack(">H", code), CLOSE)
        try:
            while True:
                self.receive()
        except Closed as closed:
            answered = closed.code
        assert self.socket.recv(1) == b"", "the server ends the connection"
        self.socket.close()
        return answered


class Client(WebSocket):
    """An Etzel client: ``ask`` for one reply, or ``send`` and ``hear`` apart."""

    def __enter__(self) -> Client:
        return self

    def send(self, cmd: str, qname: str | None = None, **fields: Any) -> None:
        request = {"cmd": cmd} | ({} if qname is None else {"qname": qname}) | fields
        self.send_frame(json.dumps(request).encode())

    def hear(self) -> Any:
        """The next frame of the server, read."""
        return json.loads(self.receive())

    def ask(self, cmd: str, qname: str | None = None, **fields: Any) -> Any:
        self.send(cmd, qname, **fields)
        return self.hear()

    def publish(self, qname: str, *messages: str, **fields: Any) -> None:
        for message in messages:
            assert self.ask("PUB", qname, msg=message, **fields) == {"cmd": "ok"}

    def fetch(self, qname: str) -> Any:
        """The message that a fetch brings: the reply as it came."""
        reply = self.ask("FET", qname)
        assert reply["cmd"] == "msg", reply
        return reply

    def acknowledge(self, qname: str, uid: str) -> None:
        assert self.ask("ACK", qname, uid=uid) == {"cmd": "okack", "uid": uid, "qname": qname}

    def sleep(self, qname: str) -> None:
        """Subscribe and lie down."""
        assert self.ask("SUB", qname) == {"cmd": "oksub", "qname": qname}
        assert self.ask("ISLP", qname) == {"cmd": "okslp", "qname": qname}

    def hears_nothing(self) -> None:
        """Whatever was sent before has been heard: the reply to one more request is the very next frame."""
        assert self.ask("nothing") == {"cmd": "nok", "err": "UNKNOWN_CMD"}


class EtzelServer(DoorServer):
    """A node without a disk, with an Etzel door on a free port; other doors can be opened beside it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **limits: int) -> None:
        super().__init__(loop)
        self.settings = Settings(etzel=EtzelSettings(port=0), limits=LimitsSettings(**limits))
        self.door = EtzelDoor(self.settings)
        self._listeners = list(self.door.listeners)
        self._clients: list[Client] = []

    def start(self, connections_max: int = 1000) -> None:
        self._thread.start()
        self.run(self._begin(connections_max))

    async def _begin(self, connections_max: int) -> None:
        def ahead_ns() -> int:
            return int(getattr(self.loop, "ahead_s", 0) * 1e9)

        clock = LogClock(lambda: time.monotonic_ns() + ahead_ns(), lambda: time.time_ns() + ahead_ns())
        self.node = open_node(Engine(), self.store, 0, self.settings, clock)
        self.keeper = Doorkeeper(self.node, connections_max)
        self.door.attach(self.node, self.keeper)
        for listener in self._listeners:
            listener._make = self._noting(listener._make)
            await listener.open()

    def _noting(self, make: Any) -> Any:
        def make_and_note() -> Connection:
            connection: Any = make()
            self.connections.append(connection)
            return connection

        return make_and_note

    @property
    def port(self) -> int:
        return self._listeners[0].port

    def shrink(self, size_bytes: int) -> None:
        """Let the system keep little of what is on its way to and from clients that come from now on."""
        for claimed in self._listeners[0]._sockets:
            shrink(claimed, size_bytes)

    def client(self, **options: Any) -> Client:
        """A client that is closed with the server at the latest."""
        client = Client(self.port, **options)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        for client in self._clients:
            client.socket.close()
        super().stop()

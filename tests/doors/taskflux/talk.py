"""A TaskFlux client made of a socket and bytes: what it says comes from the vectors or is spelt here, by hand.

Nothing of our codec is used on this side, so a mistake in it cannot hide behind itself.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

import pytest

from tests.doors.conftest import WITHIN_S
from tests.wire.taskflux.support import vectors

PACKETS = {vector.id: vector.packet for vector in vectors()}
"""Whole packets by the names of the vectors."""

AUTHORIZATION = PACKETS["client-packets:auth_request_none"]
AUTHORIZED = PACKETS["client-packets:auth_response_ok"]
BOOTSTRAP = PACKETS["seed001:pkt.bootstrap_request_1_0_0"]
BOOTSTRAPPED = PACKETS["client-packets:bootstrap_response_ok"]
ACK = PACKETS["client-packets:ack"]
ACK_OF_THE_DOCS = b"Q"
NACK = b"N"
OK = PACKETS["client-packets:ok"]
METADATA = PACKETS["client-packets:cluster_metadata_request"]
EMPTY = PACKETS["seed000:rsppkt.dequeue_empty"]

SEED000 = "seed000"
CSHARP = "csharp"


class Client:
    """A raw connection to a door."""

    def __init__(self, port: int, *, handshake: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if handshake:
            self.says(AUTHORIZATION)
            self.hears(AUTHORIZED)
            self.says(BOOTSTRAP)
            self.hears(BOOTSTRAPPED)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def says(self, *packets: bytes) -> None:
        """Send packets in one piece."""
        self.socket.sendall(b"".join(packets))

    def says_slowly(self, *packets: bytes) -> None:
        """Send packets one byte at a time."""
        for byte in b"".join(packets):
            self.socket.sendall(bytes((byte,)))

    def hears(self, *packets: bytes) -> None:
        """Exactly these packets come next."""
        expected = b"".join(packets)
        assert self.reads(len(expected)) == expected

    def reads(self, count: int) -> bytes:
        """The next so many bytes, or fewer if the connection ends."""
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                break
            data += piece
        return data

    def reads_text(self) -> str:
        """The String that comes next."""
        return self.reads(int.from_bytes(self.reads(4), "big")).decode()

    def asks(self, packet: bytes, *answers: bytes) -> None:
        """Send one packet and hear what follows."""
        self.says(packet)
        self.hears(*answers)

    def hears_nothing(self) -> None:
        """Nothing has come yet. Worth something only after what shows that the server is past that point."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            pytest.fail(f"{self.socket.recv(1000)!r} came")
        self.socket.settimeout(WITHIN_S)

    def is_closed(self) -> None:
        """The server has closed the connection, and said nothing more."""
        # A reset comes where the server had not read all that was sent.
        with contextlib.suppress(ConnectionResetError):
            assert self.socket.recv(1) == b""

    # Whole exchanges of the default dialect.

    def enqueues(self, key: int, payload: bytes = b"", queue: str = "") -> None:
        """Put a record, with its acknowledgement."""
        self.asks(enqueue(key, payload, queue), OK)
        self.asks(ACK, OK)

    def dequeues(self, key: int, payload: bytes, queue: str = "") -> None:
        """Take a record, which must be this one, and acknowledge it."""
        self.asks(dequeue(queue), record(key, payload))
        self.asks(ACK, OK)

    def counts(self, number: int, queue: str = "") -> None:
        """Ask for a queue's count, which must be this."""
        self.asks(count(queue), counted(number))


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def text(value: str) -> bytes:
    return int32(len(value.encode())) + value.encode()


def name(queue: str | bytes) -> bytes:
    data = queue.encode() if isinstance(queue, str) else queue
    return bytes((len(data),)) + data


# Requests.


def enqueue(key: int, payload: bytes = b"", queue: str | bytes = "") -> bytes:
    return b"CE" + name(queue) + struct.pack(">qi", key, len(payload)) + payload


def dequeue(queue: str | bytes = "", timeout_ms: int = 0) -> bytes:
    return b"CD" + name(queue) + struct.pack(">I", timeout_ms)


def count(queue: str | bytes = "") -> bytes:
    return b"CC" + name(queue)


def create(
    queue: str | bytes,
    code: int = 1,
    size_max: int = -1,
    payload_bytes_max: int = -1,
    key_range: tuple[int, int] | None = None,
) -> bytes:
    ranged = b"\x00" if key_range is None else b"\x01" + struct.pack(">qq", *key_range)
    return b"CQ" + name(queue) + struct.pack(">iii", code, size_max, payload_bytes_max) + ranged


def delete(queue: str | bytes) -> bytes:
    return b"CR" + name(queue)


LIST = PACKETS["seed000:cmdpkt.list"]


# Replies.


def record(key: int, payload: bytes, record_id: int | None = None) -> bytes:
    """With an id, as the csharp dialect says it."""
    id_field = b"" if record_id is None else struct.pack(">Q", record_id)
    return b"cd\x01" + id_field + struct.pack(">qi", key, len(payload)) + payload


def counted(number: int) -> bytes:
    return b"cc" + int32(number)


def not_leader(leader: int) -> bytes:
    return b"l" + int32(leader)


def listed(*queues: tuple[str, int, dict[str, str]]) -> bytes:
    body = b"cl" + int32(len(queues))
    for queue, number, policies in queues:
        body += name(queue) + int32(number) + int32(len(policies))
        for policy, value in policies.items():
            body += text(policy) + text(value)
    return body


# The length-framed dialects.


def framed(marker: bytes, body: bytes) -> bytes:
    return marker + int32(len(body)) + body

"""ZeroMQ's own protocol, as lean as a load needs it: the handshake of a PUSH or a SUB, and messages of two frames.

A real library would spend as much on ten subscribers as the server does; here a subscriber only counts. The tests hold
it against the real one.
"""

from __future__ import annotations

import socket

from bench.errors import UnexpectedAnswer
from bench.load import receive_exactly

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_SIGNATURE_END = 10
_COMMAND = 4
_MORE, _LONG = 1, 2
_READY = b"\x05READY"


def greet(connection: socket.socket, kind: bytes) -> None:
    """The handshake of a socket of this kind: greetings, then READY from both sides."""
    ready = _READY + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    connection.sendall(_GREETING + bytes([_COMMAND, len(ready)]) + ready)
    greeting = receive_exactly(connection, len(_GREETING))
    if greeting[_SIGNATURE_END] < 3:
        raise UnexpectedAnswer("the ZeroMQ greeting", greeting)
    flags, length = receive_exactly(connection, 2)
    answer = receive_exactly(connection, length)
    if flags != _COMMAND or not answer.startswith(_READY):
        raise UnexpectedAnswer("READY", answer)


def subscription(topic: bytes) -> bytes:
    """What a SUB sends to receive all messages that begin so."""
    return _frame(b"\x01" + topic, 0)


def encode_message(*frames: bytes) -> bytes:
    """A whole message."""
    *firsts, last = frames
    return b"".join([_frame(frame, _MORE) for frame in firsts]) + _frame(last, 0)


def _frame(payload: bytes, flags: int) -> bytes:
    size = len(payload)
    if size <= 255:
        return bytes([flags, size]) + payload
    return bytes([flags | _LONG]) + size.to_bytes(8, "big") + payload

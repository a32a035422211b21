"""The TaskFlux protocol: Enqueue and Dequeue on the default queue, each with its acknowledgement."""

from __future__ import annotations

import itertools
import socket
import struct
import time

from bench.dialogues.shapes import KEYS, PAYLOAD
from bench.errors import UnexpectedAnswer
from bench.load import Dialogue, receive_exactly

_DEFAULT_QUEUE = b"\0"
_ENQUEUE = [b"CE" + _DEFAULT_QUEUE + struct.pack(">qi", key, len(PAYLOAD)) + PAYLOAD for key in range(KEYS)]
_DEQUEUE = b"CD" + _DEFAULT_QUEUE + struct.pack(">I", 0)
_RECORD = b"cd\1"
_RECORD_BYTES = len(_RECORD) + 8 + 4 + len(PAYLOAD)
_EMPTY = b"cd\0"
_ACK, _OK = b"K", b"k"


def greet(connection: socket.socket) -> None:
    """Authorization and Bootstrap."""
    connection.sendall(b"AN")
    answer = receive_exactly(connection, 2)
    connection.sendall(b"B" + struct.pack(">iii", 1, 0, 0))
    answer += receive_exactly(connection, 2)
    if answer != b"a\1b\1":
        raise UnexpectedAnswer("the handshake", answer)


class _Acknowledged(Dialogue):
    """What both commands share: a request, an answer, the acknowledgement, its Ok."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = b""
        self._acknowledging = False
        self._began_ns = 0

    def _confirmed(self, answer: bytes, request: bytes) -> bytes:
        """The Ok that ends one message: the next request, unless this was the last."""
        if answer != _OK:
            raise UnexpectedAnswer("an acknowledgement", answer)
        now_ns = time.perf_counter_ns()
        self.latencies_ns.append(now_ns - self._began_ns)
        self._began_ns = now_ns
        self._acknowledging = False
        self.completed += 1
        return self._end() if self.stopping else request

    def _end(self) -> bytes:
        self.waiting = 0
        self.finished = True
        return b""

    def _begin(self, request: bytes) -> bytes:
        self.waiting = 1
        self._began_ns = time.perf_counter_ns()
        return request


class Enqueue(_Acknowledged):
    """One record at a time: Enqueue, Ok, Acknowledge, Ok."""

    def __init__(self) -> None:
        super().__init__()
        self._requests = itertools.cycle(_ENQUEUE)

    def start(self) -> bytes:
        """The first Enqueue."""
        return self._begin(next(self._requests))

    def receive(self, data: bytes) -> bytes:
        """Acknowledge after the first Ok, the next record after the second."""
        if self._acknowledging:
            return self._confirmed(data, next(self._requests))
        if data != _OK:
            raise UnexpectedAnswer("Enqueue", data)
        self._acknowledging = True
        return _ACK


class Dequeue(_Acknowledged):
    """One record at a time: Dequeue, the record, Acknowledge, Ok; ends when the queue is empty."""

    def start(self) -> bytes:
        """The first Dequeue."""
        return self._begin(_DEQUEUE)

    def receive(self, data: bytes) -> bytes:
        """Acknowledge after a record, the next Dequeue after the Ok."""
        if self._acknowledging:
            return self._confirmed(data, _DEQUEUE)
        self._buffer += data
        if self._buffer == _EMPTY:
            return self._end()
        if not (self._buffer.startswith(_RECORD) or _RECORD.startswith(self._buffer)):
            raise UnexpectedAnswer("Dequeue", self._buffer)
        if len(self._buffer) < _RECORD_BYTES:
            return b""
        self._buffer = b""
        self._acknowledging = True
        return _ACK

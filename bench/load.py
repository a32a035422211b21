"""The loop that drives connections: it sends what dialogues say and hands them what comes back.

A dialogue is one connection's side of a conversation, without a socket of its own. The loop is bare: blocking sockets,
one epoll, no framework, so that the client costs less than any server it measures.
"""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.errors import ConnectionEnded, NoAnswer

ANSWER_WAIT_S = 30
"""A server that is silent for so long is taken for dead."""
_RECEIVE_BYTES = 1 << 18


class Dialogue(ABC):
    """One connection's side of a load. It goes on until it is stopped, or until there is nothing left to do."""

    def __init__(self) -> None:
        self.completed = 0
        """Messages whose last answer has come."""
        self.waiting = 0
        """Answers still to come."""
        self.stopping = False
        self.finished = False
        self.latencies_ns: array[int] = array("q")

    @abstractmethod
    def start(self) -> bytes:
        """What to send first."""

    @abstractmethod
    def receive(self, data: bytes) -> bytes:
        """Take received bytes; what to send next, if anything. Must set `finished` when it stops and all has come."""

    def stop(self) -> None:
        """Ask for nothing more; what is under way is still waited for."""
        self.stopping = True
        self.finished = self.waiting == 0


class Paced(Dialogue):
    """A dialogue that sends by the clock, whatever the server does meanwhile."""

    def __init__(self, interval_s: float) -> None:
        super().__init__()
        self.interval_s = interval_s

    def start(self) -> bytes:
        """Nothing: the clock begins."""
        return b""

    @abstractmethod
    def tick(self) -> bytes:
        """What to send now that the next interval is over; nothing skips it."""


Channel = tuple[socket.socket, Dialogue]


def connect(port: int, receive_buffer_bytes: int | None = None) -> socket.socket:
    """A connection to a server on this machine. It blocks, and gives up after `ANSWER_WAIT_S`.

    The receive buffer is the system's, which grows, unless a size is given.
    """
    connection = socket.socket()
    if receive_buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    connection.settimeout(ANSWER_WAIT_S)
    try:
        connection.connect(("127.0.0.1", port))
    except OSError:
        connection.close()
        raise
    # Python's own time limits would cost a further system call for each receive; the kernel's cost nothing.
    connection.settimeout(None)
    limit = struct.pack("ll", ANSWER_WAIT_S, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_exactly(connection: socket.socket, length: int) -> bytes:
    """So many bytes, and no more."""
    data = b""
    while len(data) < length:
        data += receive_some(connection, length - len(data))
    return data


def receive_some(connection: socket.socket, length_max: int = _RECEIVE_BYTES) -> bytes:
    """What is there, after waiting for it."""
    try:
        data = connection.recv(length_max)
    except BlockingIOError:
        raise NoAnswer(ANSWER_WAIT_S) from None
    except ConnectionResetError:
        raise ConnectionEnded from None
    if not data:
        raise ConnectionEnded
    return data


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection of ours meanwhile: its pauses would be charged to the server."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def drive(channels: Sequence[Channel], seconds: float, until: Callable[[], bool] | None = None) -> None:
    """Run dialogues for a time (or until a condition, asked at each turn, holds), then until all are answered."""
    with undisturbed():
        if len(channels) == 1 and until is None and not isinstance(channels[0][1], Paced):
            _drive_one(*channels[0], seconds)
        else:
            _Loop(channels, seconds, until).run()


def _drive_one(connection: socket.socket, dialogue: Dialogue, seconds: float) -> None:
    """One connection needs no epoll: it just waits for its answer."""
    clock, send, receive = time.perf_counter, connection.sendall, dialogue.receive
    deadline = clock() + seconds
    send(dialogue.start())
    while not dialogue.finished:
        reply = receive(receive_some(connection))
        if reply:
            send(reply)
        if clock() >= deadline and not dialogue.stopping:
            dialogue.stop()


class _Loop:
    """Many connections on one epoll, some of them sending by the clock."""

    def __init__(self, channels: Sequence[Channel], seconds: float, until: Callable[[], bool] | None) -> None:
        self._channels = {connection.fileno(): (connection, dialogue) for connection, dialogue in channels}
        self._dialogues = [dialogue for _, dialogue in channels]
        self._workers = [dialogue for dialogue in self._dialogues if not isinstance(dialogue, Paced)]
        self._paced = [(connection, dialogue) for connection, dialogue in channels if isinstance(dialogue, Paced)]
        self._due = {dialogue: time.perf_counter() for _, dialogue in self._paced}
        self._deadline = time.perf_counter() + seconds
        self._until = until

    def run(self) -> None:
        """Until all dialogues have finished."""
        with select.epoll() as poller:
            for file, (connection, dialogue) in self._channels.items():
                poller.register(file, select.EPOLLIN)
                _send(connection, dialogue.start())
            while not self._over(now := time.perf_counter()):
                self._tick(now)
                self._turn(poller, max(0.0, min([self._deadline, *self._due.values()]) - time.perf_counter()))
            for dialogue in self._dialogues:
                dialogue.stop()
            while not all(dialogue.finished for dialogue in self._dialogues):
                self._turn(poller, ANSWER_WAIT_S)

    def _over(self, now: float) -> bool:
        """Time is up, or the condition holds, or there is nothing left to do but for those that go by the clock."""
        if now >= self._deadline or (self._until is not None and self._until()):
            return True
        return all(dialogue.finished for dialogue in self._workers)

    def _turn(self, poller: select.epoll, wait_s: float) -> None:
        """Serve all connections that have something to read."""
        events = poller.poll(wait_s)
        if not events and wait_s >= ANSWER_WAIT_S:
            raise NoAnswer(wait_s)
        channels = self._channels
        for file, _ in events:
            connection, dialogue = channels[file]
            reply = dialogue.receive(receive_some(connection))
            if reply:
                connection.sendall(reply)

    def _tick(self, now: float) -> None:
        for connection, dialogue in self._paced:
            if now >= self._due[dialogue]:
                # After a stall the missed ticks are dropped but for one: a burst would measure itself.
                self._due[dialogue] = max(self._due[dialogue] + dialogue.interval_s, now - dialogue.interval_s)
                _send(connection, dialogue.tick())


def _send(connection: socket.socket, data: bytes) -> None:
    if data:
        connection.sendall(data)

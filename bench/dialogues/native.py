"""Penstock's own protocol: puts in frames of any size, three ways to take and acknowledge, single questions."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from bench.dialogues.shapes import KEYS, PAYLOAD, Ring, Taking
from bench.errors import UnexpectedAnswer
from bench.load import Paced, receive_exactly, receive_some
from penstock.engine.answers import Handled, PutAnswer
from penstock.engine.commands import (
    ACK,
    ACK_TAKE,
    CREATE_QUEUE,
    INT64_MAX,
    PUT,
    TAKE,
    CreateQueue,
    QueueSettings,
    encode,
)
from penstock.wire.native.frames import FrameReader, encode_frame
from penstock.wire.native.messages import ANSWER, MAJOR, MINOR, PING, PUSH, STATUS, SUBSCRIBE, NodeStatus

QUEUE = ""
WAIT_MS = 60_000
_QUEUES_AT_ONCE = 500
_KEY_SPREAD = 0x9E3779B97F4A7C15
"""An odd number: its multiples modulo a power of two are all different, and in no order."""

_decode_put = msgspec.msgpack.Decoder(PutAnswer).decode
_decode_handled = msgspec.msgpack.Decoder(Handled).decode
_decode_status = msgspec.msgpack.Decoder(NodeStatus).decode
_STATUS_REQUEST = encode_frame(STATUS, 0, encode([]))


class _Delivered(Struct, array_like=True, gc=False):
    """The part of a delivery that a load looks at; what follows is skipped."""

    id: int
    key: int
    payload: bytes


class _Taken(Struct, array_like=True, gc=False):
    token: int
    records: list[_Delivered]


class _AckTaken(Struct, array_like=True, gc=False):
    acked: Handled
    taken: _Taken


_decode_taken = msgspec.msgpack.Decoder(_Taken).decode
_decode_ack_taken = msgspec.msgpack.Decoder(_AckTaken).decode


def greet(connection: socket.socket) -> None:
    """The handshake that turns a connection to this protocol."""
    connection.sendall(b"AN")
    _expect(connection, b"a\1", "Authorization Request")
    connection.sendall(b"B" + struct.pack(">iii", MAJOR, MINOR, 0))
    _expect(connection, b"b\1", "Bootstrap Request")


def _expect(connection: socket.socket, answer: bytes, what: str) -> None:
    received = receive_exactly(connection, len(answer))
    if received != answer:
        raise UnexpectedAnswer(what, received)


def ask_status(connection: socket.socket) -> NodeStatus:
    """The node's figures, asked on a connection that carries nothing else."""
    connection.sendall(_STATUS_REQUEST)
    reader = FrameReader()
    while True:
        for code, _, body in reader.feed(receive_some(connection)):
            if code != ANSWER:
                raise UnexpectedAnswer("STATUS", body)
            return _decode_status(body)


def encode_put(payload: bytes, key: int = 0) -> bytes:
    """Put one record."""
    return encode_frame(PUT, 0, encode([QUEUE, [[key, payload]]]))


def put_requests(count: int, records: int = 1, payload: bytes = PAYLOAD) -> Ring:
    """Requests that put this number of records each, with ten keys in turn."""
    return Ring(
        [
            encode_frame(PUT, request, encode([QUEUE, [[(request + n) % KEYS, payload] for n in range(records)]]))
            for request in range(count)
        ]
    )


class DistinctKeyRequests:
    """Requests that put so many records each, no two of them with the same key, in no order. Encoded as they leave."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._request = 0

    def take(self, count: int) -> bytes:
        """The next requests."""
        return b"".join([self._encode_next() for _ in range(count)])

    def _encode_next(self) -> bytes:
        first = self._request * self._records
        self._request += 1
        numbers = range(first, first + self._records)
        items = [[number * _KEY_SPREAD & INT64_MAX, PAYLOAD] for number in numbers]
        return encode_frame(PUT, self._request, encode([QUEUE, items]))


def create_queues(connection: socket.socket, count: int) -> None:
    """Make queues that nothing is put into."""
    settings = QueueSettings()
    frames = [encode_frame(CREATE_QUEUE, n, encode(CreateQueue(f"other-{n}", settings))) for n in range(count)]
    count_answers = answer_counter("CREATE_QUEUE")
    for start in range(0, count, _QUEUES_AT_ONCE):
        sent = frames[start : start + _QUEUES_AT_ONCE]
        connection.sendall(b"".join(sent))
        answered = 0
        while answered < len(sent):
            answered += count_answers(receive_some(connection))


def put_counter(records: int = 1) -> Callable[[bytes], int]:
    """Counts the answers to puts of so many records each, and sees to it that all were accepted."""
    reader = FrameReader()

    def count(data: bytes) -> int:
        answers = 0
        for code, _, body in reader.feed(data):
            if code != ANSWER or _decode_put(body).count != records:
                raise UnexpectedAnswer("PUT", body)
            answers += 1
        return answers

    return count


def answer_counter(what: str) -> Callable[[bytes], int]:
    """Counts answers without looking into them."""
    reader = FrameReader()

    def count(data: bytes) -> int:
        answers = 0
        for code, _, body in reader.feed(data):
            if code != ANSWER:
                raise UnexpectedAnswer(what, body)
            answers += 1
        return answers

    return count


PING_REQUEST = encode_frame(PING, 0, encode([]))


class _NativeTaking(Taking):
    """What the three ways of taking share: frames in, and the time of one round."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = FrameReader()
        self._began_ns = 0

    def _answers(self, data: bytes, what: str, good: tuple[int, ...] = (ANSWER,)) -> list[tuple[int, bytes]]:
        answers = []
        for code, _, body in self._reader.feed(data):
            if code not in good:
                raise UnexpectedAnswer(what, body)
            answers.append((code, body))
        return answers

    def _note_round(self) -> None:
        now_ns = time.perf_counter_ns()
        self.latencies_ns.append(now_ns - self._began_ns)
        self._began_ns = now_ns


class TakeThenAck(_NativeTaking):
    """One record at a time: TAKE, wait, ACK, wait."""

    def __init__(self) -> None:
        super().__init__()
        self._take = encode_frame(TAKE, 0, encode([QUEUE, 1]))
        self._acking = False

    def start(self) -> bytes:
        """The first take."""
        self.waiting = 1
        self._began_ns = time.perf_counter_ns()
        return self._take

    def receive(self, data: bytes) -> bytes:
        """ACK for what came, TAKE after that."""
        for _, body in self._answers(data, "TAKE or ACK"):
            return self._acked(body) if self._acking else self._taken(body)
        return b""

    def _taken(self, body: bytes) -> bytes:
        taken = _decode_taken(body)
        if not taken.records:
            self.waiting = 0
            self.settle()
            return b""
        self._acking = True
        return encode_frame(ACK, 1, encode([QUEUE, [(taken.records[0].id, taken.token)]]))

    def _acked(self, body: bytes) -> bytes:
        if _decode_handled(body).count != 1:
            raise UnexpectedAnswer("ACK", body)
        self._acking = False
        self.completed += 1
        self._note_round()
        if self.stopping:
            self.waiting = 0
            self.settle()
            return b""
        return self._take


class AckAndTake(_NativeTaking):
    """Up to `window` records at a time: TAKE, then ACK_TAKE again and again. With `wait` it waits for records."""

    def __init__(self, window: int, wait: bool = False) -> None:
        super().__init__()
        self._window = window
        self._wait_ms = WAIT_MS if wait else 0
        self._held: list[tuple[int, int]] = []
        self._asked = TAKE
        self._round = 0

    def start(self) -> bytes:
        """The first take."""
        self.waiting = 1
        self._began_ns = time.perf_counter_ns()
        return encode_frame(TAKE, 0, encode([QUEUE, self._window, None, self._wait_ms]))

    def receive(self, data: bytes) -> bytes:
        """ACK_TAKE for what came; ACK alone if that was the last."""
        for _, body in self._answers(data, "TAKE, ACK_TAKE or ACK"):
            return self._next_request(self._open(body))
        return b""

    def _open(self, body: bytes) -> _Taken | None:
        """What was taken; None if nothing was asked for. Counts what was acknowledged."""
        if self._asked == TAKE:
            return _decode_taken(body)
        taken = None
        if self._asked == ACK:
            handled = _decode_handled(body)
        else:
            both = _decode_ack_taken(body)
            handled, taken = both.acked, both.taken
        if handled.count != len(self._held):
            raise UnexpectedAnswer("ACK_TAKE or ACK", body)
        self.completed += handled.count
        if self._window == 1:
            self._note_round()
        return taken

    def _next_request(self, taken: _Taken | None) -> bytes:
        if taken is None or (not taken.records and not self._wait_ms):
            self.waiting = 0
            self.settle()
            return b""
        self.arrived([record.payload for record in taken.records])
        self.settle()
        token = taken.token
        self._held = [(record.id, token) for record in taken.records]
        self._round += 1
        self._asked = ACK if self.stopping else ACK_TAKE
        if self.stopping:
            return encode_frame(ACK, self._round, encode([QUEUE, self._held]))
        return encode_frame(ACK_TAKE, self._round, encode([QUEUE, self._held, self._window, None, self._wait_ms]))


class Subscribed(_NativeTaking):
    """The server pushes records as they come; each push is acknowledged at once."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self._subscribed = False

    def start(self) -> bytes:
        """The subscription."""
        return encode_frame(SUBSCRIBE, 0, encode([QUEUE, self._window]))

    def receive(self, data: bytes) -> bytes:
        """An ACK for each push."""
        replies = []
        for code, body in self._answers(data, "SUBSCRIBE or ACK", (ANSWER, PUSH)):
            if code == PUSH:
                taken = _decode_taken(body)
                self.arrived([record.payload for record in taken.records])
                handles = [(record.id, taken.token) for record in taken.records]
                replies.append(encode_frame(ACK, 1, encode([QUEUE, handles])))
            elif self._subscribed:
                self.completed += _decode_handled(body).count
            else:
                self._subscribed = True
        self.settle()
        return b"".join(replies)


class SnapshotWatch(Paced):
    """Asks for the node's status by the clock, and counts the snapshots that were finished meanwhile."""

    def __init__(self, interval_s: float) -> None:
        super().__init__(interval_s)
        self._reader = FrameReader()
        self._last_index: int | None = None
        self.snapshots = 0

    def tick(self) -> bytes:
        """A question, unless the last one is still under way."""
        if self.waiting:
            return b""
        self.waiting = 1
        return _STATUS_REQUEST

    def receive(self, data: bytes) -> bytes:
        """Looks at the index of the last snapshot."""
        for code, _, body in self._reader.feed(data):
            if code != ANSWER:
                raise UnexpectedAnswer("STATUS", body)
            index = _decode_status(body).snapshot_index
            if self._last_index is not None and index != self._last_index:
                self.snapshots += 1
            self._last_index = index
            self.waiting = 0
            self.completed += 1
            self.finished = self.stopping
        return b""

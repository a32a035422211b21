"""MoniQue: one publisher that pushes numbered messages by ZeroMQ, and subscribers on ZeroMQ or WebSocket that count.

All messages of a load are of one length, so a subscriber need not take them apart: it looks at the head of each, and at
the number of the last one in what it has read. None may be missing, and none may come twice.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections.abc import Sequence

from bench.dialogues import websocket, zeromq
from bench.dialogues.shapes import PAYLOAD
from bench.errors import NoAnswer, UnexpectedAnswer
from bench.load import ANSWER_WAIT_S, Dialogue, Paced, receive_some
from penstock.wire.monique.bodies import Body, encode_body
from penstock.wire.monique.gateway import Pattern, PushedFromMq, Subscribe, Subscribed, encode_reply, encode_request

SPEC = "bench_message"
_DIGITS = 40
_TAG = f"data:{SPEC}:%0{_DIGITS}d::bench".encode()
_TOPIC = f"data:{SPEC}:".encode()
_BODY = encode_body(
    Body(type="data", spec=SPEC, id="i" * _DIGITS, creator="bench", created_at_ms=1_700_000_000_000, data=PAYLOAD)
)
_TICK_S = 0.001
_WS_PING = 0x89
_PROBE, _END = 10**_DIGITS - 1, 10**_DIGITS - 2
_PROBE_S = 0.02

_PATTERNS = (Pattern(SPEC, "data"),)
_SUBSCRIBE = websocket.client_frame(encode_request(Subscribe(_PATTERNS)), text=False)
_SUBSCRIBED = encode_reply(Subscribed(_PATTERNS))


_BEFORE, _, _AFTER = zeromq.encode_message(_TAG % 0, _BODY).partition(b"0" * _DIGITS)


def pushed(number: int) -> bytes:
    """What a component sends, and what ZeroMQ's subscribers receive."""
    return b"%s%040d%s" % (_BEFORE, number, _AFTER)


def pushed_from_mq(number: int) -> bytes:
    """What a subscriber of the gateway receives."""
    payload = encode_reply(PushedFromMq(_TAG % number, _BODY))
    return b"\x82\x7e" + len(payload).to_bytes(2, "big") + payload


def subscribe_by_zeromq(connection: socket.socket) -> None:
    """The handshake of a subscriber of the scheduler. That it has taken effect shows only when a message comes."""
    zeromq.greet(connection, b"SUB")
    connection.sendall(zeromq.subscription(_TOPIC))


def subscribe_by_websocket(connection: socket.socket) -> None:
    """The handshake of a subscriber of the gateway."""
    websocket.greet(connection, "/")
    connection.sendall(_SUBSCRIBE)
    reader = websocket.MessageReader()
    while not (answers := reader.feed(receive_some(connection))):
        pass
    if answers != [_SUBSCRIBED]:
        raise UnexpectedAnswer("a subscription", answers[0])


def await_subscriptions(component: socket.socket, subscribers: Sequence[socket.socket]) -> None:
    """Returns when all of ZeroMQ's subscribers receive what is pushed, and have read all of it."""
    limit = time.monotonic() + ANSWER_WAIT_S
    deaf = {*subscribers}
    while deaf:
        if time.monotonic() > limit:
            raise NoAnswer(ANSWER_WAIT_S)
        component.sendall(pushed(_PROBE))
        hearing, _, _ = select.select([*deaf], [], [], _PROBE_S)
        deaf -= {*hearing}
    component.sendall(pushed(_END))
    end = pushed(_END)
    for subscriber in subscribers:
        data = b""
        while not data.endswith(end):
            data = data[-len(end) :] + receive_some(subscriber)


class Subscriber(Dialogue):
    """Counts the messages of one publisher; knows from an example what they look like."""

    def __init__(self, example: bytes, head_bytes: int) -> None:
        super().__init__()
        self._length = len(example)
        self._head = example[:head_bytes]
        self._number_at = example.index(b"0" * _DIGITS)
        self._buffer = b""
        self._publisher: Publisher | None = None
        self.arrivals: array[int] = array("q")
        """Pairs: how many messages had come, and when."""

    def follow(self, publisher: Publisher) -> None:
        """Do not finish before all that was published has come."""
        self._publisher = publisher

    def start(self) -> bytes:
        """Nothing: the subscription was made before."""
        return b""

    def receive(self, data: bytes) -> bytes:
        """Counts what is whole."""
        buffer = self._buffer + data if self._buffer else data
        count = len(buffer) // self._length
        end = count * self._length
        if not self._all_heads_right(buffer, count, end):
            count, end = self._walk(buffer)
        self._buffer = buffer[end:]
        if count:
            self.completed += count
            self._check_number(buffer, end)
            self.arrivals.extend((self.completed, time.perf_counter_ns()))
        if self.stopping:
            self._settle()
        return b""

    def stop(self) -> None:
        """Wait for the rest."""
        self.stopping = True
        self._settle()

    def _settle(self) -> None:
        self.finished = self._publisher is None or self.completed >= self._publisher.sent

    def _all_heads_right(self, buffer: bytes, count: int, end: int) -> bool:
        # A slice with a step looks at all messages at once: one pass in C for each byte of the head.
        return all(buffer[at : end : self._length].count(expected) == count for at, expected in enumerate(self._head))

    def _walk(self, buffer: bytes) -> tuple[int, int]:
        """Message by message, with a WebSocket ping in between."""
        count = at = 0
        while len(buffer) - at >= self._length:
            if buffer.startswith(self._head, at):
                count += 1
                at += self._length
            elif buffer[at] == _WS_PING:
                at += 2 + buffer[at + 1]
            else:
                raise UnexpectedAnswer("a subscription", buffer[at : at + self._length])
        return count, at

    def _check_number(self, buffer: bytes, end: int) -> None:
        at = end - self._length + self._number_at
        digits = buffer[at : at + _DIGITS]
        if not digits.isdigit() or int(digits) != self.completed - 1:
            raise UnexpectedAnswer(f"a subscription, where message {self.completed - 1} should come", digits)


def zeromq_subscriber() -> Subscriber:
    """A subscriber of the scheduler."""
    return Subscriber(pushed(0), 2)


def websocket_subscriber() -> Subscriber:
    """A subscriber of the gateway."""
    return Subscriber(pushed_from_mq(0), 4)


class Publisher(Paced):
    """Publishes as much as a window allows, or so many per second.

    The window is what the slowest subscriber has not seen yet. It is below what ZeroMQ holds for each subscriber before
    it begins to drop.
    """

    def __init__(self, subscribers: Sequence[Subscriber], window: int, rate_per_s: float | None = None) -> None:
        super().__init__(_TICK_S)
        self._subscribers = subscribers
        self._window = window
        self._rate_per_s = rate_per_s
        self._began_ns = 0
        self.sent_ns: array[int] = array("q")
        """When each message left."""
        for subscriber in subscribers:
            subscriber.follow(self)

    @property
    def sent(self) -> int:
        """Messages published."""
        return len(self.sent_ns)

    def tick(self) -> bytes:
        """What is due."""
        now_ns = time.perf_counter_ns()
        self._began_ns = self._began_ns or now_ns
        first = self.sent
        count = self._window - (first - min(each.completed for each in self._subscribers))
        if self._rate_per_s is not None:
            count = min(count, int((now_ns - self._began_ns) * self._rate_per_s / 1e9) - first)
        self.sent_ns.extend([now_ns] * count)
        return b"".join([pushed(number) for number in range(first, first + count)])

    def receive(self, data: bytes) -> bytes:
        """A PULL has nothing to say."""
        raise UnexpectedAnswer("a push", data)

    def delivery_latencies_ns(self) -> list[int]:
        """From leaving to arrival: one figure for each message and subscriber."""
        return [
            arrived_ns - sent_ns
            for subscriber in self._subscribers
            for before, count, arrived_ns in _spans(subscriber.arrivals)
            for sent_ns in self.sent_ns[before:count]
        ]


def _spans(arrivals: array[int]) -> list[tuple[int, int, int]]:
    """What came at once: from which number to which, and when."""
    counts, times = arrivals[0::2], arrivals[1::2]
    return [*zip([0, *counts], counts, times, strict=False)]

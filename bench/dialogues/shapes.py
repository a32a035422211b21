"""The shapes that the loads of all protocols share: one at a time, pipelined, by the clock, and taking with stamps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from bench.load import Dialogue, Paced

PAYLOAD_BYTES = 100
_STAMP_DIGITS = 19
_FILLING = b"x" * (PAYLOAD_BYTES - _STAMP_DIGITS)
PAYLOAD = b"0" * _STAMP_DIGITS + _FILLING
"""What is put where the time does not matter."""
KEYS = 10
"""Records are put with so many keys in turn."""

CountAnswers = Callable[[bytes], int]
"""Takes received bytes; how many requests are answered by them. Keeps what belongs to an answer that is not whole."""


def stamped_payload() -> bytes:
    """A payload that says when it was made."""
    return b"%019d" % time.perf_counter_ns() + _FILLING


def age_ns(payload: bytes, now_ns: int) -> int:
    """How long ago a stamped payload was made."""
    return now_ns - int(payload[:_STAMP_DIGITS])


class Requests(Protocol):
    """A source of encoded requests."""

    def take(self, count: int) -> bytes:
        """The next requests, one after the other."""


class Ring:
    """Requests of equal length, encoded once and sent again and again in turn."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self._length_bytes = len(requests[0])
        if any(len(request) != self._length_bytes for request in requests):
            raise ValueError("the requests of a ring have equal lengths")
        # Twice, so that a run which passes the end is still one slice.
        self._data = b"".join(requests) * 2
        self._count = len(requests)
        self._next = 0

    def take(self, count: int) -> bytes:
        """The next requests, one after the other; never more at a time than there are."""
        start = self._next * self._length_bytes
        self._next = (self._next + count) % self._count
        return self._data[start : start + count * self._length_bytes]


class OneAtATime(Dialogue):
    """Each request waits for the answer to the one before; every latency is noted."""

    def __init__(self, requests: Requests, count_answers: CountAnswers, requests_per_message: int = 1) -> None:
        super().__init__()
        self._requests = requests
        self._count_answers = count_answers
        self._per_message = requests_per_message
        self._answered = 0
        self._sent_ns = 0

    def start(self) -> bytes:
        """The first request."""
        self.waiting = 1
        self._sent_ns = time.perf_counter_ns()
        return self._requests.take(1)

    def receive(self, data: bytes) -> bytes:
        """The next request when the answer is whole."""
        if not self._count_answers(data):
            return b""
        self._answered += 1
        if self._answered == self._per_message:
            now_ns = time.perf_counter_ns()
            self.latencies_ns.append(now_ns - self._sent_ns)
            self._sent_ns = now_ns
            self._answered = 0
            self.completed += 1
            if self.stopping:
                self.waiting = 0
                self.finished = True
                return b""
        return self._requests.take(1)


class Pipelined(Dialogue):
    """Keeps a window of requests in flight, refilled when an eighth of it is answered; ends after `requests_max`."""

    def __init__(
        self,
        requests: Requests,
        count_answers: CountAnswers,
        window: int,
        messages_per_request: int = 1,
        requests_max: int | None = None,
    ) -> None:
        super().__init__()
        self._requests = requests
        self._count_answers = count_answers
        self._window = window
        self._refill_at = window - max(1, window // 8)
        self._messages = messages_per_request
        self._left = requests_max if requests_max is not None else 1 << 62

    def start(self) -> bytes:
        """A whole window."""
        return self._fill()

    def receive(self, data: bytes) -> bytes:
        """Further requests when enough are answered."""
        answered = self._count_answers(data)
        self.waiting -= answered
        self.completed += answered * self._messages
        if self.waiting > self._refill_at:
            return b""
        if not self.stopping and self._left:
            return self._fill()
        self.finished = self.waiting == 0
        return b""

    def _fill(self) -> bytes:
        count = min(self._window - self.waiting, self._left)
        self._left -= count
        self.waiting += count
        return self._requests.take(count)


class StampedPuts(Paced):
    """Puts records that carry the time at which they are sent, so many per second."""

    def __init__(self, rate_per_s: float, encode: Callable[[bytes], bytes], count_answers: CountAnswers) -> None:
        super().__init__(1 / rate_per_s)
        self._encode = encode
        self._count_answers = count_answers
        self.sent = 0

    def tick(self) -> bytes:
        """One record."""
        self.sent += 1
        self.waiting += 1
        return self._encode(stamped_payload())

    def receive(self, data: bytes) -> bytes:
        """Counts the answers."""
        answered = self._count_answers(data)
        self.waiting -= answered
        self.completed += answered
        self.finished = self.stopping and self.waiting == 0
        return b""


class Taking(Dialogue):
    """The base of all loads that take. Watching a producer, it notes how old each record is when it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._producer: StampedPuts | None = None
        self._arrived = 0

    def watch(self, producer: StampedPuts) -> None:
        """Note the age of what this producer sends, and do not finish before all of it has come."""
        self._producer = producer

    def arrived(self, payloads: Sequence[bytes]) -> None:
        """To be called with the payloads of each delivery, at once."""
        if self._producer is not None:
            now_ns = time.perf_counter_ns()
            self._arrived += len(payloads)
            self.latencies_ns.extend([age_ns(payload, now_ns) for payload in payloads])

    def stop(self) -> None:
        """Ask for nothing more; a watcher waits for the rest, others only for what they asked for."""
        super().stop()
        if self._producer is not None:
            self.settle()

    def settle(self) -> None:
        """To be called when an answer has been dealt with: sets `finished` if that was the last."""
        if self._producer is not None:
            self.finished = self.stopping and self._arrived >= self._producer.sent
        else:
            self.finished = self.waiting == 0


class Pings(Paced):
    """Asks for a sign of life by the clock, one at a time, and notes how long each takes."""

    def __init__(self, interval_s: float, request: bytes, count_answers: CountAnswers) -> None:
        super().__init__(interval_s)
        self._request = request
        self._count_answers = count_answers
        self._sent_ns = 0

    def tick(self) -> bytes:
        """A ping, unless the last one is still under way."""
        if self.waiting:
            return b""
        self.waiting = 1
        self._sent_ns = time.perf_counter_ns()
        return self._request

    def receive(self, data: bytes) -> bytes:
        """Notes the latency."""
        if self._count_answers(data):
            self.latencies_ns.append(time.perf_counter_ns() - self._sent_ns)
            self.waiting = 0
            self.completed += 1
            self.finished = self.stopping
        return b""

"""beanstalkd's protocol: put, reserve, delete."""

from __future__ import annotations

import re
import time

from bench.dialogues.shapes import PAYLOAD, PAYLOAD_BYTES, Ring, Taking
from bench.errors import UnexpectedAnswer

_ANSWER = re.compile(
    rb"RESERVED (\d+) %d\r\n(.{%d})\r\n|(DELETED)\r\n|(TIMED_OUT)\r\n" % (PAYLOAD_BYTES, PAYLOAD_BYTES), re.DOTALL
)


def encode_put(payload: bytes) -> bytes:
    """Put a job with one priority for all, no delay and a minute to run."""
    return b"put 100 0 60 %d\r\n%s\r\n" % (len(payload), payload)


def put_requests(count: int) -> Ring:
    """Requests that put a job each."""
    return Ring([encode_put(PAYLOAD)] * count)


def count_put_answers(data: bytes) -> int:
    """An answer is a line: INSERTED and an id. All others have an underscore in them, or speak of burying."""
    if b"_" in data or b"BURIED" in data:
        raise UnexpectedAnswer("put", data)
    return data.count(b"\n")


class Take(Taking):
    """Reserves up to `window` jobs one by one, deletes them, reserves the next.

    With a window of 1 each step waits for the one before. Otherwise deletes and further reserves leave together, as the
    jobs come. With `wait` a reserve waits for a job to come.
    """

    def __init__(self, window: int, wait: bool = False) -> None:
        super().__init__()
        self._reserve = b"reserve\r\n" if wait else b"reserve-with-timeout 0\r\n"
        self._window = window
        self._ahead = window > 1 or wait
        self._buffer = b""
        self._began_ns = 0

    def start(self) -> bytes:
        """A reserve for each place in the window."""
        self.waiting = self._window
        self._began_ns = time.perf_counter_ns()
        return self._reserve * self._window

    def receive(self, data: bytes) -> bytes:
        """Deletes what came, reserves what follows."""
        self._buffer += data
        replies: list[bytes] = []
        payloads: list[bytes] = []
        end = 0
        while (answer := _ANSWER.match(self._buffer, end)) is not None:
            end = answer.end()
            if answer[1] is not None:
                payloads.append(answer[2])
                replies.append(b"delete %s\r\n" % answer[1])
                if self._ahead:
                    self._reserve_next(replies)
            else:
                self.waiting -= 1
                if answer[3] is not None:
                    self._deleted(replies)
        self.arrived(payloads)
        self._buffer = self._buffer[end:]
        if b"\r\n" in self._buffer and not self._buffer.startswith(b"RESERVED "):
            raise UnexpectedAnswer("reserve or delete", self._buffer)
        self.settle()
        return b"".join(replies)

    def _deleted(self, replies: list[bytes]) -> None:
        self.completed += 1
        if not self._ahead:
            now_ns = time.perf_counter_ns()
            self.latencies_ns.append(now_ns - self._began_ns)
            self._began_ns = now_ns
            self._reserve_next(replies)

    def _reserve_next(self, replies: list[bytes]) -> None:
        if not self.stopping:
            self.waiting += 1
            replies.append(self._reserve)

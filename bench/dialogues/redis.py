"""Redis as a queue: a stream and a consumer group. XADD puts; XREADGROUP takes, XACK and XDEL end what was taken."""

from __future__ import annotations

import re
import time

from bench.dialogues.shapes import PAYLOAD, PAYLOAD_BYTES, Ring, Taking
from bench.errors import UnexpectedAnswer

_STREAM, _GROUP, _CONSUMER, _FIELD = b"q", b"g", b"c", b"d"
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$1\r\nq\r\n\*(\d+)\r\n")
_ENTRY = re.compile(
    rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nd\r\n\$%d\r\n(.{%d})\r\n" % (PAYLOAD_BYTES, PAYLOAD_BYTES), re.DOTALL
)
_NOTHING = b"*-1\r\n"


def command(*words: bytes) -> bytes:
    """A command in Redis' protocol."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


CREATE_GROUP = command(b"XGROUP", b"CREATE", _STREAM, _GROUP, b"0", b"MKSTREAM")


def encode_put(payload: bytes) -> bytes:
    """Append a payload to the stream."""
    return command(b"XADD", _STREAM, b"*", _FIELD, payload)


def put_requests(count: int, payload: bytes = PAYLOAD) -> Ring:
    """Requests that put a record each."""
    return Ring([encode_put(payload)] * count)


def count_put_answers(data: bytes) -> int:
    """An answer is `$15`, then an id such as 1700000000000-0: it has exactly one hyphen, and no letters."""
    if data.translate(None, b"$-0123456789\r\n"):
        raise UnexpectedAnswer("XADD", data)
    return data.count(b"-")


class Take(Taking):
    """Takes up to `window` records, ends them, takes the next.

    With a window of 1 each step waits for the one before. Otherwise the ends of one batch leave together with the take
    of the next. With `wait` the take waits for records to come.
    """

    def __init__(self, window: int, wait: bool = False) -> None:
        super().__init__()
        words = [b"XREADGROUP", b"GROUP", _GROUP, _CONSUMER, b"COUNT", b"%d" % window]
        if wait:
            words += [b"BLOCK", b"0"]
        self._read = command(*words, b"STREAMS", _STREAM, b">")
        self._ahead = window > 1 or wait
        self._buffer = b""
        self._ending = 0
        self._ends_to_come = 0
        self._began_ns = 0

    def start(self) -> bytes:
        """The first take."""
        self.waiting = 1
        self._began_ns = time.perf_counter_ns()
        return self._read

    def receive(self, data: bytes) -> bytes:
        """Ends what came, takes what follows."""
        self._buffer += data
        replies: list[bytes] = []
        while self._buffer:
            if self._buffer.startswith(b":"):
                whole = self._receive_end(replies)
            elif self._buffer.startswith(_NOTHING):
                self._buffer = self._buffer[len(_NOTHING) :]
                self.waiting -= 1
                whole = True
            elif self._buffer.startswith(b"-"):
                raise UnexpectedAnswer("XREADGROUP", self._buffer)
            else:
                whole = self._receive_entries(replies)
            if not whole:
                break
        self.settle()
        return b"".join(replies)

    def _receive_end(self, replies: list[bytes]) -> bool:
        """The answer to an XACK or XDEL: both are waited for."""
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        self._buffer = self._buffer[end + 2 :]
        self.waiting -= 1
        self._ends_to_come -= 1
        if self._ends_to_come:
            return True
        self.completed += self._ending
        self._ending = 0
        if not self._ahead:
            now_ns = time.perf_counter_ns()
            self.latencies_ns.append(now_ns - self._began_ns)
            self._began_ns = now_ns
            self._take_next(replies)
        return True

    def _receive_entries(self, replies: list[bytes]) -> bool:
        head = _HEAD.match(self._buffer)
        if head is None:
            return False
        count = int(head[1])
        entries = [*_ENTRY.finditer(self._buffer, head.end())]
        if len(entries) < count:
            return False
        self.arrived([entry[2] for entry in entries])
        ids = [entry[1] for entry in entries]
        self._buffer = self._buffer[entries[-1].end() :]
        replies += command(b"XACK", _STREAM, _GROUP, *ids), command(b"XDEL", _STREAM, *ids)
        self.waiting += 1  # two answers more, one less
        self._ending, self._ends_to_come = count, 2
        if self._ahead:
            self._take_next(replies)
        return True

    def _take_next(self, replies: list[bytes]) -> None:
        if not self.stopping:
            self.waiting += 1
            replies.append(self._read)

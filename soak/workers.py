"""The load: connections that put, take, acknowledge and give back, each in a thread, each noting what it does.

A worker's randomness comes from its seed; what the others do meanwhile does not. It ends when the node is gone.
"""

from __future__ import annotations

import threading
from random import Random
from time import monotonic
from typing import Any, Final

from penstock.engine import commands as c
from penstock.engine.answers import Delivery, Taken
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from soak import notes as n
from soak.client import Connection, ConnectionGone, decode_answer, encode_request
from soak.judge import Judge
from soak.notes import Notebook
from soak.workload import key_of, payload_of

QUEUE: Final = "soak"
WINDOW: Final = 16
"""Requests that a putter has in flight."""
LEASE_MS: Final = 300
LATE_S: Final = 0.4
WAIT_MS: Final = 50

_PUT: Final = m.CODES[c.Put]


class Traffic:
    """What the workers of one run share."""

    def __init__(self, notebook: Notebook, judge: Judge, backlog_max: int) -> None:
        self.notebook = notebook
        self.judge = judge
        self.backlog_max = backlog_max
        self.over = threading.Event()
        """Set when the node is about to be killed, so that its end is no surprise."""
        self.put = 0
        self.ended = 0
        self._filling = True
        self.lock = threading.Lock()

    def count(self, put: int = 0, ended: int = 0) -> None:
        """So many records came or went."""
        with self.lock:
            self.put += put
            self.ended += ended

    def is_filling(self) -> bool:
        """Whether records may be put now. The backlog fills up and then nearly empties, again and again.

        So the last in order are taken too, an empty queue is waited for, and no record is old for ever.
        """
        backlog = self.put - self.ended
        if backlog > self.backlog_max:
            self._filling = False
        elif backlog < self.backlog_max // 20:
            self._filling = True
        return self._filling


class Worker:
    """One connection after another, of one kind."""

    def __init__(self, number: int, traffic: Traffic, seed: int) -> None:
        self.number = number
        self.traffic = traffic
        self.random = Random(seed)
        self._thread: threading.Thread | None = None

    def start(self, port: int) -> None:
        """Begin to work on a node."""
        self._thread = threading.Thread(target=self._run, args=(port,), name=f"{self}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has noticed that the node is gone."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, port: int) -> None:
        try:
            self.work(port)
        except ConnectionGone as error:
            if not self.traffic.over.is_set():
                self.traffic.judge.complain(f"{self}: the connection ended though the node was not killed: {error}")
        except Exception as error:
            self.traffic.judge.complain(f"{self}: {type(error).__name__}: {error}")

    def work(self, port: int) -> None:
        """Work until the connection ends."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.number}"


class Putter(Worker):
    """Puts batches, many in flight. As a producer it repeats what was not answered when the node comes back."""

    def __init__(self, number: int, traffic: Traffic, seed: int, *, repeats: bool) -> None:
        super().__init__(number, traffic, seed)
        self.producer_id = number + 1 if repeats else 0
        self._next_message = 0
        self._next_request = self._first_new_request = 1
        self._unanswered: dict[int, tuple[bytes, int, int]] = {}
        """By request number: the frame, its first message, and how many."""

    def work(self, port: int) -> None:
        """Put until the connection ends."""
        if not self.producer_id:
            self._unanswered.clear()
        with Connection(port, self.producer_id) as connection:
            self._first_new_request = self._next_request
            for frame, _, _ in self._unanswered.values():
                connection.send(frame)
            while True:
                while len(self._unanswered) < WINDOW and not self._must_pause():
                    self._send_batch(connection)
                if self._unanswered:
                    self._take_answer(connection)
                elif self.traffic.over.wait(0.001):
                    return

    def _must_pause(self) -> bool:
        return self.traffic.over.is_set() or not self.traffic.is_filling()

    def _send_batch(self, connection: Connection) -> None:
        count = self.random.choice((1, 1, 2, 5, 20))
        first = self._next_message
        numbers = range(first, first + count)
        items = [c.Item(key_of(self.number, each), payload_of(self.number, each)) for each in numbers]
        request = self._next_request
        frame = encode_request(request, c.Put(QUEUE, items))
        self._next_message += count
        self._next_request += 1
        self._unanswered[request] = frame, first, count
        self.traffic.notebook.write([(n.PUTS_SENT, self.number, self.number, first, 0, count)])
        connection.send(frame)

    def _take_answer(self, connection: Connection) -> None:
        status, request, body = connection.receive()
        answer = decode_answer(_PUT, status, body)
        _, first, count = self._unanswered.pop(request)
        if isinstance(answer, Refusal) or answer.exceptions:
            code = answer.code if isinstance(answer, Refusal) else answer.exceptions[0][1]
            self.traffic.notebook.write([(n.PUT_REFUSED, self.number, self.number, first, 0, code)])
            return
        me, record_id = self.number, answer.first
        notes = [(n.PUT, me, me, first + each, record_id + each, 0) for each in range(count)]
        self.traffic.notebook.write(notes)
        if request >= self._first_new_request:  # else it may have been there when this life began
            self.traffic.count(put=count)


class Taker(Worker):
    """Takes some records at a time and acknowledges them, gives them back, or leaves with them in its hands.

    Now and then it keeps records beyond the deadline of their lease, and acknowledges them too late.
    """

    def __init__(self, number: int, traffic: Traffic, seed: int) -> None:
        super().__init__(number, traffic, seed)
        self._late: list[tuple[float, list[tuple[int, int]]]] = []
        """When to acknowledge which records at last."""

    def work(self, port: int) -> None:
        """Take until the connection ends."""
        while True:
            self._late.clear()
            with Connection(port) as connection:
                while self._turn(connection):
                    if self._late and self._late[0][0] < monotonic():
                        self._ack(connection, self._late.pop(0)[1], bound=False)
                self.traffic.notebook.write([(n.CLOSING, self.number, 0, 0, 0, 0)])

    def _turn(self, connection: Connection) -> bool:
        """Take once and do something with it; false to leave the connection and begin with another."""
        draw = self.random.random()
        bound = draw < 0.8
        count = self.random.choice((1, 2, 10, 40))
        taken = connection.ask(c.Take(QUEUE, count, 0 if bound else LEASE_MS, WAIT_MS))
        handles = self._received(taken, bound)
        if not handles:
            # What this connection keeps may be all that is left: somebody has to leave.
            return self.random.random() < 0.8
        draw = self.random.random()
        if draw < 0.6:
            self._ack(connection, handles, bound)
        elif draw < 0.75:
            self._ack_and_take(connection, handles, bound)
        elif draw < 0.95:
            middle = self.random.randrange(len(handles) + 1)
            self._ack(connection, handles[:middle], bound)
            self._give_back(connection, handles[middle:])
        elif not bound:
            self._late.append((monotonic() + LATE_S, handles))
        return draw < 0.98

    def _received(self, taken: Taken, bound: bool) -> list[tuple[int, int]]:
        """Note and check what came; returns its handles."""
        kind = n.TAKEN if bound else n.TAKEN_FOR_A_TIME
        judge = self.traffic.judge
        notes = []
        for record in taken.records:
            name = judge.record(record.id, record.key, record.payload)
            if name is not None:
                notes.append((kind, self.number, *name, record.id, record.deliveries))
        self.traffic.notebook.write(notes)
        judge.order(f"{self}, one take", [_rank(record) for record in taken.records])
        return [(record.id, taken.token) for record in taken.records]

    def _ack(self, connection: Connection, handles: list[tuple[int, int]], bound: bool) -> None:
        if handles:
            self._announce(n.ACK_SENT, handles, bound)
            self._answered(connection.ask(c.Ack(QUEUE, handles)), handles, n.ACKED, n.ACK_LOST, bound)

    def _ack_and_take(self, connection: Connection, handles: list[tuple[int, int]], bound: bool) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self._announce(n.ACK_SENT, handles, bound)
            answer = connection.ask(c.AckTake(QUEUE, handles, len(handles), 0 if bound else LEASE_MS, WAIT_MS))
            self._answered(answer.acked, handles, n.ACKED, n.ACK_LOST, bound)
            handles = self._received(answer.taken, bound)
            if not handles:
                return
        self._ack(connection, handles, bound)

    def _give_back(self, connection: Connection, handles: list[tuple[int, int]]) -> None:
        if handles:
            how = self.random.choice((c.NACK, c.RELEASE))
            delay_ms = self.random.choice((0, 0, 20))
            self._announce(n.RETURN_SENT, handles)
            answer = connection.ask(c.Return(QUEUE, handles, how, delay_ms))
            self._answered(answer, handles, n.RETURNED, n.RETURN_LOST)

    def _announce(self, kind: bytes, handles: list[tuple[int, int]], bound: bool = False) -> None:
        self.traffic.notebook.write([(kind, self.number, 0, 0, record_id, bound) for record_id, _ in handles])

    def _answered(
        self, answer: Any, handles: list[tuple[int, int]], done: bytes, gone: bytes, bound: bool = False
    ) -> None:
        lost = set(answer.lost)
        notes = [
            (gone if position in lost else done, self.number, 0, 0, record_id, bound)
            for position, (record_id, _) in enumerate(handles)
        ]
        self.traffic.notebook.write(notes)
        if done == n.ACKED:
            self.traffic.count(ended=len(handles) - len(lost))


def _rank(record: Delivery) -> tuple[int, int]:
    return record.key, record.id

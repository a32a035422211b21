"""Takes that wait for a record, per queue, first come first served.

Waiting is volatile: it is the node's, not the log's. A waiting take is put into the log only when there is, or is about
to be, something for it to take.

A wait has an entry in two heaps: by turn in its queue, and by deadline.
"""

from __future__ import annotations

from penstock.node.requests import Request, Sink
from penstock.node.waitheap import WaitHeap

WAITING_MAX = 100_000
"""Waiting takes of all connections together."""
WAITING_PER_SINK_MAX = 10_000
"""Waiting takes of one connection."""
WAITING_BYTES = 650
"""The memory of one waiting take: its command, its request, and its entries in the heaps. Measured."""


class Waiters:
    """Waiting takes by queue name."""

    __slots__ = ("_by_sink", "_due", "_number", "_turn", "count", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, WaitHeap[Request]] = {}
        """The waits of each queue that has some."""
        self.count = 0
        """How many takes wait."""
        self._by_sink: dict[Sink, set[Request]] = {}
        self._due: WaitHeap[Request] = WaitHeap()
        self._number = 0
        self._turn = 0

    @property
    def memory_bytes(self) -> int:
        """The memory that all waiting takes need, about."""
        return self.count * WAITING_BYTES

    def has_room(self, sink: Sink) -> bool:
        """Whether one more take of this sink may wait."""
        return self.count < WAITING_MAX and len(self._by_sink.get(sink, ())) < WAITING_PER_SINK_MAX

    def add(self, request: Request) -> None:
        """Let a take wait behind the others; or where it stood before, when it was woken and found nothing."""
        if not request.turn:
            self._turn += 1
            request.turn = self._turn
        self._number += 1
        request.waiting_number = self._number
        queue = request.command.args.queue
        waiting = self.queues.get(queue)
        if waiting is None:
            waiting = self.queues[queue] = WaitHeap[Request]()
        waiting.push(request.turn, request)
        self._due.push(request.wait_until_us, request)
        self._by_sink.setdefault(request.sink, set()).add(request)
        self.count += 1

    def _end(self, request: Request) -> None:
        request.waiting_number = 0
        self.count -= 1
        others = self._by_sink[request.sink]
        others.discard(request)
        if not others:
            del self._by_sink[request.sink]

    def _leave_queue(self, request: Request) -> None:
        name = request.command.args.queue
        waiting = self.queues[name]
        waiting.note_stale()
        if not len(waiting):
            del self.queues[name]

    def pop(self, queue: str) -> Request | None:
        """The take that has waited longest on a queue."""
        waiting = self.queues.get(queue)
        found = waiting.first() if waiting is not None else None
        if waiting is None or found is None:
            return None
        waiting.remove_first()
        request = found[1]
        self._end(request)
        self._due.note_stale()
        if not len(waiting):
            del self.queues[queue]
        return request

    def remove_sink(self, sink: Sink) -> list[Request]:
        """Take out all that a sink waits for."""
        gone = list(self._by_sink.get(sink, ()))
        for request in gone:
            self._end(request)
            self._due.note_stale()
            self._leave_queue(request)
        return gone

    def remove_overdue(self, now_us: int, count_max: int) -> list[Request]:
        """Take out those whose time is over, up to a number."""
        gone: list[Request] = []
        while len(gone) < count_max:
            first = self._due.first()
            if first is None or first[0] > now_us:
                break
            self._due.remove_first()
            request = first[1]
            self._end(request)
            self._leave_queue(request)
            gone.append(request)
        return gone

    def remove_all(self) -> list[Request]:
        """Take out all of them."""
        return [request for sink in list(self._by_sink) for request in self.remove_sink(sink)]

    def next_due_us(self) -> int | None:
        """When the first of them gives up."""
        first = self._due.first()
        return first[0] if first is not None else None

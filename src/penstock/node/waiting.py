"""Takes that wait for a record, per queue, first come first served.

Waiting is volatile: it is the node's, not the log's. A waiting take is put into the log only when there is, or is about
to be, something for it to take. A request that stopped waiting stays where it stands until its turn comes; it is
skipped then, so that leaving costs nothing however many wait.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from penstock.node.requests import Request, Sink


class Waiters:
    """Waiting takes by queue name."""

    __slots__ = ("_by_sink", "_due", "_serial", "_turn", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, deque[Request]] = {}
        self._by_sink: dict[Sink, set[Request]] = {}
        self._due: list[tuple[int, int, Request]] = []
        self._serial = 0
        self._turn = 0

    def add(self, request: Request) -> None:
        """Let a take wait behind the others; or where it stood before, when it was woken and found nothing."""
        waiting = self.queues.setdefault(request.command.args.queue, deque())
        if not request.turn:
            self._turn += 1
            request.turn = self._turn
            waiting.append(request)
        else:
            # Who was woken stood at the head, so its place is found within few steps.
            before = next((at for at, other in enumerate(waiting) if other.turn > request.turn), len(waiting))
            waiting.insert(before, request)
        request.waiting = True
        self._by_sink.setdefault(request.sink, set()).add(request)
        self._serial += 1
        heappush(self._due, (request.wait_until_us, self._serial, request))

    def _leave(self, request: Request) -> None:
        request.waiting = False
        others = self._by_sink[request.sink]
        others.discard(request)
        if not others:
            del self._by_sink[request.sink]

    def pop(self, queue: str) -> Request | None:
        """The take that has waited longest on a queue."""
        waiting = self.queues.get(queue)
        while waiting:
            request = waiting.popleft()
            if not waiting:
                del self.queues[queue]
            if request.waiting:
                self._leave(request)
                return request
        return None

    def remove_sink(self, sink: Sink) -> list[Request]:
        """Take out all that a sink waits for."""
        gone = list(self._by_sink.get(sink, ()))
        for request in gone:
            self._leave(request)
        return gone

    def remove_overdue(self, now_us: int) -> list[Request]:
        """Take out those whose time is over."""
        gone = []
        while self._due and self._due[0][0] <= now_us:
            _, _, request = heappop(self._due)
            if request.waiting and request.wait_until_us <= now_us:
                self._leave(request)
                gone.append(request)
        return gone

    def remove_all(self) -> list[Request]:
        """Take out all of them."""
        return [request for sink in list(self._by_sink) for request in self.remove_sink(sink)]

    def next_due_us(self) -> int | None:
        """When the first of them gives up."""
        while self._due and not self._due[0][2].waiting:
            heappop(self._due)
        return self._due[0][0] if self._due else None

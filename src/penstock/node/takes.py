"""Takes that may wait: when one waits, when it is put into the log, and when it gives up.

A take on an empty queue is not proposed; it waits, and is proposed when a put or anything else makes records ready. A
take that was woken and found nothing goes back to its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Answer, Taken
from penstock.engine.entries import COMMANDS_PER_ENTRY_MAX, Command
from penstock.engine.errors import Refusal
from penstock.engine.managing import no_such_queue
from penstock.engine.records import READY
from penstock.node.requests import Request, take_half
from penstock.node.waiting import WAITING_MAX, WAITING_PER_SINK_MAX, Waiters

if TYPE_CHECKING:
    from penstock.node.node import Node

WOKEN_PER_ENTRY_MAX: Final = 1_000
"""Takes of one queue that are woken at once; when these have been applied, the next are."""
OVERDUE_PER_TURN_MAX: Final = 1_000


class Takes:
    """The takes of a node that wait, or may have to."""

    __slots__ = ("_engine", "_node", "unserved", "waiters")

    def __init__(self, node: Node, waiters: Waiters) -> None:
        self._node = node
        self._engine = node.engine
        self.waiters = waiters
        self.unserved: set[str] = set()
        """Queues in which more takes are to be woken when the next entry has been applied."""

    def submit(self, request: Request, wait_ms: int) -> None:
        """Take a take: it is proposed, waits, or is answered at once."""
        node, engine = self._node, self._engine
        command = request.command
        name = command.args.queue
        queue = engine.state.by_name.get(name)
        if wait_ms:
            request.wait_until_us = node.clock.now_us() + wait_ms * 1000
        if command.producer and engine.remembers(command.producer, command.request):
            node.enqueue(request)  # a repeat: what it took the first time is its answer, whatever is there now
            return
        if name in self.waiters.queues and queue is not None:
            # What has just come back is for those who wait already, and so is what comes next.
            if not queue.paused:
                self._wake(name, queue.counts[READY])
            if wait_ms and command.op == c.TAKE and name in self.waiters.queues:
                self._wait(request)
                return
        if command.op != c.TAKE or (queue is not None and queue.counts[READY] and not queue.paused) or node.is_busy:
            node.enqueue(request)
        elif queue is None:
            node.answering.give(request, no_such_queue(name))  # as the engine would say; nothing is proposed
        elif wait_ms:
            self._wait(request)  # an empty queue: nothing is proposed
        else:
            node.answering.give(request, self._nothing())

    def _wait(self, request: Request) -> None:
        if not request.turn and not self.waiters.has_room(request.sink):
            self._node.answering.give(request, _too_many())
            return
        self.waiters.add(request)
        self._node.set_timer()

    def settle(self, request: Request, answer: Answer) -> None:
        """Answer a take that has been applied; one that found nothing and may wait, waits."""
        if request.wait_until_us > self._engine.state.stamp_us:
            if isinstance(answer, Taken) and not answer.records:
                self._wait(request)
                return
            if isinstance(answer, AckTaken) and not answer.taken.records:
                half = take_half(request, answer.acked)
                if self.waiters.has_room(request.sink):
                    self._wait(half)
                else:
                    self._node.answering.give(half, answer.taken)  # its acks are done, so it cannot be refused
                return
        self._node.answering.give(request, answer)

    def carry(self, command: Command) -> None:
        """A put finds takes that wait for it: they go into the same batch, one sync from put to delivery."""
        if command.op == c.PUT:
            wanted = [(command.args.queue, len(command.args.items))]
        elif command.op == c.PUT_MANY:
            wanted = [(queue, len(items)) for queue, items in command.args.puts]
        else:
            return
        for name, count in wanted:
            queue = self._engine.state.by_name.get(name)
            if name in self.waiters.queues and (queue is None or not queue.paused):
                self._wake(name, count)

    def serve(self, woken: set[str]) -> None:
        """Records have become available in these queues, or the queues are gone."""
        names = woken | self.unserved
        self.unserved = set()
        for name in sorted(names):
            queue = self._engine.state.by_name.get(name)
            if name in self.waiters.queues:
                if queue is None:
                    self._wake(name, COMMANDS_PER_ENTRY_MAX)  # deleted: the engine will tell them
                elif not queue.paused:
                    self._wake(name, queue.counts[READY])

    def _wake(self, queue: str, count: int) -> None:
        for _ in range(WOKEN_PER_ENTRY_MAX):
            if count <= 0:
                return
            request = self.waiters.pop(queue)
            if request is None:
                return
            count -= request.command.args.count
            self._node.enqueue(request)
        self.unserved.add(queue)

    def give_up_overdue(self, now_us: int) -> bool:
        """Answer those that have waited long enough, up to a turn's worth; whether there may be more of them."""
        overdue = self.waiters.remove_overdue(now_us, OVERDUE_PER_TURN_MAX)
        self.give_up_of(overdue)
        return len(overdue) == OVERDUE_PER_TURN_MAX

    def give_up_of(self, requests: list[Request]) -> None:
        """Answer takes that wait no more."""
        for request in requests:
            self._node.answering.give(request, self._nothing())

    def refuse_all(self, refusal: Refusal) -> None:
        """None of them will be served any more."""
        self.unserved.clear()
        for request in self.waiters.remove_all():
            self._node.answering.give(request, refusal)

    def _nothing(self) -> Taken:
        """The answer to a take that found nothing."""
        return Taken(self._engine.state.position, [])


def _too_many() -> Refusal:
    text = f"too many takes are waiting: the limits are {WAITING_PER_SINK_MAX} per connection and {WAITING_MAX} in all"
    return Refusal(e.TOO_MANY_IN_FLIGHT, text)

"""Who sleeps on which queue, and how they are woken.

A subscriber that sleeps on a queue is told once when the queue has something to take, and is then forgotten: it has to
say again that it sleeps. All sleepers of a queue are told, and the first to fetch gets the message.

No wake-up is lost: whoever lies down looks first whether there is something to take, and what becomes available later
is announced after it is in the queue. Both happen on the loop's thread, so nothing comes between.
"""

from __future__ import annotations

from typing import Protocol

from penstock.doors.etzel.frames import queue_frame
from penstock.engine.machine import Engine
from penstock.engine.records import READY
from penstock.wire.etzel import qname_of
from penstock.wire.etzel.replies import Awake


class Sleeper(Protocol):
    """A connection that can be woken."""

    def awaken(self, queue: str, frame: bytes) -> None:
        """Something is there to take from the queue; the frame says so to the client."""

    def broken(self, problem: BaseException) -> None:
        """The client could not be woken because of an error of the program: end it."""


class Sleepers:
    """The sleepers of all queues, by queue name; the queue need not exist. Each queue's wake in the order they came."""

    __slots__ = ("_by_queue", "_engine")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_queue: dict[str, dict[Sleeper, None]] = {}

    def lie_down(self, queue: str, sleeper: Sleeper) -> bool:
        """Sleep until the queue has something to take; false, and nobody sleeps, where it has now."""
        if self._has_something(queue):
            return False
        self._by_queue.setdefault(queue, {})[sleeper] = None
        return True

    def forget(self, queue: str, sleeper: Sleeper) -> None:
        """Wake this one no more."""
        sleeping = self._by_queue.get(queue)
        if sleeping is not None:
            sleeping.pop(sleeper, None)
            if not sleeping:
                del self._by_queue[queue]

    def on_woken(self, queues: set[str]) -> None:
        """Records may have become available in these queues."""
        if not self._by_queue:
            return
        # Of two sets the smaller is walked; the order between queues is no one's concern.
        for queue in self._by_queue.keys() & queues:
            if self._has_something(queue):
                self._awaken(queue)

    def _awaken(self, queue: str) -> None:
        sleeping = self._by_queue.pop(queue)
        qname = qname_of(queue)
        assert qname is not None, "its sleepers said the name"
        frame = queue_frame(Awake, qname)
        for sleeper in sleeping:
            try:
                sleeper.awaken(queue, frame)
            except Exception as problem:  # one client's error must not keep the others asleep
                sleeper.broken(problem)

    def _has_something(self, name: str) -> bool:
        queue = self._engine.state.by_name.get(name)
        return queue is not None and not queue.paused and queue.counts[READY] > 0

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

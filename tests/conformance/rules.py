"""The rules: what a queue does, whichever door it is used through. Each is one function, found by its name.

A rule gets a `Cell`: the door, a queue of its own, and the node's clock. It fails by an assertion, ends with Unsaid
where the protocol has no word for what it needs, and may return the protocol's own word for what it saw, which the
matrix then shows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from msgspec import Struct

from penstock.client.messages import Record
from penstock.client.sync import Queue
from tests.conformance.driving import Door, Taken, Worker
from tests.conformance.hosting import Hosted

BEFORE_S: Final = 10.0
"""So long before a moment nothing of it may be seen. Longer than a test takes, shorter than any time it speaks of."""


CHAPTERS: Final = (
    "Order",
    "Delay",
    "Lease",
    "Acknowledgement",
    "Expiry",
    "Limits",
    "Dead letter",
    "Operating",
    "Restart",
    "Payload",
)


class Cell:
    """One rule at one door."""

    def __init__(self, door: Door, rule: str) -> None:
        self.door = door
        self.queue = door.queue(rule)
        self.hosted: Hosted = door.hosted

    @property
    def operator(self) -> Queue:
        """The cell's queue as the operator has it."""
        return self.door.operator.queue(self.queue)

    def make(self, **limits: Any) -> None:
        """Make the cell's queue."""
        self.door.make_queue(self.queue, **limits)

    def put(self, payload: bytes = b"work", **options: Any) -> None:
        """Put a record into it."""
        self.door.put(self.queue, payload, **options)

    def worker(self, **options: Any) -> Worker:
        """A new worker on it."""
        return self.door.worker(self.queue, **options)

    def advance(self, seconds: float) -> None:
        """Put the node's clock forward."""
        self.hosted.advance(seconds)

    def advance_past(self, seconds: float, nothing_before: Callable[[], None]) -> None:
        """Put the clock forward past a moment; shortly before it there must be nothing."""
        self.advance(seconds - BEFORE_S)
        nothing_before()
        self.advance(2 * BEFORE_S)

    def let_go(self, worker: Worker) -> None:
        """Let the lease of a worker that says nothing run out; the worker is done for."""
        self.advance(self.door.lease_s + BEFORE_S)
        worker.leave()

    def takes_all(self, worker: Worker, count: int) -> list[Taken]:
        """Take and acknowledge so many records, one after the other."""
        taken = []
        for _ in range(count):
            taken.append(worker.take())
            worker.ack(taken[-1])
        return taken

    def only_record(self) -> Record:
        """The one record that is in the queue, in whatever state."""
        records = list(self.operator.browse())
        assert len(records) == 1, f"{len(records)} records are there, and not one"
        return records[0]

    def is_empty(self) -> None:
        """Nothing is left in the queue, in whatever state."""
        assert list(self.operator.browse()) == []


Body = Callable[[Cell], str | None]


class Rule(Struct, frozen=True):
    """One row of the matrix."""

    name: str
    chapter: str
    text: str
    """What holds, in one line."""
    body: Body


RULES: Final[dict[str, Rule]] = {}
"""All rules by name, in the order of the matrix."""


def rule(chapter: str, text: str) -> Callable[[Body], Body]:
    """Make a function a rule; its name is the function's."""

    def enter(body: Body) -> Body:
        name = body.__name__
        assert name not in RULES, f"there are two rules {name}"
        assert chapter in CHAPTERS, f"there is no chapter {chapter}"
        RULES[name] = Rule(name, chapter, text, body)
        return body

    return enter


@contextmanager
def opened(door: type[Door], hosted: Hosted) -> Any:
    """A door for one cell; what was opened through it is closed at the end."""
    with ExitStack() as stack:
        yield door(hosted, stack)

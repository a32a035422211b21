"""What the rules ask of a door: to put, and to take with a worker. One driver per door says it in its protocol.

A driver speaks over real sockets and knows nothing of queues. What its protocol has no word for it leaves as it stands
here: `Unsaid` comes out, and the cell must be declared in cannot.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from msgspec import Struct

from penstock.client.sync import Client
from tests.conformance.hosting import WITHIN_S, Hosted

T = TypeVar("T")


class Unsaid(Exception):
    """The protocol has no word for this."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the protocol cannot say: {what}")
        self.what = what


class Refused(Exception):
    """The door said no, in the protocol's word."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Taken(Struct):
    """A record as a worker got it; None where the protocol does not tell."""

    payload: bytes
    handle: Any = None
    """Whatever the driver needs to settle it."""
    key: int | None = None
    id: str | None = None
    deliveries: int | None = None


class Worker:
    """One connection that takes from one queue."""

    def take(self) -> Taken:
        """Take the record that must be there now."""
        raise NotImplementedError

    def finds_nothing(self) -> None:
        """Fail if there is a record to take now."""
        raise NotImplementedError

    def wait(self) -> None:
        """Begin to wait for a record; `take` then gets it when it comes."""
        raise NotImplementedError

    def ack(self, taken: Taken) -> None:
        """The work is done: the record ends. Raises Refused if the door says no."""
        raise NotImplementedError

    def give_back(self, taken: Taken) -> None:
        """The work failed: the record goes back at once."""
        raise Unsaid("give back")

    def leave(self) -> None:
        """Go without a word."""
        raise NotImplementedError


class Door:
    """A door as a rule uses it."""

    name: ClassVar[str]
    title: ClassVar[str]
    lease_s: ClassVar[float]
    """How long a record stays with a worker that says nothing."""
    returns_to_tail: ClassVar[bool] = False
    """Whether what comes back after that goes behind the others of its key, or to its place among them."""
    lease_is_bound: ClassVar[bool] = False
    """Whether the lease of a worker that says nothing of it ends with its connection."""
    names_queues: ClassVar[bool] = True
    """Whether a client says from which queue it takes."""
    encloses: ClassVar[bool] = False
    """Whether a record holds more than the payload: see `enclose`."""
    waits_for_queues: ClassVar[bool] = False
    """Whether a worker can wait on a queue that does not exist, and is served when it does."""

    def __init__(self, hosted: Hosted, stack: ExitStack) -> None:
        self.hosted = hosted
        self._stack = stack
        """Ends what was opened for a cell."""

    # The same for all doors.

    @property
    def operator(self) -> Client:
        """The operator's hand, by our own protocol."""
        return self.hosted.operator

    def operator_puts(self, queue: str, payload: bytes, **options: Any) -> int:
        """A record put by the operator, which this door is to hand out; its id."""
        return self.operator.queue(queue).put(self.enclose(queue, payload), **options).id

    # What a driver says.

    def queue(self, rule: str) -> str:
        """The name of the queue for a rule's cell."""
        return f"{self.name}.{rule}"

    def make_queue(self, queue: str, **limits: Any) -> None:
        """Make a queue with limits, by the protocol or by the operator."""
        self.operator.queue(queue).create(**limits)

    def delete_queue(self, queue: str) -> None:
        """Delete a queue, by the protocol or by the operator."""
        self.operator.queue(queue).drop()

    def put(self, queue: str, payload: bytes, *, key: int = 0, delay_s: float = 0, expires_s: float = 0) -> None:
        """Put a record. Raises Refused, or Unsaid where an option has no word."""
        raise NotImplementedError

    def worker(self, queue: str, *, bound: bool | None = None) -> Worker:
        """A new worker; its leases last as long as it (`bound`), for a time, or as the protocol has it (None)."""
        raise NotImplementedError

    def ack_elsewhere(self, queue: str, taken: Taken) -> None:
        """Acknowledge over another connection than the one that took."""
        raise Unsaid("acknowledge over another connection")

    def again(self, worker: Worker, taken: Taken) -> str:
        """Acknowledge a second time: what the door says."""
        raise NotImplementedError

    def late(self, worker: Worker, taken: Taken) -> tuple[str, bool]:
        """Acknowledge after the lease is over: what the door says, and whether that ends the record."""
        raise NotImplementedError

    def note_held(self, queue: str) -> None:
        """Know that what is held now is held through another door."""

    def enclose(self, queue: str, payload: bytes) -> bytes:
        """What a record of this door's must hold for its workers to get this payload."""
        return payload

    def opened(self, payload: bytes) -> bytes:
        """What the payload of a record that this door put was when it was put."""
        return payload


def unsaid_unless(holds: bool, what: str) -> None:
    """Fail with Unsaid unless it can be said."""
    if not holds:
        raise Unsaid(what)


def refusal(ask: Callable[[], object]) -> str:
    """The word with which the door refuses; fails if it does not."""
    try:
        ask()
    except Refused as refused:
        return refused.word
    raise AssertionError("it was not refused")


def until(look: Callable[[], T | None], what: str) -> T:
    """Look until there is something; fails if there never is."""
    give_up_s = time.monotonic() + WITHIN_S
    while (found := look()) is None:
        assert time.monotonic() < give_up_s, f"it never came: {what}"
        time.sleep(0.002)
    return found


class Closing:
    """A base for what ends with its cell."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """End it; ending twice is the same as once."""
        raise NotImplementedError

"""A request on its way: the command, and who waits for its answer."""

from __future__ import annotations

import logging
from typing import Protocol

from penstock.engine import commands as c
from penstock.engine.answers import Answer, Handled
from penstock.engine.entries import Command

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Whoever gets answers: a door's connection. They come in the order of the log, many at a time, then one flush."""

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """The command submitted with ``ref`` has been applied, or refused by the node."""

    def flush(self) -> None:
        """All answers that came together are here: write them out."""

    def broken(self, problem: BaseException) -> None:
        """One of the other methods, or a read, raised this error: log it, and end the connection."""


class Request:
    """A command submitted by a sink. No future, no task: the answer goes straight to the sink when it is known."""

    __slots__ = ("acked", "asked", "command", "ref", "sink", "turn", "wait_until_us", "waiting_number")

    def __init__(self, command: Command, sink: Sink, ref: int) -> None:
        self.command = command
        self.sink = sink
        self.ref = ref
        self.wait_until_us = 0
        """For a take: until when it may wait for a record, in log time; 0 not at all."""
        self.waiting_number = 0
        """For a take: names this wait in the heaps of ``Waiters``; 0 while it does not wait."""
        self.turn = 0
        """For a take that waits or has waited: its number in the order of those that wait; 0 if it never did."""
        self.acked: Handled | None = None
        """For the take half of an ack-and-take that waits: the answer to its other half."""
        self.asked = command
        """The command as the sink submitted it."""


class Nobody:
    """The sink of what the node proposes by itself."""

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """Nothing to do."""

    def flush(self) -> None:
        """Nothing to do."""

    def broken(self, problem: BaseException) -> None:
        """A read without a connection failed; nobody waits for its result."""
        log.error("a read of the node itself failed", exc_info=problem)


NOBODY = Nobody()


def take_half(request: Request, acked: Handled) -> Request:
    """What is left of an ack-and-take when its acks are done and there was nothing to take: a take that waits.

    It has no producer: its request number has been answered for the acks.
    """
    old = request.command
    args = c.Take(old.args.queue, old.args.count, old.args.lease_ms, old.args.wait_ms)
    half = Request(Command(c.TAKE, old.door, old.owner, 0, 0, c.encode(args), args), request.sink, request.ref)
    half.wait_until_us = request.wait_until_us
    half.acked = acked
    half.asked = old
    return half

"""A request on its way: the command, and who waits for its answer."""

from __future__ import annotations

from typing import Protocol

from penstock.engine.answers import Answer, Handled
from penstock.engine.entries import Command


class Sink(Protocol):
    """Whoever gets answers: a door's connection. They come in the order of the log, many at a time, then one flush."""

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """The command submitted with ``ref`` has been applied, or refused by the node."""

    def flush(self) -> None:
        """All answers that came together are here: write them out."""


class Request:
    """A command submitted by a sink. No future, no task: the answer goes straight to the sink when it is known."""

    __slots__ = ("acked", "asked", "command", "ref", "sink", "turn", "wait_until_us", "waiting")

    def __init__(self, command: Command, sink: Sink, ref: int) -> None:
        self.command = command
        self.sink = sink
        self.ref = ref
        self.wait_until_us = 0
        """For a take: until when it may wait for a record, in log time; 0 not at all."""
        self.waiting = False
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


NOBODY = Nobody()

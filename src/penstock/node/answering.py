"""Giving answers to sinks. An error in one of them ends that connection and nothing else.

What a sink does with an answer is the door's code, and runs in the middle of the commit path. It must not be able to
keep the other connections from their answers, or the node from its work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.engine.answers import AckTaken, Answer, Taken
from penstock.node.requests import Request, Sink

log = logging.getLogger(__name__)


class Answering:
    """The sinks that have been answered and not yet flushed."""

    __slots__ = ("_dirty", "_holds", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[Sink] = []
        self._holds = False

    def hold(self) -> None:
        """Many answers follow; ``flush`` is called after the last of them."""
        self._holds = True

    def dirty(self, sink: Sink) -> None:
        """Have this sink flushed with the answers that are being given now."""
        if not self._dirty and not self._holds:
            self._loop.call_soon(self.flush)
        self._dirty.append(sink)

    def give(self, request: Request, answer: Answer) -> None:
        """Answer a request."""
        if request.acked is not None and isinstance(answer, Taken):
            answer = AckTaken(request.acked, answer)
        try:
            request.sink.answered(request.ref, request.asked, answer)
        except Exception as problem:
            end(request.sink, problem)

    def flush(self) -> None:
        """Let every sink write out what it was answered."""
        self._holds = False
        dirty, self._dirty = self._dirty, []
        # The last first: a take that a put woke stands behind it in the batch, and work goes before receipts.
        for sink in reversed(dirty):
            try:
                sink.flush()
            except Exception as problem:
                end(sink, problem)


def look_for(look: Callable[[], None], sink: Sink) -> None:
    """Let a sink look at the state."""
    try:
        look()
    except Exception as problem:
        end(sink, problem)


def end(sink: Sink, problem: Exception) -> None:
    """End a sink whose code raised an error."""
    try:
        sink.broken(problem)
    except Exception:
        log.exception("a connection could not be ended")

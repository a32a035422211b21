"""Fair turns: how the time of the event loop is shared among connections.

A connection that has sent much is served for a part of a turn of the loop; then it waits until the others had theirs.
Work is counted in units, and the clock is read only when many units are used up: a connection that sends one request at
a time never pays for it. A connection that waits is not read from, so what it sends stays in its own socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from time import perf_counter
from typing import Final, Protocol

TURN_S: Final = 0.005
"""How long all connections together may be served before the loop does other things."""
QUANTUM_S: Final = 0.001
"""How long one connection that has waited is served before the next one."""
UNITS_PER_LOOK: Final = 64
"""Units of work between two looks at the clock. A short command is one unit, and takes some 10 µs."""


class Waiting(Protocol):
    """Somebody who has more to do than fits into a turn."""

    def take_turn(self) -> None:
        """Continue; call ``Turns.wait`` again where it is not enough."""


class Turns:
    """The turns of one event loop.

    Subtract the work that is done from ``left``. When it is not positive, ask ``is_over``.
    """

    __slots__ = ("_began_s", "_is_running", "_loop", "_quantum_ends_s", "_waiting", "left")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._began_s = 0.0
        self._quantum_ends_s = inf
        self._is_running = False
        """Whether the clock of a turn runs; it is stopped at the beginning of the next one."""
        self.left = UNITS_PER_LOOK

    def is_over(self) -> bool:
        """Whether the caller has to wait for another turn. Until then everybody has to, after one request each."""
        now_s = perf_counter()
        if not self._is_running:
            self._begin(now_s)
        elif now_s - self._began_s >= TURN_S:
            return True
        self.left = UNITS_PER_LOOK
        return now_s >= self._quantum_ends_s

    def wait(self, who: Waiting) -> None:
        """Call ``take_turn`` in a later turn of the loop, after all who wait already."""
        self._waiting.append(who)
        if not self._is_running:
            self._begin(perf_counter())

    def _begin(self, now_s: float) -> None:
        self._is_running = True
        self._began_s = now_s
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """The loop has come round: serve those who wait."""
        self._is_running = False
        self.left = UNITS_PER_LOOK
        if not self._waiting:
            return
        now_s = perf_counter()
        self._begin(now_s)
        try:
            while self._waiting and now_s - self._began_s < TURN_S:
                self._quantum_ends_s = now_s + QUANTUM_S
                self._waiting.popleft().take_turn()
                now_s = perf_counter()
        finally:
            self._quantum_ends_s = inf

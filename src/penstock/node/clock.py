"""Log time: the leader's monotonic clock, begun at the wall clock and slewed towards it.

A jump of the wall clock neither fires nor stalls a timer: log time follows it by running at most a tenth faster or
slower. It never falls, and it never stands still.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns

SLEW_DIVISOR = 10


class LogClock:
    """Stamps for entries, in microseconds."""

    __slots__ = ("_last_ns", "_last_us", "_monotonic_ns", "_wall_ns")

    def __init__(
        self, monotonic_ns: Callable[[], int] = monotonic_ns, wall_ns: Callable[[], int] = time_ns, last_us: int = 0
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.restart(last_us)

    def restart(self, last_us: int) -> None:
        """Begin a term: go on from the last stamp of the log, or from the wall clock where that is later."""
        self._last_ns = self._monotonic_ns()
        self._last_us = max(last_us, self._wall_ns() // 1000)

    def now_us(self) -> int:
        """Log time now."""
        now_ns = self._monotonic_ns()
        elapsed_us = (now_ns - self._last_ns) // 1000
        if elapsed_us > 0:
            self._last_ns += elapsed_us * 1000
            slew_us = elapsed_us // SLEW_DIVISOR
            lag_us = self._wall_ns() // 1000 - (self._last_us + elapsed_us)
            self._last_us += elapsed_us + max(-slew_us, min(slew_us, lag_us))
        return self._last_us

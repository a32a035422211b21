"""Log time: the leader's monotonic clock, begun where the log left off and slewed towards the wall clock.

Log time is for durations and order. A jump of the wall clock neither fires nor stalls a timer: log time follows it by
running at most a tenth faster or slower. It never falls, and it never stands still. Points in time that clients give
are wall-clock times: the log records how far it is ahead of the wall clock (``Tick.wall_us``), and the engine converts
them by that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns, time_ns

log = logging.getLogger(__name__)

SLEW_DIVISOR = 10
OFFSET_SLACK_US = 5_000
"""The log need not know its distance from the wall clock better than this."""
JUMP_REPORTED_US = 60_000_000
OFFSET_US_MAX = 24 * 3600 * 1_000_000
"""A log further than this from the wall clock is moved to it by a new term, if that is ahead: it would not get there
by itself in any reasonable time."""


class LogClock:
    """Stamps for entries, in microseconds."""

    __slots__ = ("_last_ns", "_last_us", "_monotonic_ns", "_recorded_us", "_wall_ns")

    def __init__(
        self, monotonic_ns: Callable[[], int] = monotonic_ns, wall_ns: Callable[[], int] = time_ns, last_us: int = 0
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self.restart(last_us)

    def restart(self, last_us: int, offset_us: int = 0) -> int:
        """Begin a term: go on from the last stamp of the log, and count the time since then by the wall clock.

        ``offset_us`` is how far the log was ahead of the wall clock. Returns how much time the wall clock says has
        passed since the last stamp; negative if it went back.
        """
        self._last_ns = self._monotonic_ns()
        wall_us = self.wall_us()
        now_us = wall_us + offset_us if abs(offset_us) <= OFFSET_US_MAX else wall_us
        self._last_us = max(last_us, now_us)
        self._recorded_us = offset_us
        return now_us - last_us

    def wall_to_record(self, now_us: int) -> int:
        """The wall clock's time, to be recorded in an entry with the stamp `now_us`.

        0 if what was recorded last is close enough.
        """
        wall_us = self.wall_us()
        offset_us = now_us - wall_us
        moved_us = offset_us - self._recorded_us
        if abs(moved_us) <= OFFSET_SLACK_US:
            return 0
        if abs(moved_us) > JUMP_REPORTED_US:
            log.warning("the system clock jumped by %+.0f s; delays, leases and expiries do not", -moved_us / 1e6)
        self._recorded_us = offset_us
        return wall_us

    def wall_us(self) -> int:
        """What the wall clock shows."""
        return self._wall_ns() // 1000

    def now_us(self) -> int:
        """Log time now."""
        now_ns = self._monotonic_ns()
        elapsed_us = (now_ns - self._last_ns) // 1000
        if elapsed_us > 0:
            self._last_ns += elapsed_us * 1000
            slew_us = elapsed_us // SLEW_DIVISOR
            lag_us = self.wall_us() - (self._last_us + elapsed_us)
            self._last_us += elapsed_us + max(-slew_us, min(slew_us, lag_us))
        return self._last_us


def report_gap(gap_us: int) -> None:
    """Log what a start has to say about the time since the log's last entry, if that is longer than a minute."""
    shown = _shown(abs(gap_us))
    if gap_us < -JUMP_REPORTED_US:
        log.warning(
            "the system clock is %s behind the log's last entry: it was wrong then, or is wrong now; delays, leases "
            "and expiries go on from the last entry as if no time had passed",
            shown,
        )
    elif gap_us > OFFSET_US_MAX:
        log.warning(
            "the log's last entry is %s old: the node was down, or the system clock is wrong; delays, leases and "
            "expiries count that time, but the age of old log segments counts from now on, so that a wrong clock "
            "deletes none",
            shown,
        )
    elif gap_us > JUMP_REPORTED_US:
        log.info("the log's last entry is %s old; delays, leases and expiries count that time", shown)


def _shown(us: int) -> str:
    seconds = us // 1_000_000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min"

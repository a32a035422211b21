"""The node's time, as far as it is known here."""

from __future__ import annotations


class LogClock:
    """Tells the log's time from the local monotonic clock, once a node has said what time it is there."""

    def __init__(self) -> None:
        self._offset_us: float | None = None

    def set(self, log_time_us: int, now: float) -> None:
        """It was ``log_time_us`` at the node at about ``now`` here (monotonic seconds)."""
        self._offset_us = log_time_us - now * 1e6

    def seconds_until(self, log_time_us: int, now: float) -> float | None:
        """Seconds from ``now`` until a moment of log time, negative if it is past; None while nothing is known."""
        return None if self._offset_us is None else (log_time_us - self._offset_us) / 1e6 - now

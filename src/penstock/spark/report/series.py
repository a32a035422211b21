"""Values over time: from the minutes in which something happened to bins of equal length without holes.

A queue has rows only for minutes in which something happened to it. Until the next row its depth stays, and its oldest
message grows older. A bin shows the peak over the ends of its minutes, so that no width of bins hides one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from penstock.spark.report.scales import minute_step

MINUTE_US: Final = 60_000_000
BINS_MAX: Final = 300
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal parts of a time, at round moments."""

    first_minute: int
    """Where the time begins, in minutes since the epoch; the first bin may begin before."""
    end_us: int
    """Where it ends: the moment up to which everything is known."""
    step: int
    """Minutes in a bin."""

    @staticmethod
    def over(first_minute: int, end_us: int) -> Bins:
        """Bins over a time: as short as their number allows."""
        minutes = -(-end_us // MINUTE_US) - first_minute
        return Bins(first_minute, end_us, minute_step(minutes, BINS_MAX))

    @property
    def last_minute(self) -> int:
        """The minute in which the time ends."""
        return max(self.first_minute, (self.end_us - 1) // MINUTE_US)

    @property
    def origin(self) -> int:
        """The minute with which the first bin begins."""
        return self.first_minute // self.step * self.step

    @property
    def count(self) -> int:
        """How many bins there are."""
        return (self.last_minute - self.origin) // self.step + 1

    def times(self) -> list[datetime]:
        """When each bin begins."""
        return [_EPOCH + timedelta(minutes=self.origin + self.step * number) for number in range(self.count)]

    def minutes(self) -> Floats:
        """How many minutes of each bin lie in the time, the last one as far as it has come, but a quarter at least."""
        edges = (self.origin + self.step * np.arange(self.count + 1)).astype(np.float64)
        ends = np.minimum(edges[1:], self.end_us / MINUTE_US)
        minutes: Floats = np.maximum(ends - np.maximum(edges[:-1], self.first_minute), 0.25)
        return minutes

    def sums(self, bins: Ints | list[int], values: Ints | list[int]) -> Ints:
        """Values added up by the number of their bin."""
        total = np.zeros(self.count, np.int64)
        np.add.at(total, np.asarray(bins, np.int64), np.asarray(values, np.int64))
        return total

    def peaks(self, minutes: Ints, values: Floats, *, grows: bool) -> Floats:
        """The peak of each bin of what has these values at the ends of these minutes, which are in order.

        Until its next minute a value stays, or grows as time goes (`grows`, values in microseconds). It is NaN
        before its first minute, and where it is NaN.
        """
        peaks = np.full(self.count, np.nan)
        if not len(minutes):
            return peaks
        ends = self.origin + self.step * np.arange(1, self.count + 1) - 1
        # Between rows a value never falls, so a peak is at a row, just before the next, or at the end of a bin.
        at = np.unique(np.concatenate([minutes, minutes[1:] - 1, np.minimum(ends, self.last_minute)]))
        at = at[(at >= max(self.first_minute, minutes[0])) & (at <= self.last_minute)]
        np.fmax.at(peaks, (at - self.origin) // self.step, self.values_at(at, minutes, values, grows=grows))
        return peaks

    def values_at(self, at: Ints, minutes: Ints, values: Floats, *, grows: bool) -> Floats:
        """The values at the ends of other minutes, none before the first; see ``peaks``."""
        latest = np.searchsorted(minutes, at, "right") - 1
        found = values[latest]
        return found + (self._moments(at) - self._moments(minutes[latest])) if grows else found

    def _moments(self, minutes: Ints) -> Floats:
        """When minutes end; the last one, as far as it has come."""
        return np.minimum((minutes + 1) * MINUTE_US, self.end_us).astype(np.float64)


def levels(queues: Ints, minutes: Ints, depths: Ints) -> tuple[Ints, Floats]:
    """The depth of several queues together, at each minute in which that of one is told.

    Rows are ordered by queue and minute.
    """
    before = np.concatenate([[0], depths[:-1]])
    before[np.concatenate([[True], queues[1:] != queues[:-1]])[: len(queues)]] = 0
    at, position = np.unique(minutes, return_inverse=True)
    changes = np.zeros(len(at), np.int64)
    np.add.at(changes, position, depths - before[: len(depths)])
    return at, np.cumsum(changes).astype(np.float64)


def plain(values: Floats) -> list[float | None]:
    """Numbers for JSON: whole ones as integers, NaN as None."""
    return [
        None if value != value else int(value) if value.is_integer() else round(value, 6) for value in values.tolist()
    ]

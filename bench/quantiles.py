"""Medians and quantiles of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def quantile(values: Iterable[float], share: float) -> float:
    """The value that `share` of all values do not exceed; 0 where there are none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    return statistics.median(values)

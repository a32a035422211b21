"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Waits that grow by ``factor`` from ``first`` up to ``cap`` seconds, each shortened by up to ``jitter`` of itself.

    The jitter keeps those who failed together from coming back together.
    """

    first: float = 1.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (self.first >= 0 and self.factor >= 1 and self.cap >= 0 and 0 <= self.jitter <= 1):
            raise ValueError(f"not a backoff: {self!r}")

    def delay(self, attempt: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after the ``attempt``-th failure, counted from 1. ``draw`` gives a number in [0, 1)."""
        try:
            full = min(self.cap, self.first * self.factor ** max(0, attempt - 1))
        except OverflowError:
            full = self.cap
        return full * (1 - self.jitter * draw())

"""Warnings about clients, limited in number: a client that sends one bad message can send a million."""

from __future__ import annotations

import logging
import time
from typing import Final

_EVERY_S: Final = 1.0


class Complaints:
    """Writes at most one warning per second to a log, and counts those in between."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last_s = 0.0
        self._untold = 0

    def tell(self, what: str, problem: object) -> None:
        """Write a warning, or count it for the next one."""
        now_s = time.monotonic()
        if now_s - self._last_s < _EVERY_S:
            self._untold += 1
            return
        others = f" (and {self._untold} others before)" if self._untold else ""
        self._last_s, self._untold = now_s, 0
        self._log.warning("%s: %s%s", what, problem, others)

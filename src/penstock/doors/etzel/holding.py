"""Fetches that are held back from a client which does not read what it fetched.

A client may send thousands of fetches ahead, and each answer may be as long as a message can be. So when a message is
there and what was written before it has not left, the message goes back to its queue as if it had never been taken, and
the fetch waits here until the client has read. Then fetches are let go in their order, no more at a time than fit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from penstock.wire.etzel.requests import Fetch

UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Beyond this a client gets no further message until it has read."""


class HeldFetches:
    """Fetches by their number in the order of the requests."""

    __slots__ = ("_let_go", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Fetch, int]] = []
        self._let_go = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_before(self, number: int) -> bool:
        """Whether a request waits here that comes before this one."""
        return bool(self._waiting) and self._waiting[0][0] < number

    def hold(self, number: int, request: Fetch, size_bytes: int) -> None:
        """Let a fetch wait; what it found the last time, of this size, is the best guess at what it finds next."""
        heappush(self._waiting, (number, request, size_bytes))

    def came_back(self) -> bool:
        """One that was let go is answered, or held again; true when it was the last, and more can be let go."""
        if self._let_go:
            self._let_go -= 1
            return not self._let_go and bool(self._waiting)
        return False

    def let_go(self) -> list[tuple[int, Fetch]]:
        """The next ones, as many as fit; none while such as were let go before are on their way."""
        chosen: list[tuple[int, Fetch]] = []
        size_bytes = 0
        while self._waiting and not self._let_go and size_bytes < UNREAD_BYTES_MAX:
            number, request, guess_bytes = heappop(self._waiting)
            chosen.append((number, request))
            size_bytes += guess_bytes
        self._let_go += len(chosen)
        return chosen

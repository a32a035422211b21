"""A heap of waits of which any may end at any time.

When a wait ends, its entry stays in the heap as a stale entry, which is skipped; a heap of which more than half is
stale is rebuilt. So ending a wait costs little, however many others there are, and the waits that ended take no more
memory than those that go on.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

_REBUILD_FROM = 64


class Waiting(Protocol):
    """Something that waits, has waited, or will wait."""

    waiting_number: int
    """Names the current wait, different for each; 0 while there is none."""


W = TypeVar("W", bound=Waiting)


class WaitHeap(Generic[W]):
    """Waits by rank."""

    __slots__ = ("_entries", "_stale")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, W]] = []
        self._stale = 0

    def __len__(self) -> int:
        return len(self._entries) - self._stale

    @property
    def entries_count(self) -> int:
        """The number of entries, stale ones included."""
        return len(self._entries)

    def push(self, rank: int, waiting: W) -> None:
        """Add a wait that has just begun."""
        heappush(self._entries, (rank, waiting.waiting_number, waiting))

    def first(self) -> tuple[int, W] | None:
        """The wait with the lowest rank, and that rank."""
        while self._entries:
            rank, number, waiting = self._entries[0]
            if waiting.waiting_number == number:
                return rank, waiting
            heappop(self._entries)
            self._stale -= 1
        return None

    def remove_first(self) -> None:
        """Remove what ``first`` returned; to be called before the wait ends."""
        heappop(self._entries)

    def note_stale(self) -> None:
        """A wait that has an entry here has ended."""
        self._stale += 1
        if self._stale * 2 > len(self._entries) and len(self._entries) >= _REBUILD_FROM:
            self._entries = [entry for entry in self._entries if entry[2].waiting_number == entry[1]]
            heapify(self._entries)
            self._stale = 0

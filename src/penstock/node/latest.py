"""Readers that wait until the history reaches beyond an entry.

Only those are woken whose entry is reached, some in each turn of the loop, and one timer serves all of them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.engine import errors as e
from penstock.engine.errors import Refusal
from penstock.node.waitheap import WaitHeap

WAITING_MAX: Final = 10_000
"""Readers of all connections together that may wait."""
WAITING_PER_CONNECTION_MAX: Final = 100
WOKEN_PER_TURN_MAX: Final = 200


class _Wait:
    __slots__ = ("future", "owner", "waiting_number")

    def __init__(self, future: asyncio.Future[None], owner: int, number: int) -> None:
        self.future = future
        self.owner = owner
        self.waiting_number = number


class LatestWaits:
    """All that wait, by the entry they wait for and by the time at which they give up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_entry: WaitHeap[_Wait] = WaitHeap()
        self._by_deadline: WaitHeap[_Wait] = WaitHeap()
        self._by_owner: dict[int, int] = {}
        self.count = 0
        """How many wait."""
        self._number = 0
        self._index = -1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0
        self._next_turn: asyncio.Handle | None = None

    def refusal(self, owner: int) -> Refusal | None:
        """Why one more of this connection may not wait, if so."""
        if self.count < WAITING_MAX and self._by_owner.get(owner, 0) < WAITING_PER_CONNECTION_MAX:
            return None
        limits = f"{WAITING_PER_CONNECTION_MAX} per connection and {WAITING_MAX} in all"
        return Refusal(e.TOO_MANY_IN_FLIGHT, f"too many readers are waiting: the limits are {limits}")

    async def wait(self, after: int, wait_ms: int, owner: int) -> None:
        """Return when an entry behind `after` has been applied, or when the time is over."""
        self._number += 1
        wait = _Wait(self._loop.create_future(), owner, self._number)
        due_us = int(self._loop.time() * 1e6) + wait_ms * 1000
        self._by_entry.push(after + 1, wait)
        self._by_deadline.push(due_us, wait)
        self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self.count += 1
        self._set_timer()
        try:
            await wait.future
        finally:
            if wait.waiting_number:  # cancelled: its connection is gone
                self._end(wait)
                self._by_entry.note_stale()
                self._by_deadline.note_stale()

    def reached(self, index: int) -> None:
        """The history reaches to this entry."""
        self._index = index
        if self._next_turn is None:
            self._wake()

    def close(self) -> None:
        """Wake nobody any more."""
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()

    def _wake(self) -> None:
        self._next_turn = None
        for _ in range(WOKEN_PER_TURN_MAX):
            first = self._by_entry.first()
            if first is None or first[0] > self._index:
                return
            self._by_entry.remove_first()
            self._end(first[1])
            self._by_deadline.note_stale()
        self._next_turn = self._loop.call_soon(self._wake)

    def _on_timer(self) -> None:
        self._timer = None
        now_us = int(self._loop.time() * 1e6)
        for _ in range(WOKEN_PER_TURN_MAX):
            first = self._by_deadline.first()
            if first is None or first[0] > now_us:
                break
            self._by_deadline.remove_first()
            self._end(first[1])
            self._by_entry.note_stale()
        self._set_timer()

    def _end(self, wait: _Wait) -> None:
        wait.waiting_number = 0
        self.count -= 1
        left = self._by_owner[wait.owner] - 1
        if left:
            self._by_owner[wait.owner] = left
        else:
            del self._by_owner[wait.owner]
        if not wait.future.done():
            wait.future.set_result(None)

    def _set_timer(self) -> None:
        first = self._by_deadline.first()
        if first is None or (self._timer is not None and self._timer_due_us <= first[0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_us = first[0]
        delay_s = max(0.0, first[0] / 1e6 - self._loop.time())
        self._timer = self._loop.call_later(min(delay_s, 3600.0), self._on_timer)

"""When the log is synced, and by whom.

``durable``   before any acknowledgement: nothing acknowledged is lost by a crash or a power cut.
``interval``  every so many milliseconds: a crash of the process loses nothing, a power cut what came since.
``none``      when the system pleases: a crash of the process loses nothing, a power cut may lose seconds.

In the durable mode a sync runs in line, in the event loop, while syncs are quick: the loop itself is the group commit,
and a thread's hand-over costs more than it gains. When the moving average says that the disk is slow, a thread does it,
so that timers, reads and other doors need not stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter

from penstock.node.storing import LogStore

SLOW_SYNC_S = 0.001
_WEIGHT = 0.05

Done = Callable[[Exception | None], None]


def _ignore(_failure: Exception) -> None:
    """Until a node says what to do."""


class Syncer:
    """Syncs a store's log as its mode says."""

    def __init__(self, store: LogStore, mode: str = "durable", thread: str = "auto", interval_ms: int = 50) -> None:
        self._store = store
        self._durable = mode == "durable"
        self._interval_s = interval_ms / 1000 if mode == "interval" else 0.0
        self._thread_choice = thread
        self._loop = asyncio.get_running_loop()
        self.average_s = 0.0
        """How long a sync took lately."""
        self._jobs: SimpleQueue[Done | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.on_failure: Callable[[Exception], None] = _ignore

    def must_wait(self) -> bool:
        """Make what was appended durable: false when that is done, or not asked for; true when it takes the thread."""
        if not self._durable:
            if self._interval_s and self._timer is None:
                self._timer = self._loop.call_later(self._interval_s, self._sync_soon)
            return False
        if self._thread_choice == "always" or (self._thread_choice == "auto" and self.average_s > SLOW_SYNC_S):
            return True
        self._timed_sync()
        return False

    def start(self, done: Done) -> None:
        """Sync in the thread; ``done`` is called on the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-sync", daemon=True)
            self._thread.start()
        self._jobs.put(done)

    async def stop(self, timeout_s: float) -> bool:
        """End the thread when it has done its syncs; False if that takes too long, and the thread is in the store."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is None:
            return True
        self._jobs.put(None)
        thread = self._thread
        await self._loop.run_in_executor(None, thread.join, timeout_s)
        return not thread.is_alive()

    def _timed_sync(self) -> None:
        began = perf_counter()
        self._store.sync()
        self.average_s += _WEIGHT * (perf_counter() - began - self.average_s)

    def _run(self) -> None:
        while (done := self._jobs.get()) is not None:
            failure: Exception | None = None
            try:
                self._timed_sync()
            except Exception as problem:
                failure = problem
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(done, failure)

    def _sync_soon(self) -> None:
        self._timer = None
        self.start(self._synced)

    def _synced(self, failure: Exception | None) -> None:
        if failure is not None:
            self.on_failure(failure)

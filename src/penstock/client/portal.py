"""The way from a thread into an event loop that runs in another one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.client.errors import ClientClosed

A = TypeVar("A")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop: uvloop's where it is installed, since it costs less, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Portal:
    """Runs coroutines in a loop, and waits for them outside of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, work: Coroutine[Any, Any, A]) -> A:
        """Run ``work`` in the loop, and wait for what it returns or raises."""
        try:
            future = self._submit(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed from None
        except BaseException:
            # Ctrl-C came while waiting: the work must end too. If it ended by itself, this does nothing.
            future.cancel()
            raise

    def _submit(self, work: Coroutine[Any, Any, A]) -> concurrent.futures.Future[A]:
        if asyncio._get_running_loop() is self._loop:
            # It would wait for itself. The garbage collector can bring us here, by closing an iteration.
            raise RuntimeError("the blocking client cannot be used in its own event loop")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            raise ClientClosed from None


class ThreadPortal(Portal):
    """A portal to a loop of its own, in a background thread."""

    def __init__(self) -> None:
        super().__init__(new_event_loop())
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the loop and its thread. What still runs there is cancelled."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, A]) -> concurrent.futures.Future[A]:
        # Under the lock, so that what is handed in always comes before the stop, and is cancelled by it.
        with self._lock:
            if self._closed:
                raise ClientClosed
            return super()._submit(work)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            rest = asyncio.all_tasks(self._loop)
            for task in rest:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

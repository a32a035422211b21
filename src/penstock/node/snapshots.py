"""Snapshots while serving: encoded block by block in the loop, written by a thread.

A snapshot is begun when the log has grown by so many bytes since the last one. Each turn of the loop encodes one block
(well under a millisecond), so that commands go on in between; the thread writes, syncs and publishes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from time import perf_counter, time

from penstock.engine import snapshot
from penstock.engine.machine import Engine
from penstock.node.storing import LogStore, SnapshotSink
from penstock.storage.errors import DiskExhausted, StorageError, StorageFailed

log = logging.getLogger(__name__)

BLOCKS_AHEAD_MAX = 64
"""How far the encoder may be ahead of the disk."""


class Snapshots:
    """Takes snapshots of an engine into its store."""

    def __init__(
        self, engine: Engine, store: LogStore, every_bytes: int, on_failure: Callable[[StorageError], None]
    ) -> None:
        self._engine = engine
        self._store = store
        self._every_bytes = every_bytes
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._log_bytes_then = store.log_bytes
        self._blocks: Iterator[bytes] | None = None
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._failure: Exception | None = None
        self._abandoned = False
        self._index = -1
        self._began = 0.0
        self.done: asyncio.Event = asyncio.Event()
        """Set while no snapshot is being taken."""
        self.done.set()
        self.is_stopped = False
        """Whether there will be none any more."""

    @property
    def failure(self) -> Exception | None:
        """Why the last snapshot could not be taken; None if it could."""
        return self._failure

    def consider(self) -> None:
        """Begin a snapshot if the log has grown enough."""
        if self._store.log_bytes - self._log_bytes_then >= self._every_bytes and self.done.is_set():
            self.begin()

    def begin(self) -> None:
        """Begin a snapshot of the state as it is now."""
        st = self._engine.state
        self._log_bytes_then = self._store.log_bytes
        self._index = st.index
        self._began = perf_counter()
        self._failure, self._abandoned = None, False
        self.done.clear()
        self._queue = SimpleQueue()
        self._blocks = snapshot.begin(self._engine)
        writer = self._store.begin_snapshot(st.index, st.term)
        threading.Thread(target=self._write, args=(writer, self._queue), name="penstock-snapshot", daemon=True).start()
        self._loop.call_soon(self._step)

    async def stop(self) -> None:
        """Abandon a snapshot that is under way, and take none any more."""
        self.is_stopped = True
        if not self.done.is_set():
            self._abandoned = True
            self._end_blocks()
            await self.done.wait()

    def _step(self) -> None:
        if self._blocks is None:
            return
        if self._failure is not None:
            self._end_blocks()
        elif self._queue.qsize() >= BLOCKS_AHEAD_MAX:
            self._loop.call_later(0.001, self._step)
        else:
            block = next(self._blocks, None)
            if block is None:
                self._end_blocks()
            else:
                self._queue.put(block)
                self._loop.call_soon(self._step)

    def _end_blocks(self) -> None:
        if self._blocks is not None:
            close = getattr(self._blocks, "close", None)
            if close is not None:
                close()
            self._blocks = None
            self._queue.put(None)

    def _write(self, writer: SnapshotSink, queue: SimpleQueue[bytes | None]) -> None:
        """In the thread: write what comes, then publish."""
        try:
            while (block := queue.get()) is not None:
                writer.write_block(block)
            if self._abandoned:
                writer.abort()
            else:
                writer.finish()
        except Exception as problem:  # whatever it is, whoever waits for this snapshot must hear of it
            self._failure = problem
            writer.abort()
        self._loop.call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        if self._failure is not None:
            self._end_blocks()
            if isinstance(self._failure, StorageFailed) and not isinstance(self._failure, DiskExhausted):
                self._on_failure(self._failure)
            else:
                # Nothing is lost by that: the log has all. The next one is tried when the log has grown again.
                log.error("a snapshot at index %d could not be written: %s", self._index, self._failure)
        elif not self._abandoned:
            log.info("snapshot at index %d taken in %.2f s", self._index, perf_counter() - self._began)
            try:
                self._store.run_retention(time())
            except StorageError as problem:
                log.error("old log segments could not be dropped: %s", problem)
        self.done.set()

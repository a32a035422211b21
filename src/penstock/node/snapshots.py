"""Snapshots while serving: encoded block by block in the loop, written by a thread.

A snapshot is begun when the log has grown by ``every_bytes`` since the last one, and by as much as that one was long:
so snapshots never cost more writing than the log itself, however large the state is. Each turn of the loop encodes one
block (well under a millisecond), so that commands go on in between; the thread writes, syncs and publishes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter

from penstock.engine import snapshot
from penstock.engine.machine import Engine
from penstock.node.storing import LogStore, SnapshotSink
from penstock.storage.errors import DiskExhausted, StorageError, StorageFailed

log = logging.getLogger(__name__)

STOP_S_MAX = 10.0
"""A stop waits this long for the thread that writes a snapshot."""
BLOCKS_AHEAD_MAX = 64
"""How far the encoder may be ahead of the disk."""


class Snapshots:
    """Takes snapshots of an engine into its store."""

    def __init__(
        self, engine: Engine, store: LogStore, every_bytes: int, on_failure: Callable[[Exception], None]
    ) -> None:
        self._engine = engine
        self._store = store
        self._every_bytes = every_bytes
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._log_bytes_then = store.log_bytes
        self._size_bytes = self._last_size_bytes = 0
        """The length of the snapshot that is being taken, and of the last one that was."""
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
        grown_bytes = self._store.log_bytes - self._log_bytes_then
        if grown_bytes >= self._every_bytes and self.is_worth_it and self.done.is_set():
            self.begin()

    @property
    def is_worth_it(self) -> bool:
        """Whether the log has grown by as much as the last snapshot was long."""
        return self._store.log_bytes - self._log_bytes_then >= self._last_size_bytes

    def begin(self) -> None:
        """Begin a snapshot of the state as it is now; none is begun any more after a stop or a failure."""
        if self.is_stopped:
            return
        st = self._engine.state
        self._log_bytes_then = self._store.log_bytes
        self._index = st.index
        self._began = perf_counter()
        self._failure, self._abandoned = None, False
        self._size_bytes = 0
        try:
            writer = self._store.begin_snapshot(st.index, st.term)
        except Exception as problem:
            self._failure = problem
            self._conclude()
            return
        # From here on `_finished` is called, whatever happens, and sets `done` again.
        self.done.clear()
        self._queue = SimpleQueue()
        self._blocks = snapshot.begin(self._engine)
        threading.Thread(target=self._write, args=(writer, self._queue), name="penstock-snapshot", daemon=True).start()
        self._loop.call_soon(self._step)

    async def stop(self) -> None:
        """Abandon a snapshot that is under way, and take none any more."""
        self.abandon()
        if not self.done.is_set():
            try:
                await asyncio.wait_for(self.done.wait(), STOP_S_MAX)
            except TimeoutError:
                log.error("a snapshot is still being written after %g s; it is left to its thread", STOP_S_MAX)

    def abandon(self) -> None:
        """Let no snapshot be published that is not yet written, and begin none any more."""
        self.is_stopped = True
        if not self.done.is_set():
            self._abandoned = True
            self._end_blocks()

    def _step(self) -> None:
        try:
            self._encode_next()
        except Exception as problem:
            self._failure = problem  # a fault of the program; the thread gives the file up, and `_conclude` reports it
            self._end_blocks()

    def _encode_next(self) -> None:
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
                self._size_bytes += len(block)
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
            if self._abandoned or self._failure is not None:
                writer.abort()
            else:
                writer.finish()
        except Exception as problem:  # whatever it is, whoever waits for this snapshot must hear of it
            self._failure = problem
            with suppress(StorageError, OSError):
                writer.abort()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        try:
            self._conclude()
        except Exception as problem:
            self._on_failure(problem)
        finally:
            self.done.set()

    def _conclude(self) -> None:
        if self._failure is not None:
            self._end_blocks()
            if isinstance(self._failure, StorageFailed) and not isinstance(self._failure, DiskExhausted):
                self._on_failure(self._failure)
            else:
                # Nothing is lost by that: the log has all. The next one is tried when the log has grown again.
                log.error("a snapshot at index %d could not be written: %s", self._index, self._failure)
        elif not self._abandoned:
            self._last_size_bytes = self._size_bytes
            log.info("snapshot at index %d taken in %.2f s", self._index, perf_counter() - self._began)
            try:
                st = self._engine.state
                self._store.run_retention(st.stamp_us, st.kept_since_us)
            except (StorageError, OSError) as problem:
                log.error("old log segments could not be dropped: %s", problem)

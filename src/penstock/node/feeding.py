"""The whole history for readers, at a pace that the doors do not feel.

Pieces are read and put into bytes in a thread, one at a time. The loop only hands a finished piece to the transport.
While others are being served, pieces are small, and after each one nothing is done for readers for several times as
long as it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.engine import errors as e
from penstock.engine.commands import encode
from penstock.engine.errors import Refusal
from penstock.node.states import States
from penstock.storage.cutting import Cutter
from penstock.storage.pieces import find_time
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.node.node import Node

ENTRIES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Single entries are read until there are so many bytes."""
BUSY_PIECE_BYTES: Final = 128 * 1024
"""A piece is no larger while others are being served: the loop copies it to the transport in one go. With 1 MiB the
slowest hundredth of puts took twice as long beside a reader as alone; with this, a third more."""
_BUSY_S: Final = 0.05
"""So long after commands were applied there are likely to be more."""
_PAUSE_FACTOR: Final = 4
_PAUSE_S_MAX: Final = 0.2

T = TypeVar("T")


class Feeding:
    """What a node offers to readers of its history. Answers that are long come encoded."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._free_at_s = self._applied_at_s = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        node.on_applied.append(self._wake)
        self.states = States(node, self)
        """The whole state."""

    def reach(self) -> m.Reach:
        """How far the history reaches now."""
        node = self._node
        store, applied = node.store, node.engine.state.index
        return m.Reach(store.cluster_id.hex(), store.first_index, applied, node.clock.now_us())

    async def latest(self, args: m.Latest) -> m.Reach:
        """How far it reaches, once it reaches beyond an entry or the wait is over."""
        deadline_s = self._loop.time() + args.wait_ms / 1000
        while self._node.engine.state.index <= args.after and (left_s := deadline_s - self._loop.time()) > 0:
            applied: asyncio.Future[None] = self._loop.create_future()
            self._waiting.add(applied)
            try:
                await asyncio.wait([applied], timeout=left_s)
            finally:
                self._waiting.discard(applied)
        return self.reach()

    @property
    def _is_busy(self) -> bool:
        return self._node.is_busy or perf_counter() - self._applied_at_s < _BUSY_S

    def _wake(self) -> None:
        self._applied_at_s = perf_counter()
        waiting, self._waiting = self._waiting, set()
        for applied in waiting:
            if not applied.done():
                applied.set_result(None)

    def queue_names(self) -> list[m.NamedQueue]:
        """The names of queues, also of deleted ones."""
        st = self._node.engine.state
        former = [m.NamedQueue(uid, name) for uid, name in st.former_names.items()]
        return former + [m.NamedQueue(uid, queue.name) for uid, queue in st.by_uid.items()]

    async def piece(self, args: m.ReadJournal) -> bytes | Refusal:
        """A piece of the history, encoded."""
        last = min(args.last_index, self._node.engine.state.index)
        refusal = self._refusal_of(args.first_index, last)
        if refusal is not None:
            return refusal
        bytes_max = min(args.bytes_max, BUSY_PIECE_BYTES) if self._is_busy else args.bytes_max
        read = self._node.store.piece(args.first_index, last, bytes_max, args.with_log)

        encoded = await self.in_turn(lambda: encode(read()))
        # What was let go of while it was read may have been read in part.
        return self._refusal(args.first_index) or encoded

    async def cuts(self, args: m.CutJournal) -> list[m.Cut] | Refusal:
        """Ranges of the history."""
        last = min(args.last_index, self._node.engine.state.index)
        refusal = self._refusal_of(args.first_index, last)
        if refusal is not None:
            return refusal
        cutter = Cutter(args.first_index, last, args.rows_max, args.bytes_max, args.count_max)
        for make_table in self._node.store.tables(args.first_index, last):
            if cutter.is_done:
                break
            # One segment a turn: the first look at a long history reads the heads of all its blocks.
            cutter.add(await self.in_turn(make_table))
        return self._refusal(args.first_index) or cutter.finish()

    async def entries(self, args: m.ReadEntries) -> bytes:
        """Single entries, encoded."""
        read = self._node.store.entries()

        def work() -> bytes:
            found: list[bytes | None] = []
            size = 0
            for index in args.indexes:
                entry = read(index)
                size += len(entry or b"")
                if size > ENTRIES_BYTES_MAX and found:
                    break
                found.append(entry)
            return encode(m.EntriesRead(found))

        return await self.in_turn(work)

    async def find_time(self, args: m.FindTime) -> m.IndexFound:
        """The first entry that was stamped at a time or later, or the one after the last."""
        read = self._node.store.entries()
        first, last = self._node.store.first_index, self._node.engine.state.index

        return m.IndexFound(await self.in_turn(lambda: find_time(read, first, last, args.time_us)))

    def sent(self, began_s: float) -> None:
        """A piece was handed over, which took the loop from `began_s` (``perf_counter``) until now."""
        self._rest_from(began_s)

    async def in_turn(self, work: Callable[[], T]) -> T:
        """Do work for a reader in a thread, one at a time, and not before the loop has rested from the last."""
        async with self._turn:
            pause_s = self._free_at_s - perf_counter()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            began_s = perf_counter()
            try:
                return await self._loop.run_in_executor(None, work)
            finally:
                self._rest_from(began_s)

    def _rest_from(self, began_s: float) -> None:
        """Something was done for a reader since then: nothing is, for a while, if others are being served."""
        now_s = perf_counter()
        if self._is_busy:
            free_at_s = max(now_s, self._free_at_s) + _PAUSE_FACTOR * (now_s - began_s)
            self._free_at_s = min(free_at_s, now_s + _PAUSE_S_MAX)

    def _refusal_of(self, first_index: int, last_index: int) -> Refusal | None:
        refusal = self._refusal(first_index)
        if refusal is None and last_index < first_index:
            text = f"the last entry, {last_index}, comes before the first, {first_index}"
            return Refusal(e.BAD_REQUEST, text)
        return refusal

    def _refusal(self, first_index: int) -> Refusal | None:
        first, last = self._node.store.first_index, self._node.engine.state.index
        if first_index < first:
            text = f"entry {first_index} is gone, the history begins at {first}"
            return Refusal(e.HISTORY_GONE, text, (first,))
        if first_index > last:
            return Refusal(e.BAD_REQUEST, f"entry {first_index} is not there yet, the last one is {last}", (last,))
        return None

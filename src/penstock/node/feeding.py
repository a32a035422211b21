"""The whole history for readers, at a pace that the doors do not feel.

Pieces are read and put into bytes in a thread, one at a time. The loop only hands a finished piece to the transport,
and while commands are under way it does nothing for readers for several times as long as that took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.engine import errors as e
from penstock.engine.commands import encode
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.node.node import Node

ENTRIES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Single entries are read until there are so many bytes."""
_PAUSE_FACTOR: Final = 4
_STAMP: Final = Struct("<q")
"""What an entry begins with (``engine.entries``)."""

T = TypeVar("T")


class Feeding:
    """What a node offers to readers of its history. Answers that are long come encoded."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._free_at_s = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        node.on_applied.append(self._wake)

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

    def _wake(self) -> None:
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
        refusal = self._refusal(args.first_index)
        if refusal is not None:
            return refusal
        last = min(args.last_index, self._node.engine.state.index)
        if last < args.first_index:
            return Refusal(e.BAD_REQUEST, f"the last entry, {last}, comes before the first, {args.first_index}")
        read = self._node.store.piece(args.first_index, last, args.bytes_max, args.with_log)

        def work() -> bytes:
            piece = read()
            return encode(m.JournalPiece(piece.first_index, piece.last_index, piece.blocks, piece.offsets, piece.log))

        return await self._in_turn(work)

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

        return await self._in_turn(work)

    async def find_time(self, args: m.FindTime) -> m.IndexFound:
        """The first entry that was stamped at a time or later, or the one after the last."""
        read = self._node.store.entries()
        first, last = self._node.store.first_index, self._node.engine.state.index

        def work() -> m.IndexFound:
            low, high = first, last + 1
            while low < high:
                middle = (low + high) // 2
                entry = read(middle)
                if entry is None or _STAMP.unpack_from(entry)[0] < args.time_us:
                    low = middle + 1
                else:
                    high = middle
            return m.IndexFound(low)

        return await self._in_turn(work)

    def sent(self, began_s: float) -> None:
        """A piece was handed over, which took the loop from `began_s` (``perf_counter``) until now."""
        now_s = perf_counter()
        self._free_at_s = now_s + _PAUSE_FACTOR * (now_s - began_s) if self._node.is_busy else 0.0

    async def _in_turn(self, work: Callable[[], T]) -> T:
        async with self._turn:
            pause_s = self._free_at_s - perf_counter()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            return await self._loop.run_in_executor(None, work)

    def _refusal(self, first_index: int) -> Refusal | None:
        first, last = self._node.store.first_index, self._node.engine.state.index
        if first_index < first:
            text = f"entry {first_index} is gone, the history begins at {first}"
            return Refusal(e.HISTORY_GONE, text, (first,))
        if first_index > last:
            return Refusal(e.BAD_REQUEST, f"entry {first_index} is not there yet, the last one is {last}", (last,))
        return None

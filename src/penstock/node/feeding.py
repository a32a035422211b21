"""The whole history for readers, at a pace that the doors do not feel.

Pieces are read and put into bytes in a thread, one at a time. The loop only hands a finished piece to the transport.
While others are being served, pieces are small, and after each one nothing is done for readers for several times as
long as it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.engine import errors as e
from penstock.engine.commands import encode
from penstock.engine.errors import Refusal
from penstock.engine.state import State
from penstock.node.latest import LatestWaits
from penstock.node.states import States
from penstock.storage.cutting import Cutter
from penstock.storage.pieces import Part, find_time
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.node.node import Node

ENTRIES_BYTES_MAX: Final = 16 * 1024 * 1024
"""The maximum of an answer with single entries; with more, the answer has fewer of them."""
PART_BYTES_MIN: Final = 128 * 1024
"""A part of a piece is not shorter than this, so that an open block of the journal always fits into one."""
BUSY_PIECE_BYTES: Final = 128 * 1024
"""A piece is no larger while others are being served: the loop copies it to the transport in one go. With 1 MiB the
slowest hundredth of puts took twice as long beside a reader as alone; with this, a third more."""
_AROUND_BYTES: Final = 1024
"""More than what stands around the bytes of one entry in a frame."""
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
        self.latest_waits = LatestWaits()
        """Those that wait for the next entry."""
        node.on_applied.append(self._on_applied)
        self.states = States(node, self)
        """The whole state."""

    def reach(self) -> m.Reach:
        """How far the history reaches now."""
        node = self._node
        store, applied = node.store, node.engine.state.index
        return m.Reach(store.cluster_id.hex(), store.first_index, applied, node.clock.now_us())

    async def latest(self, args: m.Latest, owner: int) -> m.Reach | Refusal:
        """How far it reaches, once it reaches beyond an entry or the wait is over; `owner` is the connection's."""
        if self._node.engine.state.index <= args.after and args.wait_ms:
            refusal = self.latest_waits.refusal(owner)
            if refusal is not None:
                return refusal
            await self.latest_waits.wait(args.after, args.wait_ms, owner)
        return self.reach()

    def close(self) -> None:
        """Let go of everything."""
        self.latest_waits.close()
        self.states.close()

    @property
    def _is_busy(self) -> bool:
        return self._node.is_busy or perf_counter() - self._applied_at_s < _BUSY_S

    def _on_applied(self) -> None:
        self._applied_at_s = perf_counter()
        if self.latest_waits.count:
            self.latest_waits.reached(self._node.engine.state.index)

    async def piece(self, args: m.ReadJournal, frame_bytes_max: int) -> bytes | Refusal:
        """A piece of the history, or the next part of one, encoded; the client reads frames up to that length."""
        last = min(args.last_index, self._node.engine.state.index)
        refusal = self._refusal_of(args.first_index, last)
        if refusal is not None:
            return refusal
        bytes_max = min(args.bytes_max, BUSY_PIECE_BYTES) if self._is_busy else args.bytes_max
        room = frame_bytes_max // 2
        if args.in_parts:
            part = Part(min(max(bytes_max, PART_BYTES_MIN), room), args.blocks_from, args.log_from)
        else:
            room = frame_bytes_max // 4 * 3
            part = Part(room)
        read = self._node.store.piece(args.first_index, last, bytes_max, args.with_log, part)

        def work() -> bytes | Refusal:
            piece = read()
            if not args.in_parts and (piece.blocks_bytes or piece.log_bytes):
                what = f"the history of entry {args.first_index}"
                return _too_large(what, piece.blocks_bytes + piece.log_bytes, room)
            return encode(piece)

        encoded = await self.in_turn(work)
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

    async def entries(self, args: m.ReadEntries, frame_bytes_max: int) -> bytes | Refusal:
        """Single entries, or a part of one, encoded; the client reads frames up to that length."""
        read = self._node.store.entries()
        room = min(ENTRIES_BYTES_MAX, frame_bytes_max // 2)

        def work() -> bytes | Refusal:
            found: list[bytes | None] = []
            size = 0
            for index in args.indexes:
                entry = read(index)
                size += len(entry or b"")
                if size > room and found:
                    break
                found.append(entry)
            first = found[0] if found else None
            if first is None or (len(first) <= room and not args.offset):
                return encode(m.EntriesRead(found))
            if args.in_parts:
                return encode(m.EntriesRead([first[args.offset : args.offset + room]], len(first)))
            if len(first) <= frame_bytes_max - _AROUND_BYTES:
                return encode(m.EntriesRead([first]))
            return _too_large(f"entry {args.indexes[0]}", len(first), frame_bytes_max)

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


def queue_names(st: State) -> Iterator[m.NamedQueue]:
    """The names of queues, also of deleted ones, as they are when the first is taken."""
    for uid, name in [*st.former_names.items(), *((uid, queue.name) for uid, queue in st.by_uid.items())]:
        yield m.NamedQueue(uid, name)


def _too_large(what: str, size_bytes: int, limit_bytes: int) -> Refusal:
    text = (
        f"{what} has {size_bytes} bytes, an answer to this client at most {limit_bytes}; newer clients read it in parts"
    )
    return Refusal(e.ANSWER_TOO_LARGE, text, (size_bytes, limit_bytes))

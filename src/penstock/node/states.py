"""The whole state for readers, out of snapshots: one is taken where the last one is too old, and held while it is read.

A snapshot for readers is one like all others, taken in the same steps and published in the same way. A later one may
take its place in the directory while somebody reads it: the file is held open, until nobody has asked for it for a
while, or too many are held.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.engine import errors as e
from penstock.engine.commands import encode
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.node.feeding import Feeding
    from penstock.node.node import Node
    from penstock.node.storing import HeldSnapshot

HELD_MAX: Final = 2
"""So many snapshots are held for readers; for one more, the one that nobody asked for the longest is let go of."""
LET_GO_AFTER_S: Final = 60.0
_REST_FACTOR: Final = 4
"""After a snapshot for readers there is none for so many times as long as it took."""


class States:
    """What a node offers to readers of its state."""

    def __init__(self, node: Node, feeding: Feeding) -> None:
        self._node = node
        self._feeding = feeding
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, HeldSnapshot] = {}
        self._used_at_s: dict[int, float] = {}
        self._free_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def snapshot(self, args: m.Snapshot) -> m.SnapshotTaken | Refusal:
        """A snapshot at this entry or a later one, once there is one; index -1 if that takes longer than the wait."""
        last = self._node.engine.state.index
        if args.at_least > last:
            return Refusal(e.BAD_REQUEST, f"entry {args.at_least} is not there yet, the last one is {last}", (last,))
        deadline_s = self._loop.time() + args.wait_ms / 1000
        tried = False
        while not (held := self._hold_newest(args.at_least)):
            snapshots = self._node.snapshots
            if snapshots.is_stopped:
                return Refusal(e.STOPPING, "the node stops")
            if snapshots.done.is_set():
                if tried:
                    return Refusal(e.DISK_FULL, f"no snapshot could be taken: {snapshots.failure}")
                if not await self._rest(deadline_s):
                    return m.SnapshotTaken(-1, 0)
                if snapshots.done.is_set() and not snapshots.is_stopped:
                    tried = True
                    snapshots.begin()
            if not await self._wait(deadline_s):
                return m.SnapshotTaken(-1, 0)
        return m.SnapshotTaken(held.index, held.size_bytes)

    async def read(self, args: m.ReadSnapshot, frame_bytes_max: int) -> bytes | Refusal:
        """Some bytes of a snapshot, encoded; the client reads frames up to that length."""
        held = self._held.get(args.index)
        if held is None and self._node.store.snapshot_index == args.index:
            held = self._hold_newest(args.index)
        if held is None:
            newest = self._node.store.snapshot_index
            text = f"the snapshot at {args.index} is gone, the last one is at {newest}"
            return Refusal(e.HISTORY_GONE, text, (newest,))
        self._used_at_s[args.index] = self._loop.time()
        snapshot = held
        bytes_max = min(args.bytes_max, frame_bytes_max // 2)
        return await self._feeding.in_turn(lambda: encode(m.SnapshotPiece(snapshot.read(args.offset, bytes_max))))

    def close(self) -> None:
        """Let go of everything."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()

    async def _wait(self, deadline_s: float) -> bool:
        """Wait until no snapshot is under way; False if that takes too long."""
        began_s = self._loop.time()
        try:
            await asyncio.wait_for(self._node.snapshots.done.wait(), max(0.0, deadline_s - began_s))
        except TimeoutError:
            return False
        now_s = self._loop.time()
        self._free_at_s = now_s + _REST_FACTOR * (now_s - began_s)
        return True

    async def _rest(self, deadline_s: float) -> bool:
        """Wait until the next snapshot may be taken for a reader; False if that is too late."""
        while (rest_s := self._free_at_s - self._loop.time()) > 0:
            left_s = deadline_s - self._loop.time()
            await asyncio.sleep(max(0.0, min(rest_s, left_s)))
            if left_s < rest_s:
                return False
        return True

    def _hold_newest(self, at_least: int) -> HeldSnapshot | None:
        """The newest snapshot that is held or published, if it is not older than that."""
        index = max(self._held, default=-1)
        if index < at_least <= self._node.store.snapshot_index:
            held = self._node.store.open_snapshot()
            index = held.index
            self._held[index], self._used_at_s[index] = held, self._loop.time()
            if len(self._held) > HELD_MAX:
                self._let_go(min(self._held, key=self._used_at_s.__getitem__))
            if self._timer is None:
                self._timer = self._loop.call_later(LET_GO_AFTER_S, self._let_go_of_idle)
        if index < at_least:
            return None
        self._used_at_s[index] = self._loop.time()
        return self._held[index]

    def _let_go_of_idle(self) -> None:
        now_s = self._loop.time()
        for index in [index for index, used_at_s in self._used_at_s.items() if now_s - used_at_s >= LET_GO_AFTER_S]:
            self._let_go(index)
        self._timer = self._loop.call_later(LET_GO_AFTER_S, self._let_go_of_idle) if self._held else None

    def _let_go(self, index: int) -> None:
        # Not closed here: a thread may be reading it. The file closes with the last reference to it.
        del self._held[index], self._used_at_s[index]

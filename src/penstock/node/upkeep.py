"""What a node does between commands: mark the end of an idle log, sync the journal ahead, free purged records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.node.node import Node

MARK_AFTER_S = 0.05


class Upkeep:
    """The small jobs of a node. Each of them ends the node if it fails."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._engine = node.engine
        self._loop = loop
        self._mark_timer: asyncio.TimerHandle | None = None
        self._is_syncing_ahead = False
        self._is_sweeping = False

    def after_apply(self) -> None:
        """Entries have been applied."""
        if self._mark_timer is None:
            self._mark_timer = self._loop.call_later(MARK_AFTER_S, self._node.guarded, self._mark)
        self._node.room.consider()
        if not self._is_syncing_ahead:
            self._sync_journal_ahead()
        if self._engine.state.trash and not self._is_sweeping:
            self._sweep()

    def stop(self) -> None:
        """Begin nothing any more."""
        if self._mark_timer is not None:
            self._mark_timer.cancel()

    def _mark(self) -> None:
        """Mark the end of an idle log, so that a cut of its tail can hardly hit what was acknowledged."""
        self._mark_timer = None
        if self._node.may_mark:
            self._node.store.mark()

    def _sync_journal_ahead(self) -> None:
        """Let a thread sync the journal a little at a time, so that no roll has to sync much of it at once."""
        work = self._node.store.journal_sync_ahead()
        if work is not None:
            self._is_syncing_ahead = True
            self._loop.run_in_executor(None, work).add_done_callback(self._synced_ahead)

    def _synced_ahead(self, done: asyncio.Future[None]) -> None:
        self._is_syncing_ahead = False
        problem = done.exception() if not done.cancelled() else None
        if isinstance(problem, Exception):
            self._node.fail(problem)

    def _sweep(self) -> None:
        """Free purged records a little at a time."""
        self._is_sweeping = self._engine.sweep()
        if self._is_sweeping:
            self._loop.call_soon(self._node.guarded, self._sweep)

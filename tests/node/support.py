"""A consensus that a test directs, sinks that remember what they were told, and disks that a test holds up.

Nodes run on the real store, in the directory of the test (`conftest.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.consensus.errors import NotLeader
from penstock.consensus.ready import NO_LEADER, HardState, LogEntry, Ready
from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.journal import ROW_BYTES
from penstock.node.clock import LogClock
from penstock.node.limits import Limits
from penstock.node.node import Node
from penstock.node.syncing import Syncer
from penstock.storage.disk import Disk
from penstock.storage.errors import StorageFailed
from penstock.storage.store import Store, StoreSettings


class DirectedConsensus:
    """Takes proposals like a leader; what is committed, dropped or replaced is for the test to say."""

    def __init__(self) -> None:
        self.term = 0
        self.leader = NO_LEADER
        self.log: list[LogEntry] = []
        self.persisted_index = -1
        self.committed_index = -1
        self._handed = -1
        self._applied = -1
        self._hard_state: HardState | None = None

    @property
    def is_leader(self) -> bool:
        return self.leader == 0

    def campaign(self) -> None:
        self.term += 1
        self.leader = 0
        self._hard_state = HardState(self.term, 0)

    def propose(self, data: bytes) -> LogEntry:
        if not self.is_leader:
            raise NotLeader(self.leader)
        entry = LogEntry(len(self.log), self.term, data)
        self.log.append(entry)
        return entry

    def ready(self) -> Ready | None:
        entries = self.log[self._handed + 1 :]
        committed = self.log[self._applied + 1 : self.committed_index + 1]
        if not entries and not committed and self._hard_state is None:
            return None
        ready = Ready(self._hard_state, entries, committed)
        self._hard_state = None
        self._handed = len(self.log) - 1
        self._applied = max(self._applied, self.committed_index)
        return ready

    def persisted(self, ready: Ready) -> None:
        if ready.entries:
            self.persisted_index = ready.entries[-1].index

    def commit(self, index: int) -> None:
        assert index <= self.persisted_index, "nothing is committed before it is persisted here"
        self.committed_index = index

    def lose(self, to: int = 1) -> None:
        """Another node leads from now on."""
        self.leader = to

    def replace_from(self, index: int, data: bytes) -> None:
        """The new leader has another entry at this place: ours, never committed, are dropped."""
        assert index > self.committed_index
        self.term += 1
        self.log[index:] = [LogEntry(index, self.term, data)]
        self._handed = index - 1


class Told:
    """A sink that keeps its answers."""

    def __init__(self, node: Node | None = None) -> None:
        self.answers: dict[int, Any] = {}
        self.problems: list[BaseException] = []
        """What was raised while it was answered."""
        self.node = node

    def answered(self, ref: int, command: Command, answer: Any) -> None:
        assert ref not in self.answers, "a request is answered once"
        self.answers[ref] = answer

    def flush(self) -> None:
        pass

    def broken(self, problem: BaseException) -> None:
        self.problems.append(problem)


def command(args: Any, owner: int = 1 << 32 | 7) -> Command:
    op = c.OPS[type(args)]
    return Command(op, 2, owner, 0, 0, c.encode(args), args)


def put(queue: str, *payloads: bytes, key: int = 0) -> Command:
    return command(c.Put(queue, [c.Item(key, payload) for payload in payloads]))


class QuickDisk(Disk):
    """A disk that does not sync: no test here takes the power away."""

    _sync = staticmethod(lambda _descriptor: None)
    _sync_directory = staticmethod(lambda _path: None)


class WatchedDisk(QuickDisk):
    """Notes the threads in which the log is synced; fails at a site once that is wanted, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_threads: list[str] = []
        self.fails_at = ""

    def before(self, site: str, path: Path) -> None:
        if site == "log.sync":
            self.sync_threads.append(threading.current_thread().name)
        if site == self.fails_at:
            raise OSError(errno.EIO, "Input/output error")


class HeldDisk(WatchedDisk):
    """A disk whose syncs of the log wait for the test, once that is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.go = threading.Semaphore(0)

    def before(self, site: str, path: Path) -> None:
        if site == "log.sync" and self.holds:
            self.go.acquire()
        super().before(site, path)


class Stores:
    """The stores of one test, in its own directory."""

    def __init__(self) -> None:
        self._directory = Path()
        self._open: list[Store] = []

    def begin(self, directory: Path) -> None:
        """A test begins."""
        self._directory, self._open = directory, []

    def open(self, disk: Disk | None = None, **settings: Any) -> Store:
        """A store, new for each call."""
        store, _ = Store.open(
            self._directory / f"data-{len(self._open)}",
            row_bytes=ROW_BYTES,
            new_cluster_id=bytes(16),
            node_id=0,
            settings=StoreSettings(**{"segment_bytes": 1024 * 1024, "reserve_bytes": 0, **settings}),
            disk=disk or QuickDisk(),
        )
        if isinstance(disk, WatchedDisk):
            disk.sync_threads.clear()
        self._open.append(store)
        return store

    def close(self) -> None:
        """Close those that were opened; a failed disk cannot, and need not."""
        for store in self._open:
            with contextlib.suppress(StorageFailed):
                store.close()


stores = Stores()


def make_node(consensus: Any, store: Any = None, **options: Any) -> Node:
    store = store or stores.open()
    return Node(
        Engine(),
        consensus,
        store,
        node_id=0,
        clock=options.pop("clock", None) or LogClock(),
        syncer=options.pop("syncer", None) or Syncer(store),
        limits=options.pop("limits", None) or Limits(1 << 40),
        snapshot_bytes=1 << 60,
    )


def on_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop of its own."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    run.__doc__ = test.__doc__
    run.__name__ = test.__name__
    return run


async def turns(count: int = 5) -> None:
    """Let the loop turn: everything that is scheduled with call_soon has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    while not condition():
        await asyncio.sleep(0.001)

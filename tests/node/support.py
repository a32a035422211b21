"""A consensus that a test directs, and sinks that remember what they were told."""

from __future__ import annotations

from typing import Any

from penstock.consensus.errors import NotLeader
from penstock.consensus.ready import NO_LEADER, HardState, LogEntry, Ready
from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.node.clock import LogClock
from penstock.node.limits import Limits
from penstock.node.node import Node
from penstock.node.syncing import Syncer
from penstock.storage.memory import MemoryStore


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
        self.node = node

    def answered(self, ref: int, command: Command, answer: Any) -> None:
        assert ref not in self.answers, "a request is answered once"
        self.answers[ref] = answer

    def flush(self) -> None:
        pass


def command(args: Any, owner: int = 1 << 32 | 7) -> Command:
    op = c.OPS[type(args)]
    return Command(op, 2, owner, 0, 0, c.encode(args), args)


def put(queue: str, *payloads: bytes, key: int = 0) -> Command:
    return command(c.Put(queue, [c.Item(key, payload) for payload in payloads]))


def make_node(consensus: Any, store: Any = None, **options: Any) -> Node:
    store = store or MemoryStore()
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

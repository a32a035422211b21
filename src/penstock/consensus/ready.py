"""The work that consensus hands to its caller, and the duties of that caller.

Consensus owns no disk, no socket and no clock. The caller asks ``ready()`` for work until there is none, and for each
piece of work does, in this order:

1. If ``hard_state`` is set: save it, durably, before anything else.
2. If ``entries`` are there: append them to the log. Entries from ``entries[0].index`` on that the log may already hold
   are replaced.
3. When 1 and 2 are durable: call ``persisted(ready)``. Until then nothing of this ready counts as stored here, and no
   further ``ready()`` may be asked for (new proposals may be made meanwhile).
4. Apply ``committed``, in order, each entry once. Answers to clients are given from here on, never earlier.

An entry that was proposed may never be committed: another entry may stand at its index in the end. The caller tells
by the term. A caller that is no longer the leader must answer what it has in flight as unknown, and may answer what it
has not yet proposed as not-leader.
"""

from __future__ import annotations

from typing import Protocol

NO_LEADER = -1


class LogEntry:
    """An entry of the log: where, in which term, and what."""

    __slots__ = ("data", "index", "term")

    def __init__(self, index: int, term: int, data: bytes) -> None:
        self.index = index
        self.term = term
        self.data = data

    def __repr__(self) -> str:
        return f"LogEntry({self.index}, {self.term}, {len(self.data)} bytes)"


class HardState:
    """What must survive a restart besides the log: the term, and for whom this node voted in it."""

    __slots__ = ("term", "vote")

    def __init__(self, term: int, vote: int | None) -> None:
        self.term = term
        self.vote = vote


class Ready:
    """A piece of work for the caller."""

    __slots__ = ("committed", "entries", "hard_state")

    def __init__(self, hard_state: HardState | None, entries: list[LogEntry], committed: list[LogEntry]) -> None:
        self.hard_state = hard_state
        self.entries = entries
        self.committed = committed


class Consensus(Protocol):
    """Agreement on the log among the nodes of a cluster, of which there may be only one."""

    @property
    def term(self) -> int:
        """The current term."""

    @property
    def leader(self) -> int:
        """The leader's id, or ``NO_LEADER``."""

    @property
    def is_leader(self) -> bool:
        """Whether this node takes proposals."""

    def campaign(self) -> None:
        """Try to become the leader of a new term."""

    def propose(self, data: bytes) -> LogEntry:
        """Put an entry at the end of the log; raises ``NotLeader``."""

    def ready(self) -> Ready | None:
        """The next piece of work, or None."""

    def persisted(self, ready: Ready) -> None:
        """The hard state and the entries of this ready are durable here."""

"""A cluster of one: what its only voter has stored is committed."""

from __future__ import annotations

from penstock.consensus.errors import NotLeader
from penstock.consensus.ready import NO_LEADER, HardState, LogEntry, Ready


class LoneVoter:
    """Consensus with nobody to ask. The term still rises at every start, so that former connections are told apart."""

    def __init__(self, node: int, term: int, last_index: int) -> None:
        self._node = node
        self._term = term
        self._leader = NO_LEADER
        self._last_index = last_index
        self._hard_state: HardState | None = None
        self._unstable: list[LogEntry] = []
        self._committed: list[LogEntry] = []

    @property
    def term(self) -> int:
        """The current term."""
        return self._term

    @property
    def leader(self) -> int:
        """The leader's id."""
        return self._leader

    @property
    def is_leader(self) -> bool:
        """Whether this node takes proposals."""
        return self._leader == self._node

    def campaign(self) -> None:
        """Begin a new term; the vote is our own and decides."""
        self._term += 1
        self._hard_state = HardState(self._term, self._node)
        self._leader = self._node

    def propose(self, data: bytes) -> LogEntry:
        """Put an entry at the end of the log."""
        if self._leader != self._node:
            raise NotLeader(self._leader)
        self._last_index += 1
        entry = LogEntry(self._last_index, self._term, data)
        self._unstable.append(entry)
        return entry

    def ready(self) -> Ready | None:
        """The next piece of work, or None."""
        if self._hard_state is None and not self._unstable and not self._committed:
            return None
        ready = Ready(self._hard_state, self._unstable, self._committed)
        self._hard_state, self._unstable, self._committed = None, [], []
        return ready

    def persisted(self, ready: Ready) -> None:
        """What this node has stored is committed."""
        self._committed += ready.entries

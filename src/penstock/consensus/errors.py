"""What can be wrong with a proposal.

ConsensusError
 └─ NotLeader   (leader)
"""

from __future__ import annotations


class ConsensusError(Exception):
    """A proposal that cannot be taken."""

    code = "consensus"


class NotLeader(ConsensusError):
    """Only the leader takes proposals; ``leader`` is its id as far as known, else -1."""

    code = "not-leader"

    def __init__(self, leader: int) -> None:
        super().__init__(f"this node is not the leader (leader: {leader})")
        self.leader = leader

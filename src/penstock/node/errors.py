"""Why a node stops, or does not start.

NodeError
 └─ NodeFailed   (cause): the disk failed under it; what was acknowledged is safe, the process must end
"""

from __future__ import annotations


class NodeError(Exception):
    """A node that cannot serve."""

    code = "node"


class NodeFailed(NodeError):
    """The node stopped because of an error that it must not live with."""

    code = "failed"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the node stopped: {cause}")
        self.cause = cause

"""What a door is to the server that opens it."""

from __future__ import annotations

from penstock.doors.listening import Doorkeeper, Listener
from penstock.node.node import Node


class Door:
    """A way in: one protocol on one or more listeners.

    The server makes the doors that are enabled and binds their ``listeners``, so that a port that is taken is told
    before a long recovery; then it gives them the node with ``attach`` and lets clients in. Listeners make connections
    only from then on, so a maker may count on ``node`` and ``keeper``.
    """

    def __init__(self, listeners: list[Listener]) -> None:
        self.listeners = listeners

    node: Node
    keeper: Doorkeeper

    def attach(self, node: Node, keeper: Doorkeeper) -> None:
        """The node is there, and leads: get ready for clients."""
        self.node, self.keeper = node, keeper

    async def stop(self) -> None:
        """The node is about to stop: end what is not a connection of the keeper's."""

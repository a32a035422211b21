"""Where components push: the connections of one port, which hand their messages to one receiver.

While the receiver is not ready, nothing is read, and ZeroMQ makes the components wait.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.doors.doorkeeper import Doorkeeper
from penstock.doors.monique.peers import ZmtpPeer
from penstock.node.node import Node
from penstock.wire.monique.zmtp import Event, Limits, MessageReceived, SocketType, ZmtpConnection


class Inlet:
    """One port: passes each message to ``take`` while the receiver is ``ready``."""

    def __init__(self, take: Callable[[list[bytes]], None], ready: Callable[[], bool], limits: Limits) -> None:
        self.take = take
        self._ready = ready
        self._limits = limits
        self._open = True
        self._peers: set[PushingPeer] = set()
        self._waiting: dict[PushingPeer, None] = {}

    def make(self, node: Node, keeper: Doorkeeper) -> PushingPeer:
        """A new connection of this port."""
        peer = PushingPeer(node, keeper, self, ZmtpConnection(SocketType.PULL, limits=self._limits))
        self._peers.add(peer)
        return peer

    def leave(self, peer: PushingPeer) -> None:
        """A connection is gone."""
        self._peers.discard(peer)
        self._waiting.pop(peer, None)

    def can_take(self, peer: PushingPeer) -> bool:
        """Whether the receiver is ready; if not, the peer has a turn when it is."""
        if self._open and self._ready():
            return True
        self._waiting[peer] = None
        return False

    def resume(self) -> None:
        """The receiver is ready again: those that wait have their turns, the first one first."""
        waiting, self._waiting = self._waiting, {}
        for peer in waiting:
            peer.take_soon()

    def came_bytes(self) -> int:
        """All that has come from the peers that are there."""
        return sum(peer.came_bytes for peer in self._peers)

    def is_idle(self) -> bool:
        """Whether no peer waits for its turn, or for the receiver."""
        return not self._waiting and not any(peer.has_turn for peer in self._peers)

    def close(self) -> None:
        """Take nothing more."""
        self._open = False


class PushingPeer(ZmtpPeer):
    """A component with a PUSH socket."""

    def __init__(self, node: Node, keeper: Doorkeeper, inlet: Inlet, codec: ZmtpConnection) -> None:
        super().__init__(node, keeper, codec)
        self._inlet = inlet

    @property
    def has_turn(self) -> bool:
        """Whether something that came waits for its turn."""
        return self._turn is not None

    def take(self, event: Event) -> None:
        """Pass a message to the receiver."""
        if isinstance(event, MessageReceived):
            self._inlet.take(list(event.frames))

    def can_take(self) -> bool:
        """Whether the peer reads its pongs, and the receiver is ready; a handshake need not wait for that."""
        return super().can_take() and (not self._codec.ready or self._inlet.can_take(self))

    def gone(self) -> None:
        """The component left. What it sent in whole was passed on, or is lost as always with ZeroMQ."""
        self._inlet.leave(self)

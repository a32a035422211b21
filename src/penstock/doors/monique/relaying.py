"""From a port where components push to programs that decide on the messages, which pull them from an inner port."""

from __future__ import annotations

from collections.abc import Callable

from penstock.doors.doorkeeper import Doorkeeper
from penstock.doors.monique.peers import ZmtpPeer
from penstock.node.node import Node
from penstock.wire.monique.zmtp import SocketType, ZmtpConnection, encode_message


class Relay:
    """Gives each message to the next program that can take one."""

    def __init__(self) -> None:
        self._free: dict[PullingPeer, None] = {}
        self.resume: Callable[[], None] = lambda: None
        """Called when messages may come again after ``ready`` had been false."""

    def make(self, node: Node, keeper: Doorkeeper) -> PullingPeer:
        """A new connection of the inner port."""
        return PullingPeer(node, keeper, self)

    def ready(self) -> bool:
        """Whether there is a program that can take another message."""
        return bool(self._free)

    def take(self, frames: list[bytes]) -> None:
        """Pass a message on, whatever it is."""
        peer = next(iter(self._free))
        del self._free[peer]
        self._free[peer] = None  # all have their turn
        peer.write(encode_message(frames))

    def became_free(self, peer: PullingPeer) -> None:
        """A program can take messages."""
        self._free[peer] = None
        self.resume()

    def became_busy(self, peer: PullingPeer) -> None:
        """A program can take no more for now, or is gone."""
        self._free.pop(peer, None)


class PullingPeer(ZmtpPeer):
    """A program with a PULL socket."""

    def __init__(self, node: Node, keeper: Doorkeeper, relay: Relay) -> None:
        super().__init__(node, keeper, ZmtpConnection(SocketType.PUSH))
        self._relay = relay

    def greeted(self) -> None:
        """The program is there."""
        self._relay.became_free(self)

    def pause_writing(self) -> None:
        """It does not read what it got."""
        super().pause_writing()
        self._relay.became_busy(self)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._codec.ready and not self.closed:
            self._relay.became_free(self)

    def gone(self) -> None:
        """The program left."""
        self._relay.became_busy(self)

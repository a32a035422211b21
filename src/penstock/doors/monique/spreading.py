"""Where components subscribe: which topics they want, and handing messages out to them.

A topic is a prefix of a message's first frame. Topics are found by their lengths, of which there are few, so that a
message costs the same for a thousand topics as for one. A subscriber that reads too slowly loses messages, as always
with ZeroMQ; nobody waits for it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from penstock.doors.doorkeeper import Doorkeeper
from penstock.doors.monique.peers import ZmtpPeer
from penstock.doors.subscribing import SubscriptionMemory
from penstock.node.node import Node
from penstock.wire.monique.zmtp import (
    Event,
    Limits,
    SocketType,
    TopicAdded,
    TopicRemoved,
    ZmtpConnection,
    encode_message,
)

TOPIC_BYTES_MAX: Final = 256
"""A topic of a type and a spec has some 30 bytes. This bounds the look-ups for a message."""
TOPICS_PER_PEER_MAX: Final = 10_000
UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""What waits for one subscriber, besides the limit of messages."""
_LIMITS: Final = Limits(message_bytes_max=TOPIC_BYTES_MAX + 1, frames_max=1)
_REFILL_BYTES: Final = 256 * 1024


class Outlet:
    """One port: sends each message to those whose topics match."""

    def __init__(self, unsent_max: int) -> None:
        self.unsent_max = unsent_max
        self._peers: dict[bytes, dict[SubscribingPeer, None]] = {}
        self._lengths: Counter[int] = Counter()

    def make(self, node: Node, keeper: Doorkeeper) -> SubscribingPeer:
        """A new connection of this port."""
        return SubscribingPeer(node, keeper, self)

    def add(self, peer: SubscribingPeer, topic: bytes) -> None:
        """From now on the peer gets what begins with the topic."""
        peers = self._peers.get(topic)
        if peers is None:
            peers = self._peers[topic] = {}
            self._lengths[len(topic)] += 1
        peers[peer] = None

    def remove(self, peer: SubscribingPeer, topic: bytes) -> None:
        """The peer no longer wants this topic."""
        peers = self._peers[topic]
        del peers[peer]
        if not peers:
            del self._peers[topic]
            self._lengths[len(topic)] -= 1
            if not self._lengths[len(topic)]:
                del self._lengths[len(topic)]

    def send(self, tag_frame: bytes, body: bytes) -> None:
        """Send a message, once to each peer that wants it."""
        found = [peers for length in self._lengths if (peers := self._peers.get(tag_frame[:length])) is not None]
        if not found:
            return
        data = encode_message((tag_frame, body))
        for peer in found[0] if len(found) == 1 else dict.fromkeys(peer for peers in found for peer in peers):
            peer.deliver(data)


class SubscribingPeer(ZmtpPeer):
    """A component with a SUB socket."""

    def __init__(self, node: Node, keeper: Doorkeeper, outlet: Outlet) -> None:
        super().__init__(node, keeper, ZmtpConnection(SocketType.PUB, limits=_LIMITS))
        self._outlet = outlet
        self._topics: set[bytes] = set()
        self._memory = SubscriptionMemory(keeper)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def take(self, event: Event) -> None:
        """Note what the component subscribes to."""
        if isinstance(event, TopicAdded) and event.topic not in self._topics:
            self._add(event.topic)
        elif isinstance(event, TopicRemoved) and event.topic in self._topics:
            self._topics.remove(event.topic)
            self._memory.remove(len(event.topic))
            self._outlet.remove(self, event.topic)

    def _add(self, topic: bytes) -> None:
        if len(topic) > TOPIC_BYTES_MAX:
            self.close(f"a topic of {len(topic)} bytes is longer than the limit of {TOPIC_BYTES_MAX}")
        elif len(self._topics) >= TOPICS_PER_PEER_MAX:
            self.close(f"it subscribed to more than {TOPICS_PER_PEER_MAX} topics")
        elif not self._memory.add(len(topic)):
            self.close("all subscribers together have too many topics")
        else:
            self._topics.add(topic)
            self._outlet.add(self, topic)

    def deliver(self, data: bytes) -> None:
        """Send a message now, or when the component has read earlier ones; if too many wait, it loses this one."""
        if self.transport.is_closing():
            return
        if not self._writing_paused and not self._waiting:
            self.write(data)
        elif (
            len(self._waiting) < self._outlet.unsent_max and self._waiting_bytes + len(data) <= UNSENT_BYTES_MAX
        ) or not self._waiting:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self.measure()

    def waiting_bytes(self) -> int:
        """Messages that wait for the component to read."""
        return self._waiting_bytes

    def resume_writing(self) -> None:
        """The component reads again: send what waited."""
        super().resume_writing()
        while self._waiting and not self._writing_paused:
            self._refill(_REFILL_BYTES)
        self.measure()

    def _refill(self, size_bytes: int) -> None:
        taken: list[bytes] = []
        while self._waiting and size_bytes > 0:
            taken.append(self._waiting.popleft())
            size_bytes -= len(taken[-1])
            self._waiting_bytes -= len(taken[-1])
        if taken:
            self.flush()
            self.transmit(b"".join(taken))

    def close(self, reason: str) -> None:
        """End the connection, after what waits for it."""
        if not self.closed and not self.transport.is_closing():
            self._refill(self._waiting_bytes)
        super().close(reason)

    def gone(self) -> None:
        """The component left."""
        for topic in self._topics:
            self._outlet.remove(self, topic)
        self._topics.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._memory.clear()

"""The account of the memory that connections use: bytes by kind of buffer.

Records are counted by the engine. Everything that the doors keep for a while is counted here: requests that are not
complete, commands in flight, replies that the peer has not read. The sum of both is compared with the memory limit.
"""

from __future__ import annotations

from typing import Final

CONNECTIONS: Final = "connections"
"""The objects of each open connection itself."""
RECEIVED: Final = "received"
"""Bytes that came and are not yet a command: incomplete requests, and requests that wait for their turn."""
IN_FLIGHT: Final = "in_flight"
"""Requests on their way, and takes that wait for a message."""
UNSENT: Final = "unsent"
"""Replies and messages that are written and that the peer has not read."""
SUBSCRIPTIONS: Final = "subscriptions"
"""What clients subscribed to: patterns, topics and the names of queues."""


class MemoryAccount:
    """Bytes by kind, and their sum. The owner of a buffer reports each change."""

    __slots__ = ("bytes_by_kind", "total")

    def __init__(self) -> None:
        self.bytes_by_kind: dict[str, int] = {}
        self.total = 0

    def change(self, kind: str, delta_bytes: int) -> None:
        """Add bytes to a kind, or take them away with a negative number."""
        self.bytes_by_kind[kind] = self.bytes_by_kind.get(kind, 0) + delta_bytes
        self.total += delta_bytes

"""The memory of what the clients of a connection subscribe to: counted, and limited for all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.node.account import SUBSCRIPTIONS

if TYPE_CHECKING:
    from penstock.doors.doorkeeper import Doorkeeper

SHARE_OF_BUFFERS: Final = 4
"""All subscriptions together may need one part in this many of what the buffers of connections may need."""
SUBSCRIPTION_BYTES: Final = 450
"""What a subscription costs besides its text, measured with patterns and topics of one subscriber each."""


class SubscriptionMemory:
    """Counts the subscriptions of one connection in the node's account."""

    __slots__ = ("_keeper", "_size_bytes")

    def __init__(self, keeper: Doorkeeper) -> None:
        self._keeper = keeper
        self._size_bytes = 0

    def add(self, text_bytes: int, count: int = 1) -> bool:
        """Count new subscriptions; false, and nothing is counted, if all connections together have too many."""
        size_bytes = text_bytes + count * SUBSCRIPTION_BYTES
        account = self._keeper.account
        total_bytes = account.bytes_by_kind.get(SUBSCRIPTIONS, 0) + size_bytes
        if total_bytes > self._keeper.buffer_bytes_max // SHARE_OF_BUFFERS:
            return False
        self._change(size_bytes)
        return True

    def remove(self, text_bytes: int, count: int = 1) -> None:
        """Subscriptions have ended."""
        self._change(-text_bytes - count * SUBSCRIPTION_BYTES)

    def clear(self) -> None:
        """The connection is gone, and all that it subscribed to."""
        self._change(-self._size_bytes)

    def _change(self, delta_bytes: int) -> None:
        if delta_bytes:
            self._size_bytes += delta_bytes
            self._keeper.account.change(SUBSCRIPTIONS, delta_bytes)

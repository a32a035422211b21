"""The Etzel door as the server opens it: its listener, and the sleepers that all its connections share."""

from __future__ import annotations

from typing import Final

from penstock.doors.door import Door
from penstock.doors.etzel.connection import EtzelConnection
from penstock.doors.etzel.sleepers import Sleepers
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.visitors import Visitors
from penstock.node.node import Node
from penstock.settings import Settings

_PURPOSE: Final = "Etzel clients: ws://{address}/connect"
_ESCAPED_TIMES_MAX: Final = 3
"""How much longer than its UTF-8 a text may be in JSON, but for control characters; base64 is shorter."""
_FRAME_ROOM_BYTES: Final = 64 * 1024


class EtzelDoor(Door):
    """Etzel clients, on one listener."""

    def __init__(self, settings: Settings) -> None:
        self._payload_bytes_max = settings.limits.payload_bytes
        self._message_bytes_max = _ESCAPED_TIMES_MAX * self._payload_bytes_max + _FRAME_ROOM_BYTES
        self._visitors = Visitors("etzel.origins", settings.etzel.origins, settings.etzel.host)
        super().__init__([Listener(place, self._make, _PURPOSE) for place in settings.etzel.places()])

    def attach(self, node: Node, keeper: Doorkeeper) -> None:
        """The node is there: from now on its sleepers can be woken."""
        super().attach(node, keeper)
        self.sleepers = Sleepers(node.engine)
        node.on_woken.append(self.sleepers.on_woken)

    def _make(self) -> EtzelConnection:
        return EtzelConnection(
            self.node,
            self.keeper,
            self.sleepers,
            visitors=self._visitors,
            payload_bytes_max=self._payload_bytes_max,
            message_bytes_max=self._message_bytes_max,
        )

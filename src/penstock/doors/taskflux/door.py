"""The TaskFlux door as the server opens it: its listeners, and what its clients are told of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.doors.door import Door
from penstock.doors.listening import Listener
from penstock.doors.taskflux.connection import TaskFluxConnection
from penstock.settings import ListenerSettings, Settings
from penstock.wire.native.frames import frame_bytes_for
from penstock.wire.taskflux import Limits

_PURPOSE: Final = "TaskFlux clients and Penstock's own protocol"


class TaskFluxDoor(Door):
    """TaskFlux clients of every dialect, and native clients, on one or more listeners."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        own = settings.taskflux
        makers = [self._maker(listener) for _, listener in own.open_listeners()]
        super().__init__([Listener(place, make, _PURPOSE) for place, make in zip(own.places(), makers, strict=True)])

    def _maker(self, listener: ListenerSettings) -> Callable[[], TaskFluxConnection]:
        payload_bytes = self._settings.limits.payload_bytes

        def make() -> TaskFluxConnection:
            return TaskFluxConnection(
                self.node,
                self.keeper,
                listener,
                limits=Limits(payload_bytes_max=payload_bytes),
                addresses=self._addresses,
                frame_bytes_max=frame_bytes_for(payload_bytes),
            )

        return make

    def _addresses(self) -> tuple[list[str], int, int]:
        """What Cluster Metadata tells: the nodes' client addresses, the leader, this node."""
        first = self.listeners[0]
        own = self._settings.taskflux.advertise or f"{first.host}:{first.port}"
        return [own], self.node.consensus.leader, self.node.node_id

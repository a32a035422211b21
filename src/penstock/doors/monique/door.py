"""The MoniQue door as the server opens it: gateway, scheduler and controller around one log."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.doors.door import Door
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.monique.config import LOOK_EVERY_S, ConfigWatch, beat
from penstock.doors.monique.controller import Controller
from penstock.doors.monique.delivery import Subscriptions
from penstock.doors.monique.gateway import GatewayConnection
from penstock.doors.monique.publishing import PACKED, TECH, Rules
from penstock.doors.monique.scheduler import Scheduler
from penstock.doors.visitors import Visitors
from penstock.engine.commands import Broadcast
from penstock.node.node import Node
from penstock.settings import Settings

log = logging.getLogger(__name__)

_ROOM_BYTES: Final = 64 * 1024
"""What a message of the gateway may have around its body."""
_GATEWAY_PURPOSE: Final = "MoniQue's gateway: ws://{address}, a page to try it: http://{address}"
_CHANNELS: Final = TECH | PACKED
_ENDS: Final = frozenset(("result", "error"))
"""The types of messages that end the task which they name as their parent."""


class MoniqueDoor(Door):
    """MoniQue's clients and components; whoever published a message, all others get it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.monique
        self._payload_bytes_max = settings.limits.payload_bytes
        self._rules = Rules(self._settings.allowed_specs(), self._payload_bytes_max)
        self._scheduler = Scheduler(self._settings, self._payload_bytes_max)
        self._controller = Controller(self._settings)
        self._watch = _watch(settings)
        self._tasks: list[asyncio.Task[None]] = []
        place = self._settings.places()[0]
        self._visitors = Visitors("monique.origins", self._settings.origins, place.host)
        gateway = Listener(place, self._make_client, _GATEWAY_PURPOSE)
        super().__init__([gateway, *self._scheduler.listeners, *self._controller.listeners])

    def attach(self, node: Node, keeper: Doorkeeper) -> None:
        """Get ready for clients."""
        super().attach(node, keeper)
        self._subscriptions = Subscriptions(node)
        self._scheduler.start(node, keeper, self._rules)
        self._controller.attach(node, keeper)
        node.on_broadcast.append(self._on_broadcast)
        config = ConfigWatch(self._settings.config).look() if self._settings.config else None
        beats = [beat(node, self._rules, heartbeat) for heartbeat in (config.heartbeats if config is not None else ())]
        self._tasks = [asyncio.create_task(each) for each in (*beats, self._keep_up())]

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            config = await loop.run_in_executor(None, self._watch.look) if self._watch is not None else None
            await self._controller.keep_up(config.connections if config is not None else None)

    async def stop(self) -> None:
        """Let components and workers go."""
        for task in self._tasks:
            task.cancel()
        self._controller.close()
        await self._scheduler.stop()

    def _make_client(self) -> GatewayConnection:
        return GatewayConnection(
            self.node,
            self.keeper,
            self._settings,
            rules=self._rules,
            subscriptions=self._subscriptions,
            visitors=self._visitors,
            message_bytes_max=self._payload_bytes_max + _ROOM_BYTES,
        )

    def _on_broadcast(self, message: Broadcast) -> None:
        """A message is in the log: hand it out, unless its time is over."""
        if message.channel > _CHANNELS:
            return  # not one of MoniQue's
        if message.type in _ENDS and not message.channel & TECH:
            fields = message.tag.split(b":")
            if len(fields) == 5 and fields[3]:
                self._controller.finished(fields[3].decode("utf-8", "replace"))
        if message.expires_at_us and message.expires_at_us <= self.node.clock.wall_us():
            return
        self._scheduler.deliver(message)
        if not message.channel & TECH:
            self._subscriptions.deliver(message)


def _watch(settings: Settings) -> ConfigWatch | None:
    """Whoever watches the file, unless there is none, or the connections were set in another way."""
    path = settings.monique.config
    source = settings.source_of("monique.connections")
    follows = path and (source.kind == "default" or source.name.startswith(f"{path}, key "))
    return ConfigWatch(path) if follows else None

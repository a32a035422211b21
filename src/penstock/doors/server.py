"""A whole node with its doors open: what ``penstock serve`` runs, and tests of users' programs too."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from penstock.doors.door import Door
from penstock.doors.etzel import EtzelDoor
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.monique import MoniqueDoor
from penstock.doors.taskflux import TaskFluxDoor
from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.node.clock import LogClock
from penstock.node.node import Node
from penstock.node.opening import COLLECT_EVERY_S, collect_if_few, open_node, recover, settle_interpreter
from penstock.node.storing import LogStore
from penstock.settings import Settings, check_exposure
from penstock.storage.disk import Disk
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata import CLUSTER_ID_BYTES
from penstock.storage.store import Store, StoreSettings

log = logging.getLogger(__name__)

_SPACE_CHECK_S = 2.0
# By the name of its table in the settings. The first listener of the first door is what `penstock serve` shows first.
_DOORS: dict[str, Callable[[Settings], Door]] = {"taskflux": TaskFluxDoor, "etzel": EtzelDoor, "monique": MoniqueDoor}


class Server:
    """A node and its doors, from settings. ``start``, then ``stop``; ``failed`` tells that the node had to give up."""

    def __init__(
        self, settings: Settings, *, in_memory: bool = False, disk: Disk | None = None, clock: LogClock | None = None
    ) -> None:
        check_exposure(settings)
        self.settings = settings
        self._in_memory = in_memory
        self._disk = disk
        self._clock = clock or LogClock()
        self.doors = [make(settings) for name, make in _DOORS.items() if getattr(settings, name).enabled]
        self.listeners: list[Listener] = [listener for door in self.doors for listener in door.listeners]
        self.notes: list[str] = []
        """What the start had to mend, in sentences for the operator."""
        self._node: Node | None = None
        self._store: LogStore | None = None
        self._keeper: Doorkeeper | None = None
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def node(self) -> Node:
        """The node, once started."""
        assert self._node is not None, "the server has not been started"
        return self._node

    async def start(self) -> None:
        """Recover, become leader, open the doors. Raises ``StorageError``, ``DoorError``; leaves nothing open then."""
        engine, term = Engine(), 0
        try:
            for listener in self.listeners:
                listener.bind()  # so that a port that is taken is told before a long recovery
            if self._in_memory:
                self._store = MemoryStore()
            else:
                self._store, engine, term = self._open_store()
            self._node = open_node(engine, self._store, term, self.settings, self._clock)
            self._keeper = Doorkeeper(self._node, self.settings.limits.connections, self.settings.limits.inflight_bytes)
            for door in self.doors:
                door.attach(self._node, self._keeper)
            for listener in self.listeners:
                await listener.open()
        except BaseException:
            await self.stop()
            raise
        if not self._in_memory:
            settle_interpreter()
            self._upkeep = asyncio.create_task(self._keep_up())

    def _open_store(self) -> tuple[Store, Engine, int]:
        storage = self.settings.storage
        store, recovered = Store.open(
            Path(self.settings.data_dir),
            row_bytes=ROW_BYTES,
            new_cluster_id=secrets.token_bytes(CLUSTER_ID_BYTES),
            node_id=self.settings.node_id,
            settings=StoreSettings(
                segment_bytes=storage.segment_bytes,
                reserve_bytes=storage.reserve_bytes,
                retention_hours=storage.retention_hours,
                retention_bytes=storage.retention_bytes,
            ),
            disk=self._disk,
        )
        self.notes = [*map(str, recovered.torn), *recovered.notes]
        try:
            engine = recover(store, recovered.snapshot, recovered.entries, recovered.journal_last_index)
        except BaseException:
            store.close()
            raise
        return store, engine, recovered.metadata.term

    async def _keep_up(self) -> None:
        """While the disk is full, look every few seconds whether it still is; now and then collect garbage."""
        loop = asyncio.get_running_loop()
        collected_s = loop.time()
        while True:
            await asyncio.sleep(_SPACE_CHECK_S)
            if self.node.store.disk_full and self.node.store.try_recover_space():
                log.warning("the disk has space again: puts are taken again")
            if loop.time() - collected_s >= COLLECT_EVERY_S:
                collected_s = loop.time()
                collect_if_few(self.node.engine)

    async def stop(self) -> None:
        """Close the doors, finish what is in flight, close the files."""
        for listener in self.listeners:
            listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self._keeper is not None:
            for door in self.doors:
                await door.stop()
        if self._node is not None:
            await self._node.stop()
        if self._keeper is not None:
            self._keeper.close_all("the node stops")
        if self._store is not None:
            if self._node is None or not self._node.failed.done():
                self._store.sync()
            self._store.close()

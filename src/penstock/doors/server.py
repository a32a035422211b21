"""A whole node with its doors open: what ``penstock serve`` runs, and tests of users' programs too."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.doors.descriptors import connections_allowed
from penstock.doors.door import Door
from penstock.doors.errors import AddressTaken, CannotListen, CannotListenOn
from penstock.doors.etzel import EtzelDoor
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.monique import MoniqueDoor
from penstock.doors.taskflux import TaskFluxDoor
from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.node.clock import LogClock
from penstock.node.errors import DiskStuck
from penstock.node.node import Node
from penstock.node.opening import COLLECT_EVERY_S, collect_if_few, open_node, recover, settle_interpreter
from penstock.node.storing import LogStore
from penstock.settings import Settings, check_exposure
from penstock.storage.disk import Disk
from penstock.storage.errors import StorageError
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata import CLUSTER_ID_BYTES
from penstock.storage.store import Store, StoreSettings

log = logging.getLogger(__name__)

_SPACE_CHECK_S = 2.0
_DOOR_STOP_S_MAX = 10.0
"""A stop waits this long for a door that has to finish something."""
_NATIVE_DOOR = "taskflux"
"""What the command line and the pipeline come through: without it nobody could operate the node."""
# By the name of its table in the settings. The first listener of the first door is what `penstock serve` shows first.
_DOORS: dict[str, Callable[[Settings], Door]] = {"taskflux": TaskFluxDoor, "etzel": EtzelDoor, "monique": MoniqueDoor}


class Server:
    """A node and its doors, from settings. ``start``, then ``stop``; ``node.failed`` tells that it had to give up."""

    def __init__(
        self,
        settings: Settings,
        *,
        in_memory: bool = False,
        disk: Disk | None = None,
        clock: LogClock | None = None,
        may_close_doors: bool = False,
        skip_entries: Sequence[int] = (),
    ) -> None:
        check_exposure(settings)
        self.settings = settings
        self._in_memory = in_memory
        self._disk = disk
        self._clock = clock or LogClock()
        self._skip_entries = skip_entries
        """Entries of the log that are not to be applied, from this start on."""
        self._may_close_doors = may_close_doors
        """Whether a door stays closed if its port is taken and nobody chose that port; else the start is refused."""
        self.closed_doors: list[AddressTaken] = []
        """Why doors stayed closed."""
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
            self._bind()
            if self._in_memory:
                self._store = MemoryStore()
            else:
                self._store, engine, term = self._open_store()
            self._node = open_node(engine, self._store, term, self.settings, self._clock)
            limits = self.settings.limits
            self._keeper = Doorkeeper(
                self._node,
                limits.connections if self._in_memory else connections_allowed(limits.connections),
                limits.inflight_bytes,
                per_address_max=limits.connections_per_address,
                per_door_max=limits.connections_per_door,
                first_request_s=limits.first_request_ms / 1000,
                buffer_bytes_max=limits.buffer_bytes,
            )
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

    def _bind(self) -> None:
        """Claim every address before a long recovery. Raises ``DoorError`` with all that cannot be had."""
        problems: list[CannotListen] = []
        for listener in self.listeners:
            try:
                listener.bind()
            except CannotListen as problem:
                problems.append(problem)
        closable = {problem.door for problem in problems} if self._may_close_doors else set()
        closable -= {_NATIVE_DOOR, *(problem.door for problem in problems if not self._is_closable(problem))}
        refused = [problem for problem in problems if problem.door not in closable]
        if refused:
            raise refused[0] if len(problems) == 1 else CannotListenOn(problems)
        self.closed_doors = [problem for problem in problems if isinstance(problem, AddressTaken)]
        for closed in self.closed_doors:
            log.warning("%s. The door stays closed", closed)
        for listener in self.listeners:
            if listener.door in closable:
                listener.close()
        self.listeners = [listener for listener in self.listeners if listener.door not in closable]
        self.doors = [door for door in self.doors if not any(each.door in closable for each in door.listeners)]

    def _is_closable(self, problem: CannotListen) -> bool:
        """Whether a door may stay closed for this: another program has the port, and the port is only a default."""
        return isinstance(problem, AddressTaken) and self.settings.source_of(problem.key).kind == "default"

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
                is_durable=storage.mode == "durable",
            ),
            disk=self._disk,
        )
        self.notes = [*map(str, recovered.torn), *recovered.notes]
        if recovered.lost is not None:
            log.error("entries of the log are lost: %s %s", recovered.lost.log, recovered.lost)
        try:
            for index in self._skip_entries:
                store.skip_entry(index)
            engine = recover(store, recovered.snapshot, recovered.entries, recovered.journal_last_index, store.skipped)
        except BaseException:
            store.close()
            raise
        return store, engine, recovered.metadata.term

    async def _keep_up(self) -> None:
        """Look every few seconds how much space the disk has; now and then collect garbage."""
        loop = asyncio.get_running_loop()
        collected_s = loop.time()
        try:
            while True:
                await asyncio.sleep(_SPACE_CHECK_S)
                self.node.room.look()
                if loop.time() - collected_s >= COLLECT_EVERY_S:
                    collected_s = loop.time()
                    collect_if_few(self.node.engine)
        except Exception as problem:
            self.node.fail(problem)

    async def stop(self) -> None:
        """Close the doors, finish what is in flight, close the files; within a bounded time.

        An error of the disk on the way is not raised: it makes ``node.failed`` done, as it does while serving.
        """
        for listener in self.listeners:
            listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self._keeper is not None:
            for door in self.doors:
                await _stop_door(door)
        if self._node is not None:
            await self._node.stop()
        if self._keeper is not None:
            self._keeper.close_all("the node stops")
        if self._store is not None:
            self._close_store(self._store)

    def _close_store(self, store: LogStore) -> None:
        node = self._node
        if node is not None and node.failed.done() and isinstance(node.failed.result().cause, DiskStuck):
            return  # a thread is still in the store; the system closes the files when the process ends
        try:
            if node is None or not node.failed.done():
                store.sync()
            store.close()
        except (StorageError, OSError) as problem:
            if node is not None:
                node.fail(problem)  # does nothing if the node has failed before
            log.error("the files could not be closed in good order: %s", problem)


async def _stop_door(door: Door) -> None:
    """Stop a door; if that fails, the rest is stopped all the same."""
    try:
        await asyncio.wait_for(door.stop(), _DOOR_STOP_S_MAX)
    except TimeoutError:
        log.error("%s did not stop within %g s", type(door).__name__, _DOOR_STOP_S_MAX)
    except Exception:
        log.exception("%s did not stop in good order", type(door).__name__)

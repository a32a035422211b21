"""How the doors' tests run: a node on a loop of its own thread, and real sockets to talk to it.

The node has the real store, on a disk that does not sync.

Time is the loop's own and is advanced by hand (`DoorServer.advance`), so no test waits for a timeout to pass.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
import zmq

from penstock.doors.connection import Connection
from penstock.doors.listening import Doorkeeper, Listener
from penstock.doors.taskflux import TaskFluxConnection
from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.node.node import Node
from penstock.node.opening import open_node
from penstock.settings import Settings, TaskfluxSettings
from penstock.settings.schema import ListenerSettings
from penstock.storage.store import Store, StoreSettings
from penstock.wire.taskflux import Limits
from tests.node.support import QuickDisk

T = TypeVar("T")
WITHIN_S = 20.0
"""How long a test waits for what must come; only a failing one waits so long."""


_IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where files cost least; none of these tests is about the disk."""


class AdvancedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Held:
    """Commits that are held back; call it to let them happen."""

    def __init__(self, server: DoorServer, release: Callable[[], None]) -> None:
        self._server = server
        self.release_here = release
        """For a caller that is on the loop's thread already."""

    def __call__(self) -> None:
        self._server.call(self.release_here)


def open_store(directory: Path) -> Store:
    """A new store."""
    settings = StoreSettings(segment_bytes=256 * 1024, reserve_bytes=0)
    options = {"row_bytes": ROW_BYTES, "new_cluster_id": bytes(16), "node_id": 0, "disk": QuickDisk()}
    return Store.open(directory / "data", settings=settings, **options)[0]


class DoorServer:
    """A node with TaskFlux listeners on free ports, running in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-doors-", dir=_IN_MEMORY)
        self.store = open_store(Path(self._directory.name))
        self.node: Node
        self.keeper: Doorkeeper
        self.connections: list[TaskFluxConnection] = []
        self.addresses: tuple[list[str], int, int] = (["127.0.0.1:2602"], 0, 0)
        self._listeners: list[Listener] = []
        self._unseen: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self._unseen.append(context))
        self._thread = threading.Thread(target=self._run, name="door-server", daemon=True)

    def start(self, connections_max: int = 1000) -> None:
        """Start the thread and the node."""
        self._thread.start()

        async def begin() -> None:
            self.node = open_node(Engine(), self.store, 0, Settings())
            self.keeper = Doorkeeper(self.node, connections_max)

        self.run(begin())

    def listen(self, *, limits: Limits | None = None, **settings: Any) -> int:
        """Open a listener with these settings of the schema; returns its port."""
        listener_settings = ListenerSettings(port=0, **settings)

        def make() -> TaskFluxConnection:
            connection = TaskFluxConnection(
                self.node,
                self.keeper,
                listener_settings,
                limits=limits if limits is not None else Limits(),
                addresses=lambda: self.addresses,
                frame_bytes_max=32 * 1024 * 1024,
            )
            self.connections.append(connection)
            return connection

        listener = Listener(TaskfluxSettings(port=0).places()[0], make)
        self.run(listener.open())
        self._listeners.append(listener)
        return listener.port

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the loop to its end."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WITHIN_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop's thread, between two turns of it."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as problem:
                done.set_exception(problem)

        self.loop.call_soon_threadsafe(call)
        return done.result(WITHIN_S)

    def until(self, holds: Callable[[], object]) -> None:
        """Turn the loop until something holds; fails if it never does."""
        give_up_s = time.monotonic() + WITHIN_S
        while not self.call(holds):
            assert time.monotonic() < give_up_s, "it never came to hold"

    def advance(self, seconds: float) -> None:
        """Put the loop's clock forward; what is due by then happens."""
        assert isinstance(self.loop, AdvancedLoop)
        loop = self.loop

        def advance() -> None:
            loop.ahead_s += seconds

        self.call(advance)
        self.call(lambda: None)

    def turn_leadership_over(self, leader: int) -> None:
        """From now on another node leads (-1: none is known)."""

        def lose() -> None:
            self.node.consensus._leader = leader  # type: ignore[attr-defined]
            self.node.step()

        self.call(lose)

    def hold_commits(self) -> Held:
        """Let nothing be committed until that is released."""
        held: list[Any] = []
        consensus = self.node.consensus
        persisted = consensus.persisted

        def release() -> None:
            consensus.persisted = persisted  # type: ignore[method-assign]
            for ready in held:
                persisted(ready)
            self.node.step()

        self.call(lambda: setattr(consensus, "persisted", held.append))
        return Held(self, release)

    def queue(self, name: str = "") -> Any:
        """A queue of the engine."""
        return self.node.engine.state.by_name[name]

    def stop(self) -> None:
        """End all; what went wrong unseen is told now."""

        async def end() -> None:
            for listener in self._listeners:
                listener.close()
            await self.node.stop()
            self.keeper.close_all("the test is over")

        try:
            self.run(end())
            self.until(lambda: all(connection.closed for connection in self.connections))
            self.until(lambda: not self.leftovers())
        except AssertionError:
            assert self.call(self.leftovers) == []
            raise
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(WITHIN_S)
            self.loop.close()
            self.store.close()
            self._directory.cleanup()
        gc.collect()
        assert not self._unseen

    def leftovers(self) -> list[str]:
        """What is still there though all clients are gone: waits, bytes in the account, tasks, timers, places."""
        node, keeper = self.node, self.keeper
        found = {
            "takes that wait": node.waiters.count,
            "bytes of buffers": {kind: size for kind, size in node.account.bytes_by_kind.items() if size},
            "subscriptions to ended leases": node.on_lease_ended,
            "connections": keeper.connections,
            "silent connections": keeper._silent,
            "connections with large buffers": keeper._hoards,
            "connections that are being closed": keeper._leaving,
            "refused connections": keeper._turned_away,
            "connections that wait for their turn": list(keeper.turns._waiting),
            "tasks": [task for task in asyncio.all_tasks(self.loop) if not task.done()],
            "timers": self._timers(),
        }
        return [f"{what}: {value!r}" for what, value in found.items() if value]

    def _timers(self) -> list[Any]:
        """Timers that belong to connections; uvloop does not tell which timers it has."""
        scheduled: list[Any] = getattr(self.loop, "_scheduled", [])
        owners = [getattr(timer._callback, "__self__", None) for timer in scheduled if not timer.cancelled()]
        return [owner for owner in owners if isinstance(owner, Connection | Doorkeeper)]

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@contextlib.contextmanager
def running(loop: asyncio.AbstractEventLoop, **options: Any) -> Iterator[DoorServer]:
    """A server for the length of a `with`."""
    server = DoorServer(loop)
    server.start(**options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session", autouse=True)
def _libraries_have_their_own() -> None:
    """uvloop makes a pipe with its first loop, ZeroMQ some descriptors with its first socket, for the whole process."""
    uvloop.new_event_loop().close()
    zmq.Context.instance().socket(zmq.PULL).close(0)


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    """Every test of a door closes what it opened, and so does the door."""
    before = _descriptors()
    yield
    gc.collect()
    give_up_s = time.monotonic() + WITHIN_S
    while len(_descriptors()) > len(before):  # threads of ZeroMQ close theirs a little later
        assert time.monotonic() < give_up_s, sorted(_descriptors().items() - before.items())
        time.sleep(0.01)


def _descriptors() -> dict[str, str]:
    """The open descriptors of this process, with what each of them is."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


@pytest.fixture(params=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[DoorServer]:
    """A node without listeners, on each of the two event loops."""
    loop = uvloop.new_event_loop() if request.param == "uvloop" else AdvancedLoop()
    with running(loop) as door_server:
        yield door_server


@pytest.fixture
def clocked_server() -> Iterator[DoorServer]:
    """A node without listeners whose clock the test puts forward."""
    with running(AdvancedLoop()) as door_server:
        yield door_server

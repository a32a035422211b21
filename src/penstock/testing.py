"""A server for the tests of programs that use Penstock: the real engine and the real protocol, without a disk.

    with TestServer() as server:
        with penstock.connect_sync(server.url) as client: ...

    async with TestServer() as server:
        async with penstock.connect(server.url) as client: ...

It runs on a thread of its own in both forms, so that a test that blocks its loop does not stop the server.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Final

from penstock.doors.server import Server
from penstock.settings import EtzelSettings, MoniqueSettings, Settings, TaskfluxSettings

OTHER_DOORS_CLOSED: Final[dict[str, Any]] = {
    "etzel": EtzelSettings(enabled=False),
    "monique": MoniqueSettings(enabled=False),
}
"""For ``Settings``: no door but TaskFlux's, which native clients use too."""
_START_TIMEOUT_S = 30.0


class TestServer:
    """A node on a free port of the loopback address: in memory, unless it is to use its data directory."""

    __test__ = False  # its name begins as pytest's classes do

    def __init__(self, settings: Settings | None = None, *, in_memory: bool = True) -> None:
        self._in_memory = in_memory
        self._settings = settings or Settings(taskflux=TaskfluxSettings(port=0), **OTHER_DOORS_CLOSED)
        self._thread = threading.Thread(target=self._run, name="penstock-test-server", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._problem: BaseException | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self.server: Server
        """What runs, in its own thread."""

    @property
    def url(self) -> str:
        """What to connect to."""
        return f"penstock://{self.host}:{self.port}"

    def start(self) -> None:
        """Start serving; returns when clients can connect."""
        self._thread.start()
        self._started.wait(_START_TIMEOUT_S)
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """Stop serving; everything it held is gone."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.server = server = Server(self._settings, in_memory=self._in_memory)
        try:
            await server.start()
            self.port = server.listeners[0].port
        except BaseException as problem:
            self._problem = problem
            return
        finally:
            self._started.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> TestServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> TestServer:
        await asyncio.get_running_loop().run_in_executor(None, self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

"""A proxy that breaks connections where it hurts: after the node did the work, before the client hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class CuttingProxy:
    """Passes bytes on between clients and a node, until it is told to swallow what the node says, and to cut."""

    def __init__(self, port: int) -> None:
        self._node_port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallowing: Callable[[], bool] | None = None
        self._swallowed = asyncio.Event()
        self.cuts = 0
        self.port = 0

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"penstock://127.0.0.1:{self.port}"

    async def cut_after_the_next_answer(self, when: Callable[[], bool] = lambda: True) -> None:
        """Let the node answer once more, keep the answer, and break all connections. Answers before ``when`` pass."""
        self._swallowed.clear()
        self._swallowing = when
        await self._swallowed.wait()
        self._swallowing = None
        self.cuts += 1
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._node_port)
        both = {writer, node_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._pass(reader, node_writer), self._pass_back(node_reader, writer))
        except OSError:
            pass
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        raise ConnectionResetError

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._swallowing is not None and self._swallowing():
                self._swallowed.set()
            else:
                writer.write(data)
        raise ConnectionResetError

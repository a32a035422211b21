"""Opening and closing the doors' listeners."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable

from penstock.doors.connection import Connection
from penstock.doors.errors import AddressTaken, CannotListen
from penstock.node.node import Node

log = logging.getLogger(__name__)

_BACKLOG = 1024


class Listener:
    """One address on which a door is open."""

    def __init__(self, door: str, key: str, host: str, port: int, make: Callable[[], Connection]) -> None:
        self.door = door
        self.key = key
        self.host = host
        self.port = port
        self._make = make
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; ``port`` is the one in use from then on. Raises ``CannotListen``."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._make, self.host, self.port, backlog=_BACKLOG)
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                raise AddressTaken(self.door, self.key, self.host, self.port) from problem
            raise CannotListen(self.door, self.key, self.host, self.port, problem.strerror or str(problem)) from problem
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more; connections stay."""
        if self._server is not None:
            self._server.close()


class Doorkeeper:
    """Counts the connections over all doors and turns away what is too many."""

    def __init__(self, node: Node, connections_max: int, in_flight_bytes_max: int = 64 * 1024 * 1024) -> None:
        self._node = node
        self.in_flight_bytes_max = in_flight_bytes_max
        """Bytes of unanswered requests of one connection; beyond that it is not read from."""
        self._connections_max = connections_max
        self._open: set[Connection] = set()

    def enter(self, connection: Connection) -> bool:
        """Let a connection in, or tell that there is no room."""
        if len(self._open) >= self._connections_max:
            log.warning("%s: turned away, %d connections are open", connection.peer, len(self._open))
            return False
        self._open.add(connection)
        self._node.connections_open = len(self._open)
        return True

    def leave(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        self._node.connections_open = len(self._open)

    def close_all(self, reason: str) -> None:
        """End all connections."""
        for connection in list(self._open):
            connection.close(reason)

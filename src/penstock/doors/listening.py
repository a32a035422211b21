"""Opening and closing the doors' listeners."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from penstock.doors.connection import Connection
from penstock.doors.errors import AddressTaken, CannotListen
from penstock.node.node import Node
from penstock.settings import Place

log = logging.getLogger(__name__)

_BACKLOG = 1024


class Listener:
    """One address on which a door is open."""

    def __init__(self, place: Place, make: Callable[[], Connection], purpose: str = "") -> None:
        self.door = place.door
        self.purpose = purpose
        """Who comes here, for people; ``{address}`` in it stands for the address."""
        self.key = place.port_key
        self.host = place.host
        self.port = place.port
        self._make = make
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []

    def bind(self) -> None:
        """Claim the address; ``port`` is the one in use from then on. Raises ``CannotListen``."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                # With port 0 the system chooses for the first address, and the others follow.
                chosen = (address[0], self.port, *address[2:])
                self._sockets.append(claimed := socket.socket(family, socket.SOCK_STREAM))
                claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    claimed.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                claimed.bind(chosen)
                # Only a socket that listens holds its port against others; clients wait until the door opens.
                claimed.listen(_BACKLOG)
                claimed.setblocking(False)
                self.port = claimed.getsockname()[1]
        except OSError as problem:
            self.close()
            if problem.errno == errno.EADDRINUSE:
                raise AddressTaken(self.door, self.key, self.host, self.port) from problem
            raise CannotListen(self.door, self.key, self.host, self.port, problem.strerror or str(problem)) from problem

    async def open(self) -> None:
        """Let clients in."""
        if not self._sockets:
            self.bind()
        loop = asyncio.get_running_loop()
        for claimed in self._sockets:
            self._servers.append(await loop.create_server(self._make, sock=claimed, backlog=_BACKLOG))

    def close(self) -> None:
        """Listen no more; connections stay."""
        for server in self._servers:
            server.close()
        for claimed in self._sockets:
            claimed.close()
        self._servers, self._sockets = [], []


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

    @property
    def connections(self) -> list[Connection]:
        """Those that are open now."""
        return list(self._open)

    def close_all(self, reason: str) -> None:
        """End all connections."""
        for connection in self.connections:
            connection.close(reason)

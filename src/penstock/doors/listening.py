"""Opening and closing the doors' listeners."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from penstock.doors.connection import Connection
from penstock.doors.doorkeeper import Doorkeeper
from penstock.doors.errors import AddressTaken, CannotListen
from penstock.settings import Place

__all__ = ["Doorkeeper", "Listener"]

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

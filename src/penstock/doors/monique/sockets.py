"""ZeroMQ sockets on the event loop.

libzmq moves bytes on a thread of its own; what is done here never waits. A socket of libzmq has a descriptor that
becomes readable when there may be something to do, and stays silent until all that there was has been done: so each
look takes messages until there are none, or a turn's worth, and comes back for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.doors.connection import Connection
from penstock.doors.errors import CannotListen
from penstock.doors.listening import Listener
from penstock.settings import Place

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)

_MESSAGES_PER_TURN: Final = 256
_BYTES_PER_TURN: Final = 4 * 1024 * 1024
_COMPLAIN_EVERY_S: Final = 1.0


def _no_connection() -> Connection:
    raise AssertionError("libzmq accepts the connections of its sockets itself")


class ZeroMqListener(Listener):
    """An address whose connections are libzmq's. It is claimed as any other, and handed to the socket when it opens."""

    def __init__(self, place: Place, purpose: str) -> None:
        super().__init__(place, _no_connection, purpose)
        self.socket: zmq.Socket[bytes] | None = None
        """To be set before the listener is opened."""
        self._endpoints: list[str] = []

    async def open(self) -> None:
        """Let peers in."""
        import zmq

        assert self.socket is not None
        if not self._sockets:
            self.bind()
        for claimed in self._sockets:
            address, port = claimed.getsockname()[:2]
            ipv6 = ":" in address
            endpoint = f"tcp://[{address}]:{port}" if ipv6 else f"tcp://{address}:{port}"
            try:
                self.socket.setsockopt(zmq.IPV6, int(ipv6))
                self.socket.setsockopt(zmq.USE_FD, claimed.fileno())
                self.socket.bind(endpoint)
            except zmq.ZMQError as problem:
                raise CannotListen(self.door, self.key, self.host, self.port, str(problem)) from problem
            claimed.detach()  # libzmq closes it
            self._endpoints.append(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._sockets = []

    def close(self) -> None:
        """Hear nobody any more.

        libzmq parts from the peers, too. What they have sent can still be received; what they have not, they keep for
        the next time. Subscribers are parted from only when the socket is closed: there may be something for them.
        """
        super().close()
        if self._endpoints and self.socket is not None and not self.socket.closed:
            import zmq

            if self.socket.getsockopt(zmq.TYPE) != zmq.PUB:
                for endpoint in self._endpoints:
                    self.socket.unbind(endpoint)
        self._endpoints = []


class Complaints:
    """Tells of bad messages, at most once in a second: whoever sends one may send a million."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._untold = 0

    def tell(self, what: str, problem: object) -> None:
        """Write a warning, or count it for the next one."""
        now_s = time.monotonic()
        if now_s - self._last_s < _COMPLAIN_EVERY_S:
            self._untold += 1
            return
        others = f" (and {self._untold} others before)" if self._untold else ""
        self._last_s, self._untold = now_s, 0
        log.warning("%s: %s%s", what, problem, others)


class Inlet:
    """A PULL socket: hands each message to ``take`` while that is ``ready``; then peers are left to wait."""

    def __init__(
        self, socket: zmq.Socket[bytes], take: Callable[[list[bytes]], None], ready: Callable[[], bool]
    ) -> None:
        import zmq

        self._socket = socket
        self._take = take
        self._ready = ready
        self._again: type[Exception] = zmq.Again
        self._no_wait = int(zmq.NOBLOCK)
        self._rcvmore = int(zmq.RCVMORE)
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop = asyncio.get_running_loop()
        self._listening = False
        self._next: asyncio.Handle | None = None

    def resume(self) -> None:
        """Look for messages, now and whenever some come."""
        if not self._socket.closed and self._next is None:
            if not self._listening:
                self._listening = True
                self._loop.add_reader(self._descriptor, self._look)
            self._next = self._loop.call_soon(self._look)

    def _pause(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._descriptor)

    def drain(self) -> bool:
        """Wait for no more messages; take what is there already, and tell whether that was all."""
        if self._socket.closed:
            return True
        self._pause()
        if self._next is not None:
            self._next.cancel()
        while self._ready():
            if self._take_some():
                return True
        return False

    def _look(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._socket.closed:
            return
        exhausted = self._take_some()
        if not self._ready():
            self._pause()
        elif not exhausted:
            self._next = self._loop.call_soon(self._look)

    def _take_some(self) -> bool:
        """Take a turn's worth of messages; returns whether there are no more for now."""
        recv, take, ready, more = self._socket.recv, self._take, self._ready, self._rcvmore
        option, no_wait = self._socket.getsockopt, self._no_wait
        size = 0
        try:
            for _ in range(_MESSAGES_PER_TURN):
                if size > _BYTES_PER_TURN or not ready():
                    return False
                frames = [recv(no_wait)]
                while option(more):
                    frames.append(recv(no_wait))
                size += sum(map(len, frames))
                take(frames)
        except self._again:
            return True
        return False


class Outlet:
    """A PUB socket: what is sent goes to those who subscribed to it; one that is too slow for it misses some."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        import zmq

        self._socket = socket
        self._events = int(zmq.EVENTS)
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._no_wait = int(zmq.NOBLOCK)
        self._first = int(zmq.SNDMORE | zmq.NOBLOCK)
        self._loop = asyncio.get_running_loop()
        # Subscriptions are looked at when something is sent; when nothing is, they must not pile up.
        self._loop.add_reader(self._descriptor, self._look)

    def send(self, tag_frame: bytes, body: bytes) -> None:
        """Send a message."""
        if not self._socket.closed:
            self._socket.send(tag_frame, self._first)
            self._socket.send(body, self._no_wait)

    def close(self) -> None:
        """Send no more; what was sent goes on its way for as long as the socket's linger says."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close()

    def _look(self) -> None:
        if not self._socket.closed:
            self._socket.getsockopt(self._events)

"""One connection: its socket, its handshake, what is about to be sent, and whether the other side is still there."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from penstock.client.errors import BadAnswer, HandshakeRefused
from penstock.client.protocol import Session
from penstock.wire.native.errors import NativeError

OUTBOX_BYTES_MAX: Final = 256 * 1024
"""Frames of one turn of the event loop are sent together, unless they grow beyond this."""
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""While the socket has more than this to send, callers wait."""


class Owner(Protocol):
    """Who a connection reports to."""

    def replied(self, connection: Connection, data: bytes) -> None:
        """Bytes came after the handshake."""

    def flow_changed(self, connection: Connection) -> None:
        """The socket takes no more bytes for now, or takes them again."""

    def tick(self, connection: Connection) -> None:
        """An interval went by, and the other side was heard in it: say something, so that it is heard in the next."""

    def ended(self, connection: Connection, reason: str) -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """A connection to a node, from the handshake to its end."""

    def __init__(self, session: Session, owner: Owner, tick_seconds: float) -> None:
        self._session = session
        self._owner = owner
        self._tick_seconds = tick_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._reason = ""
        self.shaken: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is through; ``HandshakeRefused`` where it is refused."""
        self.over: asyncio.Future[str] = self._loop.create_future()
        """Done when the connection has ended; its result tells why."""
        self.closing = False
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open with the handshake."""
        # Not checked by isinstance: uvloop's transports have the methods but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._transport.write(self._session.begin())
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def data_received(self, data: bytes) -> None:
        """Pass on what came, or end the connection where it makes no sense."""
        self._heard = True
        if self.closing:
            return
        try:
            if self.shaken.done():
                self._owner.replied(self, data)
            elif self._session.shake(data):
                self.shaken.set_result(None)
        except HandshakeRefused as error:
            self.shaken.set_exception(error)
            self.abort(error.reason)
        except (NativeError, BadAnswer) as error:
            self.abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._finish(self._reason or (str(exc) if exc else "the node closed the connection"))

    def pause_writing(self) -> None:
        """The socket has enough to send."""
        self.paused = True
        self._owner.flow_changed(self)

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self.paused = False
        self._owner.flow_changed(self)

    def send(self, data: bytes) -> None:
        """Send, together with what else is sent in this turn of the loop."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._outbox_bytes > OUTBOX_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """End the connection after what is to be sent has been sent."""
        self._flush()
        self._reason = self._reason or "the client was closed"
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once; the owner learns of it before this returns."""
        self._finish(self._reason or reason)
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, reason: str) -> None:
        self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.over.done():
            self.over.set_result(reason)
            self._owner.ended(self, reason)

    def _flush(self) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        if outbox and self._transport is not None and not self._transport.is_closing():
            self._transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))

    def _tick(self, last_chance: bool = False) -> None:
        if self._heard:
            self._heard = False
            self._timer = self._loop.call_later(self._tick_seconds, self._tick)
            if self.shaken.done():
                self._owner.tick(self)
        elif not last_chance:
            # Perhaps the program kept the loop busy, and what the node said lies in the socket.
            self._timer = self._loop.call_later(min(1.0, self._tick_seconds / 4), self._tick, True)
        else:
            self.abort(f"the node was silent for {self._tick_seconds:g} s")

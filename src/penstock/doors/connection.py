"""What every connection of every door shares: output, back-pressure, and a tidy end.

Replies back up into the request stream: while the peer does not read, we do not read from it, and after
``STALLED_AFTER_S`` without progress the connection is closed. The same holds while too many of its commands are in
flight. When a connection ends, records that were taken for it and never written come back as if untouched, and what is
bound to it is released once its last command in flight is known.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, cast

from penstock.engine.answers import AckTaken, Answer, Taken
from penstock.engine.entries import Command
from penstock.node.node import Node

if TYPE_CHECKING:
    from penstock.doors.listening import Doorkeeper

log = logging.getLogger(__name__)

STALLED_AFTER_S = 300.0
IN_FLIGHT_MAX = 20_000
"""Commands of one connection that may be on their way; beyond that it is not read from."""
_OUTPUT_HIGH_BYTES = 4 * 1024 * 1024


class Connection(asyncio.Protocol):
    """A connection on a door. Subclasses parse in ``data_received`` and write in ``reply``."""

    def __init__(self, node: Node, keeper: Doorkeeper, door_name: str) -> None:
        self.node = node
        self.keeper = keeper
        self.door_name = door_name
        self.owner = node.new_owner()
        self.peer = "?"
        self.closed = False
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.input_full = False
        """Set by a subclass that has enough to do for now: nothing more is read until it is cleared and regulated."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._writing_paused = False
        self._reading_paused = False
        self._stall_timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport = None  # type: ignore[assignment]

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there."""
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        # With no room to buffer, what is written goes to the system at once and not at the end of the loop's turn.
        transport.set_write_buffer_limits(high=0)
        self.peer = str(transport.get_extra_info("peername"))
        if not self.keeper.enter(self):
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        if self.closed:
            return
        self.closed = True
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._out.clear()
        self.keeper.leave(self)
        self.node.stop_waiting(self)
        self.gone()
        if not self.in_flight:
            self.node.forget(self, self.owner)

    def pause_writing(self) -> None:
        """The peer does not read its replies: stop reading its requests."""
        self._writing_paused = True
        self._stall_timer = self._loop.call_later(STALLED_AFTER_S, self._stalled)
        self._regulate()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writing_paused = False
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._regulate()

    def _stalled(self) -> None:
        log.warning("%s %s: closed, its replies were not read for %d s", self.door_name, self.peer, STALLED_AFTER_S)
        self.transport.abort()

    def busy(self) -> bool:
        """Whether no further request should be looked at for now."""
        return (
            self._writing_paused
            or self.in_flight > IN_FLIGHT_MAX
            or self.in_flight_bytes > self.keeper.in_flight_bytes_max
        )

    def _regulate(self) -> None:
        want_pause = self.input_full or self.busy()
        if want_pause != self._reading_paused and not self.closed:
            self._reading_paused = want_pause
            if want_pause:
                self.transport.pause_reading()
            elif not self.transport.is_closing():
                self.transport.resume_reading()
                self.resumed()

    def hand_over(self, successor: Connection, unread: bytes) -> None:
        """Let another kind of connection go on with this transport, beginning with the bytes not yet understood."""
        self.closed = True
        self.keeper.leave(self)
        self.transport.set_protocol(successor)
        successor.connection_made(self.transport)
        if unread:
            successor.data_received(unread)

    # The node's side.

    def submit(self, command: Command, ref: int) -> None:
        """Give a command to the node."""
        self.in_flight += 1
        self.in_flight_bytes += len(command.body)
        self.node.submit(command, self, ref)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """A command's answer is here."""
        self.in_flight -= 1
        self.in_flight_bytes -= len(command.body)
        if self.closed:
            self.unsent(command, answer)
            if not self.in_flight:
                self.node.forget(self, self.owner)
            return
        self.reply(ref, command, answer)
        if self._reading_paused:
            self._regulate()

    def unsent(self, command: Command, answer: Answer) -> None:
        """An answer came too late for the client: what it took comes back."""
        if isinstance(answer, AckTaken):
            answer = answer.taken
        if isinstance(answer, Taken):
            self.node.return_unsent(command, answer)

    def write(self, data: bytes) -> None:
        """Send bytes with the next flush."""
        if not self._out:
            self.node.dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _OUTPUT_HIGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was written."""
        if self._out and not self.closed:
            out, self._out, self._out_bytes = self._out, [], 0
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not yet left for the peer."""
        return self._out_bytes + self.transport.get_write_buffer_size()

    def close(self, reason: str) -> None:
        """End the connection, after what was written; the reason goes to the log."""
        if not self.closed and not self.transport.is_closing():
            log.info("%s %s: closed: %s", self.door_name, self.peer, reason)
            self.flush()
            self.transport.close()

    # What subclasses say.

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Write the reply to a command."""
        raise NotImplementedError

    def resumed(self) -> None:
        """Requests that were set aside while the connection was busy may be looked at again."""

    def gone(self) -> None:
        """The peer is gone: end what belongs to this kind of connection."""

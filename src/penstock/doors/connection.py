"""What every connection of every door shares: output, back-pressure, memory that is counted, and a tidy end.

Replies back up into the request stream: while the peer does not read, we do not read from it. The same holds while too
many of its commands are in flight. A peer that reads nothing of its replies for ``STALLED_AFTER_S``, or sends
nothing of a request that it began for ``REQUEST_STALLED_AFTER_S``, is disconnected; one that is slow is not.

Every buffer is in the node's account (``measure``). When a connection ends, records that were taken for it and never
written come back as if untouched, and what is bound to it is released once its last command in flight is known.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from fcntl import ioctl
from struct import unpack
from termios import TIOCOUTQ
from typing import TYPE_CHECKING, cast

from penstock.doors.doorkeeper import HOARD_BYTES, address_of
from penstock.engine.answers import AckTaken, Answer, Taken
from penstock.engine.entries import Command
from penstock.node.account import IN_FLIGHT, RECEIVED, UNSENT
from penstock.node.node import Node

if TYPE_CHECKING:
    from penstock.doors.doorkeeper import Doorkeeper

log = logging.getLogger(__name__)

STALLED_AFTER_S = 300.0
REQUEST_STALLED_AFTER_S = 60.0
IN_FLIGHT_MAX = 20_000
"""Commands of one connection that may be on their way; beyond that it is not read from."""
REQUEST_BYTES = 512
"""What a request on its way costs besides its body."""
MEASURED_FROM_BYTES = 4 * 1024
"""Smaller changes of the buffers are not reported to the account; the cost of a connection itself covers them."""
_LARGE_REQUEST_BYTES = 1024
"""While memory is short, a connection whose requests are longer than this on average has to wait for their answers."""
_WATCH_EVERY_S = 15.0
_NOT_YET_SEEN = -(1 << 62)
_OUTPUT_HIGH_BYTES = 4 * 1024 * 1024


class Connection(asyncio.Protocol):
    """A connection on a door. Subclasses parse in ``data_received`` and write in ``reply``."""

    tells_why_turned_away = False
    """Whether a subclass looks at ``turned_away`` and reports it in the words of its protocol."""

    def __init__(self, node: Node, keeper: Doorkeeper, door_name: str) -> None:
        self.node = node
        self.keeper = keeper
        self.door_name = door_name
        self.owner = node.new_owner()
        self.peer = "?"
        self.address = "?"
        self.closed = False
        self.turned_away = ""
        """Why there is no place for this connection; it gets this answer and nothing else."""
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._in_flight_bytes_max = keeper.in_flight_bytes_max
        self.input_full = False
        """Set by a subclass that has enough to do for now: nothing more is read until it is cleared and regulated."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._loop = asyncio.get_running_loop()
        self.came_bytes = 0
        """All that was received, where a subclass counts it."""
        self._transport_bytes = 0
        """What was given to the transport since it was last empty: it holds all of this until the end is sent."""
        self._writing_paused = False
        self._reading_paused = False
        self._watch_timer: asyncio.TimerHandle | None = None
        self._sent_mark = (0, 0.0)
        self._came_mark = (0, 0.0)
        self._measured_bytes = 0
        self._measured = (0, 0, 0)
        self.transport: asyncio.Transport = None  # type: ignore[assignment]

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The peer is there."""
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        # With no room to buffer, what is written goes to the system at once and not at the end of the loop's turn.
        transport.set_write_buffer_limits(high=0)
        peername = transport.get_extra_info("peername")
        self.peer, self.address = str(peername), address_of(peername)
        self.turned_away = self.keeper.enter(self)
        if self.turned_away and not (self.tells_why_turned_away and self.keeper.linger(self)):
            transport.abort()
            return
        self._set_options()

    def _set_options(self) -> None:
        transport = self.transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        if self.closed:
            return
        self.closed = True
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        self._out.clear()
        self._out_bytes = self._transport_bytes = 0
        self.keeper.leave(self)
        self.node.stop_waiting(self)
        self.gone()
        self.measure()
        if not self.in_flight:
            self.node.forget(self, self.owner)

    def pause_writing(self) -> None:
        """The peer does not read its replies: stop reading its requests."""
        self._writing_paused = True
        self._sent_mark = (_NOT_YET_SEEN, self._loop.time())
        self.watch()
        self._regulate()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writing_paused = False
        self._transport_bytes = 0
        self.measure()
        self._regulate()

    # Progress.

    def watch(self) -> None:
        """Look now and then whether the peer makes progress, from now on until it owes us nothing."""
        if self._watch_timer is None and not self.closed:
            self._watch_timer = self._loop.call_later(_WATCH_EVERY_S, self._look)

    def _look(self) -> None:
        self._watch_timer = None
        now_s = self._loop.time()
        if self._writing_paused:
            read = self._read_bytes()
            if read > self._sent_mark[0]:
                self._sent_mark = (read, now_s)
            if now_s - self._sent_mark[1] >= STALLED_AFTER_S:
                self.abort(f"its replies were not read for {STALLED_AFTER_S:g} s")
                return
            self.watch()
        if not self.has_half_request():
            self._came_mark = (0, 0.0)
            return
        if self.came_bytes != self._came_mark[0] or self._reading_paused:
            self._came_mark = (self.came_bytes, now_s)
        if now_s - self._came_mark[1] >= REQUEST_STALLED_AFTER_S:
            self.abort(f"nothing of the request that it began came for {REQUEST_STALLED_AFTER_S:g} s")
            return
        self.watch()

    def moved_bytes(self) -> int:
        """How many bytes the peer has moved: what it sent, and what it read of replies in the transport's buffer."""
        return self.came_bytes + self._read_bytes()

    def _read_bytes(self) -> int:
        """What the peer has read of all that was given to the transport since that was last empty."""
        return self._transport_bytes - self.transport.get_write_buffer_size() - self._unread_in_system()

    def _unread_in_system(self) -> int:
        """Bytes that the system holds because the peer has not confirmed them; 0 where it cannot tell."""
        sock = self.transport.get_extra_info("socket")
        try:
            return int(unpack("i", ioctl(sock.fileno(), TIOCOUTQ, bytes(4)))[0])
        except (OSError, AttributeError, ValueError):
            return 0

    # Memory.

    def measure(self) -> None:
        """Report to the account what the buffers hold now. To be called after they may have grown or shrunk."""
        received = 0 if self.closed else self.received_bytes()
        in_flight = self.in_flight_bytes + self.in_flight * REQUEST_BYTES + self.index_bytes()
        unsent = self._out_bytes + (0 if self.closed else self.waiting_bytes())
        if self._writing_paused and not self.closed:
            unsent += max(self._transport_bytes, self.transport.get_write_buffer_size())
        total = received + in_flight + unsent
        change = total - self._measured_bytes
        if -MEASURED_FROM_BYTES < change < MEASURED_FROM_BYTES and not (self.closed and not self.in_flight):
            return
        account = self.node.account
        for kind, old, new in zip(
            (RECEIVED, IN_FLIGHT, UNSENT), self._measured, (received, in_flight, unsent), strict=True
        ):
            if old != new:
                account.change(kind, new - old)
        self._measured_bytes, self._measured = total, (received, in_flight, unsent)
        self._in_flight_bytes_max = self.keeper.in_flight_bytes_max
        if self.keeper.is_short_of_memory:
            self._in_flight_bytes_max = HOARD_BYTES + self.in_flight * _LARGE_REQUEST_BYTES
        if not self.closed:
            self.keeper.note_hoard(self, received + unsent)

    def hoarded_bytes(self) -> int:
        """What is freed when this connection is closed, as it was last measured."""
        return self._measured[0] + self._measured[2]

    @property
    def is_measured(self) -> bool:
        """Whether the account counts bytes of this connection, so that changes must be reported to it."""
        return self._measured_bytes > 0

    @property
    def has_unread_replies(self) -> bool:
        """Whether the peer has to read before it gets more."""
        return self._writing_paused

    def busy(self) -> bool:
        """Whether no further request should be looked at for now."""
        return (
            self._writing_paused or self.in_flight > IN_FLIGHT_MAX or self.in_flight_bytes > self._in_flight_bytes_max
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
        self.measure()
        successor.take_over(self)
        self.transport.set_protocol(successor)
        if unread:
            successor.data_received(unread)

    def take_over(self, predecessor: Connection) -> None:
        """Continue with another connection's transport, in its place."""
        self.transport = predecessor.transport
        self.peer, self.address = predecessor.peer, predecessor.address
        self.keeper.hand_over(predecessor, self)

    # The node's side.

    def submit(self, command: Command, ref: int) -> None:
        """Give a command to the node."""
        self.in_flight += 1
        self.in_flight_bytes += len(command.body)
        self.node.submit(command, self, ref)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """A command's answer is here."""
        self.in_flight_bytes -= len(command.body)
        if self.closed:
            try:
                self.unsent(command, answer)
            finally:
                self.request_ended()
            return
        self.in_flight -= 1
        self.reply(ref, command, answer)
        if self._reading_paused:
            self._regulate()

    def request_ended(self) -> None:
        """A request of this connection is not on its way any more."""
        self.in_flight -= 1
        if self.closed:
            self.measure()
            if not self.in_flight:
                self.node.forget(self, self.owner)

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
            data = out[0] if len(out) == 1 else b"".join(out)
            self.transport.write(data)
            if self._writing_paused or self._measured_bytes:
                self._after_write(len(data))

    def transmit(self, data: bytes) -> None:
        """Give bytes to the transport now."""
        self.transport.write(data)
        self._after_write(len(data))

    def _after_write(self, size_bytes: int) -> None:
        if self._writing_paused:
            self._transport_bytes += size_bytes
        self.measure()

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

    def abort(self, reason: str) -> None:
        """End the connection at once, without what is written; the reason goes to the log."""
        if not self.closed and not self.transport.is_closing():
            log.info("%s %s: closed: %s", self.door_name, self.peer, reason)
        self.transport.abort()

    def sent_first_request(self) -> None:
        """The peer has sent its first request: from now on it may be silent for as long as its protocol allows."""
        self.keeper.heard(self)

    def broken(self, problem: BaseException) -> None:
        """An error occurred while an answer was given: what was sent is not known, so the connection ends."""
        log.error("%s %s: closed after an error of the program", self.door_name, self.peer, exc_info=problem)
        if not self.closed:
            self.transport.abort()

    # What subclasses say.

    def received_bytes(self) -> int:
        """Bytes that came and are not yet in a command: incomplete requests, and those that wait for their turn."""
        return 0

    def index_bytes(self) -> int:
        """What else a subclass keeps for requests on their way and leases that the peer holds."""
        return 0

    def waiting_bytes(self) -> int:
        """Messages that a subclass keeps until the peer has read earlier ones."""
        return 0

    def has_half_request(self) -> bool:
        """Whether a request has come in part. A subclass that says so counts ``came_bytes`` and calls ``watch``."""
        return False

    def silent_for_too_long(self, reason: str) -> None:
        """No request came within the time for the first one. A protocol with a timeout of its own may wait longer."""
        self.abort(reason)

    def give_up(self, reason: str) -> None:
        """Memory is short, and this connection must free what it holds. Tell the peer if its protocol can."""
        self.abort(reason)

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Write the reply to a command."""
        raise NotImplementedError

    def resumed(self) -> None:
        """Requests that were set aside while the connection was busy may be looked at again."""

    def gone(self) -> None:
        """The peer is gone: end what belongs to this kind of connection."""

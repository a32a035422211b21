"""One ZeroMQ peer: any socket of any ZeroMQ at the other end of a ZMTP connection.

What belongs here is what all kinds of peers share: the handshake, pings, and turns. A peer is served for a few
milliseconds, then others have a turn; what it sent beyond that waits, and counts as memory of the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from penstock.doors.connection import Connection
from penstock.doors.doorkeeper import Doorkeeper
from penstock.node.node import Node
from penstock.wire.monique.errors import ZmtpError
from penstock.wire.monique.zmtp import Event, NeedData, PeerReady, ZmtpConnection

log = logging.getLogger(__name__)

PING_EVERY_S: Final = 30.0
PINGS_UNANSWERED_MAX: Final = 3
TURN_S: Final = 0.005
"""How long one peer is served before others have a turn."""


class ZmtpPeer(Connection):
    """A peer, from its handshake on. Subclasses take its events."""

    def __init__(self, node: Node, keeper: Doorkeeper, codec: ZmtpConnection) -> None:
        super().__init__(node, keeper, "monique")
        self._codec = codec
        self._knows_pings = False
        self._pings_unanswered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None

    # What subclasses say.

    def greeted(self) -> None:
        """The handshake is done."""

    def take(self, event: Event) -> None:
        """Take what the peer sent."""

    def can_take(self) -> bool:
        """Whether another event can be taken now. If not, ``take_soon`` must be called when one can be again."""
        return not self.busy()

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is there; greet it."""
        super().connection_made(transport)
        if not self.transport.is_closing():
            self.write(self._codec.data_to_send())
            self._timer = self._loop.call_later(PING_EVERY_S, self._on_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._codec.discard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, as far as there is time in this turn."""
        self.came_bytes += len(data)
        self._pings_unanswered = 0
        self._codec.receive_data(data)
        if self._turn is None:
            self._take_turn()

    def resumed(self) -> None:
        """The peer reads again: continue with what it sent meanwhile."""
        if self._codec.buffered_bytes:
            self.take_soon()

    def received_bytes(self) -> int:
        """Messages that have come in part, and those that wait for their turn."""
        return self._codec.buffered_bytes

    def has_half_request(self) -> bool:
        """Whether a message has come in part, or waits."""
        return self._codec.buffered_bytes > 0

    # Turns.

    def take_soon(self) -> None:
        """Have a turn when others have had theirs."""
        if self._turn is None and not self.closed:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self.closed or self.transport.is_closing():
            return
        try:
            self.input_full = self._take_events(time.perf_counter() + TURN_S)
        except ZmtpError as problem:
            self.close(str(problem))
            return
        self._pass_on()
        self.node.end_of_input()
        self._regulate()
        if self._codec.buffered_bytes:
            self.watch()
            self.measure()
        elif self.is_measured:
            self.measure()

    def _take_events(self, until_s: float) -> bool:
        """Take events until there are no more, none can be taken, or the time is over; true if some may be left."""
        while self.can_take():
            event = self._codec.next_event()
            if isinstance(event, NeedData):
                return False
            if isinstance(event, PeerReady):
                self.sent_first_request()
                self._knows_pings = event.minor > 0
                self.greeted()
            else:
                self.take(event)
            if time.perf_counter() >= until_s:
                self.take_soon()
                return True
        return True

    def _pass_on(self) -> None:
        data = self._codec.data_to_send()
        if data:
            self.write(data)

    # Pings.

    def _on_timer(self) -> None:
        if not self._codec.ready:
            self.abort(f"no handshake within {PING_EVERY_S:g} s")
            return
        if self._pings_unanswered >= PINGS_UNANSWERED_MAX:
            self.abort(f"{self._pings_unanswered} pings were not answered")
            return
        if self._knows_pings and not self._reading_paused:  # otherwise no answer could be seen
            self._pings_unanswered += 1
            self._codec.send_ping()
            self._pass_on()
        self._timer = self._loop.call_later(PING_EVERY_S, self._on_timer)

"""Who may come in, who waits outside, and who must leave when memory is short.

A connection needs a place. There are limits for the whole node, for one address and for one door. When a limit is
reached, the oldest connection that never sent a request makes room. The last places are for programs on this machine,
so that an operator can inspect a full node. A refused connection gets the reason if its protocol can carry one.

The buffers of all connections together have a limit too. When it is exceeded, the connection is closed whose buffers
move most slowly: a peer that reads or sends at a normal speed is never the slowest while an attacker waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from ipaddress import IPv6Address, ip_address
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.doors.turns import Turns
from penstock.node.account import CONNECTIONS
from penstock.node.node import Node
from penstock.settings.values import is_loopback

if TYPE_CHECKING:
    from penstock.doors.connection import Connection

log = logging.getLogger(__name__)

OPERATOR_PLACES_MAX: Final = 16
_OPERATOR_SHARE: Final = 100
"""One place in this many is for the operator, up to the maximum above."""
TURNED_AWAY_MAX: Final = 64
"""Refused connections that are kept open briefly, to send them the reason."""
TURNED_AWAY_S: Final = 5.0
SILENT_AT_LEAST_S: Final = 1.0
"""A connection that has just been opened does not make room for another one: its first request may be on its way."""
FIRST_REQUEST_S: Final = 60.0
CONNECTION_BYTES: Final = 8 * 1024
"""What an open connection without any buffers costs."""
HOARD_BYTES: Final = 64 * 1024
"""Connections whose buffers are smaller than this are never closed to free memory."""
BUFFER_BYTES_MIN: Final = 64 * 1024 * 1024
_SCANNED_MAX: Final = 1_000
_LOCAL: Final = "local"
"""The address of a peer that has none, such as one on a Unix socket."""
_LOG_EVERY_S: Final = 10.0


def address_of(peername: Any) -> str:
    """The part of a peer's address that limits apply to: the IPv4 address, or the network (/64) of an IPv6 address."""
    if not isinstance(peername, tuple) or not peername:
        return _LOCAL
    try:
        address = ip_address(str(peername[0]).partition("%")[0])
    except ValueError:
        return str(peername[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)


def _nine_tenths(count: int) -> int:
    """Most of a number, at least 1."""
    return count - count // 10


class Doorkeeper:
    """Gives places to connections over all doors, and closes the slowest ones when their buffers need too much."""

    def __init__(
        self,
        node: Node,
        connections_max: int,
        in_flight_bytes_max: int = 64 * 1024 * 1024,
        *,
        per_address_max: int = 0,
        per_door_max: int = 0,
        first_request_s: float = FIRST_REQUEST_S,
        buffer_bytes_max: int = 0,
    ) -> None:
        self._node = node
        self.account = node.account
        self.in_flight_bytes_max = in_flight_bytes_max
        """Bytes of unanswered requests of one connection; beyond that it is not read from."""
        self.buffer_bytes_max = buffer_bytes_max or max(node.limits.memory_bytes_max // 4, BUFFER_BYTES_MIN)
        """Bytes in the buffers of all connections; beyond that the slowest are closed."""
        self._connections_max = connections_max
        self._operator_places = min(OPERATOR_PLACES_MAX, connections_max // _OPERATOR_SHARE)
        self._per_address_max = per_address_max or _nine_tenths(connections_max)
        self._per_door_max = per_door_max or _nine_tenths(connections_max)
        self._first_request_s = first_request_s
        self._loop = asyncio.get_running_loop()
        self.turns = Turns()
        """How the connections share the loop."""
        # Dictionaries keep the order of arrival: the oldest connection comes first.
        self._open: dict[Connection, None] = {}
        self._silent: dict[Connection, float] = {}
        """Connections without a request so far, with the time at which they came."""
        self._silent_timer: asyncio.TimerHandle | None = None
        self._operators: dict[Connection, float] = {}
        """Those that have one of the last places."""
        self._by_address: Counter[str] = Counter()
        self._by_door: Counter[str] = Counter()
        self._turned_away: dict[Connection, asyncio.TimerHandle] = {}
        self._unreported = 0
        self._reported_s = -_LOG_EVERY_S
        self._hoards: dict[Connection, tuple[float, int]] = {}
        """Connections with large buffers: when these became large, and what the peer had moved until then."""
        self._leaving: dict[Connection, int] = {}
        """Connections that were closed to free memory and are not gone yet, with their bytes."""

    # Places.

    def enter(self, connection: Connection) -> str:
        """Give a connection a place. Returns an empty text, or why there is none."""
        now_s = self._loop.time()
        lack = self._lack(connection)
        if lack and not self._evict_silent(connection, now_s):
            if not self._is_operator(connection) or not self._find_operator_place(now_s):
                self._report_full(connection, lack)
                return lack
            self._operators[connection] = now_s
        self._add(connection)
        self._silent[connection] = now_s
        self._watch_silent()
        return ""

    def _add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._by_address[connection.address] += 1
        self._by_door[connection.door_name] += 1
        self.account.change(CONNECTIONS, CONNECTION_BYTES)
        self._node.connections_open = len(self._open)

    def _lack(self, newcomer: Connection, leaving: Connection | None = None) -> str:
        """Which limit leaves no place for a newcomer, in a sentence, once ``leaving`` is gone; empty if none does."""
        total = len(self._open)
        of_address = self._by_address[newcomer.address]
        of_door = self._by_door[newcomer.door_name]
        if leaving is not None:
            total -= 1
            of_address -= leaving.address == newcomer.address
            of_door -= leaving.door_name == newcomer.door_name
        if total >= self._connections_max - self._operator_places:
            return f"the node is at its connection limit ({self._connections_max:,})"
        if of_address >= self._per_address_max:
            return f"{newcomer.address} is at its connection limit ({self._per_address_max:,})"
        if of_door >= self._per_door_max:
            return f"the door {newcomer.door_name} is at its connection limit ({self._per_door_max:,})"
        return ""

    def _evict_silent(self, newcomer: Connection, now_s: float) -> bool:
        """Close the oldest connection that never sent a request and whose place lets the newcomer in."""
        for connection, came_s in islice(self._silent.items(), _SCANNED_MAX):
            if now_s - came_s < SILENT_AT_LEAST_S:
                return False
            if not self._lack(newcomer, connection):
                self._evict(connection, "it sent no request, and another connection needs its place")
                return True
        return False

    def _evict(self, connection: Connection, reason: str) -> None:
        self._remove(connection)
        self._silent.pop(connection, None)
        self._operators.pop(connection, None)
        connection.abort(reason)

    def _is_operator(self, connection: Connection) -> bool:
        return self._operator_places > 0 and (connection.address == _LOCAL or is_loopback(connection.address))

    def _find_operator_place(self, now_s: float) -> bool:
        if len(self._open) < self._connections_max:
            return True
        for connection, came_s in self._operators.items():
            if now_s - came_s < SILENT_AT_LEAST_S:
                return False
            self._evict(connection, "its place is one of the last, which newer connections of this machine take over")
            return True
        return False

    def _report_full(self, connection: Connection, reason: str) -> None:
        """Write a warning, but not for each of many connections."""
        self._unreported += 1
        now_s = self._loop.time()
        if now_s - self._reported_s >= _LOG_EVERY_S:
            count, self._unreported, self._reported_s = self._unreported, 0, now_s
            log.warning("%s: refused: %s; %d refused since the last report", connection.peer, reason, count)

    def linger(self, connection: Connection) -> bool:
        """Keep a refused connection open briefly, so that it can get the reason; false if too many are kept."""
        if len(self._turned_away) >= TURNED_AWAY_MAX:
            return False
        self._turned_away[connection] = self._loop.call_later(TURNED_AWAY_S, connection.abort, "it found no place")
        return True

    def heard(self, connection: Connection) -> None:
        """A connection has sent its first request: it keeps its place from now on."""
        self._silent.pop(connection, None)

    def hand_over(self, connection: Connection, successor: Connection) -> None:
        """Another object continues a connection, in the same place."""
        self._remove(connection)
        self._add(successor)
        for places in (self._silent, self._operators):
            if connection in places:
                places[successor] = places.pop(connection)

    def leave(self, connection: Connection) -> None:
        """A connection is gone."""
        self._remove(connection)
        self._silent.pop(connection, None)
        self._operators.pop(connection, None)
        self._hoards.pop(connection, None)
        self._leaving.pop(connection, None)
        timer = self._turned_away.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if not self._open and self._silent_timer is not None:
            self._silent_timer.cancel()
            self._silent_timer = None

    def _remove(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        del self._open[connection]
        for counter, key in ((self._by_address, connection.address), (self._by_door, connection.door_name)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]
        self.account.change(CONNECTIONS, -CONNECTION_BYTES)
        self._node.connections_open = len(self._open)

    @property
    def connections_max(self) -> int:
        """How many connections may be open."""
        return self._connections_max

    @property
    def connections(self) -> list[Connection]:
        """Those that are open now."""
        return list(self._open)

    def close_all(self, reason: str) -> None:
        """End all connections."""
        for connection in [*self._open, *self._turned_away]:
            connection.close(reason)

    # Connections that send no request at all.

    def _watch_silent(self) -> None:
        if self._silent_timer is None:
            oldest_s = next(iter(self._silent.values()), None)
            if oldest_s is not None:
                due_s = max(0.0, oldest_s + self._first_request_s - self._loop.time())
                self._silent_timer = self._loop.call_later(due_s, self._close_silent)

    def _close_silent(self) -> None:
        self._silent_timer = None
        now_s = self._loop.time()
        overdue: list[Connection] = []
        for connection, came_s in self._silent.items():
            if now_s - came_s < self._first_request_s or len(overdue) == _SCANNED_MAX:
                break
            overdue.append(connection)
        for connection in overdue:
            del self._silent[connection]
            connection.silent_for_too_long(f"it sent no request for {self._first_request_s:g} s")
        self._watch_silent()

    # Memory.

    def note_hoard(self, connection: Connection, size_bytes: int) -> None:
        """A connection's buffers of bytes that its peer has to move, in or out, have this size now."""
        if size_bytes < HOARD_BYTES:
            self._hoards.pop(connection, None)
        elif connection not in self._leaving:
            if connection not in self._hoards:
                self._hoards[connection] = (self._loop.time(), connection.moved_bytes())
            if self.account.total > self.buffer_bytes_max:
                self._free_memory()

    @property
    def is_short_of_memory(self) -> bool:
        """Whether connections with much in flight should wait."""
        return self.account.total > self.buffer_bytes_max // 2

    def _free_memory(self) -> None:
        """Close the slowest connections until the buffers of the others fit."""
        excess_bytes = self.account.total - self.buffer_bytes_max - sum(self._leaving.values())
        while excess_bytes > 0 and self._hoards:
            slowest = min(self._hoards, key=self._speed)
            del self._hoards[slowest]
            self._leaving[slowest] = freed_bytes = slowest.hoarded_bytes()
            excess_bytes -= freed_bytes
            slowest.give_up(
                f"all connections together need more than {self.buffer_bytes_max} bytes for their buffers "
                "(limits.buffer_bytes), and this one was the slowest"
            )

    def _speed(self, connection: Connection) -> float:
        """Bytes per second that a peer has moved since its buffers became large."""
        since_s, moved_bytes = self._hoards[connection]
        return (connection.moved_bytes() - moved_bytes) / max(self._loop.time() - since_s, 0.001)

"""Reads of a native connection: one after the other, in fair turns, and only while the client reads its answers.

A read is due when everything submitted before it has been applied. Then it waits here: many may become due in the same
moment, and each answer may be long. A list of all queues or bindings is built in slices, over several turns; it shows
each of them as it is when its slice is built.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.doors.turns import UNITS_PER_LOOK
from penstock.engine import commands as c
from penstock.engine import reading
from penstock.engine.state import State
from penstock.node.feeding import queue_names
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.doors.native import NativeConnection

_ITEMS_PER_SLICE: Final = 50


class Reads:
    """The reads of one connection that are due. It does not lead back to the connection: cycles are collected late."""

    __slots__ = ("_due", "_is_running", "_list")

    def __init__(self) -> None:
        self._due: deque[tuple[int, int, Any]] = deque()
        self._list: SlicedList | None = None
        self._is_running = False

    def ask(self, connection: NativeConnection, code: int, request: int, args: Any) -> None:
        """Carry out a read when all that was submitted before has been applied."""
        connection.in_flight += 1
        connection.node.read(lambda: self._on_due(connection, code, request, args), connection)

    def _on_due(self, connection: NativeConnection, code: int, request: int, args: Any) -> None:
        if connection.closed:
            connection.request_ended()
            return
        self._due.append((code, request, args))
        self.run(connection)

    def run(self, connection: NativeConnection) -> None:
        """Carry out what is due, until the turn of the connection is over or its answers are not read."""
        if self._is_running or connection.is_waiting:
            return
        self._is_running = True
        turns = connection.keeper.turns
        try:
            while self._due and not connection.has_unread_replies:
                if self._step(connection):
                    self._due.popleft()
                    connection.request_ended()
                turns.left -= UNITS_PER_LOOK
                if turns.is_over():
                    connection.wait_for_turn()
                    return
        finally:
            self._is_running = False

    def _step(self, connection: NativeConnection) -> bool:
        """Do the first read, or a slice of it; true if that was all."""
        code, request, args = self._due[0]
        make_items = LISTS.get(code)
        if make_items is None:
            connection.carry_out_read(code, request, args)
            return True
        if self._list is None:
            self._list = SlicedList(make_items(connection.node.engine.state))
        if self._list.build():
            return False
        connection.send_encoded(request, self._list.encoded())
        self._list = None
        return True

    def end(self) -> int:
        """The client is gone; returns how many reads are given up."""
        given_up = len(self._due)
        self._due.clear()
        self._list = None
        return given_up


class SlicedList:
    """A long list that is encoded a slice at a time."""

    __slots__ = ("_count", "_encoded", "_items")

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._encoded: list[bytes] = []
        self._count = 0

    def build(self) -> bool:
        """Encode some more; false when there was nothing left."""
        slice_ = [c.encode(item) for item in islice(self._items, _ITEMS_PER_SLICE)]
        self._encoded.append(b"".join(slice_))
        self._count += len(slice_)
        return len(slice_) == _ITEMS_PER_SLICE

    def encoded(self) -> bytes:
        """The whole list, as MessagePack."""
        return array_header(self._count) + b"".join(self._encoded)


def array_header(count: int) -> bytes:
    """What stands before the elements of a MessagePack array."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)


LISTS: Final[dict[int, Callable[[State], Iterator[Any]]]] = {
    m.LIST_QUEUES: reading.list_queues,
    m.LIST_JOBS: lambda st: iter(reading.list_jobs(st)),
    m.LIST_BINDINGS: reading.list_bindings,
    m.QUEUE_NAMES: queue_names,
    m.LIST_STAGED: reading.list_staged,
}
"""Reads whose answers are lists that may be long."""

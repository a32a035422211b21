"""A subscription of a native client: a window of records that are pushed and not yet given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.engine import commands as c
from penstock.engine.answers import Answer, Taken
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.engine.journal import DOOR_NATIVE
from penstock.wire.native import messages as m

if TYPE_CHECKING:
    from penstock.doors.native import NativeConnection

_FOREVER_MS = c.DURATION_MS_MAX
Handle = tuple[int, int]
"""A lease: record id and token. A token belongs to one take, so a handle is unique over all queues."""


class Subscription:
    """A window of records that are pushed to a client and not yet given up. A sink of its own for its takes.

    A lease that ends otherwise (a timeout, a deletion) leaves its place empty, and the place is filled again when the
    client shows that it goes on: it settles or extends a lease of this subscription, or a ping says that it waits. A
    client that hangs is not sent the same records again and again, each time with one delivery more.
    """

    __slots__ = (
        "_connection",
        "_is_over",
        "_lease_ms",
        "_refill_set",
        "_request",
        "_taking",
        "_window",
        "ended",
        "held",
        "queue",
    )

    def __init__(self, connection: NativeConnection, request: int, args: m.Subscribe) -> None:
        self._connection = connection
        self._request = request
        self.queue = args.queue
        self._window = args.window
        self._lease_ms = args.lease_ms
        self.held: set[Handle] = set()
        """Leases that fill a place in the window."""
        self.ended: list[Handle] = []
        """Those of them that have ended without the client's doing."""
        self._taking = False
        self._refill_set = False
        self._is_over = False

    def refill(self) -> None:
        """Ask for as many records as the window has room for; the take waits until there are some."""
        self._refill_set = False
        room = self._window - len(self.held)
        connection = self._connection
        if self._taking or room <= 0 or self._is_over or connection.closed:
            return
        if connection.is_full_of_pushes():
            connection.hold_back(self)
            return
        self._taking = True
        connection.in_flight += 1
        args = c.Take(self.queue, min(room, c.RECORDS_PER_TAKE_MAX), self._lease_ms, _FOREVER_MS)
        command = Command(c.TAKE, DOOR_NATIVE, connection.owner, 0, 0, c.encode(args), args)
        connection.node.submit(command, self, 0)

    def reclaim(self) -> None:
        """The client goes on: fill the places of what it gave up, and of leases that have ended."""
        if self.ended:
            ended, self.ended = self.ended, []
            self.held.difference_update(ended)
            self._connection.let_go(ended)
        if not self._refill_set and not self._taking:
            self._refill_set = True
            asyncio.get_running_loop().call_soon(self.refill)

    def end(self) -> None:
        """The client wants no more."""
        self._is_over = True
        self._connection.node.stop_waiting(self)

    def answered(self, ref: int, command: Command, answer: Answer) -> None:
        """Records for the client, or none because the node stops or the subscription ended."""
        self._taking = False
        connection = self._connection
        try:
            if not isinstance(answer, Taken):
                if not connection.closed and not self._is_over:
                    assert isinstance(answer, Refusal)
                    connection.drop_subscription(self._request, answer)
            elif answer.records:
                if connection.closed or self._is_over:
                    connection.node.return_unsent(command, answer)
                elif connection.is_full_of_pushes():
                    # They came for a take that waited while others filled the connection: they go back untouched.
                    connection.node.return_unsent(command, answer)
                    connection.hold_back(self)
                else:
                    self._push(command, answer)
        finally:
            connection.request_ended()

    def _push(self, command: Command, taken: Taken) -> None:
        """Send records, and ask for the next; a client that cannot read them is refused, and they come back."""
        connection, body = self._connection, c.encode(taken)
        if connection.can_read(body):
            handles = [(record.id, taken.token) for record in taken.records]
            self.held.update(handles)
            connection.note_pushed(self, handles)
            connection.push(self._request, body)
            self.refill()
        else:
            connection.node.return_unsent(command, taken)
            connection.drop_subscription(self._request, connection.too_large(len(body)))

    def flush(self) -> None:
        """The connection flushes."""

    def broken(self, problem: BaseException) -> None:
        """An answer could not be given: the connection ends."""
        self._connection.broken(problem)

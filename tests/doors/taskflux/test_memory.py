"""Records whose acknowledgement has not come are in the account, and the slowest client goes when they are too many."""

from __future__ import annotations

from penstock.node.account import RECEIVED
from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import ACK, OK, Client, enqueue

MIB = 1024 * 1024


def test_enqueues_without_their_acknowledgement_are_counted_and_bounded(clocked_server: DoorServer) -> None:
    server = clocked_server
    server.keeper.buffer_bytes_max = 20 * MIB
    port = server.listen()
    with Client(port) as slow, Client(port) as fast, Client(port) as last:
        slow.asks(enqueue(1, bytes(8 * MIB)), OK)
        server.until(lambda: server.node.account.bytes_by_kind.get(RECEIVED, 0) >= 8 * MIB)
        server.advance(10)
        fast.asks(enqueue(1, bytes(8 * MIB)), OK)
        server.until(lambda: server.node.account.bytes_by_kind.get(RECEIVED, 0) >= 16 * MIB)
        last.says(enqueue(1, bytes(8 * MIB)))
        slow.is_closed()
        last.hears(OK)
        server.until(lambda: server.node.account.total < 20 * MIB)
        for client in (fast, last):
            client.asks(ACK, OK)
        server.until(lambda: RECEIVED not in server.node.account.bytes_by_kind or server.node.account.total < MIB)
        last.counts(2)

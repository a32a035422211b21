"""How packets are served within a turn of the loop: a few of one client at a time, and none after the end.

Here bytes are handed to a connection on the loop's own thread, so that what happens in one turn can be told.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.doors.taskflux import TaskFluxConnection
from penstock.engine import journal
from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    LIST,
    METADATA,
    OK,
    Client,
    count,
    counted,
    create,
    delete,
    dequeue,
    enqueue,
    int32,
    listed,
    record,
    text,
)
from tests.doors.taskflux.test_returning import last_return


def close(connection: TaskFluxConnection) -> None:
    connection.close("closing time")


def abort(connection: TaskFluxConnection) -> None:
    connection.transport.abort()


METADATA_REPLY = b"m" + int32(1) + text("127.0.0.1:2602") + int32(0) + int32(0)


def test_a_client_that_sends_very_much_has_a_few_packets_served_per_turn(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        connection = server.connections[0]

        def receive() -> int:
            connection.data_received(METADATA * 1000)
            return connection._codec.buffered_bytes

        assert 500 < server.call(receive) < 1000
        client.hears(METADATA_REPLY * 1000)


def test_a_list_which_may_be_long_ends_the_turn(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        connection = server.connections[0]

        def receive() -> int:
            connection.data_received(LIST * 5)
            return connection._codec.buffered_bytes

        assert server.call(receive) == len(LIST) * 4
        client.hears(listed(("", 0, {})) * 5)


def test_nothing_is_served_after_the_connection_was_closed_from_our_side(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as client:
        connection = server.connections[0]

        def receive_and_close() -> None:
            connection.data_received(LIST + enqueue(1, b"x") + ACK)
            server.keeper.close_all("closing time")

        server.call(receive_and_close)
        client.hears(listed(("", 0, {})))
        client.is_closed()
    with Client(port) as client:
        client.counts(0)


@pytest.mark.parametrize("end", [close, abort])
def test_a_record_for_a_connection_that_is_being_closed_comes_back_untouched(
    server: DoorServer, end: Callable[[TaskFluxConnection], None]
) -> None:
    """The answer is there, in the same turn, before the loop tells that the connection is gone."""
    port = server.listen()
    with Client(port) as client:
        client.enqueues(1, b"x")
        release = server.hold_commits()
        client.says(dequeue())
        server.until(lambda: server.node._in_flight)
        server.call(lambda: (end(server.connections[0]), release.release_here()))
        client.is_closed()
        server.until(lambda: server.queue().counts == [1, 0, 0, 0])
    assert last_return(server) == (journal.DOOR_NODE, journal.REASON_UNSENT)
    assert server.call(lambda: server.queue().get(1)).tries.deliveries == 0
    with Client(port) as client:
        client.asks(dequeue(), record(1, b"x"))


def test_a_key_range_that_went_with_its_queue_in_the_same_batch(server: DoorServer) -> None:
    """Put and delete are applied together, so there is no range left to tell when the put is answered."""
    port = server.listen()
    with Client(port) as client, Client(port) as other:
        client.asks(create("q", 2, -1, -1, (0, 9)), OK)
        client.asks(enqueue(10, b"x", "q"), OK)
        first, second = server.connections
        server.call(lambda: (first.data_received(ACK), second.data_received(delete("q"))))
        client.hears(b"cp", int32(0), text("the key is outside the queue's range"))
        other.hears(OK)


def test_commands_of_many_clients_share_a_batch(server: DoorServer) -> None:
    port = server.listen()
    clients = [Client(port) for _ in range(20)]
    for client in clients:
        client.asks(enqueue(1, b"x"), OK)
    before = server.call(lambda: server.node.engine.state.index)
    server.call(lambda: [connection.data_received(ACK) for connection in server.connections])
    for client in clients:
        client.hears(OK)
    assert server.call(lambda: server.node.engine.state.index) == before + 1
    clients[0].asks(count(), counted(20))
    for client in clients:
        client.socket.close()

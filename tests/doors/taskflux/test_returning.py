"""A record that is not acknowledged comes back to its place, whatever the reason, and the journal tells why."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from penstock.engine import journal
from penstock.engine.journal import ROW, ROW_BYTES
from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    METADATA,
    NACK,
    OK,
    Client,
    count,
    dequeue,
    enqueue,
    record,
)

ACK_TIMEOUT_MS = 100_000


def last_return(server: DoorServer) -> tuple[int, int]:
    """Door and reason of the last event in the journal that is a return."""
    rows = b"".join(server.call(lambda: list(server.store.journal_rows(0, 1 << 40))))
    events = [ROW.unpack_from(rows, at) for at in range(0, len(rows), ROW_BYTES)]
    door, reason = [(event[4], event[5]) for event in events if event[3] == journal.RETURNED][-1]
    return door, reason


def nacks(server: DoorServer, client: Client) -> None:
    client.asks(NACK, OK)


def closes(server: DoorServer, client: Client) -> None:
    client.socket.close()


def resets(server: DoorServer, client: Client) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def says_nothing(server: DoorServer, client: Client) -> None:
    server.advance(ACK_TIMEOUT_MS / 1000)
    client.is_closed()


def says_junk(server: DoorServer, client: Client) -> None:
    client.says(b"\xff")
    client.is_closed()


def asks_for_the_cluster(server: DoorServer, client: Client) -> None:
    client.says(METADATA)
    client.is_closed()


def goes_on_without_acknowledging(server: DoorServer, client: Client) -> None:
    client.says(enqueue(0, b"must not be stored"), ACK)
    client.is_closed()


WAYS = [
    (nacks, journal.DOOR_TASKFLUX, journal.REASON_NACK),
    (closes, journal.DOOR_NODE, journal.REASON_DISCONNECT),
    (resets, journal.DOOR_NODE, journal.REASON_DISCONNECT),
    (says_nothing, journal.DOOR_TASKFLUX, journal.REASON_ACK_TIMEOUT),
    (says_junk, journal.DOOR_TASKFLUX, journal.REASON_NACK),
    (asks_for_the_cluster, journal.DOOR_TASKFLUX, journal.REASON_NACK),
    (goes_on_without_acknowledging, journal.DOOR_TASKFLUX, journal.REASON_NACK),
]


@pytest.mark.parametrize(("way", "door", "reason"), WAYS)
def test_the_record_comes_back_to_its_place(
    clocked_server: DoorServer, way: Callable[[DoorServer, Client], None], door: int, reason: int
) -> None:
    server = clocked_server
    port = server.listen(ack_timeout_ms=ACK_TIMEOUT_MS, idle_timeout_ms=86_400_000)
    with Client(port) as client, Client(port) as other:
        for payload in (b"first", b"second"):
            other.enqueues(5, payload)
        client.asks(dequeue(), record(5, b"first"))
        other.enqueues(5, b"third")
        way(server, client)
        server.until(lambda: server.queue().counts == [3, 0, 0, 0])
        assert last_return(server) == (door, reason)
        for payload in (b"first", b"second", b"third"):
            other.dequeues(5, payload)


@pytest.mark.parametrize(("way", "door", "reason"), WAYS)
def test_the_record_is_offered_to_who_waits(
    clocked_server: DoorServer, way: Callable[[DoorServer, Client], None], door: int, reason: int
) -> None:
    server = clocked_server
    port = server.listen(ack_timeout_ms=ACK_TIMEOUT_MS, idle_timeout_ms=86_400_000)
    with Client(port) as client, Client(port) as waiter:
        client.enqueues(5, b"x")
        client.asks(dequeue(), record(5, b"x"))
        waiter.says(dequeue(timeout_ms=600_000))
        server.until(lambda: server.node.waiters.queues)
        way(server, client)
        waiter.hears(record(5, b"x"))
        waiter.asks(ACK, OK)


def test_nothing_of_an_enqueue_is_stored_when_its_client_leaves_before_the_acknowledgement(
    clocked_server: DoorServer,
) -> None:
    server = clocked_server
    port = server.listen(ack_timeout_ms=ACK_TIMEOUT_MS)
    ways = [way for way, _, _ in WAYS if way is not nacks]
    with Client(server.listen(idle_timeout_ms=86_400_000)) as other:
        for way in ways:
            with Client(port) as client:
                client.asks(enqueue(1, b"x"), OK)
                way(server, client)
                server.until(lambda: server.connections[-1].closed)
                other.counts(0)


def test_an_acknowledgement_in_time_keeps_the_record_gone(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(server.listen(ack_timeout_ms=ACK_TIMEOUT_MS, idle_timeout_ms=86_400_000)) as client:
        client.enqueues(1, b"x")
        client.asks(dequeue(), record(1, b"x"))
        server.advance(ACK_TIMEOUT_MS / 1000 * 0.9)
        client.asks(ACK, OK)
        server.advance(ACK_TIMEOUT_MS / 1000 * 0.9)
        client.counts(0)
    assert server.queue().totals.acked == 1


def test_a_record_that_was_taken_while_its_client_left_counts_as_never_delivered(server: DoorServer) -> None:
    """The take is on its way through the log when the connection ends: nobody got to see the record."""
    port = server.listen()
    with Client(port) as other:
        other.enqueues(1, b"x")
        with Client(port) as client:
            release = server.hold_commits()
            client.says(dequeue())
            server.until(lambda: server.node._in_flight)
        server.until(lambda: server.connections[1].closed)
        release()
        server.until(lambda: server.queue().counts == [1, 0, 0, 0])
        assert last_return(server) == (journal.DOOR_NODE, journal.REASON_UNSENT)
        other.asks(dequeue(), record(1, b"x"))
        (held,) = server.call(lambda: [server.queue().get(1)])
        assert held.tries.deliveries == 1
        other.asks(ACK, OK)
        other.asks(count(), b"cc" + bytes(4))

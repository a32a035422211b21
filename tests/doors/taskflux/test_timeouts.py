"""The idle timeout: on each wait for a client's packet, in the handshake and between requests, and on nothing else."""

from __future__ import annotations

import pytest

from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    AUTHORIZATION,
    AUTHORIZED,
    BOOTSTRAP,
    OK,
    Client,
    count,
    counted,
    dequeue,
    enqueue,
    record,
)

IDLE_S = 100.0
"""Far more than a slow machine needs between two steps of a test: time here is advanced, not waited for."""


def listen(server: DoorServer, ack_s: float = IDLE_S) -> int:
    return server.listen(idle_timeout_ms=int(IDLE_S * 1000), ack_timeout_ms=int(ack_s * 1000))


@pytest.mark.parametrize("said", [b"", AUTHORIZATION[:1], AUTHORIZATION, AUTHORIZATION + BOOTSTRAP[:5]])
def test_a_handshake_that_stops_is_closed_without_a_word(clocked_server: DoorServer, said: bytes) -> None:
    server = clocked_server
    with Client(listen(server), handshake=False) as client:
        client.says(said)
        if said.startswith(AUTHORIZATION):
            client.hears(AUTHORIZED)
        server.until(lambda: server.connections and server.connections[0].transport is not None)
        server.until(lambda: server.connections[0]._codec.buffered_bytes == len(said.removeprefix(AUTHORIZATION)))
        server.advance(IDLE_S)
        client.is_closed()


def test_a_client_that_is_silent_between_requests_is_closed_without_a_word(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server)) as client:
        client.counts(0)
        server.advance(IDLE_S)
        client.is_closed()


def test_each_packet_begins_the_wait_anew(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server)) as client:
        for _ in range(5):
            server.advance(IDLE_S * 0.9)
            client.counts(0)
        server.advance(IDLE_S)
        client.is_closed()


def test_bytes_of_a_long_packet_count_as_life(clocked_server: DoorServer) -> None:
    """A large payload over a slow line is not idleness."""
    server = clocked_server
    packet = enqueue(1, b"x" * 40)
    with Client(listen(server)) as client:
        for at in range(0, len(packet), 10):
            client.says(packet[at : at + 10])
            if at + 10 < len(packet):
                server.until(lambda at=at: server.connections[0]._codec.buffered_bytes == at + 10)
                server.advance(IDLE_S * 0.9)
        client.hears(OK)
        client.asks(ACK, OK)


def test_the_time_of_an_answer_is_not_the_clients(clocked_server: DoorServer) -> None:
    """A commit that takes longer than the idle timeout ends no connection, and the wait begins with the answer."""
    server = clocked_server
    with Client(listen(server)) as client:
        client.asks(enqueue(1, b"x"), OK)
        release = server.hold_commits()
        client.says(ACK)
        server.until(lambda: server.node._in_flight)
        server.advance(IDLE_S * 3)
        server.advance(IDLE_S * 0.5)
        release()
        client.hears(OK)
        server.advance(IDLE_S * 0.6)
        client.counts(1)


@pytest.mark.parametrize("ack_s", [20.0, 1000.0])
def test_the_acknowledgement_has_a_timeout_of_its_own(clocked_server: DoorServer, ack_s: float) -> None:
    """Shorter or longer than the idle timeout; for an Enqueue as for a Dequeue."""
    server = clocked_server
    port = listen(server, ack_s)
    for request, answer in [(enqueue(1, b"x"), OK), (dequeue(), record(1, b"x"))]:
        with Client(port) as client:
            client.enqueues(1, b"x")
            client.asks(request, answer)
            server.advance(ack_s * 0.8)
            client.asks(ACK, OK)
        with Client(port) as client:
            server.advance(IDLE_S * 0.3)
            client.asks(request, answer)
            server.advance(ack_s)
            client.is_closed()
            server.until(lambda: server.connections[-1].closed)


def test_bytes_that_are_no_acknowledgement_do_not_prolong_the_wait_for_it(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server)) as client:
        client.enqueues(1, b"x")
        client.asks(dequeue(), record(1, b"x"))
        for number, piece in enumerate([b"CE", b"\xff", b"abc", b"def"]):
            server.advance(IDLE_S * 0.2)
            client.says(piece)
            server.until(lambda size=[2, 3, 6, 9][number]: server.connections[0]._codec.buffered_bytes == size)
        server.advance(IDLE_S * 0.3)
        client.is_closed()
        server.until(lambda: server.queue().counts == [1, 0, 0, 0])


def test_after_an_enqueue_was_taken_back_the_idle_timeout_holds_again(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server, 1000.0)) as client:
        client.asks(enqueue(1, b"x"), OK)
        server.advance(IDLE_S * 5)
        server.advance(IDLE_S * 0.5)
        client.asks(b"N", OK)
        server.advance(IDLE_S * 0.6)
        client.asks(count(), counted(0))
        server.advance(IDLE_S)
        client.is_closed()


def test_replies_that_are_not_read_are_not_idleness(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server)) as client:
        payload = bytes(8 * 1024 * 1024)
        for _ in range(2):
            client.enqueues(1, payload)
        client.says(dequeue(), ACK, dequeue(), ACK)
        connection = server.connections[0]
        server.until(lambda: connection._writing_paused)
        server.advance(IDLE_S * 2)
        assert not server.call(connection.transport.is_closing)
        client.hears(record(1, payload), OK, record(1, payload), OK)
        client.counts(0)


def test_the_wait_begins_when_the_replies_have_been_read(clocked_server: DoorServer) -> None:
    server = clocked_server
    port = server.listen(idle_timeout_ms=int(IDLE_S * 1000), acks=False)
    with Client(port) as client:
        payload = bytes(12 * 1024 * 1024)
        client.asks(enqueue(1, payload), OK)
        client.says(dequeue())
        connection = server.connections[0]
        server.until(lambda: connection._writing_paused)
        server.advance(IDLE_S * 2)
        server.advance(IDLE_S * 0.5)
        client.hears(record(1, payload))
        server.until(lambda: not connection._writing_paused)
        server.advance(IDLE_S * 0.6)
        client.counts(0)


def test_a_connection_has_one_timer_however_many_packets_it_sends(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(listen(server)) as client:
        client.counts(0)
        timer = server.call(lambda: server.connections[0]._timer)
        for _ in range(100):
            client.says(enqueue(1, b"x"), ACK)
            client.hears(OK, OK)
        assert server.call(lambda: server.connections[0]._timer) is timer
    server.until(lambda: server.connections[0].closed)
    assert server.connections[0]._timer is None

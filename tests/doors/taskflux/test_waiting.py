"""Dequeue with a timeout on an empty queue: served in order, without end of patience, and never for the dead."""

from __future__ import annotations

import pytest

from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    CSHARP,
    EMPTY,
    NACK,
    OK,
    SEED000,
    Client,
    create,
    dequeue,
    enqueue,
    record,
)

LONG_MS = 600_000


def waiting(server: DoorServer, queue: str = "") -> int:
    """How many takes wait on a queue."""
    return server.call(lambda: len(server.node.waiters.queues.get(queue, ())))


@pytest.mark.parametrize("dialect", [SEED000, CSHARP])
def test_a_record_goes_to_who_waits(server: DoorServer, dialect: str) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as waiter, Client(port) as client:
        waiter.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: server.node.waiters.queues)
        client.asks(enqueue(7, b"x") + ACK, OK, OK)
        waiter.hears(record(7, b"x", 1 if dialect == CSHARP else None))
        waiter.asks(ACK, OK)
        client.counts(0)


def test_who_waits_longest_is_served_first(server: DoorServer) -> None:
    port = server.listen()
    waiters = [Client(port) for _ in range(5)]
    with Client(port) as client:
        for number, waiter in enumerate(waiters):
            waiter.says(dequeue(timeout_ms=LONG_MS))
            server.until(lambda number=number: waiting_now(server) == number + 1)
        for number, waiter in enumerate(waiters):
            client.enqueues(-number, b"%d" % number)
            waiter.hears(record(-number, b"%d" % number))
        for waiter in waiters:
            waiter.asks(ACK, OK)
            waiter.socket.close()


def waiting_now(server: DoorServer) -> int:
    return len(server.node.waiters.queues.get("", ()))


def test_those_who_come_while_the_log_is_busy_wait_in_order_behind_the_others(server: DoorServer) -> None:
    """Nobody waits yet when the second and third come, and what is under way might be for them: they ask the log."""
    port = server.listen()
    with Client(port) as first, Client(port) as second, Client(port) as third, Client(port) as client:
        client.asks(create("q"), OK)
        client.asks(enqueue(1, b"", "q"), OK)
        release = server.hold_commits()
        client.says(ACK)
        for number, waiter in enumerate((first, second, third)):
            server.until(lambda number=number: len(server.node._in_flight) == number + 1)
            waiter.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: len(server.node._in_flight) == 4)
        release()
        client.hears(OK)
        server.until(lambda: waiting_now(server) == 3)
        for waiter in (first, second, third):
            client.enqueues(1, b"x")
            waiter.hears(record(1, b"x"))
            waiter.asks(ACK, OK)


def test_who_waits_already_comes_before_who_comes_while_the_log_is_busy(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as first, Client(port) as second, Client(port) as client:
        client.asks(create("q"), OK)
        first.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 1)
        client.asks(enqueue(1, b"", "q"), OK)
        release = server.hold_commits()
        client.says(ACK)
        server.until(lambda: server.node._in_flight)
        second.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 2)
        release()
        client.hears(OK)
        for waiter in (first, second):
            client.enqueues(1, b"x")
            waiter.hears(record(1, b"x"))
            waiter.asks(ACK, OK)


@pytest.mark.parametrize("timeout_ms", [0, LONG_MS])
def test_a_record_that_is_given_back_is_offered_to_who_waits_before_its_holder(
    server: DoorServer, timeout_ms: int
) -> None:
    """Also when the holder asks for the next one in the same breath."""
    port = server.listen()
    with Client(port) as holder, Client(port) as waiter:
        holder.enqueues(1, b"x")
        holder.asks(dequeue(), record(1, b"x"))
        waiter.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 1)
        holder.says(NACK, dequeue(timeout_ms=timeout_ms))
        holder.hears(OK)
        waiter.hears(record(1, b"x"))
        if not timeout_ms:
            holder.hears(EMPTY)


def test_those_who_were_woken_in_vain_keep_their_order(server: DoorServer) -> None:
    """Two records come back, but takes that were on their way get both: who waited waits on, in the same order."""
    port = server.listen()
    with Client(port) as one, Client(port) as two, Client(port) as three, Client(port) as four:
        for holder in (one, two):
            holder.enqueues(1, b"x")
        for holder in (one, two):
            holder.asks(dequeue(), record(1, b"x"))
        first, second = Client(port), Client(port)
        for number, waiter in enumerate((first, second)):
            waiter.says(dequeue(timeout_ms=LONG_MS))
            server.until(lambda number=number: waiting_now(server) == number + 1)
        release = server.hold_commits()
        for number, holder in enumerate((one, two)):
            holder.says(NACK)
            server.until(lambda number=number: len(server.node._in_flight) == number + 1)
        for number, thief in enumerate((three, four)):
            thief.says(dequeue())
            server.until(lambda number=number: len(server.node._in_flight) == number + 3)
        release()
        for holder, thief in ((one, three), (two, four)):
            holder.hears(OK)
            thief.hears(record(1, b"x"))
        server.until(lambda: waiting_now(server) == 2 and not server.node._in_flight and not server.node._pending)
        for waiter in (first, second):
            one.enqueues(2, b"y")
            waiter.hears(record(2, b"y"))
            waiter.socket.close()


def test_a_waiter_of_another_queue_is_not_served(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as waiter, Client(port) as client:
        client.asks(create("q"), OK)
        waiter.says(dequeue("q", LONG_MS))
        server.until(lambda: server.node.waiters.queues)
        client.enqueues(1, b"x")
        assert waiting(server, "q") == 1
        client.enqueues(1, b"y", "q")
        waiter.hears(record(1, b"y"))


def test_a_waiter_that_left_is_passed_over(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as second, Client(port) as client:
        first = Client(port)
        first.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 1)
        second.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 2)
        first.socket.close()
        server.until(lambda: waiting_now(server) == 1)
        client.enqueues(1, b"x")
        second.hears(record(1, b"x"))
        second.asks(ACK, OK)


def test_a_record_taken_for_a_waiter_that_left_meanwhile_goes_to_the_next(server: DoorServer) -> None:
    """The waiter's take is in the log already when its socket closes."""
    port = server.listen()
    with Client(port) as second, Client(port) as client:
        first = Client(port)
        first.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 1)
        second.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: waiting_now(server) == 2)
        client.asks(enqueue(1, b"x"), OK)
        release = server.hold_commits()
        client.says(ACK)
        server.until(lambda: waiting_now(server) == 1)
        first.socket.close()
        server.until(lambda: sum(connection.closed for connection in server.connections) == 1)
        release()
        client.hears(OK)
        second.hears(record(1, b"x"))
        second.asks(ACK, OK)
        client.counts(0)


def test_a_waiter_whose_time_is_over_is_not_served_any_more(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as waiter, Client(port) as client:
        waiter.asks(dequeue(timeout_ms=20), EMPTY)
        client.enqueues(1, b"x")
        client.counts(1)
        waiter.counts(1)


def test_waiting_may_last_longer_than_the_idle_timeout(clocked_server: DoorServer) -> None:
    server = clocked_server
    with (
        Client(server.listen(idle_timeout_ms=60_000, ack_timeout_ms=60_000)) as waiter,
        Client(server.listen(idle_timeout_ms=86_400_000)) as client,
    ):
        waiter.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: server.node.waiters.queues)
        for _ in range(10):
            server.advance(100)
        client.enqueues(1, b"x")
        waiter.hears(record(1, b"x"))
        waiter.asks(ACK, OK)


def test_what_comes_while_waiting_is_served_afterwards(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as waiter, Client(port) as client:
        waiter.says(dequeue(timeout_ms=LONG_MS), NACK, dequeue(), ACK, dequeue())
        server.until(lambda: server.node.waiters.queues)
        client.enqueues(1, b"x")
        waiter.hears(record(1, b"x"), OK, record(1, b"x"), OK, EMPTY)


def test_a_node_that_stops_closes_who_waits(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as waiter, Client(port) as client:
        waiter.says(dequeue(timeout_ms=LONG_MS))
        server.until(lambda: server.node.waiters.queues)
        server.run(server.node.stop())
        waiter.is_closed()
        client.asks(enqueue(1, b"x"), OK)
        client.says(ACK)
        client.is_closed()

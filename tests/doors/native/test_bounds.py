"""What one native client can make the node hold or do at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.doors import doorkeeper, native, turns
from penstock.doors.connection import REQUEST_STALLED_AFTER_S, STALLED_AFTER_S
from penstock.doors.native import NativeConnection
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.records import LEASED, READY
from penstock.engine.views import QueueView
from penstock.wire.native import messages as m
from penstock.wire.native.frames import encode_frame
from tests.doors.conftest import DoorServer
from tests.doors.native.support import RawClient, put

MIB = 1024 * 1024


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock of the turns takes a millisecond."""
    ticks: Iterator[int] = iter(range(10**9))
    monkeypatch.setattr(turns, "perf_counter", lambda: next(ticks) / 1000)


def connections(server: DoorServer) -> list[NativeConnection]:
    """The native connections that are open, oldest first; from any thread."""
    return [each for each in server.keeper.connections if isinstance(each, NativeConnection)]


def test_a_flood_of_pings_is_served_in_turns(server: DoorServer, slow_clock: None) -> None:
    port = server.listen()
    with RawClient(port) as flooder, RawClient(port) as other:
        flooder.call(m.Ping())
        other.call(m.Ping())
        connection, neighbour = connections(server)
        pings = b"".join(encode_frame(m.PING, number, b"\x90") for number in range(1, 10_001))

        def receive() -> tuple[bool, bool, int]:
            connection.data_received(pings)
            neighbour.data_received(encode_frame(m.PING, 2, b"\x90"))
            return connection.is_waiting, connection._reading_paused, len(neighbour._out)

        assert server.call(receive) == (True, True, 1), "the other is answered in the same turn"
        flooder._sent = dict.fromkeys(range(10_001), m.PING)
        assert [flooder.receive()[1] for _ in range(10_000)] == list(range(1, 10_001))
        server.until(lambda: not connection.is_waiting and not connection._reading_paused)
        assert flooder.call(m.Ping())


def test_reads_that_become_due_together_are_carried_out_in_turns(server: DoorServer, slow_clock: None) -> None:
    port = server.listen()
    with RawClient(port) as client:
        client.call(put("", b"x"))
        connection = connections(server)[0]
        release = server.hold_commits()
        client.send(put("", b"y"))
        server.until(lambda: server.node._in_flight)
        requests = [client.send(m.ShowQueue("")) for _ in range(500)]
        server.until(lambda: len(server.node._in_flight[0].reads) == 500)

        def release_and_look() -> tuple[bool, int]:
            release.release_here()
            return connection.is_waiting, len(connection._reads._due)

        is_waiting, due = server.call(release_and_look)
        assert is_waiting
        assert due > 400
        client.receive()
        assert [client.receive()[1] for _ in requests] == requests


def test_a_long_list_is_built_in_slices_and_equals_the_whole(server: DoorServer, slow_clock: None) -> None:
    with RawClient(server.listen()) as client:
        for number in range(1_000):
            client.call(c.CreateQueue(f"queue-{number}", c.QueueSettings()))
        assert [view.name for view in client.call(m.ListQueues())] == ["", *(f"queue-{n}" for n in range(1_000))]
        assert len(client.call(m.QueueNames())) == 1_001
        assert client.call(m.ListJobs()) == client.call(m.ListBindings()) == []


def test_a_queue_that_goes_while_the_list_is_built_is_not_in_it(server: DoorServer) -> None:
    from penstock.doors.reads import LISTS, SlicedList

    with RawClient(server.listen()) as client:
        for number in range(60):
            client.call(c.CreateQueue(f"queue-{number}", c.QueueSettings()))

        def begin() -> SlicedList:
            building = SlicedList(LISTS[m.LIST_QUEUES](server.node.engine.state))
            assert building.build()
            return building

        building = server.call(begin)
        client.call(c.DeleteQueue("queue-59"))

        def finish() -> bytes:
            while building.build():
                pass
            return building.encoded()

        views = msgspec.msgpack.decode(server.call(finish), type=list[QueueView])
        assert [view.name for view in views] == ["", *(f"queue-{n}" for n in range(59))]


def test_a_subscriber_that_never_reads_gets_no_more_than_a_few_mebibytes(server: DoorServer) -> None:
    port = server.listen()
    with RawClient(port) as producer, RawClient(port) as subscriber:
        for _ in range(40):
            producer.call(put("", bytes(MIB)))
        subscriber.call(m.Ping())
        connection = connections(server)[1]
        for _ in range(50):
            subscriber.send(m.Subscribe("", window=1000, lease_ms=60_000))
        server.until(lambda: connection._held_back and not server.node.is_busy)
        unsent_bytes = server.call(lambda: connection.unsent_bytes)
        assert unsent_bytes < native.PUSHED_UNREAD_BYTES_MAX + 20 * MIB
        assert server.call(lambda: server.node.account.total) >= unsent_bytes
        assert server.call(lambda: server.queue().counts[READY]) > 0, "what cannot be pushed is not leased"
        pushed = 0
        while pushed < 40:
            status, _, answer = subscriber.receive()
            pushed += len(answer.records) if status == m.PUSH else 0
        server.until(lambda: server.queue().counts[LEASED] == 40)


def test_records_for_a_full_connection_go_back_untouched(server: DoorServer) -> None:
    """Takes of many subscriptions wait when the messages come, and all of them are served at once."""
    port = server.listen()
    with RawClient(port) as producer, RawClient(port) as subscriber:
        for number in range(30):
            producer.call(c.CreateQueue(f"q{number}", c.QueueSettings()))
            subscriber.send(m.Subscribe(f"q{number}", window=10))
            subscriber.receive()
        connection = connections(server)[1]
        producer.call(c.PutMany([(f"q{number}", [c.Item(0, bytes(MIB))]) for number in range(30)]))
        server.until(lambda: connection._held_back and not server.node.is_busy)
        assert server.call(lambda: connection.unsent_bytes) < native.PUSHED_UNREAD_BYTES_MAX + 2 * MIB
        deliveries = []
        while len(deliveries) < 30:
            status, _, answer = subscriber.receive()
            assert status == m.PUSH
            deliveries += [record.deliveries for record in answer.records]
        assert deliveries == [1] * 30


def test_peeks_behind_a_command_are_answered_as_they_are_read(server: DoorServer) -> None:
    port = server.listen()
    with RawClient(port) as client:
        for _ in range(8):
            client.call(put("", bytes(MIB)))
        connection = connections(server)[0]
        release = server.hold_commits()
        client.send(put("", b""))
        server.until(lambda: server.node._in_flight)
        for _ in range(30):
            client.send(m.Peek("", 100))
        server.until(lambda: len(server.node._in_flight[0].reads) == 30)
        release()
        server.until(lambda: connection._writing_paused)
        assert server.call(lambda: connection.unsent_bytes) < 20 * MIB
        client.receive()
        assert [len(client.receive()[2]) for _ in range(30)] == [9] * 30


def test_settling_leases_of_many_subscriptions_looks_at_each_lease_once(server: DoorServer) -> None:
    class CountedSet(set[Any]):
        looks = 0

        def discard(self, element: Any) -> None:
            CountedSet.looks += 1
            super().discard(element)

        def difference_update(self, *others: Any) -> None:
            CountedSet.looks += sum(map(len, others))
            super().difference_update(*others)

    with RawClient(server.listen()) as client:
        for _ in range(10):
            client.call(put("", *[b"x"] * 100))
        handles: list[tuple[int, int]] = []
        for _ in range(100):
            client.send(m.Subscribe("", window=10))
        while len(handles) < 1_000:
            status, _, answer = client.receive()
            if status == m.PUSH:
                handles += [(record.id, answer.token) for record in answer.records]
        connection = connections(server)[0]

        def count() -> None:
            for subscription in connection._subscriptions.values():
                subscription.held = CountedSet(subscription.held)

        server.call(count)
        assert client.call(c.Ack("", handles)).count == 1_000
        assert CountedSet.looks <= 2 * len(handles)
        assert not server.call(lambda: connection._pushed)


def test_the_slowest_half_frame_is_refused_by_its_number_when_buffers_need_too_much(clocked_server: DoorServer) -> None:
    server = clocked_server
    port = server.listen()
    half = struct.pack(">IBQ", 9 + 16 * MIB, c.PUT, 7) + bytes(8 * MIB)
    server.keeper.buffer_bytes_max = 20 * MIB
    with RawClient(port) as slow, RawClient(port) as fast, RawClient(port) as small:
        small.call(m.Ping())
        slow._sent[7] = c.PUT
        slow.sock.sendall(half)
        server.until(lambda: server.node.account.total > 8 * MIB)
        server.advance(10)
        fast.sock.sendall(half)
        server.until(lambda: server.node.account.total > 16 * MIB)
        fast.sock.sendall(bytes(5 * MIB))
        status, request, refusal = slow.receive()
        assert (status, request, refusal.code) == (m.REFUSED, 7, e.MEMORY_FULL)
        assert "limits.buffer_bytes" in refusal.detail
        server.until(lambda: len(connections(server)) == 2)
        assert server.call(lambda: server.node.account.total) < 20 * MIB
        assert small.call(put("", b"small requests are served"))


def test_a_frame_that_stops_in_the_middle_ends_its_connection_and_a_slow_one_does_not(
    clocked_server: DoorServer,
) -> None:
    server = clocked_server
    port = server.listen()
    with RawClient(port) as stopped, RawClient(port) as slow:
        body = msgspec.msgpack.encode(put("", bytes(100)))
        frame = encode_frame(c.PUT, 1, body)
        slow._sent[1] = c.PUT
        for client in (stopped, slow):
            client.sock.sendall(frame[:20])
        server.until(lambda: sum(each.has_half_request() for each in connections(server)) == 2)
        for position in range(20, 40):
            server.advance(REQUEST_STALLED_AFTER_S / 4)
            came = connections(server)[-1].came_bytes
            slow.sock.sendall(frame[position : position + 1])
            server.until(lambda came=came: connections(server)[-1].came_bytes > came)
        assert len(connections(server)) == 1
        with pytest.raises((EOFError, ConnectionResetError)):
            stopped.receive()
        slow.sock.sendall(frame[40:])
        assert slow.receive()[0] == m.ANSWER


def test_a_slow_reader_stays_and_one_that_reads_nothing_goes(clocked_server: DoorServer) -> None:
    server = clocked_server
    port = server.listen()
    with RawClient(port) as producer, RawClient(port) as slow, RawClient(port) as stopped:
        for _ in range(15):
            producer.call(put("", bytes(MIB)))
        for client in (slow, stopped):
            client.send(m.Peek("", 100))
        server.until(lambda: sum(each._writing_paused for each in connections(server)) == 2)
        connection = connections(server)[1]
        for _ in range(10):
            moved = server.call(connection.moved_bytes)
            slow.read_exactly(MIB // 2)
            server.until(lambda moved=moved: connection.moved_bytes() > moved or not connection._writing_paused)
            server.advance(STALLED_AFTER_S / 4)
        server.until(lambda: len(connections(server)) == 2)
        assert connection in connections(server)


def test_the_account_is_exact_to_a_few_kibibytes_and_empty_at_the_end(server: DoorServer) -> None:
    port = server.listen()
    with RawClient(port) as client:
        client.call(m.Ping())
        one = server.call(lambda: server.node.account.total)
        assert one == doorkeeper.CONNECTION_BYTES
        client.sock.sendall(encode_frame(c.PUT, 9, bytes(MIB))[: MIB // 2])
        server.until(lambda: abs(server.node.account.total - one - MIB // 2) < 64 * 1024)
        assert server.call(lambda: server.node.account.bytes_by_kind["received"]) > 0
    server.until(lambda: server.node.account.total == 0)

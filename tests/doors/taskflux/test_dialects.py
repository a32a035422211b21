"""The older protocol in both of its forms, a listener without acknowledgements, and listeners side by side."""

from __future__ import annotations

import pytest

from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    AUTHORIZATION,
    AUTHORIZED,
    BOOTSTRAP,
    BOOTSTRAPPED,
    CSHARP,
    EMPTY,
    METADATA,
    NACK,
    OK,
    PACKETS,
    SEED000,
    Client,
    count,
    counted,
    create,
    dequeue,
    enqueue,
    framed,
    int32,
    record,
    text,
)

# --- seed 001 -----------------------------------------------------------------------------------------------

both_markers = pytest.mark.parametrize("marker", [b"C", b"D"])
ENQUEUE = PACKETS["seed001:cmd.enqueue_default"][5:]
DEQUEUE = PACKETS["seed001:cmd.dequeue_default"][5:]
COUNT = PACKETS["seed001:cmd.count_default"][5:]
COUNT_ORDERS = PACKETS["seed001:cmd.count_named"][5:]
RECORD = PACKETS["seed001:rsp.dequeue_record"][5:]
ADDED = b"e\x01"
FULL = PACKETS["seed001:rsp.enqueue_full"][5:]
NONE = PACKETS["seed001:rsp.dequeue_empty"][5:]


def framed_count(number: int) -> bytes:
    return b"c" + int32(number)


def framed_enqueue(queue: str, key: int, payload: bytes) -> bytes:
    return b"E" + text(queue) + key.to_bytes(8, "big", signed=True) + int32(len(payload)) + payload


@both_markers
@pytest.mark.parametrize("dialect", [SEED000, CSHARP])
@pytest.mark.parametrize("acks", [True, False])
def test_the_older_protocol_is_recognised_on_every_listener(
    server: DoorServer, dialect: str, acks: bool, marker: bytes
) -> None:
    """One request, one answer; Enqueue and Dequeue take effect at once."""
    reply = marker.lower()
    with Client(server.listen(dialect=dialect, acks=acks)) as client:
        client.asks(framed(marker, COUNT), framed(reply, framed_count(0)))
        client.asks(framed(marker, ENQUEUE), framed(reply, ADDED))
        client.asks(framed(marker, COUNT), framed(reply, framed_count(1)))
        client.asks(framed(marker, DEQUEUE), framed(reply, RECORD))
        client.asks(framed(marker, COUNT), framed(reply, framed_count(0)))
        client.asks(framed(marker, DEQUEUE), framed(reply, NONE))
    assert server.queue().totals.acked == 1


@both_markers
@pytest.mark.parametrize("first", [ENQUEUE, DEQUEUE, COUNT])
def test_any_of_its_commands_may_be_the_first(server: DoorServer, marker: bytes, first: bytes) -> None:
    answers = {ENQUEUE: ADDED, DEQUEUE: NONE, COUNT: framed_count(0)}
    with Client(server.listen()) as client:
        client.asks(framed(marker, first), framed(marker.lower(), answers[first]))


def test_its_packets_as_the_vectors_have_them(server: DoorServer) -> None:
    with Client(server.listen()) as client, Client(server.listen()) as data_client:
        client.asks(PACKETS["seed001:cmdpkt.enqueue_default"], PACKETS["seed001:rsppkt.enqueue_ok"])
        data_client.asks(PACKETS["seed001-datapackets:cmdpkt.count_default"], framed(b"d", framed_count(1)))
        client.asks(PACKETS["seed001:cmdpkt.dequeue_default"], framed(b"c", RECORD))
        client.asks(PACKETS["seed001:cmdpkt.dequeue_default"], PACKETS["seed001:rsppkt.dequeue_empty"])
        missing = PACKETS["seed001-datapackets:rsppkt.error_2_default"]
        data_client.asks(PACKETS["seed001-datapackets:cmdpkt.dequeue_named"], missing)
        data_client.asks(PACKETS["seed001-datapackets:cmdpkt.enqueue_default"], framed(b"d", ADDED))
        client.asks(PACKETS["seed001:cmdpkt.dequeue_named"], PACKETS["seed001:rsppkt.error_2_default"])
        for _ in range(41):
            client.asks(PACKETS["seed001:cmdpkt.enqueue_default"], PACKETS["seed001:rsppkt.enqueue_ok"])
        client.asks(PACKETS["seed001:cmdpkt.count_default"], PACKETS["seed001:rsppkt.count_42"])


@both_markers
def test_it_may_come_byte_by_byte_and_ahead(server: DoorServer, marker: bytes) -> None:
    requests = [AUTHORIZATION, BOOTSTRAP] + [framed(marker, body) for body in (ENQUEUE, COUNT, DEQUEUE, DEQUEUE)]
    replies = [framed(marker.lower(), body) for body in (ADDED, framed_count(1), RECORD, NONE)]
    port = server.listen()
    with Client(port, handshake=False) as client:
        client.says_slowly(*requests)
        client.hears(AUTHORIZED, BOOTSTRAPPED, *replies)
    with Client(port, handshake=False) as client:
        client.says(*requests)
        client.hears(AUTHORIZED, BOOTSTRAPPED, *replies)


@both_markers
def test_a_missing_queue_and_a_bad_name_get_their_default_texts(server: DoorServer, marker: bytes) -> None:
    reply = marker.lower()
    missing = framed(reply, PACKETS["seed001:rsp.error_2_default"][5:])
    bad = framed(reply, PACKETS["seed001:rsp.error_1_default"][5:])
    with Client(server.listen()) as client:
        client.asks(framed(marker, COUNT_ORDERS), missing)
        client.asks(framed(marker, b"D" + text("orders")), missing)
        client.asks(framed(marker, PACKETS["seed001:cmd.enqueue_named_neg_empty"][5:]), missing)
        for queue in ("a b", "é", "n" * 256):
            for body in (b"C" + text(queue), b"D" + text(queue), framed_enqueue(queue, 1, b"x")):
                client.asks(framed(marker, body), bad)
        client.asks(framed(marker, COUNT), framed(reply, framed_count(0)))


@both_markers
def test_policies_in_the_older_protocol(server: DoorServer, marker: bytes) -> None:
    """A full queue is "not added"; it has no words for the others but an error with a text."""
    reply = marker.lower()
    port = server.listen()
    with Client(port) as client, Client(port) as older:
        client.asks(create("q", 2, 1, 3, (0, 9)), OK)
        for body, word in [(framed_enqueue("q", 10, b""), "0..9"), (framed_enqueue("q", 9, b"1234"), "3 bytes")]:
            older.says(framed(marker, body))
            length = int.from_bytes(older.reads(5)[1:], "big")
            answer = older.reads(length)
            assert answer[:2] == b"E\x00"
            assert word in answer[6:].decode()
        older.asks(framed(marker, framed_enqueue("q", 9, b"123")), framed(reply, ADDED))
        older.asks(framed(marker, framed_enqueue("q", 9, b"123")), framed(reply, FULL))
        server.call(lambda: setattr(server.store._space, "full", True))
        older.says(framed(marker, ENQUEUE))
        assert older.reads(7)[5:] == b"E\x00"
        assert "disk is full" in older.reads_text()


@both_markers
@pytest.mark.parametrize(
    "junk",
    [
        b"X",
        METADATA,
        ACK,
        b"\xff\xff\xff\xff",
        int32(0),
        int32(6) + COUNT + b"x",
        int32(4) + COUNT[:4],
        int32(5) + b"X" + COUNT[1:],
        int32(2**24 + 5000),
    ],
)
def test_junk_in_the_older_protocol_closes_without_a_word(server: DoorServer, marker: bytes, junk: bytes) -> None:
    port = server.listen()
    with Client(port) as client, Client(port) as other:
        client.asks(framed(marker, COUNT), framed(marker.lower(), framed_count(0)))
        client.says(junk if len(junk) == 1 else marker + junk)
        client.is_closed()
        other.counts(0)


def test_the_two_markers_of_the_older_protocol_do_not_mix(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(framed(b"C", COUNT), framed(b"c", framed_count(0)))
        client.says(framed(b"D", COUNT))
        client.is_closed()


def test_a_connection_keeps_the_protocol_of_its_first_command(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as client:
        client.counts(0)
        client.says(framed(b"C", COUNT))
        client.is_closed()


def test_the_older_protocol_on_a_node_that_does_not_lead(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        server.turn_leadership_over(2)
        for body in (ENQUEUE, DEQUEUE, COUNT):
            client.asks(framed(b"C", body), PACKETS["seed001:pkt.not_leader_2"])


# --- without acknowledgements -------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [SEED000, CSHARP])
def test_without_acknowledgements_each_command_has_one_answer_and_takes_effect_at_once(
    server: DoorServer, dialect: str
) -> None:
    with Client(server.listen(dialect=dialect, acks=False)) as client:
        client.asks(enqueue(5, b"abc"), OK)
        client.counts(1)
        client.asks(dequeue(), record(5, b"abc", 1 if dialect == CSHARP else None))
        client.counts(0)
        client.asks(dequeue(), EMPTY)
    server.until(lambda: server.connections[0].closed)
    assert server.queue().counts == [0, 0, 0, 0]
    assert server.queue().totals.acked == 1


def test_without_acknowledgements_errors_and_policies_come_in_place_of_the_answer(server: DoorServer) -> None:
    with Client(server.listen(acks=False)) as client:
        client.asks(enqueue(1, b"", "orders"), b"cx" + int32(2) + text("there is no queue 'orders'"))
        client.asks(dequeue("orders"), b"cx" + int32(2) + text("there is no queue 'orders'"))
        client.asks(PACKETS["seed000:cmd.create_full_qa"], OK)
        client.asks(enqueue(6, b"", "orders"), PACKETS["seed000:rsppkt.policy_priority_range"])
        server.call(lambda: setattr(server.node.limits, "memory_bytes_max", 0))
        client.asks(enqueue(5, b"", "orders"), b"cp" + int32(0))
        assert "take some messages first" in client.reads_text()


def test_without_acknowledgements_a_dequeue_may_wait(server: DoorServer) -> None:
    port = server.listen(acks=False)
    with Client(port) as waiter, Client(port) as client:
        waiter.says(dequeue(timeout_ms=600_000))
        server.until(lambda: server.node.waiters.queues)
        client.asks(enqueue(1, b"x"), OK)
        waiter.hears(record(1, b"x"))
        waiter.counts(0)


def test_without_acknowledgements_those_that_come_are_ignored(server: DoorServer) -> None:
    with Client(server.listen(acks=False)) as client:
        client.says(enqueue(1, b"x"), ACK, NACK, count(), dequeue(), ACK, dequeue())
        client.hears(OK, counted(1), record(1, b"x"), EMPTY)


def test_without_acknowledgements_requests_sent_ahead_are_answered_in_order(server: DoorServer) -> None:
    with Client(server.listen(acks=False)) as client:
        client.says(*[enqueue(number, b"%d" % number) for number in range(50)])
        client.hears(OK * 50)
        client.says(*[dequeue()] * 50)
        client.hears(*[record(number, b"%d" % number) for number in range(50)])


# --- side by side -------------------------------------------------------------------------------------------


def test_listeners_of_all_kinds_share_the_queues(server: DoorServer) -> None:
    ports = server.listen(), server.listen(dialect=CSHARP), server.listen(acks=False)
    with Client(ports[0]) as current, Client(ports[1]) as csharp, Client(ports[2]) as plain, Client(ports[0]) as older:
        older.asks(framed(b"D", ENQUEUE), framed(b"d", ADDED))
        csharp.asks(dequeue(), record(5, b"abc", 1))
        csharp.asks(NACK, OK)
        current.asks(dequeue(), record(5, b"abc"))
        current.asks(NACK, OK)
        plain.asks(count(), counted(1))
        csharp.asks(create("q", 2), b"e" + int32(7) + text(""))
        current.asks(create("q", 2), b"cx" + int32(8))
        assert current.reads_text() != ""
        plain.asks(dequeue(), record(5, b"abc"))
        older.asks(framed(b"D", COUNT), framed(b"d", framed_count(0)))

"""Each packet sequence of the current protocol, in both of its dialects, over raw sockets."""

from __future__ import annotations

import pytest

from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    ACK_OF_THE_DOCS,
    CSHARP,
    EMPTY,
    LIST,
    METADATA,
    NACK,
    OK,
    PACKETS,
    SEED000,
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

both_dialects = pytest.mark.parametrize("dialect", [SEED000, CSHARP])
ENQUEUE = PACKETS["seed000:cmdpkt.enqueue_default"]
DEQUEUE = PACKETS["seed000:cmdpkt.dequeue_default_nowait"]
RECORD = {
    SEED000: PACKETS["seed000:rsppkt.dequeue_record"],
    CSHARP: PACKETS["csharp-head:rsppkt.dequeue_record"],
}


# --- Enqueue ------------------------------------------------------------------------------------------------


@both_dialects
@pytest.mark.parametrize("ack", [ACK, ACK_OF_THE_DOCS])
def test_enqueue_is_stored_when_it_is_acknowledged(server: DoorServer, dialect: str, ack: bytes) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as client, Client(port) as other:
        client.asks(ENQUEUE, OK)
        other.counts(0)
        client.asks(ack, OK)
        other.counts(1)


@both_dialects
def test_enqueue_that_is_taken_back_stores_nothing(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(ENQUEUE, OK)
        client.asks(NACK, OK)
        client.counts(0)


@both_dialects
def test_enqueue_is_answered_only_when_it_is_committed(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(ENQUEUE, OK)
        release = server.hold_commits()
        client.says(ACK)
        server.until(lambda: server.node._in_flight)
        client.hears_nothing()
        release()
        client.hears(OK)


def test_enqueue_accepts_before_it_looks_for_the_queue(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(PACKETS["seed000:cmd.enqueue_named_neg_empty"], OK)
        client.says(ACK)
        client.hears(b"cx", int32(2), text("there is no queue 'orders'"))
        client.counts(0)


@pytest.mark.parametrize("key", ["cmd.enqueue_key_min", "cmd.enqueue_key_max"])
def test_enqueue_takes_every_key(server: DoorServer, key: str) -> None:
    packet = PACKETS[f"seed000:{key}"]
    with Client(server.listen()) as client:
        client.asks(packet + ACK, OK, OK)
        client.asks(DEQUEUE, b"cd\x01" + packet[3:])  # key and payload stand there as they came


# --- Dequeue ------------------------------------------------------------------------------------------------


@both_dialects
@pytest.mark.parametrize("ack", [ACK, ACK_OF_THE_DOCS])
def test_dequeue_removes_the_record_when_it_is_acknowledged(server: DoorServer, dialect: str, ack: bytes) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as client:
        client.asks(ENQUEUE + ACK, OK, OK)
        client.asks(DEQUEUE, RECORD[dialect])
        client.asks(ack, OK)
        client.asks(DEQUEUE, EMPTY)
    assert server.queue().totals.acked == 1


@both_dialects
def test_a_record_that_waits_for_its_acknowledgement_is_neither_counted_nor_given_to_others(
    server: DoorServer, dialect: str
) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as client, Client(port) as other:
        client.asks(ENQUEUE + ACK, OK, OK)
        client.asks(DEQUEUE, RECORD[dialect])
        other.counts(0)
        other.asks(DEQUEUE, EMPTY)
        client.asks(ACK, OK)


@both_dialects
def test_dequeue_that_is_not_acknowledged_returns_the_record(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(ENQUEUE + ACK, OK, OK)
        client.asks(DEQUEUE, RECORD[dialect])
        client.asks(NACK, OK)
        client.counts(1)
        client.asks(DEQUEUE, RECORD[dialect])


@both_dialects
def test_dequeue_from_an_empty_queue_answers_at_once_and_awaits_no_acknowledgement(
    server: DoorServer, dialect: str
) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(DEQUEUE, EMPTY)
        client.asks(DEQUEUE, EMPTY)
        client.counts(0)


def test_dequeue_with_a_timeout_answers_empty_when_it_is_over(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(dequeue(timeout_ms=30), EMPTY)
        client.counts(0)
    waited_us = server.call(lambda: server.node.clock.now_us()) - server.node.engine.state.stamp_us
    assert waited_us >= 30_000


def test_the_longest_timeout_is_understood(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(create("orders"), OK)
        client.enqueues(1, b"x", "orders")
        client.asks(PACKETS["seed000:cmdpkt.dequeue_named_max"], record(1, b"x"))


def test_records_come_by_key_and_equal_keys_in_their_order(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        for key, payload in [(5, b"a"), (-3, b"b"), (5, b"c"), (0, b"d")]:
            client.enqueues(key, payload)
        for key, payload in [(-3, b"b"), (0, b"d"), (5, b"a"), (5, b"c")]:
            client.dequeues(key, payload)
        client.asks(DEQUEUE, EMPTY)


def test_an_acknowledgement_of_a_record_that_was_taken_away_is_an_error(server: DoorServer) -> None:
    """An operator deleted the queue meanwhile: the client must not believe that it removed anything."""
    port = server.listen()
    with Client(port) as client, Client(port) as other:
        for ending, answer in [(ACK, b"cx" + int32(2) + text("there is no queue 'q'")), (NACK, OK)]:
            client.asks(create("q"), OK)
            client.enqueues(1, b"x", "q")
            client.asks(dequeue("q"), record(1, b"x"))
            other.asks(delete("q"), OK)
            client.asks(ending, answer)
        client.asks(create("q"), OK)
        client.enqueues(1, b"x", "q")
        client.asks(dequeue("q"), record(1, b"x"))
        other.asks(delete("q") + create("q"), OK, OK)
        client.asks(ACK, b"cx" + int32(0))
        assert "no longer held" in client.reads_text()


# --- Count, List, Cluster Metadata --------------------------------------------------------------------------


def test_count_counts_the_ready_ones(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(create("orders"), OK)
        for _ in range(42):
            client.says(enqueue(1, b"", "orders") + ACK)
            client.hears(OK, OK)
        client.asks(PACKETS["seed000:cmdpkt.count_named"], PACKETS["seed000:rsppkt.count_42"])


@both_dialects
def test_list_tells_all_queues_in_order_of_creation_with_their_policies(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(PACKETS["seed000:cmdpkt.create_full_qa"], OK)
        for _ in range(3):
            client.asks(enqueue(-5, b"x", "orders") + ACK, OK, OK)
        expected = "seed000:rsppkt.list_two" if dialect == SEED000 else "csharp-head:rsppkt.list_two"
        client.asks(LIST, PACKETS[expected])


def test_list_leaves_out_what_is_being_worked_on(server: DoorServer) -> None:
    port = server.listen()
    with Client(port) as client, Client(port) as worker:
        client.enqueues(1, b"x")
        client.enqueues(2, b"y")
        worker.asks(dequeue(), record(1, b"x"))
        client.asks(LIST, listed(("", 1, {})))


def test_list_tells_only_the_policies_that_are_set(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(create("z", size_max=0), OK)
        client.asks(create("a", payload_bytes_max=7), OK)
        client.asks(create("m", key_range=(-(2**63), 2**63 - 1)), OK)
        client.asks(
            LIST,
            listed(
                ("", 0, {}),
                ("z", 0, {"max-queue-size": "0"}),
                ("a", 0, {"max-payload-size": "7"}),
                ("m", 0, {"priority-range": "-9223372036854775808 9223372036854775807"}),
            ),
        )


@both_dialects
def test_reads_wait_for_what_was_accepted_before(server: DoorServer, dialect: str) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as writer, Client(port) as reader:
        writer.asks(ENQUEUE, OK)
        release = server.hold_commits()
        writer.says(ACK)
        server.until(lambda: server.node._in_flight)
        reader.says(count())
        server.until(lambda: server.node._in_flight[0].reads)
        release()
        reader.hears(counted(1))
        writer.hears(OK)


@both_dialects
def test_cluster_metadata_tells_the_advertised_addresses(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        server.addresses = (["tflux.1:5000", "127.0.0.1:5001"], 1, 0)
        client.asks(METADATA, PACKETS["client-packets:cluster_metadata_response"])
        server.addresses = (["tflux.1:5000"], -1, 0)
        client.asks(METADATA, PACKETS["client-packets:cluster_metadata_response_noleader"])
        client.asks(DEQUEUE + METADATA, EMPTY, PACKETS["client-packets:cluster_metadata_response_noleader"])


# --- Create, Delete -----------------------------------------------------------------------------------------


@both_dialects
def test_create_and_delete(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(PACKETS["seed000:cmd.create_minimal"], OK)
        client.asks(PACKETS["seed000:cmd.count_named"], counted(0))
        client.asks(PACKETS["seed000:cmd.delete"], OK)
        client.asks(PACKETS["seed000:cmd.create_full_qa"], OK)


def test_code_0_lets_the_server_choose(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(PACKETS["seed000:cmd.create_default_code"], OK)
    assert server.queue("orders").settings.implementation == 1


def test_a_queue_is_made_as_asked(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.asks(PACKETS["seed000:cmd.create_full_qa"], OK)
    settings = server.queue("orders").settings
    assert settings.implementation == 2
    assert (settings.size_max, settings.payload_bytes_max, settings.key_range) == (100, 2048, (-5, 5))


# --- several at once ----------------------------------------------------------------------------------------

SCRIPT: list[tuple[bytes, bytes]] = [
    (create("orders", 2, 2, 4, (0, 9)), OK),
    (enqueue(3, b"c", "orders"), OK),
    (ACK, OK),
    (METADATA, b"m" + int32(1) + text("127.0.0.1:2602") + int32(0) + int32(0)),
    (enqueue(1, b"a", "orders"), OK),
    (ACK_OF_THE_DOCS, OK),
    (enqueue(2, b"b", "orders"), OK),
    (ACK, b"cp" + int32(1) + int32(2)),
    (NACK, b""),
    (ACK, b""),
    (count("orders"), counted(2)),
    (dequeue("orders", 5000), record(1, b"a")),
    (NACK, OK),
    (dequeue("orders"), record(1, b"a")),
    (ACK, OK),
    (dequeue("orders"), record(3, b"c")),
    (ACK, OK),
    (dequeue("orders", 1), EMPTY),
    (count("a b"), b"cx" + int32(1) + text("a queue's name has at most 255 characters, each between ! and ~")),
    (delete("orders"), OK),
    (LIST, listed(("", 0, {}))),
]


def test_pipelined_packets_are_answered_in_order(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.says(*(request for request, _ in SCRIPT))
        client.hears(*(reply for _, reply in SCRIPT))


def test_packets_may_come_byte_by_byte(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        for request, reply in SCRIPT:
            client.says_slowly(request)
            client.hears(reply)


def test_very_many_packets_that_need_no_commit_are_answered_in_order(server: DoorServer) -> None:
    """Answers that come at once must not pile up on the stack, nor keep the others waiting."""
    port = server.listen()
    with Client(port) as client, Client(port) as other:
        client.says(*[count(), DEQUEUE, count("a b")] * 3000)
        bad = b"cx" + int32(1) + text("a queue's name has at most 255 characters, each between ! and ~")
        client.hears(*[counted(0), EMPTY, bad] * 3000)
        other.counts(0)

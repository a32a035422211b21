"""What a wrong request gets: the protocol's own error where it has one, and else a closed connection; nobody else
notices."""

from __future__ import annotations

import contextlib

import pytest

from penstock.wire.taskflux import Limits
from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    CSHARP,
    METADATA,
    NACK,
    OK,
    PACKETS,
    SEED000,
    Client,
    count,
    create,
    delete,
    dequeue,
    enqueue,
    int32,
    record,
    text,
)

both_dialects = pytest.mark.parametrize("dialect", [SEED000, CSHARP])
KIB = 1024
MIB = 1024 * KIB

MISSING = {
    SEED000: b"cx" + int32(2) + text("there is no queue 'orders'"),
    CSHARP: PACKETS["csharp-head:rsppkt.error_2"],
}


# --- queues that are not there, or are ----------------------------------------------------------------------


@both_dialects
def test_commands_on_a_missing_queue_get_error_2(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(enqueue(1, b"", "orders") + ACK, OK, MISSING[dialect])
        client.asks(dequeue("orders"), MISSING[dialect])
        client.asks(dequeue("orders", 60_000), MISSING[dialect])
        client.asks(count("orders"), MISSING[dialect])
        client.asks(delete("orders"), MISSING[dialect])
        client.counts(0)


@both_dialects
def test_a_queue_that_exists_gets_error_3(server: DoorServer, dialect: str) -> None:
    marker, details = (b"cx", "queue {!r} exists already") if dialect == SEED000 else (b"ce", "")
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(create("q"), OK)
        client.asks(create("q"), marker, int32(3), text(details.format("q")))
        client.asks(create(""), marker, int32(3), text(details.format("")))


@both_dialects
def test_the_default_queue_is_never_deleted(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.enqueues(1, b"x") if dialect == SEED000 else client.asks(enqueue(1, b"x") + ACK, OK, OK)
        client.asks(delete(""), b"cx" if dialect == SEED000 else b"ce", int32(1))
        assert client.reads_text() == "the default queue cannot be deleted"
        client.counts(1)


# --- names --------------------------------------------------------------------------------------------------

BAD_NAMES = [b"a b", b"\x7f", b"\xe9", b"\x00", b"tab\t", b" "]


@both_dialects
@pytest.mark.parametrize("bad", BAD_NAMES)
def test_a_bad_name_gets_error_1_in_every_command_and_the_connection_stays(
    server: DoorServer, dialect: str, bad: bytes
) -> None:
    """Also no `k` comes for an Enqueue, and no acknowledgement of it is awaited."""
    if dialect == SEED000:
        error = b"cx" + int32(1) + text("a queue's name has at most 255 characters, each between ! and ~")
    else:
        error = b"e" + int32(1) + text("")
    with Client(server.listen(dialect=dialect)) as client:
        for request in (enqueue(1, b"x", bad), dequeue(bad), dequeue(bad, 9), count(bad), create(bad), delete(bad)):
            client.asks(request, error)
        client.counts(0)


@pytest.mark.parametrize("vector", ["count_bad_name_space", "count_bad_name_7f", "count_bad_name_e9"])
def test_the_bad_names_of_the_vectors(server: DoorServer, vector: str) -> None:
    with Client(server.listen()) as client:
        client.asks(PACKETS[f"seed000:cmd.{vector}"], b"cx", int32(1))


def test_a_name_may_have_255_characters_from_the_whole_range(server: DoorServer) -> None:
    every = "".join(map(chr, range(33, 127)))
    with Client(server.listen()) as client:
        for queue in ("n" * 255, every, "!", "~"):
            client.asks(create(queue), OK)
            client.enqueues(1, b"x", queue)
            client.counts(1, queue)
        client.asks(PACKETS["seed000:cmd.count_name_255"], b"cc" + int32(1))


# --- parameters of Create Queue -----------------------------------------------------------------------------

WRONG_PARAMETERS = [
    (create("q", 1, -1, -1, (5, -5)), 5),
    (create("q", 1, -2), 6),
    (create("q", 1, -(2**31)), 6),
    (create("q", 1, -1, -2), 7),
    (create("q", 2), 8),
    (create("q", 3), 9),
    (create("q", -1), 9),
]
CSHARP_NUMBER = {5: 4, 6: 5, 7: 6, 8: 7, 9: 8}


@pytest.mark.parametrize(("request_packet", "code"), WRONG_PARAMETERS)
def test_wrong_parameters_get_their_error(server: DoorServer, request_packet: bytes, code: int) -> None:
    with Client(server.listen()) as client:
        client.asks(request_packet, b"cx", int32(code))
        assert client.reads_text() != ""
        client.asks(count("q"), b"cx" + int32(2) + text("there is no queue 'q'"))


@pytest.mark.parametrize(("request_packet", "code"), [*WRONG_PARAMETERS, (create("q", 0), 9)])
def test_wrong_parameters_get_an_error_packet_in_csharp(server: DoorServer, request_packet: bytes, code: int) -> None:
    """With the numbers of the original program, which does not know code 0 either."""
    with Client(server.listen(dialect=CSHARP)) as client:
        client.asks(request_packet, b"e", int32(CSHARP_NUMBER[code]), text(""))
        client.asks(count("q"), b"ce" + int32(2) + text(""))


@both_dialects
def test_limits_of_zero_and_a_range_of_one_key_are_right(server: DoorServer, dialect: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(create("q", 2, 0, 0, (7, 7)), OK)


# --- policies -----------------------------------------------------------------------------------------------


@both_dialects
def test_each_policy_is_told_with_its_figures(server: DoorServer, dialect: str) -> None:
    vectors = "seed000" if dialect == SEED000 else "csharp-head"
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(PACKETS["seed000:cmdpkt.create_full_qa"], OK)
        violations = [
            (enqueue(6, b"", "orders"), "policy_priority_range"),
            (enqueue(-6, b"", "orders"), "policy_priority_range"),
            (enqueue(5, bytes(2049), "orders"), "policy_max_payload_size"),
            (enqueue(6, bytes(2049), "orders"), "policy_priority_range"),
        ]
        for request, violation in violations:
            client.asks(request, OK)
            client.asks(ACK, PACKETS[f"{vectors}:rsppkt.{violation}"])
        for _ in range(100):
            client.asks(enqueue(5, bytes(2048), "orders") + ACK, OK, OK)
        client.asks(enqueue(6, bytes(2049), "orders"), OK)
        client.asks(ACK, PACKETS[f"{vectors}:rsppkt.policy_max_queue_size"])
        client.counts(100, "orders")


def test_a_full_queue_counts_what_is_being_worked_on(server: DoorServer) -> None:
    """So a record that comes back always has its room."""
    with Client(server.listen()) as client, Client(server.listen()) as worker:
        client.asks(create("q", 1, 1), OK)
        client.enqueues(1, b"x", "q")
        worker.asks(dequeue("q"), record(1, b"x"))
        client.asks(enqueue(1, b"y", "q") + ACK, OK, b"cp" + int32(1) + int32(1))
        worker.asks(NACK, OK)
        client.counts(1, "q")


# --- limits of the node -------------------------------------------------------------------------------------


@both_dialects
@pytest.mark.parametrize("limit", ["memory", "disk"])
def test_limits_of_the_node_are_policy_0_and_takes_go_on(server: DoorServer, dialect: str, limit: str) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(enqueue(1, b"x") + ACK, OK, OK)
        if limit == "memory":
            server.call(lambda: setattr(server.node.limits, "memory_bytes_max", 0))
        else:
            server.call(lambda: setattr(server.store._space, "full", True))
        client.asks(enqueue(1, b"y") + ACK, OK, b"cp" + int32(0))
        assert "take some messages" in (told := client.reads_text()) or "disk is full" in told
        client.asks(create("q"), b"cx" if dialect == SEED000 else b"ce", int32(0))
        assert client.reads_text() == told
        client.asks(dequeue(), record(1, b"x", 1 if dialect == CSHARP else None))
        client.asks(ACK, OK)
        client.counts(0)


# --- broken input -------------------------------------------------------------------------------------------


@both_dialects
@pytest.mark.parametrize(
    "junk",
    [
        b"X",
        b"k",
        b"\x00",
        b"CX",
        b"CE\x00" + bytes(8) + b"\xff\xff\xff\xff",
        b"CE\x00" + bytes(8) + b"\x80\x00\x00\x00",
        b"AN",
        b"B" + bytes(12),
        b"GET / HTTP/1.1\r\n\r\n",
        b"D\x02",
        b"DL",
    ],
)
def test_junk_closes_its_connection_and_no_other(server: DoorServer, dialect: str, junk: bytes) -> None:
    port = server.listen(dialect=dialect)
    with Client(port) as other, Client(port) as client:
        other.asks(enqueue(1, b"x"), OK)
        client.says(junk)
        client.is_closed()
        other.asks(ACK, OK)
        other.counts(1)


def test_the_line_in_the_log_tells_what_was_wrong(server: DoorServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "penstock.doors"), Client(server.listen()) as client:
        client.says(b"X")
        client.is_closed()
    assert [line.getMessage() for line in caplog.records if "0x58" in line.getMessage()]


def test_what_came_before_the_junk_is_answered(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.says(enqueue(1, b"x"), ACK, count(), b"X", count())
        client.hears(OK, OK, b"cc", int32(1))
        client.is_closed()


def test_a_payload_may_have_16_mib_and_no_byte_more(server: DoorServer) -> None:
    payload = bytes(range(256)) * (16 * MIB // 256)
    port = server.listen()
    with Client(port) as client:
        client.asks(enqueue(1, payload) + ACK, OK, OK)
        client.asks(dequeue(), record(1, payload))
        client.asks(ACK, OK)
    with Client(port) as client:
        client.says(b"CE\x00" + bytes(8) + int32(16 * MIB + 1))
        client.hears(b"cp", int32(2), int32(16 * MIB))
        client.is_closed()


def test_the_payload_limit_is_a_setting(server: DoorServer) -> None:
    port = server.listen(limits=Limits(payload_bytes_max=10))
    with Client(port) as client:
        client.enqueues(1, bytes(10))
        client.says(enqueue(1, bytes(11)))
        client.hears(b"cp", int32(2), int32(10))
        client.is_closed()
    with Client(port) as client:
        client.counts(1)


# --- a client that sends, or does not read, too much --------------------------------------------------------


def test_what_a_client_sends_ahead_is_bounded(server: DoorServer) -> None:
    """While a Dequeue waits nothing more is parsed, and beyond a payload and a mebibyte nothing is read either."""
    port = server.listen(limits=Limits(payload_bytes_max=64 * KIB))
    with Client(port) as client, Client(port) as other:
        client.says(dequeue(timeout_ms=60_000))
        server.until(lambda: server.node.waiters.queues)
        ahead = METADATA * (32 * MIB)
        client.socket.setblocking(False)
        sent = 0
        # The kernel's buffers fill up once the server reads no more; until then it takes what we send.
        connection = server.connections[0]
        while not server.call(lambda: connection.input_full):
            try:
                sent += client.socket.send(ahead[sent : sent + 64 * KIB])
            except BlockingIOError:
                continue
            assert sent < len(ahead)
        held = server.call(lambda: connection._codec.buffered_bytes)
        assert held < 64 * KIB + MIB + 512 * KIB
        with contextlib.suppress(BlockingIOError):
            while sent < len(ahead):
                sent += client.socket.send(ahead[sent : sent + 64 * KIB])
        assert sent < len(ahead)
        assert server.call(lambda: connection._codec.buffered_bytes) == held
        client.socket.settimeout(20)
        other.enqueues(1, b"x")
        client.hears(record(1, b"x"))
        client.is_closed()  # `M` is no acknowledgement
        other.dequeues(1, b"x")


def test_reading_goes_on_when_there_is_room_again(server: DoorServer) -> None:
    port = server.listen(limits=Limits(payload_bytes_max=64 * KIB))
    with Client(port) as client, Client(port) as other:
        client.says(dequeue(timeout_ms=60_000), ACK)
        server.until(lambda: server.node.waiters.queues)
        connection = server.connections[0]
        packet = enqueue(1, bytes(60_000)) + ACK
        number = 0
        while not server.call(lambda: connection.input_full):
            client.says(packet)
            number += 1
        other.enqueues(0, b"x")
        client.hears(record(0, b"x"), OK, *[OK, OK] * number)
        client.counts(number)
        assert not connection.input_full


def test_answers_that_are_not_read_stop_the_reading_of_requests(server: DoorServer) -> None:
    """A short request for a long answer, over and over: memory stays bounded, others are served, nothing is lost."""
    port = server.listen()
    with Client(port) as client, Client(port) as other:
        names = [f"{number:03}" + "q" * 250 for number in range(200)]
        for queue in names:
            client.asks(create(queue), OK)
        answer_bytes = 2 + 4 + 9 + sum(1 + len(queue) + 4 + 4 for queue in names)
        requests = 2000
        client.says(b"CL" * requests)
        connection = server.connections[0]
        server.until(lambda: connection._writing_paused)
        for _ in range(300):  # turns of the loop, in each of which one more answer could be written
            server.call(lambda: None)
        assert server.call(lambda: connection.transport.get_write_buffer_size()) < 6 * MIB
        other.counts(0)
        first = client.reads(answer_bytes)
        for _ in range(requests - 1):
            assert client.reads(answer_bytes) == first
        client.counts(0)

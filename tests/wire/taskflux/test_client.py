"""The client's side: order of packets, requests per dialect, limits, and what a bad server gets."""

from __future__ import annotations

import pytest

from penstock.wire.taskflux import NATIVE_MAJOR, NEED_DATA, ClientConnection, Dialect, Limits
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.buffer import ReceiveBuffer
from penstock.wire.taskflux.errors import (
    FieldOutOfRange,
    FieldTooLong,
    MalformedBody,
    NegativeLength,
    NotInDialect,
    PayloadTooLong,
    ProtocolError,
    UnexpectedPacket,
    UnknownCommand,
    UnknownMarker,
)
from tests.wire.taskflux.support import FRAMED, UNFRAMED, client_for, drain, server_for


def test_native_bootstrap_hands_back_what_follows() -> None:
    client = ClientConnection()
    assert client.send(m.AuthorizationRequest()) == b"AN"
    assert client.send(m.BootstrapRequest(NATIVE_MAJOR, 2, 0)) == b"BPENS" + bytes.fromhex("00000002 00000000")
    client.receive_data(b"a\x01b\x01native")
    assert drain(client) == [m.AuthorizationResponse(), m.BootstrapResponse()]
    assert client.trailing_data == b"native"
    client.receive_data(b" bytes")
    assert client.next_event() is NEED_DATA
    assert client.trailing_data == b"native bytes"


def test_without_a_native_bootstrap_there_is_no_trailing_data() -> None:
    client = client_for(Dialect.SEED000)
    client.receive_data(b"k")
    with pytest.raises(ValueError, match="trailing"):
        _ = client.trailing_data
    assert drain(client) == [m.Ok()]


@pytest.mark.parametrize("accepted", [b"", b"a\x01"])
def test_after_a_refusal_nothing_more_is_read(accepted: bytes) -> None:
    client = ClientConnection()
    client.receive_data(accepted + (b"b" if accepted else b"a") + bytes.fromhex("00 00000002") + b"nokkk")
    replies = drain(client)
    assert replies[-1] == (m.BootstrapResponse if accepted else m.AuthorizationResponse)(False, "no")
    client.receive_data(b"kkk")
    assert drain(client) == []
    assert client.buffered_bytes == 0


@pytest.mark.parametrize(("given", "bad"), [(b"", b"b"), (b"", b"k"), (b"a\x01", b"a"), (b"a\x01", b"c")])
def test_the_handshake_has_its_order(given: bytes, bad: bytes) -> None:
    client = ClientConnection()
    client.receive_data(given + bad)
    with pytest.raises(UnexpectedPacket):
        drain(client)


@pytest.mark.parametrize("dialect", UNFRAMED)
def test_markers_that_no_reply_has(dialect: Dialect) -> None:
    for marker in sorted(set(range(256)) - set(b"ckelmab")):
        client = client_for(dialect)
        client.receive_data(bytes((marker,)))
        with pytest.raises(UnknownMarker):
            client.next_event()


@pytest.mark.parametrize("dialect", FRAMED)
def test_a_length_framed_client_knows_no_ok_and_no_metadata(dialect: Dialect) -> None:
    for marker in (b"k", b"m", b"d" if dialect is Dialect.SEED001 else b"c"):
        client = client_for(dialect)
        client.receive_data(marker)
        with pytest.raises(ProtocolError):
            client.next_event()


def test_a_dead_connection_repeats_its_error_and_takes_no_more_data() -> None:
    client = client_for(Dialect.SEED000)
    client.receive_data(b"k?kkk")
    assert client.next_event() == m.Ok()
    with pytest.raises(UnknownMarker) as first:
        client.next_event()
    client.receive_data(b"kkk")
    assert client.buffered_bytes == 0
    with pytest.raises(UnknownMarker) as second:
        client.next_event()
    assert second.value is first.value


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize(
    "request_",
    [
        m.CreateQueue(b"q"),
        m.DeleteQueue(b"q"),
        m.ListQueues(),
        m.Acknowledge(),
        m.NegativeAcknowledge(),
        m.ClusterMetadataRequest(),
    ],
)
def test_seed_001_has_three_commands_only(dialect: Dialect, request_: m.Request) -> None:
    with pytest.raises(NotInDialect):
        ClientConnection(dialect).send(request_)


@pytest.mark.parametrize(
    ("dialect", "request_"),
    [
        (Dialect.SEED001, m.Dequeue(b"q", 1)),
        (Dialect.SEED000, m.Dequeue(b"q", 2**32)),
        (Dialect.SEED000, m.Dequeue(b"q", -1)),
        (Dialect.SEED000, m.Count(b"n" * 256)),
        (Dialect.SEED000, m.Enqueue(b"q", 2**63, b"")),
        (Dialect.SEED001, m.Enqueue(b"q", -(2**63) - 1, b"")),
        (Dialect.SEED000, m.CreateQueue(b"q", 1, 2**31)),
        (Dialect.SEED000, m.BootstrapRequest(2**31)),
        (Dialect.SEED000, m.AuthorizationRequest(256)),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_of_ours(dialect: Dialect, request_: m.Request) -> None:
    with pytest.raises(FieldOutOfRange) as raised:
        ClientConnection(dialect).send(request_)
    assert raised.value.message == type(request_).__name__


# --- limits and broken replies ----------------------------------------------------------------------------------------


LIMITS = Limits(
    payload_bytes_max=10, text_bytes_max=8, reply_bytes_max=120, queues_max=3, policies_max=2, addresses_max=2
)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("63 64 01 0000000000000005 0000000b", PayloadTooLong),
        ("63 64 01 0000000000000005 7fffffff", PayloadTooLong),
        ("63 64 01 0000000000000005 ffffffff", NegativeLength),
        ("63 78 00000001 00000009", FieldTooLong),
        ("63 78 00000001 80000000", NegativeLength),
        ("63 78 00000001 00000002 fffe", MalformedBody),
        ("63 6c 00000004", FieldTooLong),
        ("63 6c ffffffff", NegativeLength),
        ("63 6c 00000001 00 00000000 00000003", FieldTooLong),
        ("63 6c 00000001 00 00000000 ffffffff", NegativeLength),
        ("63 6c 00000001 ff", FieldTooLong),
        ("63 70 00000004", UnknownCommand),
        ("63 70 ffffffff", UnknownCommand),
        ("63 7a", UnknownCommand),
        ("65 00000001 00000009", FieldTooLong),
        ("6d 00000003", FieldTooLong),
        ("6d ffffffff", NegativeLength),
        ("6d 00000001 00000009", FieldTooLong),
    ],
)
def test_lengths_are_checked_before_the_bytes_come(data: str, error: type[ProtocolError]) -> None:
    client = client_for(Dialect.SEED000, LIMITS)
    client.receive_data(bytes.fromhex(data))
    with pytest.raises(error):
        client.next_event()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("7a", UnknownCommand),
        ("65", MalformedBody),
        ("65 01 00", MalformedBody),
        ("64 00 00", MalformedBody),
        ("64 01 0000000000000005 00000002 61", MalformedBody),
        ("64 01 0000000000000005 0000000b", PayloadTooLong),
        ("64 01 0000000000000005 ffffffff", NegativeLength),
        ("63 000000", MalformedBody),
        ("45 00 00000009", FieldTooLong),
        ("45 00 00000001 ff", MalformedBody),
    ],
)
def test_a_framed_reply_must_be_exactly_one_response(body: str, error: type[ProtocolError]) -> None:
    data = bytes.fromhex(body)
    for dialect, marker in ((Dialect.SEED001, b"c"), (Dialect.SEED001_DATA, b"d")):
        client = client_for(dialect, LIMITS)
        client.receive_data(marker + len(data).to_bytes(4, "big") + data)
        with pytest.raises(error):
            client.next_event()


def test_length_of_a_framed_reply_is_bounded() -> None:
    for length, error in ((25, FieldTooLong), (-1, NegativeLength)):
        client = client_for(Dialect.SEED001, LIMITS)
        client.receive_data(b"c" + length.to_bytes(4, "big", signed=True))
        with pytest.raises(error):
            client.next_event()


def test_the_limit_of_a_reply_is_for_each_reply_anew() -> None:
    client = client_for(Dialect.SEED000, LIMITS)
    replies = [m.CountResult(number) for number in range(100)]
    client.receive_data(b"".join(map(server_for(Dialect.SEED000).send, replies)))
    assert drain(client) == replies


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_long_list_byte_by_byte_costs_a_copy_of_each_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the list parsed again at each piece, thousands of times its length would be copied."""
    joined_bytes = 0
    join = ReceiveBuffer.join

    def counted(buffer: ReceiveBuffer) -> None:
        nonlocal joined_bytes
        join(buffer)
        joined_bytes += len(buffer.data)

    monkeypatch.setattr(ReceiveBuffer, "join", counted)
    listing = m.ListResult([m.QueueInfo(b"queue-%d" % n, n, {"max-queue-size": str(n)}) for n in range(500)])
    packet = server_for(Dialect.SEED000).send(listing)
    client = client_for(Dialect.SEED000)
    for offset in range(len(packet)):
        assert client.next_event() is NEED_DATA
        client.receive_data(packet[offset : offset + 1])
    assert drain(client) == [listing]
    assert joined_bytes <= 2 * len(packet)

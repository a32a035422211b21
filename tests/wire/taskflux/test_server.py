"""The server's side: order of packets, recognition of dialects, limits, and what bad input gets."""

from __future__ import annotations

import pytest

from penstock.wire.taskflux import NATIVE_MAJOR, NEED_DATA, Dialect, Limits, ServerConnection, valid_queue_name
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux import server as server_module
from penstock.wire.taskflux.errors import (
    FieldOutOfRange,
    FieldTooLong,
    MalformedBody,
    NegativeLength,
    NotInDialect,
    PayloadTooLong,
    ProtocolError,
    UnexpectedPacket,
    UnknownAuthorizationMethod,
    UnknownCommand,
    UnknownMarker,
)
from tests.wire.taskflux.support import FRAMED, HANDSHAKE, UNFRAMED, drain, fresh_server, server_for

AUTHORIZATION = HANDSHAKE[:2]


def bootstrap(major: int, minor: int, patch: int) -> bytes:
    return b"B" + b"".join(number.to_bytes(4, "big", signed=True) for number in (major, minor, patch))


# --- handshake --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", [0, 1, 2**31 - 1, -1])
def test_version_1_0_with_any_patch_is_accepted(patch: int) -> None:
    server = ServerConnection()
    server.receive_data(AUTHORIZATION + bootstrap(1, 0, patch))
    assert drain(server) == [m.AuthorizationRequest(), m.BootstrapRequest(1, 0, patch)]
    assert not server.in_handshake


@pytest.mark.parametrize("version", [(1, 1, 0), (0, 9, 0), (2, 0, 0), (1, -1, 0), (-1, 0, 0)])
def test_other_versions_are_refused_with_a_reason_and_nothing_more_is_read(version: tuple[int, int, int]) -> None:
    server = ServerConnection()
    server.receive_data(AUTHORIZATION + bootstrap(*version) + b"CL")
    assert server.next_event() == m.AuthorizationRequest()
    refusal = server.next_event()
    assert isinstance(refusal, m.UnsupportedVersion)
    assert (refusal.major, refusal.minor, refusal.patch) == version
    assert ".".join(map(str, version)) in refusal.reason
    server.receive_data(b"CL" * 1000)
    assert drain(server) == []
    assert server.buffered_bytes == 0
    with pytest.raises(ValueError, match="trailing"):
        _ = server.trailing_data


def test_csharp_listener_refuses_a_version_in_the_words_of_the_original() -> None:
    server = ServerConnection(Dialect.CSHARP)
    server.receive_data(AUTHORIZATION + bootstrap(2, 0, 0))
    assert drain(server)[1].reason == "Версия клиента не поддерживается"


def test_native_version_hands_back_what_follows() -> None:
    server = ServerConnection()
    with pytest.raises(ValueError, match="trailing"):
        _ = server.trailing_data
    server.receive_data(AUTHORIZATION + bootstrap(NATIVE_MAJOR, 3, 7) + b"native")
    assert drain(server) == [m.AuthorizationRequest(), m.NativeRequested(3, 7)]
    assert server.trailing_data == b"native"
    server.receive_data(b" bytes")
    assert server.next_event() is NEED_DATA
    assert server.trailing_data == b"native bytes"
    assert server.send(m.BootstrapResponse()) == b"b\x01"


@pytest.mark.parametrize("first", [b"B", b"C", b"K", b"k", b"N", b"\0", b"G"])
def test_only_authorization_may_come_first(first: bytes) -> None:
    server = ServerConnection()
    server.receive_data(first)
    with pytest.raises(UnexpectedPacket) as raised:
        server.next_event()
    assert raised.value.marker == first[0]


def test_unknown_authorization_method_ends_the_connection() -> None:
    server = ServerConnection()
    server.receive_data(b"AX")
    with pytest.raises(UnknownAuthorizationMethod):
        server.next_event()


def test_only_bootstrap_may_follow_authorization() -> None:
    server = ServerConnection()
    server.receive_data(b"ANC")
    assert server.next_event() == m.AuthorizationRequest()
    assert server.in_handshake
    with pytest.raises(UnexpectedPacket):
        server.next_event()


def test_a_listener_is_not_length_framed() -> None:
    for dialect in FRAMED:
        with pytest.raises(ValueError, match="listener"):
            ServerConnection(dialect)


# --- recognition of the dialect ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", UNFRAMED)
@pytest.mark.parametrize(
    ("first", "dialect"),
    [
        ("43 43 00", None),
        ("43 4c", None),
        ("43 00000005 43 00000000", Dialect.SEED001),
        ("44 00000005 43 00000000", Dialect.SEED001_DATA),
    ],
)
def test_first_command_tells_the_dialect(listener: Dialect, first: str, dialect: Dialect | None) -> None:
    server = ServerConnection(listener)
    server.receive_data(HANDSHAKE + bytes.fromhex(first))
    assert len(drain(server)) == 3
    assert server.dialect is (dialect or listener)


def test_high_byte_1_of_a_length_is_seed_001_too() -> None:
    payload = b"x" * 0x01000000
    body = b"E" + bytes(4) + bytes(8) + len(payload).to_bytes(4, "big") + payload
    server = fresh_server()
    server.receive_data(b"C" + len(body).to_bytes(4, "big") + body)
    assert drain(server) == [m.Enqueue(b"", 0, payload)]
    assert server.dialect is Dialect.SEED001


@pytest.mark.parametrize("second", sorted(set(range(2, 256)) - set(b"EDCQRL")))
def test_anything_else_after_the_first_c_is_refused(second: int) -> None:
    server = fresh_server()
    server.receive_data(bytes((ord("C"), second)))
    with pytest.raises(UnknownCommand):
        server.next_event()


@pytest.mark.parametrize("second", range(2, 256))
def test_anything_else_after_the_first_d_is_refused(second: int) -> None:
    server = fresh_server()
    server.receive_data(bytes((ord("D"), second)))
    with pytest.raises(UnknownCommand):
        server.next_event()


@pytest.mark.parametrize(("dialect", "other"), [(Dialect.SEED001, b"D"), (Dialect.SEED001_DATA, b"C")])
def test_a_length_framed_connection_keeps_to_its_packet_pair(dialect: Dialect, other: bytes) -> None:
    for marker in (other, b"K", b"M", b"N"):
        server = server_for(dialect)
        server.receive_data(marker + bytes.fromhex("00000005 43 00000000"))
        with pytest.raises(UnknownMarker):
            server.next_event()


def test_seed_000_is_not_left_again() -> None:
    for data in ("43 00000005 43 00000000", "44 00000005 43 00000000"):
        server = server_for(Dialect.SEED000)
        server.receive_data(bytes.fromhex(data))
        with pytest.raises(ProtocolError):
            server.next_event()


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_stray_acknowledgements_are_reported_before_and_after_the_first_command() -> None:
    expected = [m.Acknowledge(), m.Acknowledge(), m.NegativeAcknowledge(), m.ClusterMetadataRequest()]
    server = fresh_server()
    server.receive_data(b"KQNM")
    assert drain(server) == expected
    server.receive_data(b"CLKQNM")
    assert drain(server) == [m.ListQueues(), *expected]


@pytest.mark.parametrize("marker", sorted(set(range(256)) - set(b"ABCKQNM")))
def test_unknown_marker_ends_the_connection(marker: int) -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(bytes((marker,)))
    with pytest.raises(UnknownMarker) as raised:
        server.next_event()
    assert raised.value.marker == marker


def test_second_handshake_is_unexpected() -> None:
    for marker in (b"A", b"B"):
        server = server_for(Dialect.SEED000)
        server.receive_data(marker)
        with pytest.raises(UnexpectedPacket):
            server.next_event()


def test_a_dead_connection_repeats_its_error_and_takes_no_more_data() -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(b"CL?CLCLCL")
    assert server.next_event() == m.ListQueues()
    with pytest.raises(UnknownMarker) as first:
        server.next_event()
    server.receive_data(b"CL" * 100)
    assert server.buffered_bytes == 0
    with pytest.raises(UnknownMarker) as second:
        server.next_event()
    assert second.value is first.value


def test_a_good_packet_before_a_bad_one_is_reported_first() -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(b"KC?")
    assert server.next_event() == m.Acknowledge()
    with pytest.raises(UnknownCommand):
        server.next_event()


# --- queue names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"a b", b"\x7f", b"\xe9", b"\0", b"a\n", b"\x20"])
def test_an_invalid_name_is_reported_and_the_connection_lives(name: bytes) -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(b"CC" + bytes((len(name),)) + name + b"CL")
    assert drain(server) == [m.Count(name), m.ListQueues()]
    assert not valid_queue_name(name)


@pytest.mark.parametrize("name", [b"n" * 256, b"n" * 4096, "очередь".encode(), b"\xff\xfe"])
def test_an_invalid_string_name_is_reported_up_to_its_limit(name: bytes) -> None:
    for dialect in FRAMED:
        server = server_for(dialect)
        body = b"C" + len(name).to_bytes(4, "big") + name
        server.receive_data(("C" if dialect is Dialect.SEED001 else "D").encode() + len(body).to_bytes(4, "big") + body)
        assert drain(server) == [m.Count(name)]
    assert not valid_queue_name(name)


def test_a_string_name_over_its_limit_ends_the_connection() -> None:
    server = server_for(Dialect.SEED001)
    body = b"C" + (4097).to_bytes(4, "big") + b"n" * 4097
    server.receive_data(b"C" + len(body).to_bytes(4, "big") + body)
    with pytest.raises(FieldTooLong) as raised:
        server.next_event()
    assert (raised.value.field, raised.value.length, raised.value.length_max) == ("queue name", 4097, 4096)


# --- lengths ----------------------------------------------------------------------------------------------------------


def enqueue_head(length: int) -> bytes:
    return b"CE\x01q" + bytes(8) + length.to_bytes(4, "big", signed=True)


def test_payload_of_exactly_the_limit_passes_and_one_more_does_not() -> None:
    limits = Limits(payload_bytes_max=10)
    server = server_for(Dialect.SEED000, limits)
    server.receive_data(enqueue_head(10) + b"x" * 10)
    assert drain(server) == [m.Enqueue(b"q", 0, b"x" * 10)]
    server.receive_data(enqueue_head(11))
    with pytest.raises(PayloadTooLong) as raised:
        server.next_event()
    assert (raised.value.length, raised.value.length_max) == (11, 10)


@pytest.mark.parametrize("length", [16 * 1024 * 1024 + 1, 2**31 - 1])
def test_a_payload_over_the_limit_is_refused_before_its_bytes_come(length: int) -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(enqueue_head(length))
    with pytest.raises(PayloadTooLong):
        server.next_event()
    framed = server_for(Dialect.SEED001)
    framed.receive_data(b"C" + (length + 17).to_bytes(4, "big", signed=False))
    if length == 2**31 - 1:
        with pytest.raises(NegativeLength):
            framed.next_event()
    else:
        assert framed.next_event() is NEED_DATA  # only a name of 4096 bytes makes it certain


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_negative_lengths_are_refused(length: int) -> None:
    server = server_for(Dialect.SEED000)
    server.receive_data(enqueue_head(length))
    with pytest.raises(NegativeLength) as raised:
        server.next_event()
    assert raised.value.length == length
    for body in (
        b"E" + bytes(4) + bytes(8) + length.to_bytes(4, "big", signed=True),
        b"D" + length.to_bytes(4, "big", signed=True),
    ):
        framed = server_for(Dialect.SEED001)
        framed.receive_data(b"C" + len(body).to_bytes(4, "big") + body)
        with pytest.raises(NegativeLength):
            framed.next_event()


def test_length_of_a_framed_body_is_bounded() -> None:
    limits = Limits(payload_bytes_max=100, name_bytes_max=20)
    server = server_for(Dialect.SEED001, limits)
    server.receive_data(b"C" + (1 + 4 + 20 + 8 + 4 + 100 + 1).to_bytes(4, "big"))
    with pytest.raises(FieldTooLong):
        server.next_event()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("", MalformedBody),
        ("58", UnknownCommand),
        ("51 00000000 00000000", UnknownCommand),
        ("43", MalformedBody),
        ("43 00000001", MalformedBody),
        ("43 00000000 00", MalformedBody),
        ("44 00000000 00000000", MalformedBody),
        ("45 00000000 0000000000000005", MalformedBody),
        ("45 00000000 0000000000000005 00000003 6162", MalformedBody),
        ("45 00000000 0000000000000005 00000001 6162", MalformedBody),
        ("45 00000000 0000000000000005 01000001 6162", PayloadTooLong),
    ],
)
def test_a_framed_body_must_be_exactly_one_command(body: str, error: type[ProtocolError]) -> None:
    data = bytes.fromhex(body)
    server = server_for(Dialect.SEED001)
    server.receive_data(b"C" + len(data).to_bytes(4, "big") + data)
    with pytest.raises(error):
        server.next_event()


@pytest.mark.parametrize("name_bytes", [0, 3, 255])
@pytest.mark.parametrize("presence", [0, 1, 2, 255])
def test_any_byte_but_zero_means_present(presence: int, name_bytes: int) -> None:
    server = server_for(Dialect.SEED000)
    name = b"n" * name_bytes
    head = b"CQ" + bytes((name_bytes,)) + name + bytes.fromhex("00000007 fffffffe 80000000") + bytes((presence,))
    key_range = bytes.fromhex("0000000000000009 0000000000000001")
    server.receive_data(head + (key_range if presence else b""))
    assert drain(server) == [m.CreateQueue(name, 7, -2, -(2**31), (9, 1) if presence else None)]


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_long_payload_in_small_pieces_is_parsed_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it parsed (and joined) at each piece, the cost would be quadratic."""
    calls = 0
    decode = server_module.decode_command

    def counted(data: bytes, start: int, limits: Limits) -> object:
        nonlocal calls
        calls += 1
        return decode(data, start, limits)

    monkeypatch.setattr(server_module, "decode_command", counted)
    server = server_for(Dialect.SEED000)
    calls = 0
    payload = bytes(range(256)) * 1024
    packet = enqueue_head(len(payload)) + payload
    for offset in range(len(packet)):
        assert server.next_event() is NEED_DATA
        server.receive_data(packet[offset : offset + 1])
    assert server.next_event() == m.Enqueue(b"q", 0, payload)
    assert calls <= 5


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [m.EnqueueResult(True), m.NoResult()])
def test_replies_of_seed_001_cannot_be_said_in_seed_000(reply: m.Reply) -> None:
    for dialect in UNFRAMED:
        with pytest.raises(NotInDialect) as raised:
            server_for(dialect).send(reply)
        assert raised.value.dialect == dialect.value


@pytest.mark.parametrize("reply", [m.ListResult([]), m.ClusterMetadata([], None, 0)])
def test_replies_of_seed_000_cannot_be_said_in_seed_001(reply: m.Reply) -> None:
    for dialect in FRAMED:
        with pytest.raises(NotInDialect):
            server_for(dialect).send(reply)


@pytest.mark.parametrize(
    "reply",
    [
        m.CountResult(2**31),
        m.DequeueResult(2**63, b""),
        m.KeyRangeViolation(0, 2**63),
        m.ListResult([m.QueueInfo(b"n" * 256, 0, {})]),
        m.NotLeader(2**31),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_an_error_of_ours(reply: m.Reply) -> None:
    with pytest.raises(FieldOutOfRange):
        server_for(Dialect.SEED000).send(reply)

"""One reply, four looks: how each dialect writes what the door says. Bytes are written out by hand."""

from __future__ import annotations

import pytest

from penstock.wire.taskflux import Dialect, ErrorCode
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.errors import UnknownCommand
from tests.wire.taskflux.support import FRAMED, UNFRAMED, client_for, drain, server_for

CSHARP_NUMBERS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 4, 6: 5, 7: 6, 8: 7, 9: 8}


def int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def text(value: str) -> bytes:
    data = value.encode()
    return int32(len(data)) + data


def heard(dialect: Dialect, data: bytes) -> list[object]:
    client = client_for(dialect)
    client.receive_data(data)
    return drain(client)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_error_result_in_seed000_and_csharp(code: ErrorCode) -> None:
    reply = m.ErrorResult(code, "why")
    assert server_for(Dialect.SEED000).send(reply) == b"cx" + int32(code) + text("why")
    assert server_for(Dialect.CSHARP).send(reply) == b"ce" + int32(CSHARP_NUMBERS[code]) + text("why")


@pytest.mark.parametrize("code", list(ErrorCode))
def test_parameter_error_is_a_response_in_seed000_and_a_packet_in_csharp(code: ErrorCode) -> None:
    reply = m.ParameterError(code, "why")
    assert server_for(Dialect.SEED000).send(reply) == b"cx" + int32(code) + text("why")
    assert server_for(Dialect.CSHARP).send(reply) == b"e" + int32(CSHARP_NUMBERS[code]) + text("why")


@pytest.mark.parametrize("number", range(9))
def test_a_csharp_client_hears_the_numbers_of_seed_000(number: int) -> None:
    expected = next(code for code, csharp in CSHARP_NUMBERS.items() if csharp == number)
    body = int32(number) + text("")
    assert heard(Dialect.CSHARP, b"ce" + body) == [m.ErrorResult(expected, "")]
    assert heard(Dialect.CSHARP, b"e" + body) == [m.ErrorPacket(expected, "")]


def test_a_number_that_csharp_does_not_have_is_the_unknown_error() -> None:
    assert heard(Dialect.CSHARP, b"ce" + int32(9) + text("new")) == [m.ErrorResult(ErrorCode.UNKNOWN, "new")]


@pytest.mark.parametrize(("dialect", "wrong"), [(Dialect.SEED000, b"ce"), (Dialect.CSHARP, b"cx")])
def test_each_dialect_has_its_own_error_marker(dialect: Dialect, wrong: bytes) -> None:
    with pytest.raises(UnknownCommand):
        heard(dialect, wrong + int32(1) + text(""))


def test_policies_2_and_3_are_swapped_in_csharp() -> None:
    size, key_range = m.PayloadSizeViolation(9), m.KeyRangeViolation(-1, 1)
    limits = int32(9)
    keys = (-1).to_bytes(8, "big", signed=True) + (1).to_bytes(8, "big")
    assert server_for(Dialect.SEED000).send(size) == b"cp" + int32(2) + limits
    assert server_for(Dialect.SEED000).send(key_range) == b"cp" + int32(3) + keys
    assert server_for(Dialect.CSHARP).send(size) == b"cp" + int32(3) + limits
    assert server_for(Dialect.CSHARP).send(key_range) == b"cp" + int32(2) + keys


def test_only_csharp_tells_the_record_id() -> None:
    reply = m.DequeueResult(5, b"abc", 2**64 - 1)
    key = (5).to_bytes(8, "big")
    assert server_for(Dialect.SEED000).send(reply) == b"cd\x01" + key + int32(3) + b"abc"
    assert server_for(Dialect.CSHARP).send(reply) == b"cd\x01" + b"\xff" * 8 + key + int32(3) + b"abc"


def framed(dialect: Dialect, body: bytes) -> bytes:
    return (b"c" if dialect is Dialect.SEED001 else b"d") + int32(len(body)) + body


@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (m.Ok(), b"e\x01"),
        (m.QueueSizeViolation(100), b"e\x00"),
        (m.ErrorResult(1), b"E\x01" + text("Неправильное название очереди")),
        (m.ErrorResult(2), b"E\x02" + text("Очередь не существует")),
        (m.ParameterError(1), b"E\x01" + text("Неправильное название очереди")),
        (m.ParameterError(1, "space"), b"E\x01" + text("space")),
        (m.ErrorResult(0, "disk"), b"E\x00" + text("disk")),
        (m.ErrorResult(3, "exists"), b"E\x00" + text("exists")),
        (m.ErrorResult(3), b"E\x00" + text("error 3")),
        (m.GenericViolation("memory"), b"E\x00" + text("memory")),
        (m.PayloadSizeViolation(9), b"E\x00" + text("a payload of this queue has at most 9 bytes")),
        (m.KeyRangeViolation(-1, 1), b"E\x00" + text("a key of this queue lies in -1..1")),
        (m.NoResult(), b""),
    ],
)
def test_length_framed_dialects_say_it_in_their_own_way(dialect: Dialect, reply: m.Reply, body: bytes) -> None:
    assert server_for(dialect).send(reply) == framed(dialect, body)


@pytest.mark.parametrize("dialect", FRAMED)
def test_packets_around_the_bodies_in_length_framed_dialects(dialect: Dialect) -> None:
    server = server_for(dialect)
    assert server.send(m.ErrorPacket(1, "boom")) == b"e" + text("boom")
    assert server.send(m.NotLeader(None)) == b"l" + int32(0)
    assert heard(dialect, b"l" + int32(0)) == [m.NotLeader(None)]
    assert heard(dialect, b"e" + text("boom")) == [m.ErrorPacket(0, "boom")]


@pytest.mark.parametrize("dialect", UNFRAMED)
def test_unknown_leader_is_minus_one(dialect: Dialect) -> None:
    assert server_for(dialect).send(m.NotLeader(None)) == b"l" + int32(-1)
    assert heard(dialect, b"l" + int32(-1)) == [m.NotLeader(None)]
    assert heard(dialect, b"l" + int32(0)) == [m.NotLeader(0)]

"""The handshake: who is let in, who is refused with a reason, who is sent away without a word."""

from __future__ import annotations

import asyncio
import struct

import pytest

from penstock.wire.native import messages as native
from penstock.wire.native.frames import HEADER
from tests.doors.conftest import DoorServer, running
from tests.doors.taskflux.talk import (
    AUTHORIZATION,
    AUTHORIZED,
    BOOTSTRAP,
    BOOTSTRAPPED,
    CSHARP,
    SEED000,
    Client,
)

PENS = 0x50454E53


def bootstrap(major: int, minor: int, patch: int) -> bytes:
    return b"B" + struct.pack(">iii", major, minor, patch)


def native_frame(code: int, request: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size - 4 + len(body), code, request) + body


def test_the_handshake_is_answered_packet_by_packet(server: DoorServer) -> None:
    with Client(server.listen(), handshake=False) as client:
        client.asks(AUTHORIZATION, AUTHORIZED)
        client.asks(BOOTSTRAP, BOOTSTRAPPED)
        client.counts(0)


def test_the_handshake_may_come_byte_by_byte(server: DoorServer) -> None:
    with Client(server.listen(), handshake=False) as client:
        client.says_slowly(AUTHORIZATION, BOOTSTRAP)
        client.hears(AUTHORIZED, BOOTSTRAPPED)


def test_the_patch_number_does_not_matter(server: DoorServer) -> None:
    with Client(server.listen(), handshake=False) as client:
        client.asks(AUTHORIZATION + bootstrap(1, 0, 77), AUTHORIZED + BOOTSTRAPPED)
        client.counts(0)


@pytest.mark.parametrize("version", [(1, 1, 0), (0, 9, 0), (2, 0, 0)])
@pytest.mark.parametrize("dialect", [SEED000, CSHARP])
def test_another_version_gets_a_reason_and_is_closed(
    server: DoorServer, dialect: str, version: tuple[int, int, int]
) -> None:
    with Client(server.listen(dialect=dialect), handshake=False) as client:
        client.asks(AUTHORIZATION + bootstrap(*version), AUTHORIZED, b"b\x00")
        reason = client.reads_text()
        if dialect == CSHARP:
            assert reason == "Версия клиента не поддерживается"
        else:
            assert "{}.{}.{}".format(*version) in reason
        client.is_closed()


@pytest.mark.parametrize("junk", [b"AX", b"k", b"N", b"M", BOOTSTRAP, b"\x00", b"GET / HTTP/1.1\r\n"])
def test_what_is_no_authorization_is_closed_without_a_word(server: DoorServer, junk: bytes) -> None:
    port = server.listen()
    with Client(port) as other, Client(port, handshake=False) as client:
        client.says(junk)
        client.is_closed()
        other.counts(0)


@pytest.mark.parametrize("junk", [b"CL", AUTHORIZATION, b"K", b"\xff"])
def test_what_is_no_bootstrap_is_closed_without_a_word(server: DoorServer, junk: bytes) -> None:
    port = server.listen()
    with Client(port) as other, Client(port, handshake=False) as client:
        client.asks(AUTHORIZATION, AUTHORIZED)
        client.says(junk)
        client.is_closed()
        other.counts(0)


@pytest.mark.parametrize("together", [False, True])
def test_pens_switches_to_the_native_protocol(server: DoorServer, together: bool) -> None:
    """Also when the first native requests come in one piece with the bootstrap."""
    request = AUTHORIZATION + bootstrap(PENS, native.MINOR, 0)
    ping = native_frame(native.PING, 7, b"\x90")
    with Client(server.listen(), handshake=False) as client:
        if together:
            client.says(request + ping)
            client.hears(AUTHORIZED, BOOTSTRAPPED)
        else:
            client.asks(request, AUTHORIZED, BOOTSTRAPPED)
            client.says(ping)
        answer = client.reads(HEADER.size)
        length, status, number = HEADER.unpack(answer)
        assert (status, number) == (native.ANSWER, 7)
        client.reads(length - (HEADER.size - 4))
        server.until(lambda: server.connections[0].closed)
        assert server.connections[0]._timer is None


def test_a_native_connection_has_no_idle_timeout_left_from_its_handshake(clocked_server: DoorServer) -> None:
    with Client(clocked_server.listen(idle_timeout_ms=60_000), handshake=False) as client:
        client.asks(AUTHORIZATION + bootstrap(PENS, native.MINOR, 0), AUTHORIZED, BOOTSTRAPPED)
        for number in (8, 9):
            client.says(native_frame(native.PING, number, b"\x90"))
            length, *answer = HEADER.unpack(client.reads(HEADER.size))
            assert answer == [native.ANSWER, number]
            client.reads(length - (HEADER.size - 4))
            clocked_server.advance(600)


@pytest.mark.parametrize("minor", [native.MINOR + 1, -1])
def test_a_native_protocol_that_we_do_not_speak_gets_a_reason_and_is_closed(server: DoorServer, minor: int) -> None:
    with Client(server.listen(), handshake=False) as client:
        client.asks(AUTHORIZATION + bootstrap(PENS, minor, 0), AUTHORIZED, b"b\x00")
        assert str(minor) in client.reads_text()
        client.is_closed()


def test_a_client_that_is_one_too_many_is_turned_away() -> None:
    with running(asyncio.new_event_loop(), connections_max=1) as server:
        port = server.listen()
        with Client(port) as first:
            with Client(port, handshake=False) as second:
                second.asks(AUTHORIZATION, AUTHORIZED)
                second.asks(BOOTSTRAP, b"b\x00")
                assert second.reads_text() == "the node is at its connection limit (1)"
                second.is_closed()
            first.counts(0)
        server.until(lambda: server.connections[0].closed)
        with Client(port) as third:
            third.counts(0)

"""Every byte vector in both directions, and every prefix of it.

The bytes were taken down from the original system and from its documents, not made by this codec.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.wire.taskflux import NEED_DATA, ClientConnection, Dialect, ServerConnection
from penstock.wire.taskflux import messages as m
from tests.wire.taskflux.support import HANDSHAKE, Vector, client_for, drain, fresh_server, server_for, vectors

VECTORS = vectors()
REQUESTS = [vector for vector in VECTORS if vector.to_server]
REPLIES = [vector for vector in VECTORS if not vector.to_server]


def test_all_conversation_vectors_are_here() -> None:
    """A vector that is lost, or one that the table reads as something else, shows in these numbers."""
    assert (len(REQUESTS), len(REPLIES)) == (44, 62)


def receiver_of(vector: Vector) -> ServerConnection | ClientConnection:
    """A connection at the point where the vector's packet is due."""
    connection: ServerConnection | ClientConnection
    if not vector.in_handshake:
        return fresh_server() if vector.to_server else client_for(vector.dialect)
    connection = ServerConnection() if vector.to_server else ClientConnection(vector.dialect)
    if isinstance(vector.message, m.BootstrapRequest):
        connection.receive_data(HANDSHAKE[:2])
        connection.next_event()
    if isinstance(vector.message, m.BootstrapResponse):
        connection.receive_data(b"a\x01")
        connection.next_event()
    return connection


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_decodes(vector: Vector) -> None:
    connection = receiver_of(vector)
    connection.receive_data(vector.packet)
    assert drain(connection) == [vector.message]
    assert connection.buffered_bytes == 0


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_encodes(vector: Vector) -> None:
    sender: Any = ClientConnection(vector.dialect) if vector.to_server else server_for(vector.dialect)
    assert sender.send(vector.message) == vector.packet


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_every_strict_prefix_needs_data_and_the_rest_completes_it(vector: Vector) -> None:
    for cut in range(len(vector.packet)):
        connection = receiver_of(vector)
        connection.receive_data(vector.packet[:cut])
        assert connection.next_event() is NEED_DATA, f"a message after {cut} bytes"
        connection.receive_data(vector.packet[cut:])
        assert drain(connection) == [vector.message]


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_one_byte_at_a_time(vector: Vector) -> None:
    connection = receiver_of(vector)
    for byte in vector.packet[:-1]:
        connection.receive_data(bytes((byte,)))
        assert connection.next_event() is NEED_DATA
    connection.receive_data(vector.packet[-1:])
    assert drain(connection) == [vector.message]


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda dialect: dialect.value)
def test_all_requests_of_a_dialect_pipelined(dialect: Dialect) -> None:
    chosen = [vector for vector in REQUESTS if vector.dialect is dialect and not vector.in_handshake]
    chosen = chosen or [vector for vector in REQUESTS if vector.dialect is Dialect.SEED000 and not vector.in_handshake]
    server = server_for(dialect)
    server.receive_data(b"".join(vector.packet for vector in chosen))
    assert drain(server) == [vector.message for vector in chosen]


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda dialect: dialect.value)
def test_all_replies_of_a_dialect_in_one_piece(dialect: Dialect) -> None:
    chosen = [vector for vector in REPLIES if vector.dialect is dialect and not vector.in_handshake]
    client = client_for(dialect)
    client.receive_data(b"".join(vector.packet for vector in chosen))
    assert drain(client) == [vector.message for vector in chosen]
    assert len(chosen) > 5


def test_acknowledgement_of_the_documents_is_understood() -> None:
    """The documents say Q where the original program says K."""
    server = server_for(Dialect.SEED000)
    server.receive_data(b"Q")
    assert drain(server) == [m.Acknowledge()]

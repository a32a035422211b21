"""A node that does not lead, loses the lead, or cannot know how a command ended: said as the protocol says it."""

from __future__ import annotations

import pytest

from tests.doors.conftest import DoorServer
from tests.doors.taskflux.talk import (
    ACK,
    CSHARP,
    LIST,
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
    not_leader,
    record,
)

both_dialects = pytest.mark.parametrize("dialect", [SEED000, CSHARP])


@both_dialects
@pytest.mark.parametrize("leader", [2, -1])
def test_every_command_is_answered_not_leader_and_metadata_as_ever(
    server: DoorServer, dialect: str, leader: int
) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        server.turn_leadership_over(leader)
        for request in (dequeue(), dequeue(timeout_ms=60_000), count(), LIST, create("q"), delete("q")):
            client.asks(request, not_leader(leader))
        client.asks(enqueue(1, b"x"), OK)
        client.asks(ACK, not_leader(leader))
        client.asks(METADATA, b"m")
    assert not_leader(2) == PACKETS["client-packets:not_leader_2"]


@both_dialects
@pytest.mark.parametrize("ending", [ACK, NACK])
def test_a_lead_lost_while_a_record_is_out_is_told_at_its_acknowledgement(
    server: DoorServer, dialect: str, ending: bytes
) -> None:
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(enqueue(1, b"x") + ACK, OK, OK)
        client.asks(dequeue(), record(1, b"x", 1 if dialect == CSHARP else None))
        server.turn_leadership_over(2)
        client.asks(ending, not_leader(2))


def test_who_waits_when_the_lead_is_lost_is_told(server: DoorServer) -> None:
    with Client(server.listen()) as client:
        client.says(dequeue(timeout_ms=60_000))
        server.until(lambda: server.node.waiters.queues)
        server.turn_leadership_over(2)
        client.hears(not_leader(2))


@both_dialects
def test_a_command_whose_fate_is_unknown_is_never_not_leader(server: DoorServer, dialect: str) -> None:
    """It was proposed and may yet be done by the next leader: error 0 says so, and the connection stays."""
    with Client(server.listen(dialect=dialect)) as client:
        client.asks(enqueue(1, b"x"), OK)
        server.hold_commits()
        client.says(ACK)
        server.until(lambda: server.node._in_flight)
        server.turn_leadership_over(2)
        client.hears(b"cx" if dialect == SEED000 else b"ce", int32(0))
        assert "may or may not" in client.reads_text()
        client.asks(count(), not_leader(2))


def test_an_ack_timeout_on_a_node_that_lost_the_lead_only_closes(clocked_server: DoorServer) -> None:
    server = clocked_server
    with Client(server.listen(ack_timeout_ms=60_000)) as client:
        client.enqueues(1, b"x")
        client.asks(dequeue(), record(1, b"x"))
        client.says(b"C")  # the beginning of a packet that must not be served on the way out
        server.turn_leadership_over(2)
        server.advance(60)
        client.is_closed()

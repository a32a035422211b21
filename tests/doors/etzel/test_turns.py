"""Exactly one reply to each request, in the order of the requests, whatever each has to wait for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.records import LEASED, READY
from tests.doors.conftest import AdvancedLoop
from tests.doors.etzel.support import CLOSE, Client, EtzelServer, client_frame

OK = {"cmd": "ok"}


def frames(*requests: dict[str, Any]) -> bytes:
    """Requests that are sent in one piece."""
    return b"".join(client_frame(json.dumps(request).encode()) for request in requests)


def pub(message: str, **fields: Any) -> dict[str, Any]:
    return {"cmd": "PUB", "qname": "q", "msg": message, **fields}


FET = {"cmd": "FET", "qname": "q"}
SUB = {"cmd": "SUB", "qname": "q"}
ISLP = {"cmd": "ISLP", "qname": "q"}
BAD = {"cmd": "BAD"}


def test_a_pipelined_fetch_sees_what_was_published_before_it(client: Client) -> None:
    client.socket.sendall(frames(pub("a"), FET, pub("b"), FET, FET))
    assert [client.hear()["cmd"] for _ in range(5)] == ["ok", "msg", "ok", "msg", "nomsg"]


def test_what_can_be_answered_at_once_waits_for_its_turn(client: Client, etzel: EtzelServer) -> None:
    release = etzel.hold_commits()
    client.socket.sendall(
        frames(pub("a"), BAD, SUB, {"cmd": "ACK", "qname": "q", "uid": "none"}, pub("b"), pub("c", delay=-1), FET, BAD)
    )
    connection: Any = etzel.connections[0]
    etzel.until(lambda: connection._asked == 8)
    assert etzel.call(lambda: connection._said) == 0
    release()
    assert [client.hear()["cmd"] for _ in range(8)] == ["ok", "nok", "oksub", "okack", "ok", "nok", "msg", "nok"]
    assert etzel.call(lambda: (connection._early, connection._unanswered)) == ({}, {})


def test_a_put_that_the_node_refuses_at_once_does_not_overtake(client: Client, etzel: EtzelServer) -> None:
    release = etzel.hold_commits()
    connection: Any = etzel.connections[0]
    client.socket.sendall(frames(pub("a")))
    etzel.until(lambda: connection._asked == 1)
    etzel.call(lambda: setattr(etzel.node.store._space, "full", True))
    client.socket.sendall(frames(pub("b"), FET))
    etzel.until(lambda: connection._asked == 3)
    release()
    assert [client.hear()["cmd"] for _ in range(3)] == ["ok", "nok", "msg"]


def test_sleeping_comes_after_what_was_asked_before(client: Client) -> None:
    """Published and taken again before the client lies down: it sleeps, and is not woken by its own message."""
    client.socket.sendall(frames(SUB, pub("a"), FET, ISLP))
    assert [client.hear()["cmd"] for _ in range(4)] == ["oksub", "ok", "msg", "okslp"]
    client.hears_nothing()
    client.socket.sendall(frames(pub("b"), ISLP))
    assert [client.hear()["cmd"] for _ in range(4)] == ["ok", "awk", "okslp", "awk"], "each sleep ends"
    client.hears_nothing()


@pytest.fixture(scope="module")
def shared() -> Iterator[EtzelServer]:
    """One node for all examples of a test."""
    server = EtzelServer(AdvancedLoop())
    server.start()
    yield server
    server.stop()


KINDS = st.sampled_from(["pub", "fet", "islp", "sub", "ack", "bad", "binary", "del"])


@given(kinds=st.lists(KINDS, max_size=60), data=st.data())
def test_any_mix_is_answered_in_order(shared: EtzelServer, kinds: list[str], data: st.DataObject) -> None:
    expected = {
        "pub": {"ok"},
        "fet": {"msg", "nomsg", "nok"},
        "islp": {"okslp"},
        "sub": {"oksub"},
        "ack": {"okack"},
        "del": {"okack"},
        "bad": {"nok"},
        "binary": {"nok"},
    }
    requests = {
        "pub": pub("m"),
        "fet": FET,
        "islp": ISLP,
        "sub": SUB,
        "ack": {"cmd": "ACK", "qname": "q", "uid": "none"},
        "del": {"cmd": "DEL", "qname": "q", "uid": "AAAAAAAAAAAB"},
        "bad": BAD,
        "binary": BAD,
    }
    stream = b"".join(client_frame(json.dumps(requests[kind]).encode(), 2 if kind == "binary" else 1) for kind in kinds)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    client = shared.client()
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        client.socket.sendall(stream[start:stop])
    for kind in kinds:
        reply = client.hear()
        while reply["cmd"] == "awk":
            reply = client.hear()
        assert reply["cmd"] in expected[kind]
    client.close()


def test_replies_are_in_order_when_leadership_is_lost(client: Client, etzel: EtzelServer) -> None:
    etzel.client()  # were there but one, its requests would be proposed without waiting for company
    release = etzel.hold_commits()
    connection: Any = etzel.connections[0]
    client.socket.sendall(frames(pub("a")))
    etzel.until(lambda: etzel.node._in_flight)

    def ask_and_lose() -> None:
        """More requests arrive, and in the same turn of the loop another node takes over."""
        connection.data_received(frames(pub("b"), ISLP, BAD))
        etzel.node.consensus._leader = 1  # type: ignore[attr-defined]
        etzel.node.step()

    etzel.call(ask_and_lose)
    assert [client.hear() for _ in range(4)] == [
        {"cmd": "nok", "err": "OUTCOME_UNKNOWN"},
        {"cmd": "nok", "err": "NOT_LEADER"},
        {"cmd": "okslp", "qname": "q"},
        {"cmd": "nok", "err": "UNKNOWN_CMD"},
    ]
    release()


def test_what_came_before_the_close_is_done(client: Client, etzel: EtzelServer) -> None:
    client.socket.sendall(frames(pub("a"), pub("b")) + client_frame(b"\x03\xe8", CLOSE))
    etzel.until(lambda: "q" in etzel.node.engine.state.by_name and etzel.queue("q").counts[READY] == 2)


def test_a_message_fetched_for_a_client_that_left_comes_back_untouched(client: Client, etzel: EtzelServer) -> None:
    client.publish("q", "a", "b")
    release = etzel.hold_commits()
    client.socket.sendall(frames(FET))
    etzel.until(lambda: etzel.node._in_flight)
    client.socket.close()
    etzel.until(lambda: etzel.connections[0].closed)
    release()
    etzel.until(lambda: etzel.queue("q").counts[LEASED] == 0)
    reply = etzel.client().fetch("q")
    assert (reply["msg"], reply["error_count"]) == ("a", 0)


def test_a_message_fetched_while_the_socket_closes_comes_back_untouched(client: Client, etzel: EtzelServer) -> None:
    client.publish("q", "a")
    release = etzel.hold_commits()
    client.socket.sendall(frames(FET))
    assert client.close() == 1000
    release()
    etzel.until(lambda: etzel.connections[0].closed)
    etzel.until(lambda: etzel.queue("q").counts[READY] == 1)
    assert etzel.client().fetch("q")["error_count"] == 0

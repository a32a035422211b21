"""Timeouts, delays and expiry, on a clock that the test puts forward."""

from __future__ import annotations

from typing import Any

from penstock.engine import commands as c
from tests.doors.etzel.support import Client, EtzelServer
from tests.doors.etzel.test_requests import submit

NOMSG = {"cmd": "nomsg", "qname": "q"}


def fetched(client: Client) -> tuple[str, int]:
    reply = client.fetch("q")
    return reply["msg"], reply["error_count"]


def test_an_unacknowledged_message_comes_back_to_the_tail_with_the_same_uid(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "a", "b")
    first = client.fetch("q")
    clocked.advance(59.5)
    client.publish("q", "c")
    assert fetched(client) == ("b", 0)
    clocked.advance(1)
    assert fetched(client) == ("c", 0)
    again: Any = client.fetch("q")
    assert again == first | {"error_count": 1}
    assert client.ask("FET", "q") == NOMSG


def test_a_message_comes_back_for_ever_and_counts_its_deliveries(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "a", timeout=5)
    for count in range(300):
        assert fetched(client) == ("a", count), "there is no wrap at 256"
        assert client.ask("FET", "q") == NOMSG
        clocked.advance(5.1)


def test_each_message_has_its_own_timeout(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "hour", timeout=3600)
    client.publish("q", "short", timeout=5.5)
    client.publish("q", "default")
    for _ in range(3):
        client.fetch("q")
    clocked.advance(5.4)
    assert client.ask("FET", "q") == NOMSG
    clocked.advance(0.2)
    client.acknowledge("q", client.fetch("q")["uid"])
    clocked.advance(60)
    assert fetched(client) == ("default", 1)
    assert client.ask("FET", "q") == NOMSG


def test_without_a_timeout_the_queues_own_holds(clocked: EtzelServer) -> None:
    client = clocked.client()
    submit(clocked, c.CreateQueue("q", c.QueueSettings(lease_ms=10_000)))
    client.publish("q", "queue's")
    client.publish("q", "own", timeout=60)
    client.fetch("q")
    client.fetch("q")
    clocked.advance(10.1)
    assert fetched(client) == ("queue's", 1)
    assert client.ask("FET", "q") == NOMSG


def test_a_fetcher_that_leaves_changes_nothing(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "a")
    client.fetch("q")
    client.close()
    clocked.until(lambda: clocked.connections[0].closed)
    other = clocked.client()
    assert other.ask("FET", "q") == NOMSG
    clocked.advance(60.1)
    assert fetched(other) == ("a", 1)


def test_a_late_acknowledgement_ends_the_message_for_its_new_holder_too(clocked: EtzelServer) -> None:
    client, other = clocked.client(), clocked.client()
    client.publish("q", "a")
    uid = client.fetch("q")["uid"]
    clocked.advance(60.1)
    assert other.fetch("q")["uid"] == uid
    client.acknowledge("q", uid)
    clocked.advance(60.1)
    assert other.ask("FET", "q") == NOMSG
    other.acknowledge("q", uid)


def test_at_the_end_of_its_delay_a_message_goes_to_the_tail(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "late", delay=2.5)
    client.publish("q", "a")
    assert fetched(client) == ("a", 0)
    client.publish("q", "b")
    clocked.advance(2.4)
    client.publish("q", "c")
    clocked.advance(0.2)
    assert [fetched(client)[0] for _ in range(3)] == ["b", "c", "late"]


def test_a_message_expires_ready_and_delayed_but_not_while_it_is_held(clocked: EtzelServer) -> None:
    client = clocked.client()
    client.publish("q", "held", expires=3)
    client.publish("q", "ready", expires=3)
    client.publish("q", "delayed", expires=3, delay=2)
    client.publish("q", "for ever", expires=0)
    assert fetched(client) == ("held", 0)
    clocked.advance(2.9)
    assert clocked.call(lambda: sum(clocked.queue("q").counts)) == 4
    clocked.advance(0.2)
    assert fetched(client) == ("for ever", 0)
    assert client.ask("FET", "q") == NOMSG
    assert clocked.call(lambda: list(clocked.queue("q").counts)) == [0, 0, 2, 0]
    clocked.advance(60.1)
    assert fetched(client) == ("for ever", 1)
    assert client.ask("FET", "q") == NOMSG


def test_a_message_that_keeps_coming_back_can_be_dead_lettered(clocked: EtzelServer) -> None:
    client = clocked.client()
    submit(clocked, c.CreateQueue("dead", c.QueueSettings()))
    submit(clocked, c.CreateQueue("q", c.QueueSettings(deliveries_max=2, dead_letter="dead")))
    client.sleep("dead")
    client.publish("q", "poison", timeout=5)
    for count in range(2):
        assert fetched(client) == ("poison", count)
        clocked.advance(5.1)
    assert client.hear() == {"cmd": "awk", "qname": "dead"}
    assert client.ask("FET", "q") == NOMSG
    assert client.fetch("dead")["msg"] == "poison"

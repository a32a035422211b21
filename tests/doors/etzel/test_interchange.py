"""What Etzel's clients publish is taken by TaskFlux's, and the other way round."""

from __future__ import annotations

from penstock.engine.records import LEASED
from tests.doors.etzel.support import Client, EtzelServer
from tests.doors.taskflux import talk


def test_a_taskflux_client_takes_what_was_published_here(client: Client, etzel: EtzelServer) -> None:
    with talk.Client(etzel.listen()) as taskflux:
        client.publish("q", "second")
        client.publish("q", "first", priority=-20, timeout=5, expires=1000)
        taskflux.counts(2, "q")
        taskflux.dequeues(-20, b"first", "q")
        taskflux.dequeues(0, b"second", "q")
    assert client.ask("FET", "q") == {"cmd": "nomsg", "qname": "q"}


def test_an_etzel_client_takes_what_a_taskflux_client_put(client: Client, etzel: EtzelServer) -> None:
    with talk.Client(etzel.listen()) as taskflux:
        client.sleep("q")
        taskflux.asks(talk.create("q"), talk.OK)
        client.hears_nothing()
        taskflux.enqueues(7, b"text", "q")
        assert client.hear() == {"cmd": "awk", "qname": "q"}
        taskflux.enqueues(-7, b"\xff\x00", "q")
    binary = client.fetch("q")
    assert (binary["msg"], binary["encoding"]) == ("/wA=", "base64")
    assert client.fetch("q")["msg"] == "text"
    client.acknowledge("q", binary["uid"])
    assert etzel.call(lambda: etzel.queue("q").counts[LEASED]) == 1


def test_a_message_that_a_taskflux_client_gives_back_wakes_sleepers(client: Client, etzel: EtzelServer) -> None:
    with talk.Client(etzel.listen()) as taskflux:
        client.publish("q", "a")
        taskflux.asks(talk.dequeue("q"), talk.record(0, b"a"))
        client.sleep("q")
        taskflux.asks(talk.NACK, talk.OK)
    assert client.hear() == {"cmd": "awk", "qname": "q"}
    assert client.fetch("q")["error_count"] == 1


def test_who_holds_a_message_that_was_acknowledged_here_finds_it_gone(client: Client, etzel: EtzelServer) -> None:
    with talk.Client(etzel.listen()) as taskflux:
        uid = client.ask("PUB", "q", msg="a", uid=True)["uid"]
        taskflux.asks(talk.dequeue("q"), talk.record(0, b"a"))
        client.acknowledge("q", uid)
        assert etzel.call(lambda: sum(etzel.queue("q").counts)) == 0
        taskflux.asks(talk.ACK, b"cx" + talk.int32(0))
        assert "no longer held" in taskflux.reads_text()

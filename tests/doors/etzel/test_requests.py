"""Every request and every reply, to the byte where the original's bytes are known."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.journal import DOOR_ETZEL, DOOR_NATIVE
from penstock.engine.records import BURIED, DELAYED, LEASED, READY
from penstock.node.requests import NOBODY
from tests.doors.conftest import AdvancedLoop
from tests.doors.etzel.support import BINARY, Client, Closed, EtzelServer

UNKNOWN_CMD = {"cmd": "nok", "err": "UNKNOWN_CMD"}


def submit(etzel: EtzelServer, args: Any) -> None:
    """Let an operator do something, and wait until it is done."""
    command = Command(c.OPS[type(args)], DOOR_NATIVE, 1 << 32, 0, 0, c.encode(args), args)

    def do() -> None:
        etzel.node.submit(command, NOBODY, 0)

    etzel.call(do)
    etzel.until(lambda: not etzel.node._pending and not etzel.node._in_flight)


def test_replies_have_the_bytes_of_the_original(client: Client) -> None:
    def bytes_of(cmd: str, **fields: Any) -> bytes:
        client.send(cmd, "q", **fields)
        return client.receive()

    assert bytes_of("SUB") == b'{"cmd":"oksub","qname":"q"}'
    assert bytes_of("FET") == b'{"cmd":"nok","err":"Q_NOT_FOUND"}'
    assert bytes_of("PUB", msg="hello", delay=0, expires=0) == b'{"cmd":"ok"}'
    assert client.receive() == b'{"cmd":"awk","qname":"q"}'
    message = bytes_of("FET")
    uid = json.loads(message)["uid"]
    assert message == b'{"cmd":"msg","qname":"q","uid":"%s","error_count":0,"msg":"hello"}' % uid.encode()
    assert bytes_of("FET") == b'{"cmd":"nomsg","qname":"q"}'
    assert bytes_of("ISLP") == b'{"cmd":"okslp","qname":"q"}'
    assert bytes_of("ACK", uid=uid) == b'{"cmd":"okack","uid":"%s","qname":"q"}' % uid.encode()


def test_a_publisher_may_ask_for_the_uid(client: Client) -> None:
    reply = client.ask("PUB", "q", msg="hello", uid=True)
    assert set(reply) == {"cmd", "uid"}
    assert reply["cmd"] == "ok"
    assert 14 <= len(reply["uid"].encode("ascii")) <= 18
    assert client.fetch("q")["uid"] == reply["uid"]


@pytest.mark.parametrize("cmd", ["ACK", "DEL"])
def test_an_acknowledged_message_is_gone(client: Client, etzel: EtzelServer, cmd: str) -> None:
    client.publish("q", "a", "b")
    uid = client.fetch("q")["uid"]
    assert client.ask(cmd, "q", uid=uid) == {"cmd": "okack", "uid": uid, "qname": "q"}
    assert client.fetch("q")["msg"] == "b"
    assert etzel.call(lambda: list(etzel.queue("q").counts)) == [0, 0, 1, 0]
    assert etzel.call(lambda: etzel.queue("q").totals.acked) == 1, "its work is done: it was not just deleted"


def test_acknowledging_ends_a_message_in_any_state(client: Client, etzel: EtzelServer) -> None:
    for state in (READY, DELAYED, LEASED, BURIED):
        delay = 1000 if state == DELAYED else 0
        uid = client.ask("PUB", "q", msg="m", delay=delay, uid=True)["uid"]
        record_id = etzel.call(lambda: etzel.queue("q").next_id - 1)
        if state == LEASED:
            client.fetch("q")
        if state == BURIED:
            submit(etzel, c.Bury("q", [(record_id, 0)]))
        assert etzel.call(lambda number=record_id: etzel.queue("q").get(number).state) == state
        client.acknowledge("q", uid)
        assert etzel.call(lambda: sum(etzel.queue("q").counts)) == 0


def test_the_uid_alone_tells_which_message_is_meant(client: Client, etzel: EtzelServer) -> None:
    """The original does not look at the queue of an ACK, so a client that says another one is not told apart."""
    client.publish("q", "a")
    client.acknowledge("another", client.fetch("q")["uid"])
    assert etzel.call(lambda: sum(etzel.queue("q").counts)) == 0


@pytest.mark.parametrize("uid", ["", "nosuch", "ZZ0000000000_1", "AAAAAAAAAAAAAAAA", "~" * 16, "x" * 255])
def test_acknowledging_what_is_not_there_is_okay(client: Client, uid: str) -> None:
    client.acknowledge("q", uid)
    client.publish("q", "a")
    client.acknowledge("q", uid)
    assert client.fetch("q")["msg"] == "a"


def test_a_message_of_a_deleted_queue_can_be_acknowledged(client: Client, etzel: EtzelServer) -> None:
    client.publish("q", "a")
    uid = client.fetch("q")["uid"]
    submit(etzel, c.DeleteQueue("q"))
    client.acknowledge("q", uid)
    assert client.ask("FET", "q") == {"cmd": "nok", "err": "Q_NOT_FOUND"}
    client.publish("q", "b")
    client.acknowledge("q", uid)
    assert client.fetch("q")["msg"] == "b", "the new queue's first message is another one"


def test_uids_of_queues_that_follow_each_other_in_one_entry_differ(client: Client, etzel: EtzelServer) -> None:
    """Published, queue deleted, published again under its name, all in one entry: an ACK ends its own message only."""
    other = etzel.client()
    etzel.until(lambda: len(etzel.connections) == 2)
    command = Command(c.DELETE_QUEUE, DOOR_NATIVE, 1 << 32, 0, 0, c.encode(c.DeleteQueue("q")), c.DeleteQueue("q"))
    index = etzel.call(lambda: etzel.node.engine.state.index)

    def request(text: str) -> bytes:
        return json.dumps({"cmd": "PUB", "qname": "q", "msg": text, "uid": True}).encode()

    def all_at_once() -> None:
        first, second = etzel.connections
        first.message(request("a"), True)
        etzel.node.submit(command, NOBODY, 0)
        second.message(request("b"), True)

    etzel.call(all_at_once)
    uids = [each.hear()["uid"] for each in (client, other)]
    assert etzel.call(lambda: etzel.node.engine.state.index) == index + 1
    assert uids[0] != uids[1]
    client.acknowledge("q", uids[0])
    assert other.fetch("q")["uid"] == uids[1]


def test_a_message_that_was_fetched_in_the_entry_that_deletes_its_queue(client: Client, etzel: EtzelServer) -> None:
    """It is handed out under its own uid, and its ACK does not end a message of the next queue of that name."""
    client.publish("q", "a")
    delete = Command(c.DELETE_QUEUE, DOOR_NATIVE, 1 << 32, 0, 0, c.encode(c.DeleteQueue("q")), c.DeleteQueue("q"))
    put = c.Put("q", [c.Item(0, b"b")], True)

    def all_at_once() -> None:
        etzel.connections[0].message(b'{"cmd":"FET","qname":"q"}', True)
        etzel.node.submit(delete, NOBODY, 0)
        etzel.node.submit(Command(c.PUT, DOOR_NATIVE, 1 << 32, 0, 0, c.encode(put), put), NOBODY, 0)

    etzel.call(all_at_once)
    first = client.hear()
    assert first["msg"] == "a"
    client.acknowledge("q", first["uid"])
    following = client.fetch("q")
    assert (following["msg"], following["uid"] == first["uid"]) == ("b", False)


def test_smallest_priority_first_then_in_the_order_of_publishing(client: Client) -> None:
    for message, priority in [("low", 20), ("b", 0), ("c", 0), ("high", -20), ("last", 2**63 - 1), ("first", -(2**63))]:
        client.publish("q", message, priority=priority)
    assert [client.fetch("q")["msg"] for _ in range(6)] == ["first", "high", "b", "c", "low", "last"]


def test_message_is_another_word_for_msg_which_wins(client: Client) -> None:
    client.ask("PUB", "q", message="a")
    client.ask("PUB", "q", message="no", msg="b")
    assert [client.fetch("q")["msg"] for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "ä€😀", '\x00\x1f"\\/\u2028', "x" * 100_000])
def test_any_text_goes_through(client: Client, text: str) -> None:
    client.publish("q", text)
    assert client.fetch("q")["msg"] == text


def test_what_is_no_text_goes_in_and_out_in_base64(client: Client) -> None:
    payload = bytes(range(256))
    encoded = base64.b64encode(payload).decode()
    client.publish("q", encoded, encoding="base64")
    reply = client.fetch("q")
    assert (reply["msg"], reply["encoding"]) == (encoded, "base64")
    client.publish("q", base64.b64encode(b"text").decode(), encoding="base64")
    reply = client.fetch("q")
    assert (reply["msg"], "encoding" in reply) == ("text", False)


@pytest.mark.parametrize(
    ("qname", "queue"),
    [("", ""), ("two words", "two%20words"), ("50%", "50%"), ("%41", "%2541"), ("ä", "%C3%A4"), ("q" * 255, "q" * 255)],
)
def test_a_qname_is_any_string(client: Client, etzel: EtzelServer, qname: str, queue: str) -> None:
    client.publish(qname, "m")
    assert etzel.call(lambda: sum(etzel.queue(queue).counts)) == 1
    assert client.fetch(qname)["qname"] == qname
    client.sleep(qname)
    assert client.ask("FET", qname) == {"cmd": "nomsg", "qname": qname}
    client.publish(qname, "n")
    assert client.hear() == {"cmd": "awk", "qname": qname}


def test_the_default_queue_is_never_missing(client: Client) -> None:
    assert client.ask("FET", "") == {"cmd": "nomsg", "qname": ""}


@pytest.mark.parametrize(
    ("request_text", "err"),
    [
        ("not json", "BAD_JSON"),
        ('{"cmd":"FET","qname":"q",}', "BAD_JSON"),
        ("[" * 100_000, "BAD_JSON"),
        ("\x81", "BAD_JSON"),
        ("", "BAD_JSON"),
        ("[1,2]", "BAD_REQUEST"),
        ("{}", "BAD_REQUEST"),
        ('{"cmd":"fet","qname":"q"}', "UNKNOWN_CMD"),
        ('{"cmd":"FET"}', "BAD_REQUEST"),
        ('{"cmd":"SUB","qname":7}', "BAD_QNAME"),
        ('{"cmd":"ISLP","qname":"' + "q" * 256 + '"}', "BAD_QNAME"),
        ('{"cmd":"FET","qname":"\\ud800"}', "BAD_QNAME"),
        ('{"cmd":"ACK","qname":"q"}', "BAD_REQUEST"),
        ('{"cmd":"ACK","qname":"q","uid":"' + "u" * 256 + '"}', "BAD_REQUEST"),
        ('{"cmd":"PUB","qname":"q"}', "BAD_REQUEST"),
        ('{"cmd":"PUB","qname":"q","msg":1}', "BAD_MSG"),
        ('{"cmd":"PUB","qname":"q","msg":"\\udc00"}', "BAD_MSG"),
        ('{"cmd":"PUB","qname":"q","msg":"!","encoding":"base64"}', "BAD_MSG"),
        ('{"cmd":"PUB","qname":"q","msg":"m","delay":-1}', "BAD_DELAY"),
        ('{"cmd":"PUB","qname":"q","msg":"m","delay":31536001}', "BAD_DELAY"),
        ('{"cmd":"PUB","qname":"q","msg":"m","expires":-1}', "BAD_EXPIRES"),
        ('{"cmd":"PUB","qname":"q","msg":"m","timeout":4.9}', "BAD_TIMEOUT"),
        ('{"cmd":"PUB","qname":"q","msg":"m","timeout":86401}', "BAD_TIMEOUT"),
        ('{"cmd":"PUB","qname":"q","msg":"m","priority":1.5}', "BAD_REQUEST"),
    ],
)
def test_a_bad_request_is_answered_and_the_connection_lives(client: Client, request_text: str, err: str) -> None:
    client.send_frame(request_text.encode("latin-1"))
    assert client.hear() == {"cmd": "nok", "err": err}
    assert client.ask("FET", "q") == {"cmd": "nok", "err": "Q_NOT_FOUND"}, "and nothing was done"


def test_a_binary_frame_is_no_request(client: Client) -> None:
    client.send_frame(b'{"cmd":"PUB","qname":"q","msg":"m"}', BINARY)
    assert client.hear() == {"cmd": "nok", "err": "BAD_REQUEST"}
    assert client.ask("FET", "q") == {"cmd": "nok", "err": "Q_NOT_FOUND"}


def test_queues_and_the_node_may_refuse_what_is_published(client: Client, etzel: EtzelServer) -> None:
    settings = c.QueueSettings(size_max=1, payload_bytes_max=3, key_range=(0, 9))
    submit(etzel, c.CreateQueue("narrow", settings))

    def refused(**fields: Any) -> str:
        reply = client.ask("PUB", "narrow", **{"msg": "m", **fields})
        assert reply["cmd"] == "nok"
        return str(reply["err"])

    assert refused(msg="long") == "PAYLOAD_TOO_LARGE"
    assert refused(priority=10) == "KEY_OUT_OF_RANGE"
    client.publish("narrow", "m")
    assert refused() == "QUEUE_FULL"
    etzel.call(lambda: setattr(etzel.node.store._space, "full", True))
    assert client.ask("PUB", "q", msg="m") == {"cmd": "nok", "err": "DISK_FULL"}
    assert client.fetch("narrow")["msg"] == "m", "what is there can be taken"


def test_a_message_longer_than_the_limit_is_refused_and_a_frame_far_longer_ends_the_connection() -> None:
    server = EtzelServer(AdvancedLoop(), payload_bytes=1000)
    server.start()
    try:
        client = server.client()
        client.publish("q", "x" * 1000)
        before = server.call(lambda: server.node.engine.state.index)
        assert client.ask("PUB", "q", msg="x" * 1001) == {"cmd": "nok", "err": "PAYLOAD_TOO_LARGE"}
        assert server.call(lambda: server.node.engine.state.index) == before, "it does not even reach the log"
        client.send("PUB", "q", msg="x" * 100_000)
        with pytest.raises(Closed) as closed:
            client.hear()
        assert closed.value.code == 1009
        assert server.client().fetch("q")["msg"] == "x" * 1000
    finally:
        server.stop()


def test_too_many_queues(client: Client, etzel: EtzelServer) -> None:
    etzel.call(lambda: setattr(etzel.node.engine.state, "queues_max", 2))
    client.publish("one", "m")
    assert client.ask("PUB", "two", msg="m") == {"cmd": "nok", "err": "TOO_MANY_QUEUES"}


def test_an_empty_fetch_writes_nothing_into_an_idle_log(client: Client, etzel: EtzelServer) -> None:
    client.publish("q", "m")
    client.acknowledge("q", client.fetch("q")["uid"])
    before = etzel.call(lambda: etzel.node.engine.state.index)
    for _ in range(3):
        assert client.ask("FET", "q") == {"cmd": "nomsg", "qname": "q"}
        assert client.ask("FET", "missing") == {"cmd": "nok", "err": "Q_NOT_FOUND"}
    assert etzel.call(lambda: etzel.node.engine.state.index) == before


def test_the_history_names_the_door(client: Client, etzel: EtzelServer) -> None:
    doors: list[int] = []
    submit_before = etzel.node.submit

    def watch(command: Command, sink: Any, ref: int) -> None:
        doors.append(command.door)
        submit_before(command, sink, ref)

    etzel.call(lambda: setattr(etzel.node, "submit", watch))
    client.publish("q", "m")
    client.acknowledge("q", client.fetch("q")["uid"])
    assert doors == [DOOR_ETZEL] * 3

"""No client can make the node grow without bound, whatever it sends ahead and however little it reads."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from penstock.doors import connection as doors_connection
from penstock.doors.etzel import connection as etzel_connection
from penstock.doors.etzel import holding
from penstock.engine.records import LEASED, READY
from tests.doors.etzel.support import Client, Closed, EtzelServer, client_frame

SMALL_BYTES = 16 * 1024
PUB = client_frame(json.dumps({"cmd": "PUB", "qname": "q", "msg": "m"}).encode())
FET = client_frame(json.dumps({"cmd": "FET", "qname": "q"}).encode())
ISLP = client_frame(json.dumps({"cmd": "ISLP", "qname": "q"}).encode())
BAD = client_frame(b"bad")


def send_without_reading(client: Client, data: bytes) -> threading.Thread:
    """Send from a thread of its own: it stops when the server reads no more, and goes on when it does again."""
    thread = threading.Thread(target=client.socket.sendall, args=(data,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("request_frame", "cmd"), [(PUB, "ok"), (BAD, "nok"), (ISLP, "okslp")], ids=["publish", "bad", "sleep"]
)
def test_replies_that_are_not_read_stop_the_requests(etzel: EtzelServer, request_frame: bytes, cmd: str) -> None:
    count = 50_000
    etzel.shrink(SMALL_BYTES)
    client = etzel.client(buffer_bytes=SMALL_BYTES)
    sender = send_without_reading(client, request_frame * count)
    connection: Any = etzel.connections[0]
    etzel.until(lambda: connection._reading_paused and not connection._unanswered)

    def held() -> tuple[int, int]:
        return connection._asked - connection._said, connection.unsent_bytes

    unanswered, unsent_bytes = etzel.call(held)
    assert unanswered == 0
    assert unsent_bytes < 500_000
    assert sender.is_alive()
    for number in range(count):
        assert client.hear()["cmd"] == cmd, number
    sender.join()
    if cmd == "ok":
        assert etzel.call(lambda: etzel.queue("q").counts[READY]) == count


@pytest.mark.parametrize("request_frame", [PUB, FET, BAD, ISLP], ids=["publish", "fetch", "bad", "sleep"])
def test_requests_that_wait_for_the_log_are_bounded(
    client: Client, etzel: EtzelServer, request_frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors_connection, "IN_FLIGHT_MAX", 1000)
    monkeypatch.setattr(etzel_connection, "IN_FLIGHT_MAX", 1000)
    release = etzel.hold_commits()
    count = 50_000
    sender = send_without_reading(client, PUB + request_frame * count)
    connection: Any = etzel.connections[0]
    etzel.until(lambda: connection._reading_paused and connection.busy())
    piece = 4096 // len(request_frame)
    assert 1000 < etzel.call(lambda: connection._asked - connection._said) <= 1001 + piece
    release()
    for _ in range(count + 1):
        client.receive()
    sender.join()
    assert etzel.call(lambda: (len(connection._early), len(connection._unanswered), connection.in_flight)) == (0, 0, 0)


def test_messages_that_are_not_read_stay_in_their_queue(client: Client, etzel: EtzelServer) -> None:
    """A thousand fetches sent ahead of messages of 1 MB each: no more are taken than may wait for the client."""
    message, count = "x" * 1_000_000, 100
    for number in range(count):
        client.publish("q", f"{number} {message}")
    reader = etzel.client(buffer_bytes=65_536)
    reader.socket.sendall(FET * count)
    connection: Any = etzel.connections[1]
    etzel.until(lambda: connection._asked == count and not connection._unanswered)
    etzel.until(lambda: not etzel.node._pending and not etzel.node._in_flight)
    assert etzel.call(lambda: connection.unsent_bytes) < 2 * holding.UNREAD_BYTES_MAX
    assert etzel.call(lambda: etzel.queue("q").counts[LEASED]) < 20
    assert etzel.call(lambda: len(connection._held)) > count - 20
    for number in range(count):
        reply = reader.hear()
        assert (reply["msg"].split()[0], reply["error_count"]) == (str(number), 0)
    assert reader.ask("FET", "q") == {"cmd": "nomsg", "qname": "q"}
    assert etzel.call(lambda: (len(connection._held), connection._held._let_go)) == (0, 0)


def test_fetches_that_were_held_back_keep_their_turn(client: Client, etzel: EtzelServer) -> None:
    message, count = "x" * 1_000_000, 30
    for number in range(count):
        client.publish("q", f"{number} {message}")
    reader = etzel.client(buffer_bytes=65_536)
    reader.socket.sendall((FET + BAD) * 20 + PUB + FET * 11 + FET)
    expected = [each for number in range(20) for each in (str(number), "nok")]
    expected += ["ok", *map(str, range(20, count)), "m", "nomsg"]
    for each in expected:
        reply = reader.hear()
        assert (reply["msg"].split()[0] if reply["cmd"] == "msg" else reply["cmd"]) == each


def test_nobody_is_woken_before_it_is_told_that_it_may_sleep(client: Client, etzel: EtzelServer) -> None:
    """The fetches before its ISLP are held back, so the reply to that waits, and what wakes it waits for the reply."""
    message, count = "x" * 1_000_000, 30
    for _ in range(count):
        client.publish("q", message)
    reader = etzel.client(buffer_bytes=65_536)
    assert reader.ask("SUB", "q")["cmd"] == "oksub"
    reader.socket.sendall(FET * 20 + ISLP + BAD)
    connection: Any = etzel.connections[1]
    etzel.until(lambda: connection._asked == 23 and not connection._unanswered)
    assert etzel.call(lambda: len(connection._held)) > 0
    assert [reader.hear()["cmd"] for _ in range(23)] == ["msg"] * 20 + ["okslp", "nok", "awk"]
    reader.hears_nothing()


def test_a_client_that_leaves_while_its_fetches_are_held_back_loses_nothing(client: Client, etzel: EtzelServer) -> None:
    message, count = "x" * 1_000_000, 30
    for _ in range(count):
        client.publish("q", message)
    reader = etzel.client(buffer_bytes=65_536)
    reader.socket.sendall(FET * count)
    connection: Any = etzel.connections[1]
    etzel.until(lambda: len(connection._held) > 0 and not connection._unanswered)
    reader.socket.close()
    etzel.until(lambda: connection.closed)
    etzel.until(lambda: not etzel.node._pending and not etzel.node._in_flight)
    assert etzel.call(lambda: sum(etzel.queue("q").counts)) == count
    assert etzel.call(lambda: etzel.queue("q").counts[READY]) > count - 20


def test_the_queues_of_one_client_are_bounded(
    client: Client, etzel: EtzelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etzel_connection, "QUEUES_PER_CONNECTION_MAX", 3)
    refused = {"cmd": "nok", "err": "TOO_MANY_SUBS"}
    for name in ("a", "b"):
        client.sleep(name)
    assert client.ask("ISLP", "c") == {"cmd": "okslp", "qname": "c"}
    assert client.ask("SUB", "d") == refused
    assert client.ask("ISLP", "d") == refused
    client.sleep("c")
    assert etzel.call(lambda: len(etzel.door.sleepers)) == 3
    client.publish("d", "m")
    assert client.fetch("d")["msg"] == "m"


def test_a_client_beyond_the_limit_of_connections_is_turned_away(client: Client, etzel: EtzelServer) -> None:
    etzel.call(lambda: setattr(etzel.keeper, "_connections_max", 1))
    with pytest.raises((Closed, ConnectionError)):
        etzel.client()
    client.hears_nothing()

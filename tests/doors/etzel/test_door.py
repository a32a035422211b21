"""The door as the server opens it: where it listens, what it says over HTTP, and what is kept over a restart."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.serve import announcement
from penstock.doors.errors import AddressTaken
from penstock.doors.server import Server
from penstock.settings import EtzelSettings, MoniqueSettings, Settings, TaskfluxSettings
from penstock.settings.errors import ExposedListenerError
from tests.doors.conftest import WITHIN_S
from tests.doors.etzel.support import HANDSHAKE, VECTORS, Client, EtzelServer, client_frame
from tests.doors.etzel.test_dialogues import ServedProcess


def settings(**options: Any) -> Settings:
    """Those of a node with no other door than this."""
    etzel = EtzelSettings(**{"port": 0, **options})
    return Settings(
        taskflux=TaskfluxSettings(enabled=False), etzel=etzel, monique=MoniqueSettings(enabled=False), data_dir="unused"
    )


def answer(port: int, request: str) -> tuple[int, str]:
    """The status of an HTTP request, and the whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock:
        sock.sendall(request.encode())
        text = ""
        while "\r\n\r\n" not in text and (data := sock.recv(65_536)):
            text += data.decode()
    return int(text.split()[1]), text


def test_requests_over_http_are_answered_as_the_original_does(etzel: EtzelServer) -> None:
    for vector in VECTORS["http"]:
        expected = int(vector["response"].split()[1]) if vector["response"] else 404
        status, text = answer(etzel.port, vector["request"])
        assert status == expected, vector["name"]
        if status == 101:
            key = next(line for line in vector["response"].split("\r\n") if line.startswith("sec-websocket-accept"))
            assert key.lower() in text.lower()
            assert "extensions" not in text.lower()
            assert "websocket-protocol" not in text.lower()


@pytest.mark.parametrize("path", ["/connect", "/connect/", "/connect?anything", "/connect/?a=b"])
def test_the_paths_of_the_original(etzel: EtzelServer, path: str) -> None:
    with Client(etzel.port, path) as client:
        client.hears_nothing()


@pytest.mark.parametrize("path", ["/connected", "/Connect", "/connect/x", "", "*"])
def test_other_paths_lead_nowhere(etzel: EtzelServer, path: str) -> None:
    assert answer(etzel.port, HANDSHAKE.format(path=path or "/login/", more=""))[0] == 404


def test_the_node_says_where_the_door_is() -> None:
    async def lines() -> list[str]:
        server = Server(settings(), in_memory=True)
        await server.start()
        try:
            return list(announcement(server))
        finally:
            await server.stop()

    first, *others = asyncio.run(lines())
    address = first.split()[1]
    assert first == f"etzel     {address}  Etzel clients: ws://{address}/connect"
    assert not any("penstock put" in line for line in others), "there is no door for that"


def test_a_port_that_is_taken_is_told_with_the_flags_that_help() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressTaken) as problem:
            asyncio.run(Server(settings(port=port), in_memory=True).start())
    assert "etzel" in str(problem.value)
    assert "--etzel-port" in str(problem.value)
    assert "--no-etzel" in str(problem.value)


def test_a_public_address_needs_the_word() -> None:
    with pytest.raises(ExposedListenerError, match=r"etzel\.host"):
        Server(settings(host="0.0.0.0"), in_memory=True)


def test_a_door_that_is_off_is_not_there() -> None:
    assert Server(settings(enabled=False), in_memory=True).listeners == []


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """Messages, their timeouts, delays and counts, and what was acknowledged: all of it is in the log."""
    served = ServedProcess(tmp_path)
    try:
        with Client(served.port) as client:
            client.publish("q", "acked", "held", "ready")
            client.publish("q", "low", priority=20)
            client.publish("q", "delayed", delay=30)
            client.publish("q", "short", timeout=5, priority=-1)
            uids = {reply["msg"]: reply["uid"] for reply in (client.fetch("q") for _ in range(3))}
            assert list(uids) == ["short", "acked", "held"]
            client.acknowledge("q", uids["acked"])
        served.restart()
        with Client(served.port) as client:
            assert client.fetch("q")["msg"] == "ready"
            served.advance(6)
            short = client.fetch("q")
            assert (short["msg"], short["error_count"], short["uid"]) == ("short", 1, uids["short"])
            client.acknowledge("q", uids["held"])
            served.advance(25)
            assert [client.fetch("q")["msg"] for _ in range(3)] == ["short", "delayed", "low"]
            assert client.ask("FET", "q") == {"cmd": "nomsg", "qname": "q"}
    finally:
        served.kill()


def test_a_burst_that_was_answered_survives_a_kill_in_its_order(tmp_path: Path) -> None:
    served = ServedProcess(tmp_path)
    count = 2_000
    try:
        with Client(served.port) as client:
            client.socket.sendall(
                b"".join(client_frame(b'{"cmd":"PUB","qname":"q","msg":"%d"}' % number) for number in range(count))
            )
            for _ in range(count):
                assert client.hear() == {"cmd": "ok"}
        served.restart()
        with Client(served.port) as client:
            client.socket.sendall(client_frame(b'{"cmd":"FET","qname":"q"}') * count)
            assert [client.hear()["msg"] for _ in range(count)] == [str(number) for number in range(count)]
    finally:
        served.kill()

"""What a config.json brings about while the node runs: signs of life, and connections that come and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.journal import DOOR_NATIVE
from penstock.node.requests import NOBODY
from penstock.settings.source import Source
from penstock.wire.monique.bodies import Monitoring, decode_body, decode_data, encode_body
from tests.doors.monique.site import Site, body, running, settings


class File:
    """A config.json that changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write()

    def write(self, heartbeats: dict[str, int] | None = None, **connections: int) -> None:
        params: dict[str, Any] = {name: {"creator": "me", "frequency": ms} for name, ms in (heartbeats or {}).items()}
        params.setdefault("mq_controller", {})["connections"] = connections
        # As an editor does it: nobody ever sees half of it.
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"params": params}))
        fresh.rename(self.path)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> File:
    """A file that is looked at often."""
    monkeypatch.setattr("penstock.doors.monique.door.LOOK_EVERY_S", 0.02)
    return File(tmp_path / "config.json")


@pytest.fixture
def site(file: File) -> Iterator[Site]:
    """A node that follows the file."""
    with running(config=str(file.path)) as site:
        yield site


def benches(site: Site) -> Any:
    return site.server.doors[-1]._controller._benches  # type: ignore[attr-defined]


def bound(site: Site, spec: str) -> bool | None:
    """Whether a spec is bound, paused (False), or was never bound (None)."""
    view = site.node.engine.state.bindings.get(f"monique/{spec}")
    return None if view is None else not view.paused


def publish(site: Site, *ids: str, spec: str = "a_b") -> list[list[bytes]]:
    client = site.client()
    sent = [body("config", spec, id=each) for each in ids]
    for each in sent:
        client.push(each.tag.encode(), encode_body(each))
    return [[each.tag.encode(), encode_body(each)] for each in sent]


def join(site: Site, spec: str = "a_b") -> zmq.Socket[bytes]:
    site.ports["worker"] = site.call(lambda: benches(site)[spec].listener.port)
    return site.socket(zmq.PULL, "worker")


def test_a_spec_that_comes_into_the_file_gets_its_queue_and_port(site: Site, file: File) -> None:
    assert bound(site, "a_b") is None
    file.write(a_b=0)
    site.until(lambda: bound(site, "a_b"))
    assert publish(site, "1") == [join(site).recv_multipart()]


def test_one_that_left_the_file_is_paused_and_its_queue_kept_until_it_comes_back(site: Site, file: File) -> None:
    file.write(a_b=0, c_d=0)
    site.until(lambda: bound(site, "a_b"))
    first = publish(site, "1", "2")
    worker = join(site)
    assert worker.recv_multipart() == first[0]
    file.write(c_d=0)
    site.until(lambda: bound(site, "a_b") is False)
    assert bound(site, "c_d")
    publish(site, "while it is away")
    client = site.client()
    client.push(b"result:a_b:x:1:worker")  # who is at work may finish
    site.until(lambda: site.counts_now("monique/a_b") == [1, 0, 0, 0])
    assert not worker.poll(50), "but gets no more"
    file.write(a_b=0, c_d=0)
    site.until(lambda: bound(site, "a_b"))
    assert worker.recv_multipart() == first[1], "the worker that stayed is at work again"


def test_a_worker_that_waits_gets_nothing_while_its_spec_is_away(site: Site, file: File) -> None:
    file.write(a_b=0)
    site.until(lambda: bound(site, "a_b"))
    worker = join(site)
    site.until(lambda: site.node.waiters.queues)
    file.write()
    site.until(lambda: bound(site, "a_b") is False)
    task = body("config", "a_b")
    args = c.Put("monique/a_b", [c.Item(0, encode_body(task))])
    command = Command(c.PUT, DOOR_NATIVE, 0, 0, 0, c.encode(args), args)
    site.call(lambda: site.node.submit(command, NOBODY, 0))
    site.until(lambda: site.counts_now("monique/a_b") == [1, 0, 0, 0])
    assert not worker.poll(50)
    file.write(a_b=0)
    assert worker.recv_multipart() == [task.tag.encode(), encode_body(task)]


def test_a_port_that_changes_is_listened_on_instead(site: Site, file: File) -> None:
    file.write(a_b=0)
    site.until(lambda: bound(site, "a_b"))
    former = site.call(lambda: benches(site)["a_b"].listener)
    # Another free one: that of a listener which is closed again.
    file.write(a_b=0, c_d=0)
    site.until(lambda: bound(site, "c_d"))
    port = site.call(lambda: benches(site)["c_d"].listener.port)
    file.write(a_b=0)
    site.until(lambda: bound(site, "c_d") is False)
    file.write(a_b=port)
    site.until(lambda: benches(site)["a_b"].listener is not former and benches(site)["a_b"].open)
    assert site.call(lambda: benches(site)["a_b"].listener.port) == port
    assert publish(site, "1") == [join(site).recv_multipart()]


def test_a_port_that_cannot_be_had_is_told_and_tried_again(
    site: Site, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    taken = zmq.Context.instance().socket(zmq.PULL)
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    file.write(a_b=port)
    site.until(lambda: "a_b" in benches(site) and not benches(site)["a_b"].open)
    assert any(f"127.0.0.1:{port}" in record.getMessage() for record in caplog.records)
    taken.close(0)
    site.until(lambda: bound(site, "a_b"))
    assert publish(site, "1") == [join(site).recv_multipart()]


@pytest.mark.parametrize("broken", ["{", "[]", '{"params": {"mq_controller": {"connections": {"a_b": "x"}}}}', None])
def test_a_file_that_is_broken_changes_nothing(
    site: Site, file: File, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    file.write(a_b=0)
    site.until(lambda: bound(site, "a_b"))
    if broken is None:
        file.path.unlink()
    else:
        file.path.write_text(broken)
    site.until(lambda: any("goes on to hold" in record.getMessage() for record in caplog.records))
    assert bound(site, "a_b")
    file.write(a_b=0, c_d=0)
    site.until(lambda: bound(site, "c_d"))


def test_connections_that_were_set_otherwise_do_not_follow_the_file(file: File) -> None:
    given = settings(config=str(file.path), connections="set_here=0")
    given.sources["monique.connections"] = Source.flag("--monique-connections")  # type: ignore[index]
    site = Site(given)
    file.write(a_b=0)
    looks: list[None] = []
    site.call(lambda: site.loop.call_later(0.1, looks.append, None))
    site.until(lambda: looks)
    assert (bound(site, "a_b"), bound(site, "set_here")) == (None, True)
    site.stop()


def test_the_parts_of_monique_say_that_they_live_as_often_as_the_file_asks(file: File) -> None:
    file.write(heartbeats={"mq-websocket": 20, "mq_controller": 20})
    with running(config=str(file.path)) as site:
        subscriber = site.subscriber(b"data:monitoring:", channel="tech")
        names = set()
        while len(names) < 2:
            tag, content = subscriber.recv_multipart()
            message = decode_body(content)
            monitoring = decode_data(Monitoring, message.data)
            assert tag == message.tag.encode()
            assert (monitoring.is_alive, message.creator, message.expires_at_ms) == (True, "me", 0)
            names.add(monitoring.name)
        assert names == {"mq-websocket", "mq_controller"}


def test_nobody_says_so_without_being_asked(site: Site) -> None:
    looks: list[None] = []
    site.call(lambda: site.loop.call_later(0.05, looks.append, None))
    site.until(lambda: looks)
    assert not site.published

"""The scheduler: what components push over ZeroMQ, and what they receive."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest
import zmq

from penstock.doors.errors import AddressTaken, CannotListenOn
from penstock.engine import commands as c
from penstock.engine.entries import Command
from penstock.engine.errors import MEMORY_FULL, Refusal
from penstock.engine.journal import DOOR_NATIVE
from penstock.node.limits import Limits
from penstock.node.requests import NOBODY
from penstock.settings.schema import MoniqueSettings
from penstock.wire.monique import gateway as g
from penstock.wire.monique.bodies import (
    Failure,
    Monitoring,
    decode_body,
    decode_data,
    encode_body,
    kill_body,
    monitoring_body,
)
from penstock.wire.monique.tags import Dialect, pack_tag_frame
from tests.doors.monique.site import Site, body, running, settings
from tests.wire.monique.support import vectors

TAG = b"config:example_calculator:1::tester"
TASK = "the-task"
KILL = kill_body(TASK, id="k", creator="operator", created_at_ms=5)
VECTORS = vectors()


def frames(message: object, tag: bytes | None = None) -> list[bytes]:
    return [tag if tag is not None else message.tag.encode(), encode_body(message)]  # type: ignore[attr-defined, arg-type]


# Com.


@pytest.mark.parametrize("name", ["zmq/com-out-config", "zmq/com-out-result"])
def test_com_is_forwarded_byte_for_byte(site: Site, name: str) -> None:
    vector = VECTORS[name]
    subscriber = site.subscriber(b"config:", b"result:")
    site.component().send_multipart([vector.tag, vector.data])
    assert subscriber.recv_multipart() == [vector.tag, vector.data]


@pytest.mark.parametrize("content", [b"", b"\xc1", b"encrypted \xff\x00", b"\x89\xaacreated_at", bytes(1_000_000)])
def test_a_body_is_opaque_on_com(site: Site, content: bytes) -> None:
    subscriber, client = site.subscriber(b""), site.client()
    client.subscribe(("*", "*"))
    site.component().send_multipart([TAG, content])
    assert subscriber.recv_multipart() == [TAG, content]
    assert client.hear() == g.PushedFromMq(TAG, content)


def test_a_body_that_says_otherwise_than_its_tag_is_forwarded_by_its_tag(site: Site) -> None:
    other = body("result", "other_spec")
    subscriber = site.subscriber(b"config:example_calculator:")
    site.component().send_multipart(frames(other, TAG))
    assert subscriber.recv_multipart() == frames(other, TAG)


def test_subscribers_choose_by_prefix_with_or_without_the_last_colon(site: Site) -> None:
    exact, open_ended = site.subscriber(b"config:example_c:"), site.subscriber(b"config:example_c")
    component = site.component()
    for spec in (b"example_clock", b"example_c"):
        component.send_multipart([b"config:" + spec + b":1::me", b"x"])
    assert exact.recv_multipart() == [b"config:example_c:1::me", b"x"]
    assert open_ended.recv_multipart() == [b"config:example_clock:1::me", b"x"]
    assert open_ended.recv_multipart() == [b"config:example_c:1::me", b"x"]


def test_the_order_of_a_component_is_kept(site: Site) -> None:
    subscriber, component = site.subscriber(b"data:", RCVHWM=0), site.component()
    sent = [[b"data:spec:%d::me" % number, b"%d" % number] for number in range(3000)]
    for each in sent:
        component.send_multipart(each)
    assert [subscriber.recv_multipart() for _ in sent] == sent


def test_a_legacy_component_is_forwarded_packed_as_it_came(site: Site) -> None:
    packed = pack_tag_frame(TAG, Dialect.LEGACY)
    subscriber, client = site.subscriber(b""), site.client()
    client.subscribe(("example_calculator", "config"))
    component = site.component()
    component.send_multipart([packed, b"x"])
    component.send_multipart([TAG, b"y"])
    assert subscriber.recv_multipart() == [packed, b"x"]
    assert subscriber.recv_multipart() == [TAG, b"y"]
    assert [client.hear(), client.hear()] == [g.PushedFromMq(TAG, b"x"), g.PushedFromMq(TAG, b"y")]
    logged = [(message.channel, message.tag) for message in site.published if message.spec == "example_calculator"]
    assert logged == [(2, TAG), (0, TAG)]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_dialect_of_all_that_goes_out_can_be_set(dialect: Dialect) -> None:
    with running(dialect=dialect.value) as site:
        out = pack_tag_frame(TAG, dialect)
        subscriber = site.subscriber(b"", out[:3])
        component = site.component()
        for each in Dialect:
            component.send_multipart([pack_tag_frame(TAG, each), b"x"])
            assert subscriber.recv_multipart() == [out, b"x"]


def test_only_allowed_specs_pass_com_and_others_are_not_logged() -> None:
    with running(allow_messages="good_spec,kill") as site:
        component, subscriber = site.component("tech"), site.subscriber(b"", channel="tech")
        monitoring = body("data", "monitoring")
        component.send_multipart(frames(monitoring))
        assert subscriber.recv_multipart() == frames(monitoring), "the technical channel has no such rule"
        com = site.component()
        for spec in (b"bad_spec", b"good_spec_not", b"error", b"good_spec"):
            com.send_multipart([b"data:" + spec + b":::", b"x"])
        site.until(lambda: any(message.spec == "good_spec" for message in site.published))
        component.send_multipart(frames(KILL))
        site.until(lambda: any(message.spec == "kill" for message in site.published))
        com_specs = [message.spec for message in site.published if not message.channel]
        assert com_specs == ["good_spec", "error"], "the error of a kill passes all the same"


def test_what_comes_by_the_gateway_reaches_components_and_the_other_way_round(site: Site) -> None:
    subscriber, client = site.subscriber(b"config:"), site.client()
    client.subscribe(("example_calculator", "result"))
    client.push(TAG, b"question", Dialect.LEGACY)
    assert subscriber.recv_multipart() == [TAG, b"question"]
    site.component().send_multipart([b"result:example_calculator:2:1:worker", b"answer"])
    assert client.hear() == g.PushedFromMq(b"result:example_calculator:2:1:worker", b"answer", Dialect.LEGACY)


# Tech.


def test_tech_is_written_anew_and_its_tag_follows_from_the_body(site: Site) -> None:
    subscriber = site.subscriber(b"", channel="tech")
    sound = body("data", "monitoring", data=b'{ "not" : "looked at"')
    fields = msgspec.msgpack.decode(encode_body(sound))
    shuffled = msgspec.msgpack.encode({"alphabet": "extra", **dict(reversed(fields.items()))})
    site.component("tech").send_multipart([b"data:other::x:y", shuffled])
    assert subscriber.recv_multipart() == frames(sound)


def test_monitoring_passes_as_it_is(site: Site) -> None:
    subscriber = site.subscriber(b"data:monitoring:", channel="tech")
    monitoring = monitoring_body(Monitoring(5, "calculator", True, ""), id="m", creator="calculator")
    site.component("tech").send_multipart(frames(monitoring))
    assert subscriber.recv_multipart() == frames(monitoring)
    assert site.published[-1].channel == 1


def test_the_gateway_does_not_see_tech(site: Site) -> None:
    client = site.client()
    client.subscribe(("*", "*"))
    site.component("tech").send_multipart(frames(body("data", "monitoring")))
    site.until(lambda: site.published)
    client.hears_nothing()


def test_a_kill_puts_its_error_on_com_first_as_the_original_does(site: Site) -> None:
    kill, expected = VECTORS["zmq/tech-in-kill"], decode_body(VECTORS["zmq/com-out-kill-error"].data)
    tech, com = site.subscriber(b"", channel="tech"), site.subscriber(b"error:error:")
    client = site.client()
    client.subscribe(("error", "error"))
    site.component("tech").send_multipart([kill.tag, kill.data])
    assert tech.recv_multipart() == [VECTORS["zmq/tech-out-kill"].tag, VECTORS["zmq/tech-out-kill"].data]
    tag, content = com.recv_multipart()
    error = decode_body(content)
    assert tag == error.tag.encode()
    assert decode_data(Failure, error.data) == Failure(301, "task killed")
    assert len(error.id) == 40
    fresh = {"id": expected.id, "created_at_ms": expected.created_at_ms}
    assert msgspec.structs.replace(error, **fresh) == expected
    assert client.hear() == g.PushedFromMq(tag, content)
    assert [(each.channel, each.spec) for each in site.published[-2:]] == [(0, "error"), (1, "kill")]


def test_the_error_of_a_legacy_kill_is_legacy(site: Site) -> None:
    com = site.subscriber(b"", pack_tag_frame(b"x", Dialect.LEGACY)[:1])
    kill = msgspec.structs.replace(KILL, dialect=Dialect.LEGACY)
    tag = pack_tag_frame(kill.tag.encode(), Dialect.LEGACY)
    site.component("tech").send_multipart([tag, encode_body(kill)])
    frame, content = com.recv_multipart()
    error = decode_body(content)
    assert (error.dialect, error.pid, len(error.id)) == (Dialect.LEGACY, TASK, 28)
    assert frame == pack_tag_frame(error.tag.encode(), Dialect.LEGACY)


@pytest.mark.parametrize("data", [b'{"task_id":""}', b'{"task_id":5}', b"{}", b"", b"nonsense"])
def test_a_kill_that_names_no_task_is_ignored(site: Site, data: bytes) -> None:
    """An empty task would make every idle component start anew."""
    component = site.component("tech")
    component.send_multipart(frames(msgspec.structs.replace(KILL, data=data)))
    component.send_multipart(frames(KILL))
    site.until(lambda: len(site.published) == 2)
    assert [decode_body(message.body).pid for message in site.published] == [TASK, ""]


def test_a_kill_on_com_is_a_message_like_any_other(site: Site) -> None:
    site.component().send_multipart(frames(KILL))
    site.until(lambda: site.published)
    assert [message.spec for message in site.published] == ["kill"]


def test_expired_messages_are_logged_but_not_delivered_on_either_channel(site: Site) -> None:
    for channel in ("com", "tech"):
        subscriber, component = site.subscriber(b"", channel=channel), site.component(channel)
        expired, lasting = body(expires_at_ms=1), body(expires_at_ms=-5)
        for each in (expired, lasting):
            component.send_multipart(frames(each))
        assert subscriber.recv_multipart() == frames(lasting)
        assert [message.expires_at_us for message in site.published[-2:]] == [1000, 0]


# Back-pressure.


@pytest.mark.parametrize("channel", ["com", "tech"])
def test_what_the_node_cannot_take_now_waits_and_is_not_lost(
    site: Site, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = site.component(channel)
    sent = [body("data", "some_spec") for _ in range(50)]
    with monkeypatch.context() as patch:
        patch.setattr(Limits, "refusal", lambda *_: Refusal(MEMORY_FULL, "there is no room"))
        for each in sent:
            component.send_multipart(frames(each))
        intake = site.server.doors[-1]._scheduler._intakes[channel == "tech"]  # type: ignore[attr-defined]
        site.until(lambda: not intake.ready())
        assert not site.published
    site.until(lambda: len(site.published) == len(sent))
    assert [message.tag for message in site.published] == [each.tag.encode() for each in sent]


def test_no_more_is_read_than_may_be_on_its_way(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """While commits stand still, so do the components; then all comes through."""
    monkeypatch.setattr("penstock.doors.monique.scheduler._IN_FLIGHT_MAX", 100)
    component = site.component(SNDHWM=100)
    release = site.hold_commits()
    intake = site.server.doors[-1]._scheduler._intakes[0]  # type: ignore[attr-defined]
    sent = 0
    while component.poll(200, zmq.POLLOUT):
        component.send_multipart([TAG, bytes(20_000)])
        sent += 1
        assert sent < 10_000
    assert site.call(lambda: intake._in_flight) == 100
    release()
    site.until(lambda: len(site.published) == sent)


def test_what_came_in_is_published_before_the_node_stops() -> None:
    """Also what has arrived but was not yet looked at."""
    site = Site(settings())
    subscriber, component = site.subscriber(b"data:spec:", RCVHWM=0), site.component()
    inlet = site.server.doors[-1]._scheduler._inlets[0]  # type: ignore[attr-defined]
    component.send_multipart([b"data:first:0::me", b"x"])
    site.until(lambda: any(message.spec == "first" for message in site.published))
    ready = inlet._ready
    site.call(lambda: setattr(inlet, "_ready", lambda: False))
    sent = [b"data:spec:%d::me" % number for number in range(500)]
    for tag in sent:
        component.send_multipart([tag, b"x"])
    site.until(lambda: any(peer.received_bytes() for peer in inlet._waiting))

    async def stop() -> None:
        inlet._ready = ready
        inlet.resume()
        await site.server.stop()

    site.run(stop())
    published = [message.tag for message in site.published if message.spec == "spec"]
    assert published == sent[: len(published)]
    assert published
    assert [subscriber.recv_multipart()[0] for _ in published] == published
    site.stop()


def test_a_task_that_its_queue_refuses_is_dropped_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with running(connections="small=0") as site:
        changes = c.ChangeQueue("monique/small", c.QueueChanges(size_max=1))
        command = Command(c.CHANGE_QUEUE, DOOR_NATIVE, 0, 0, 0, c.encode(changes), changes)
        site.call(lambda: site.node.submit(command, NOBODY, 0))
        subscriber, component = site.subscriber(b"config:"), site.component()
        for spec, number in (("small", 1), ("small", 2), ("other", 3)):
            component.send_multipart([f"config:{spec}:{number}::me".encode(), b"x"])
        received = [subscriber.recv_multipart()[0] for _ in range(2)]
        assert received == [b"config:small:1::me", b"config:other:3::me"]
    assert any("holds its 1 records" in record.getMessage() for record in caplog.records)


# The inner ports.


def test_with_inner_ports_the_rules_are_those_of_another_program() -> None:
    with running(inner=True, allow_messages="only_this") as site:
        site.ports["com_in_port"], entrance = site.ports["inner_com_out_port"], site.ports["com_in_port"]
        subscriber = site.subscriber(b"")
        site.ports["com_in_port"] = entrance
        component, logic_in = site.component(), site.socket(zmq.PULL, "inner_com_in_port")
        logic_out = site.socket(zmq.PUSH, "inner_com_out_port")
        component.send_multipart([b"whatever", b"x", b"y"])
        assert logic_in.recv_multipart() == [b"whatever", b"x", b"y"]
        logic_out.send_multipart([TAG, b"decided"])
        assert subscriber.recv_multipart() == [TAG, b"decided"]


def test_messages_wait_for_the_first_program_with_rules() -> None:
    with running(inner=True) as site:
        tech = site.component("tech")
        sent = [[b"%d" % number, b"x"] for number in range(50)]
        for each in sent:
            tech.send_multipart(each)
        logic = site.socket(zmq.PULL, "inner_tech_in_port")
        assert [logic.recv_multipart() for _ in sent] == sent
        assert not site.published


# Places.


@pytest.mark.parametrize("name", ["gateway_port", "com_in_port", "com_out_port", "tech_in_port", "tech_out_port"])
def test_a_port_that_is_taken_is_told_with_the_flag_that_chooses_another(name: str, tmp_path: Path) -> None:
    """Before the data are recovered: the data's folder is not even made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressTaken) as caught:
            Site(settings(data_dir=str(tmp_path / "data"), **{name: port}), in_memory=False)
    assert f"--monique-{name.replace('_', '-')}" in str(caught.value)
    assert "--no-monique" in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_host_that_is_not_here_is_told() -> None:
    with pytest.raises(CannotListenOn, match=r"192\.0\.2\.1"):
        Site(msgspec.structs.replace(settings(out_host="192.0.2.1"), insecure=True))


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_and_ipv6_are_listened_on_too(host: str) -> None:
    with running(in_host=host) as site:
        component = site.context.socket(zmq.PUSH)
        component.setsockopt(zmq.IPV6, 1)
        shown = f"[{host}]" if ":" in host else host
        component.connect(f"tcp://{shown}:{site.ports['com_in_port']}")
        component.send_multipart([TAG, b"x"])
        site.until(lambda: site.published)


def test_it_works_on_asyncio_s_own_loop() -> None:
    with running(loop=asyncio.SelectorEventLoop()) as site:
        subscriber, component = site.subscriber(b"data:", RCVHWM=0), site.component()
        for number in range(1000):
            component.send_multipart([b"data:spec:%d::me" % number, b"x"])
        received = [subscriber.recv_multipart()[0] for _ in range(1000)]
        assert received == [b"data:spec:%d::me" % number for number in range(1000)]


def test_messages_go_on_after_a_restart(tmp_path: Path) -> None:
    for round_number in range(2):
        site = Site(settings(data_dir=str(tmp_path)), in_memory=False)
        subscriber, component = site.subscriber(b"data:"), site.component()
        component.send_multipart([b"data:spec:%d::me" % round_number, b"the body %d" % round_number])
        assert subscriber.recv_multipart()[0] == b"data:spec:%d::me" % round_number
        assert round_number or not subscriber.poll(50), "nothing of the past is delivered again"
        site.stop()
    log = b"".join(path.read_bytes() for path in (tmp_path / "consensus").glob("**/*.log"))
    assert all(b"the body %d" % number in log for number in range(2)), "all of it is in the log"


def test_the_defaults_are_the_ports_of_the_original() -> None:
    ports = [place.port for place in MoniqueSettings(inner=True).places()]
    assert ports == [9160, 9000, 9001, 9024, 9025, 9010, 9011, 9034, 9035]

"""Subscribers that are slow or gone: they cost the others nothing, and the node a bounded amount."""

from __future__ import annotations

import pytest

from penstock.wire.monique import gateway as g
from penstock.wire.monique.bodies import encode_body
from tests.doors.monique.raw import RawClient
from tests.doors.monique.site import Site, body, running

TAG = b"data:some_spec:1::tester"
MESSAGE = bytes(100_000)
CLOSE = 8
TOO_SLOW = 1013


def test_a_subscriber_that_does_not_read_is_disconnected_and_delays_nobody() -> None:
    with running(gateway_unsent_bytes=2_000_000) as site:
        slow = RawClient(site.ports["gateway_port"], receive_bytes=4096)
        quick, pusher = site.client(), site.client()
        quick.subscribe(("*", "*"))
        for _ in range(200):  # 20 MB: more than its bound and what the system buffers for it
            pusher.push(TAG, MESSAGE)
            assert quick.hear() == g.PushedFromMq(TAG, MESSAGE)
        delivered = 0
        while (frame := slow.read_frame())[0] != CLOSE:
            assert frame == (2, g.encode_reply(g.PushedFromMq(TAG, MESSAGE)))
            delivered += 1
        assert frame[1][:2] == TOO_SLOW.to_bytes(2, "big")
        assert 20 <= delivered < 200
        quick.hears_nothing()


def test_a_subscriber_that_reads_gets_a_message_longer_than_its_bound() -> None:
    with running(gateway_unsent_bytes=4096) as site:
        client = site.client()
        client.subscribe(("*", "*"))
        for _ in range(5):
            client.push(TAG, MESSAGE * 50)
            assert client.hear() == g.PushedFromMq(TAG, MESSAGE * 50)


def test_what_waits_for_a_slow_subscriber_is_bounded() -> None:
    with running(gateway_unsent_bytes=1_000_000) as site:
        slow = RawClient(site.ports["gateway_port"], receive_bytes=4096)
        pusher = site.client()
        most = 0
        for _ in range(200):
            pusher.push(TAG, MESSAGE)
            most = max(most, site.call(lambda: max(each.unsent_bytes for each in site.server._keeper._open)))  # type: ignore[union-attr]
        assert 1_000_000 < most < 3_000_000
        slow.sock.close()


def test_the_reset_of_a_subscriber_amid_traffic_harms_nobody(site: Site) -> None:
    """The original's only forwarder dies of it."""
    steady, pusher = site.client(), site.client()
    steady.subscribe(("*", "*"))
    for round_number in range(10):
        leaving = [RawClient(site.ports["gateway_port"]) for _ in range(3)]
        tags = [b"data:spec:%d-%d::me" % (round_number, number) for number in range(50)]
        for tag in tags[:25]:
            pusher.send(g.PushToMq(tag, MESSAGE[:1000]))
        for each in leaving:
            each.reset()
        for tag in tags[25:]:
            pusher.send(g.PushToMq(tag, MESSAGE[:1000]))
        assert [steady.hear() for _ in tags] == [g.PushedFromMq(tag, MESSAGE[:1000]) for tag in tags]
        assert [pusher.hear() for _ in tags] == [g.PushedToMq(tag) for tag in tags]
    site.until(lambda: site.node.connections_open == 2)


def test_a_zeromq_subscriber_that_does_not_read_delays_nobody() -> None:
    with running(zeromq_unsent=10) as site:
        slow = site.subscriber(b"data:some_spec", RCVHWM=1, RCVBUF=4096)
        quick, pusher = site.subscriber(b"data:some_spec", RCVHWM=0), site.client()
        for _ in range(200):
            pusher.push(TAG, MESSAGE)
            assert quick.recv_multipart() == [TAG, MESSAGE]
        missed = 200
        while slow.poll(200):
            slow.recv_multipart()
            missed -= 1
        assert 0 < missed < 200


JUNK = [b"", b"\xff" * 50, b"config:" * 1000, b"\x00" * 1000, b"\xc4\x01", b"\xc6\xff\xff\xff\xff", b"::::"]


def test_junk_from_a_client_harms_nobody(site: Site) -> None:
    client = site.client()
    for junk in JUNK:
        client.socket.send(junk)
        assert isinstance(client.hear(), g.ErrorReply)
    client.push(TAG)
    assert [message.tag for message in site.published] == [TAG]


@pytest.mark.parametrize("channel", ["com", "tech"])
def test_junk_from_a_component_harms_nobody(site: Site, channel: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not even itself: what it sends after that is published. The log tells of it, but not for each message."""
    component = site.component(channel)
    for junk in JUNK * 20:
        for frames in ([junk], [junk, junk], [junk, b"", junk], [b"dat:a:b:c:d", junk]):
            component.send_multipart(frames)
    if channel == "tech":
        component.send_multipart([b"config:kill:1::me", b"\x81\xa4type\xa4junk"])
    sound = body("data", "some_spec")
    component.send_multipart([sound.tag.encode(), encode_body(sound)])
    site.until(lambda: site.published)
    assert [message.tag for message in site.published] == [sound.tag.encode()]
    warnings = [record.getMessage() for record in caplog.records]
    assert f"monique {channel}: a message is dropped: expected [tag, content], and 1 frames came" in warnings
    assert len(warnings) < 10


def test_no_more_clients_than_the_node_takes_are_let_in(site: Site) -> None:
    site.call(lambda: setattr(site.server._keeper, "_connections_max", 1))
    site.client().hears_nothing()
    with pytest.raises((EOFError, ConnectionError)):
        RawClient(site.ports["gateway_port"])


def test_zeromq_peers_may_come_and_go(site: Site) -> None:
    pusher = site.client()
    for _ in range(3):
        subscriber = site.subscriber(b"data:")
        component = site.component()
        component.send_multipart([TAG, b"x"])
        assert subscriber.recv_multipart() == [TAG, b"x"]
        for socket in (subscriber, component):
            socket.close(0)
        pusher.push(TAG)

"""ZeroMQ peers that do what no good one does: their cost is bounded and counted, and others do not notice."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.doors.monique import peers
from penstock.doors.monique.spreading import TOPIC_BYTES_MAX, TOPICS_PER_PEER_MAX, UNSENT_BYTES_MAX
from penstock.doors.subscribing import SUBSCRIPTION_BYTES
from penstock.node.account import RECEIVED, SUBSCRIPTIONS, UNSENT
from tests.doors.monique.site import WITHIN_S, Site, running

GREETING = bytes.fromhex("ff00000000000000017f0301") + b"NULL" + bytes(16 + 32)
TAG = b"data:some_spec:1::me"


def ready(socket_type: bytes) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(socket_type)) + socket_type
    return bytes((4, len(body))) + body


def frame(body: bytes, *, more: bool = False) -> bytes:
    return struct.pack(">BQ", 2 | more, len(body)) + body


def message(*frames: bytes) -> bytes:
    return b"".join(frame(each, more=True) for each in frames[:-1]) + frame(frames[-1])


@contextlib.contextmanager
def raw_peer(site: Site, port: str, socket_type: bytes) -> Iterator[socket.socket]:
    """A peer of plain sockets whose handshake is done."""
    with socket.create_connection(("127.0.0.1", site.ports[port]), timeout=WITHIN_S) as sock:
        sock.sendall(GREETING + ready(socket_type))
        yield sock


def is_closed(sock: socket.socket) -> bool:
    """Wait until the node closes the connection."""
    with contextlib.suppress(ConnectionError):
        while sock.recv(65_536):
            pass
    return True


def counted(site: Site, kind: str) -> int:
    return site.call(lambda: site.node.account.bytes_by_kind.get(kind, 0))


def peers_of(site: Site) -> list[Any]:
    return list(site.server._keeper._open)  # type: ignore[union-attr]


# Messages.


def test_a_message_of_too_many_frames_ends_its_connection_and_costs_nothing(site: Site) -> None:
    with raw_peer(site, "com_in_port", b"PUSH") as sock:
        with contextlib.suppress(ConnectionError):
            for _ in range(3_000):
                sock.sendall(frame(b"", more=True) * 100)
        assert is_closed(sock)
    site.until(lambda: not peers_of(site))
    assert counted(site, RECEIVED) == 0
    with raw_peer(site, "com_in_port", b"PUSH") as sock:
        sock.sendall(message(TAG, b"x"))
        site.until(lambda: [each.tag for each in site.published] == [TAG])


def test_a_message_that_is_too_long_ends_its_connection_at_its_head() -> None:
    with running(payload_bytes=100_000) as site, raw_peer(site, "com_in_port", b"PUSH") as sock:
        sock.sendall(frame(TAG, more=True) + struct.pack(">BQ", 2, 2**40))
        assert is_closed(sock)


def test_half_a_message_is_counted_until_its_sender_is_gone(site: Site) -> None:
    with raw_peer(site, "com_in_port", b"PUSH") as sock:
        sock.sendall(frame(TAG, more=True) + frame(bytes(500_000))[:400_000])
        site.until(lambda: site.node.account.bytes_by_kind.get(RECEIVED, 0) >= 400_000)
        assert counted(site, RECEIVED) < 500_000
        (peer,) = site.call(lambda: peers_of(site))
        assert site.call(peer.has_half_request)
    site.until(lambda: site.node.account.bytes_by_kind.get(RECEIVED, 0) == 0)
    assert site.call(peer.received_bytes) == 0


def test_a_flood_of_messages_is_taken_in_turns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all, a turn is one message."""
    monkeypatch.setattr(peers, "TURN_S", 0.0)
    with raw_peer(site, "com_in_port", b"PUSH") as first, raw_peer(site, "com_in_port", b"PUSH") as second:
        site.until(lambda: len(peers_of(site)) == 2 and all(each._codec.ready for each in peers_of(site)))
        flood = [message(b"data:%s:1::me" % name, b"x") * 100 for name in (b"one", b"two")]

        def feed() -> None:
            for peer, data in zip(peers_of(site), flood, strict=True):
                peer.data_received(data)

        site.call(feed)
        site.until(lambda: len(site.published) == 200)
        specs = [each.spec for each in site.published]
        assert {tuple(sorted(specs[at : at + 2])) for at in range(0, 200, 2)} == {("one", "two")}
        del first, second


# Connections.


def test_zeromq_connections_are_counted_and_limited(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        for port, kind in (("com_in_port", b"PUSH"), ("com_out_port", b"SUB"), ("tech_out_port", b"XSUB")):
            stack.enter_context(raw_peer(site, port, kind))
        site.until(lambda: site.node.connections_open == 3)
        site.until(lambda: all(each._codec.ready for each in peers_of(site)))
        site.call(lambda: setattr(site.server._keeper, "_connections_max", 3))
        assert is_closed(stack.enter_context(raw_peer(site, "com_in_port", b"PUSH")))
    site.until(lambda: site.node.connections_open == 0)


@pytest.mark.parametrize(
    ("port", "kind"), [("com_in_port", b"PULL"), ("com_out_port", b"PUSH"), ("com_in_port", b"SUB")]
)
def test_a_peer_of_the_wrong_kind_is_disconnected(site: Site, port: str, kind: bytes) -> None:
    with raw_peer(site, port, kind) as sock:
        assert is_closed(sock)


# Topics.


def test_topics_are_counted_and_end_with_their_connection(site: Site) -> None:
    with raw_peer(site, "com_out_port", b"SUB") as sock:
        sock.sendall(b"".join(message(b"\x01" + b"%0100d" % number) for number in range(100)) * 2)
        whole = 100 * (100 + SUBSCRIPTION_BYTES)
        site.until(lambda: site.node.account.bytes_by_kind.get(SUBSCRIPTIONS, 0) == whole)
        sock.sendall(message(b"\x00" + b"%0100d" % 5) * 2)
        site.until(lambda: site.node.account.bytes_by_kind.get(SUBSCRIPTIONS, 0) == whole * 99 // 100)
    site.until(lambda: site.node.account.bytes_by_kind.get(SUBSCRIPTIONS, 0) == 0)
    outlet = site.server.doors[-1]._scheduler._outlets[0]  # type: ignore[attr-defined]
    assert not outlet._peers
    assert not outlet._lengths


@pytest.mark.parametrize(
    "topics",
    [
        [b"x" * (TOPIC_BYTES_MAX + 1)],
        [b"%d" % number for number in range(TOPICS_PER_PEER_MAX + 1)],
    ],
    ids=["too long", "too many"],
)
def test_a_subscriber_with_too_much_is_disconnected(site: Site, topics: list[bytes]) -> None:
    with raw_peer(site, "com_out_port", b"SUB") as sock:
        sock.sendall(b"".join(message(b"\x01" + topic) for topic in topics))
        assert is_closed(sock)


def test_a_message_is_looked_up_by_lengths_and_not_by_topics(site: Site) -> None:
    outlet = site.server.doors[-1]._scheduler._outlets[0]  # type: ignore[attr-defined]
    with raw_peer(site, "com_out_port", b"SUB") as sock:
        sock.sendall(b"".join(message(b"\x01" + b"data:%05d" % number) for number in range(5_000)))
        site.until(lambda: len(outlet._peers) == 5_000)
        assert site.call(lambda: len(outlet._lengths)) == 1


def test_a_subscriber_gets_a_message_once_for_nested_topics(site: Site) -> None:
    subscriber = site.subscriber(b"data:nested", b"data:nest", b"data:nested:")
    pusher = site.client()
    for number in (1, 2):
        pusher.push(b"data:nested:%d::me" % number)
    assert [subscriber.recv_multipart()[0] for _ in range(2)] == [b"data:nested:1::me", b"data:nested:2::me"]


# Slow subscribers.


def test_what_waits_for_a_subscriber_is_bounded_in_bytes_and_counted(site: Site) -> None:
    pusher = site.client()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", site.ports["com_out_port"]))
        sock.sendall(GREETING + ready(b"SUB") + message(b"\x01data:"))
        outlet = site.server.doors[-1]._scheduler._outlets[0]  # type: ignore[attr-defined]
        site.until(lambda: outlet._peers)
        for _ in range(25):
            pusher.push(TAG, bytes(2_000_000))
        (peer,) = (each for each in site.call(lambda: peers_of(site)) if hasattr(each, "_outlet"))
        assert 20_000_000 < site.call(peer.waiting_bytes) <= UNSENT_BYTES_MAX
        assert counted(site, UNSENT) >= site.call(peer.waiting_bytes)
    site.until(lambda: site.node.account.bytes_by_kind.get(UNSENT, 0) < 1_000_000)

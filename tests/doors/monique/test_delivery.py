"""Who gets which message, against the plainest model of it: every client asked for every message."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.doors.monique.delivery import Subscriptions
from penstock.doors.websocket import server_frame
from penstock.engine.commands import Broadcast
from penstock.node.node import Node
from penstock.wire.monique import gateway as g
from penstock.wire.monique.tags import Dialect

SPECS, TYPES = ("a", "b", "c"), ("config", "result", "data")


class FakeNode:
    """Remembers who has something to flush."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def dirty(self, sink: Any) -> None:
        self.waiting.append(sink)

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for sink in reversed(waiting):
            sink.flush()


class FakeClient:
    """A client, and by the model what it has to get."""

    def __init__(self) -> None:
        self.dialect = Dialect.CURRENT
        self.patterns: set[g.Pattern] = set()
        self.heard = b""
        self.expected = b""
        self.writes = 0

    def deliver(self, frames: bytes, *, at_once: bool) -> None:
        self.heard += frames
        self.writes += 1


clients = st.integers(0, 3)
patterns = st.builds(g.Pattern, st.sampled_from((*SPECS, "*")), st.sampled_from((*TYPES, "*")))
messages = st.tuples(st.sampled_from(SPECS), st.sampled_from(TYPES), st.binary(max_size=5))
steps = st.one_of(
    st.tuples(st.just("subscribe"), clients, patterns),
    st.tuples(st.just("unsubscribe"), clients, patterns),
    st.tuples(st.just("legacy"), clients, st.none()),
    st.tuples(st.just("batch"), st.none(), st.lists(messages, max_size=6)),
)


@given(st.lists(steps, max_size=25))
def test_each_client_gets_what_it_wants_once_and_in_order(story: list[tuple[str, Any, Any]]) -> None:
    node = FakeNode()
    subscriptions = Subscriptions(cast(Node, node))
    everybody = [FakeClient() for _ in range(4)]
    for step, who, what in story:
        if step == "subscribe":
            everybody[who].patterns.add(what)
            subscriptions.add(everybody[who], [what])
        elif step == "unsubscribe":
            everybody[who].patterns.discard(what)
            subscriptions.remove(everybody[who], [what])
        elif step == "legacy":
            everybody[who].dialect = Dialect.LEGACY
            subscriptions.changed()
        else:
            for number, (spec, kind, content) in enumerate(what):
                tag = f"{kind}:{spec}:{number}::".encode()
                subscriptions.deliver(Broadcast(0, tag, content, spec, kind))
                for client in everybody:
                    if any(pattern.matches(spec, kind) for pattern in client.patterns):
                        reply = g.encode_reply(g.PushedFromMq(tag, content, client.dialect))
                        client.expected += server_frame(reply, text=False)
            node.flush()
        assert [client.heard for client in everybody] == [client.expected for client in everybody]


def test_a_batch_for_the_same_clients_is_one_piece() -> None:
    node = FakeNode()
    subscriptions = Subscriptions(cast(Node, node))
    everybody = [FakeClient() for _ in range(4)]
    for client in everybody:
        subscriptions.add(client, [g.Pattern("*", "*"), g.Pattern("a", "config")])
    for number in range(100):
        subscriptions.deliver(Broadcast(0, b"%s:a:%d::" % (b"config" if number % 2 else b"data", number), b"", "a"))
    node.flush()
    assert [client.writes for client in everybody] == [1] * 4


def test_a_tag_that_another_door_made_up_is_not_delivered_and_harms_nobody() -> None:
    node = FakeNode()
    subscriptions = Subscriptions(cast(Node, node))
    client = FakeClient()
    subscriptions.add(client, [g.Pattern("*", "*")])
    for tag in (b"\xff\xfe", b"data:a:::"):
        subscriptions.deliver(Broadcast(0, tag, b"x", "a", "data"))
    node.flush()
    assert client.heard == server_frame(g.encode_reply(g.PushedFromMq(b"data:a:::", b"x")), text=False)


def test_what_is_remembered_of_audiences_is_bounded() -> None:
    node = FakeNode()
    subscriptions = Subscriptions(cast(Node, node))
    client = FakeClient()
    subscriptions.add(client, [g.Pattern("*", "*")])
    for number in range(25_000):
        subscriptions.deliver(Broadcast(0, b"data:%d:::" % number, b"", str(number), "data"))
    assert len(subscriptions._audiences) <= 10_000

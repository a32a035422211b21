"""The gateway: every command and its answer, both dialects, and who gets which message."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast
from urllib.request import urlopen

import msgspec
import pytest
from websockets.exceptions import InvalidStatus

from penstock.doors.monique.delivery import Subscriptions
from penstock.doors.subscribing import SUBSCRIPTION_BYTES
from penstock.engine.errors import MEMORY_FULL, Refusal
from penstock.node.account import SUBSCRIPTIONS
from penstock.node.limits import Limits
from penstock.wire.monique import gateway as g
from penstock.wire.monique.bodies import encode_body
from penstock.wire.monique.tags import TAG_BYTES_MAX, Dialect
from tests.doors.monique.site import Site, body, running
from tests.wire.monique.support import vectors

TAG = b"config:example_calculator:1::tester"
ANY = ("*", "*")
VECTORS = vectors()


def pushed(tag: bytes, message: bytes = b"opaque", dialect: Dialect = Dialect.CURRENT) -> g.PushedFromMq:
    return g.PushedFromMq(tag, message, dialect)


# The bytes of the original.


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if vector.expected_reply])
def test_the_original_s_requests_get_its_answers_to_the_byte(site: Site, name: str) -> None:
    client = site.client()
    client.socket.send(VECTORS[name].data)
    assert client.hear_bytes() == VECTORS[VECTORS[name].expected_reply].data


@pytest.mark.parametrize(
    ("body_name", "delivered_name"),
    [("seed/message-result", "seed/pushed_from_mq"), ("cur/message-result", "cur/pushed_from_mq-result")],
)
def test_a_message_is_delivered_as_the_original_does_to_the_byte(
    site: Site, body_name: str, delivered_name: str
) -> None:
    delivered = g.decode_reply(VECTORS[delivered_name].data)
    assert isinstance(delivered, g.PushedFromMq)
    listener, pusher = site.client(), site.client()
    listener.push(b"data:whatever:::", dialect=delivered.dialect)
    listener.subscribe(ANY)
    pusher.push(delivered.tag, VECTORS[body_name].data)
    assert listener.hear_bytes() == VECTORS[delivered_name].data


# Dialects.


def test_a_tag_is_acknowledged_in_the_form_in_which_it_came(site: Site) -> None:
    client = site.client()
    for dialect in (Dialect.LEGACY, Dialect.CURRENT, Dialect.LEGACY):
        client.push(TAG, b"x", dialect)


def test_who_has_pushed_a_binary_tag_receives_the_legacy_form_and_others_do_not(site: Site) -> None:
    legacy, current = site.client(), site.client()
    for client in (legacy, current):
        client.subscribe(ANY)
    current.push(TAG)
    assert [current.hear(), legacy.hear()] == [pushed(TAG), pushed(TAG)]
    legacy.push(TAG, dialect=Dialect.LEGACY)
    assert legacy.hear() == pushed(TAG, dialect=Dialect.LEGACY)
    assert current.hear() == pushed(TAG)
    current.push(TAG)
    assert current.hear() == pushed(TAG)
    assert legacy.hear() == pushed(TAG, dialect=Dialect.LEGACY)


@pytest.mark.parametrize("dialect", [Dialect.CURRENT, Dialect.LEGACY])
def test_the_dialect_of_messages_can_be_set(dialect: Dialect) -> None:
    with running(dialect=dialect.value) as site:
        client = site.client()
        client.subscribe(ANY)
        for pushed_in in Dialect:
            client.push(TAG, dialect=pushed_in)
            assert client.hear() == pushed(TAG, dialect=dialect)


# Subscriptions.


def test_nothing_is_delivered_without_a_subscription(site: Site) -> None:
    client = site.client()
    client.push(TAG)
    client.hears_nothing()


def test_one_delivery_however_many_patterns_match(site: Site) -> None:
    client = site.client()
    client.subscribe(ANY, ("example_calculator", "*"), ("*", "config"), ("example_calculator", "config"), ANY)
    client.push(TAG)
    assert client.hear() == pushed(TAG)
    client.hears_nothing()


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (ANY, True),
        (("example_calculator", "*"), True),
        (("*", "config"), True),
        (("example_calculator", "config"), True),
        (("example_calculator", "result"), False),
        (("example_", "config"), False),
        (("example_*", "config"), False),
        (("Example_calculator", "*"), False),
        (("", ""), False),
    ],
)
def test_a_pattern_is_compared_as_a_whole(site: Site, pattern: tuple[str, str], wanted: bool) -> None:
    client = site.client()
    client.subscribe(pattern)
    client.push(TAG)
    if wanted:
        assert client.hear() == pushed(TAG)
    client.hears_nothing()


def test_unsubscribing_takes_away_that_very_pattern(site: Site) -> None:
    client = site.client()
    specific = g.Pattern("example_calculator", "config")
    client.subscribe(ANY, ("example_calculator", "config"), ("example_calculator", "config"))
    everything = (g.Pattern(*ANY),)
    assert client.ask(g.Unsubscribe(everything)) == g.Unsubscribed(everything)
    client.push(TAG)
    assert client.hear() == pushed(TAG)
    assert client.ask(g.Unsubscribe((specific,))) == g.Unsubscribed((specific,))
    assert client.ask(g.Unsubscribe((specific,))) == g.Unsubscribed((specific,))
    client.push(TAG)
    client.hears_nothing()


def test_each_client_gets_its_own_messages_in_the_order_of_the_log(site: Site) -> None:
    """Also where some are for all and some for one."""
    everything, results, pusher = site.client(), site.client(), site.client()
    everything.subscribe(ANY)
    results.subscribe(("*", "result"))
    kinds = [b"config", b"result", b"config", b"config", b"result", b"data"] * 20
    tags = [kind + b":spec:%d::me" % number for number, kind in enumerate(kinds)]
    for tag in tags:
        pusher.send(g.PushToMq(tag, b"x"))
    assert [everything.hear() for _ in tags] == [pushed(tag, b"x") for tag in tags]
    wanted = [tag for tag in tags if tag.startswith(b"result")]
    assert [results.hear() for _ in wanted] == [pushed(tag, b"x") for tag in wanted]
    assert [pusher.hear() for _ in tags] == [g.PushedToMq(tag) for tag in tags]


def test_a_subscription_ends_with_its_connection(site: Site) -> None:
    client = site.client()
    client.subscribe(ANY)
    client.close()
    again = site.client()
    again.push(TAG)
    again.hears_nothing()


# Publishing.


def test_the_acknowledgement_comes_when_the_message_is_in_the_log_and_not_before(site: Site) -> None:
    client = site.client()
    client.subscribe(ANY)
    release = site.hold_commits()
    client.send(g.PushToMq(TAG, b"opaque"))
    site.until(lambda: site.node._in_flight)
    client.hears_nothing()
    release()
    assert [client.hear(), client.hear()] == [g.PushedToMq(TAG), pushed(TAG)]


def test_all_that_is_published_is_in_the_log_with_its_tag_and_body(site: Site) -> None:
    client = site.client()
    sound = body("data", "some_spec")
    client.push(TAG, b"\xc1 no MessagePack at all")
    client.push(sound.tag.encode(), encode_body(sound))
    opaque, read = site.published
    assert (opaque.channel, opaque.tag, opaque.body) == (0, TAG, b"\xc1 no MessagePack at all")
    assert (opaque.spec, opaque.type, opaque.expires_at_us) == ("example_calculator", "config", 0)
    assert (read.channel, read.tag, read.body) == (0, sound.tag.encode(), encode_body(sound))


@pytest.mark.parametrize("tag", [b"", b"config", b"config:a:b:c", b"config:a:b:c:d:e", b"Config:a:b:c:d", b":::: "])
def test_a_tag_that_cannot_be_delivered_is_an_error_and_no_acknowledgement(site: Site, tag: bytes) -> None:
    client = site.client()
    answer = client.ask(g.PushToMq(tag, b"x"))
    assert isinstance(answer, g.ErrorReply)
    assert answer.text.startswith("tag is not valid")
    assert not site.published
    client.push(TAG)


def test_a_spec_that_is_not_allowed_is_an_error_and_is_not_logged() -> None:
    with running(allow_messages="good_spec, other_spec") as site:
        client = site.client()
        client.subscribe(ANY)
        answer = client.ask(g.PushToMq(TAG, b"x"))
        assert answer == g.ErrorReply("messages of spec 'example_calculator' are not allowed here")
        assert not site.published
        client.push(b"config:other_spec:::")
        assert client.hear() == pushed(b"config:other_spec:::")


def test_a_message_longer_than_a_payload_may_be_is_an_error() -> None:
    with running(payload_bytes=1000) as site:
        client = site.client()
        client.push(TAG, bytes(1000))
        answer = client.ask(g.PushToMq(TAG, bytes(1001)))
        assert answer == g.ErrorReply("a message of 1001 bytes is longer than the limit of 1000")
        client.push(TAG)


def test_a_refusal_of_the_node_names_the_message(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    client = site.client()
    monkeypatch.setattr(Limits, "refusal", lambda *_: Refusal(MEMORY_FULL, "there is no room"))
    assert client.ask(g.PushToMq(TAG, b"x")) == g.ErrorReply(f"{TAG.decode()} was not published: there is no room")


def test_an_expired_message_is_logged_but_not_delivered(site: Site) -> None:
    client = site.client()
    client.subscribe(ANY)
    expired, lasting = body(expires_at_ms=1), body(expires_at_ms=2**62)
    client.push(expired.tag.encode(), encode_body(expired))
    client.hears_nothing()
    client.push(lasting.tag.encode(), encode_body(lasting))
    assert client.hear() == pushed(lasting.tag.encode(), encode_body(lasting))
    assert [message.expires_at_us for message in site.published] == [1000, 2**63 - 1]


# What is not right.


@pytest.mark.parametrize("command", ["pong", "subscribed", "unsubscribed", "pushed_to_mq", "pushed_from_mq"])
def test_what_only_the_server_may_send_is_an_error(site: Site, command: str) -> None:
    data: object = {
        "pong": 1,
        "pushed_to_mq": "x",
        "pushed_from_mq": {"tag": "x", "message": b""},
    }.get(command, [])
    client = site.client()
    client.socket.send(msgspec.msgpack.encode({"command": command, "data": data}))
    assert client.hear() == g.ErrorReply(f"<{command}> message could not be sent from the client")
    client.hears_nothing()


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"\x93\x01\x02\x03",
        msgspec.msgpack.encode({"command": "ping"}),
        msgspec.msgpack.encode({"command": "ping", "data": "x"}),
        msgspec.msgpack.encode({"command": "nonsense", "data": 1}),
        msgspec.msgpack.encode({"command": "push_to_mq", "data": {"tag": "config:a:::"}}),
        msgspec.msgpack.encode({"command": "push_to_mq", "data": {"tag": 5, "message": b""}}),
        msgspec.msgpack.encode({"command": "subscribe", "data": [{"spec": "x"}]}),
        b"\x91" * 100_000,
        g.encode_request(g.Subscribe((g.Pattern("x" * (TAG_BYTES_MAX + 1), "*"),))),
    ],
)
def test_what_is_malformed_is_an_error_and_the_connection_lives(site: Site, frame: bytes) -> None:
    client = site.client()
    client.socket.send(frame)
    assert client.hear() == g.ErrorReply("unknown message")
    client.push(TAG)


def test_requests_may_come_in_text_frames(site: Site) -> None:
    """Though they are no UTF-8: the original takes them so too."""
    client = site.client()
    client.socket.send(g.encode_request(g.Ping(5)), text=True)
    assert client.hear() == g.Pong(5)


def test_patterns_are_bounded_in_a_request_and_in_a_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doors.monique.gateway.PATTERNS_PER_CLIENT_MAX", 1500)
    client = site.client()
    first, second = ([g.Pattern(f"{number}", "*") for number in range(at, at + 1000)] for at in (0, 1000))
    answer = client.ask(g.Subscribe((*first, second[0])))
    assert answer == g.ErrorReply("1001 patterns are more than the limit of 1000")
    assert client.ask(g.Subscribe(tuple(first))) == g.Subscribed(tuple(first))
    assert client.ask(g.Subscribe(tuple(second))) == g.ErrorReply("2000 patterns are more than the limit of 1500")
    assert client.ask(g.Subscribe(tuple(first))) == g.Subscribed(tuple(first))
    client.push(b"config:1500:::")
    client.hears_nothing()


# The handshake.


def subscription_bytes(site: Site) -> int:
    return site.call(lambda: site.node.account.bytes_by_kind.get(SUBSCRIPTIONS, 0))


def test_patterns_are_counted_until_they_are_taken_away_or_the_client_is_gone(site: Site) -> None:
    client = site.client()
    client.subscribe(("a" * 1000, "data"), ("a" * 1000, "data"), ("b" * 1000, "data"))
    first = subscription_bytes(site)
    assert 2_008 <= first <= 2_008 + 2_000
    client.subscribe(("a" * 1000, "data"))
    assert subscription_bytes(site) == first
    unsubscribed = (g.Pattern("a" * 1000, "data"), g.Pattern("never", "data"))
    assert client.ask(g.Unsubscribe(unsubscribed)) == g.Unsubscribed(unsubscribed)
    assert subscription_bytes(site) == first // 2
    client.close()
    site.until(lambda: site.node.account.bytes_by_kind.get(SUBSCRIPTIONS, 0) == 0)


def test_the_count_of_patterns_is_their_real_memory() -> None:
    """Within a fifth, for short and for long ones."""
    for text_bytes in (10, 100, 1_000):
        requests = [
            g.encode_request(g.Subscribe(tuple(g.Pattern(f"{n}-{i}".ljust(text_bytes), "data") for i in range(500))))
            for n in range(8)
        ]
        tracemalloc.start()
        subscriptions = Subscriptions(cast(Any, None))
        kept: set[g.Pattern] = set()
        for request in requests:
            patterns = set(cast(g.Subscribe, g.decode_request(request)).patterns)
            kept |= patterns
            subscriptions.add(cast(Any, subscriptions), patterns)
            del patterns
        real_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        counted_bytes = sum(len(each.spec) + len(each.type) + SUBSCRIPTION_BYTES for each in kept)
        assert counted_bytes == pytest.approx(real_bytes, rel=0.2)


def test_all_clients_together_have_a_limit_of_patterns(site: Site) -> None:
    def shrink_limit() -> None:
        cast(Any, site.server)._keeper.buffer_bytes_max = 400_000

    site.call(shrink_limit)
    refused = 0
    for number in range(40):
        client = site.client()
        patterns = tuple(g.Pattern(f"spec-{number}-{n}", "data") for n in range(10))
        answer = client.ask(g.Subscribe(patterns))
        refused += isinstance(answer, g.ErrorReply) and "too many patterns" in answer.text
        assert subscription_bytes(site) <= 100_000
    assert 10 <= refused < 40


def test_a_subscribe_costs_the_same_however_many_patterns_there_are(site: Site) -> None:
    """What the gateway hands to the index is what is new: nothing of the 5,000 patterns from before."""
    client = site.client()
    for start in range(0, 5_000, 1_000):
        client.subscribe(*((f"spec-{n}", "data") for n in range(start, start + 1_000)))
    added: list[int] = []
    subscriptions = cast(Any, site.server.doors[-1])._subscriptions
    add = subscriptions.add

    def counted(connection: object, patterns: set[g.Pattern]) -> None:
        added.append(len(patterns))
        add(connection, patterns)

    site.call(lambda: setattr(subscriptions, "add", counted))
    client.subscribe(("spec-1", "data"))
    client.subscribe(("spec-1", "data"), ("spec-new", "data"))
    assert added == [1]


def test_it_serves_its_page_which_no_other_page_may_frame(site: Site) -> None:
    with urlopen(f"http://127.0.0.1:{site.ports['gateway_port']}/?gateway=x", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert b"<title>MoniQue gateway</title>" in answer.read()


def test_everybody_is_let_in_without_a_cookie(site: Site) -> None:
    site.client().hears_nothing()


@pytest.mark.parametrize("cookie", [None, "other=1", "identity=1"])
def test_a_strict_gateway_refuses_who_has_no_cookie_as_the_original_does(cookie: str | None) -> None:
    with running(strict_cookie=True) as site:
        headers = {} if cookie is None else {"Cookie": cookie}
        with pytest.raises(InvalidStatus) as caught:
            site.client(additional_headers=headers)
        assert caught.value.response.status_code == 400
        assert msgspec.msgpack.decode(caught.value.response.body) == {"error": "user id not found in cookies."}


@pytest.mark.parametrize("cookie", ["id=5", "id=", "a=b; id=x"])
def test_a_strict_gateway_lets_in_who_has_one(cookie: str) -> None:
    with running(strict_cookie=True) as site:
        site.client(additional_headers={"Cookie": cookie}).hears_nothing()

"""The frames of the WebSocket gateway, both sides, both dialects."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.monique import gateway
from penstock.wire.monique.errors import GatewayError, NotFromClient, TooManyPatterns, UnknownMessage
from penstock.wire.monique.gateway import (
    ANY,
    NO_COOKIE,
    ErrorReply,
    Pattern,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from penstock.wire.monique.tags import Dialect
from tests.wire.monique.support import Vector, command_from, patterns, replies, requests, texts, vectors

VECTORS = vectors()
REFUSED = {"cur/err-server-only-pong", "cur/err-garbage"}
REQUESTS = [each for each in VECTORS.values() if each.direction == "client->server"]
REPLIES = [each for each in VECTORS.values() if each.direction == "server->client"]
pack = msgspec.msgpack.encode


def answer_to(data: bytes) -> bytes:
    """What a gateway sends back at once, and for a push when the message is published."""
    try:
        request = decode_request(data)
    except GatewayError as error:
        return encode_reply(ErrorReply(str(error)))
    match request:
        case Ping(number):
            return encode_reply(Pong(number))
        case Subscribe(wanted):
            return encode_reply(Subscribed(wanted))
        case Unsubscribe(unwanted):
            return encode_reply(Unsubscribed(unwanted))
        case PushToMq(tag, _, dialect):
            return encode_reply(PushedToMq(tag, dialect))


def test_all_frames_are_here() -> None:
    assert (len(REQUESTS), len(REPLIES)) == (9, 12)


@pytest.mark.parametrize("vector", [each for each in REQUESTS if each.name not in REFUSED], ids=str)
def test_requests_of_the_originals(vector: Vector) -> None:
    request = decode_request(vector.data)
    assert request == command_from(vector)
    assert encode_request(request) == vector.data


@pytest.mark.parametrize("vector", REPLIES, ids=str)
def test_replies_of_the_originals(vector: Vector) -> None:
    reply = decode_reply(vector.data)
    assert reply == command_from(vector)
    assert encode_reply(reply) == vector.data


@pytest.mark.parametrize("vector", [each for each in REQUESTS if each.expected_reply], ids=str)
def test_each_request_gets_the_answer_of_the_originals(vector: Vector) -> None:
    assert answer_to(vector.data) == VECTORS[vector.expected_reply].data


@pytest.mark.parametrize("vector", [*REQUESTS, *REPLIES], ids=str)
def test_a_frame_that_is_cut_is_an_unknown_message(vector: Vector) -> None:
    for cut in range(len(vector.data)):
        with pytest.raises(UnknownMessage, match=r"^unknown message$"):
            decode_request(vector.data[:cut])
        with pytest.raises(UnknownMessage):
            decode_reply(vector.data[:cut])


@given(requests, st.binary(max_size=5))
def test_a_request_comes_back_as_it_was(request: gateway.Request, rest: bytes) -> None:
    assert decode_request(encode_request(request) + rest) == request
    with pytest.raises(UnknownMessage):
        decode_reply(encode_request(request))


@given(replies, st.binary(max_size=5))
def test_a_reply_comes_back_as_it_was_and_is_not_for_clients_to_send(reply: gateway.Reply, rest: bytes) -> None:
    data = encode_reply(reply)
    assert decode_reply(data + rest) == reply
    with pytest.raises(UnknownMessage if isinstance(reply, ErrorReply) else NotFromClient):
        decode_request(data)


@pytest.mark.parametrize(
    "reply", [Pong(1), Subscribed(()), Unsubscribed(()), PushedToMq(b"a"), PushedFromMq(b"a", b"")]
)
def test_the_words_for_a_command_that_is_not_for_clients_to_send(reply: gateway.Reply) -> None:
    data = encode_reply(reply)
    command = msgspec.msgpack.decode(data)["command"]
    with pytest.raises(NotFromClient) as raised:
        decode_request(data)
    assert raised.value.command == command
    assert str(raised.value) == f"<{command}> message could not be sent from the client"


def test_order_and_further_keys_do_not_matter() -> None:
    data: dict[str, Any] = {"x": [1], "data": [{"type": "t", "x": 1, "spec": "s"}], "command": "subscribe"}
    assert decode_request(pack(data)) == Subscribe((Pattern("s", "t"),))


def test_a_tag_is_mirrored_in_the_form_in_which_it_came() -> None:
    for tag in ("data::::", b"data::::"):
        pushed = msgspec.msgpack.decode(
            answer_to(pack({"command": "push_to_mq", "data": {"message": b"", "tag": tag}}))
        )
        assert pushed == {"command": "pushed_to_mq", "data": tag}


@pytest.mark.parametrize(
    "request_",
    [
        {"command": "ping", "data": "1"},
        {"command": "ping", "data": 1.0},
        {"command": "ping", "data": True},
        {"command": "ping"},
        {"command": "nothing", "data": 1},
        {"data": 1},
        {"command": b"ping", "data": 1},
        {"command": "subscribe", "data": {"spec": "a", "type": "b"}},
        {"command": "subscribe", "data": [{"spec": "a"}]},
        {"command": "subscribe", "data": [{"spec": "a", "type": 1}]},
        {"command": "push_to_mq", "data": {"tag": "data::::", "message": "text"}},
        {"command": "push_to_mq", "data": {"tag": 1, "message": b""}},
        {"command": "push_to_mq", "data": {"message": b""}},
        {"error": "x"},
        [],
        5,
    ],
    ids=str,
)
def test_what_is_malformed_is_an_unknown_message(request_: object) -> None:
    with pytest.raises(UnknownMessage, match=r"^unknown message$"):
        decode_request(pack(request_))


def test_nesting_does_no_harm() -> None:
    for data in (b"\x91" * 100_000, b"\x82\xa1x" + b"\x91" * 100_000):
        with pytest.raises(UnknownMessage):
            decode_request(data)
        with pytest.raises(UnknownMessage):
            decode_reply(data)


def test_a_legacy_push_whose_tag_is_not_packed_twice_is_read_as_it_is() -> None:
    carried = {"message": b"m", "tag": b"data::::"}
    assert decode_reply(pack({"command": "pushed_from_mq", "data": carried})) == PushedFromMq(
        b"data::::", b"m", Dialect.LEGACY
    )
    with pytest.raises(UnknownMessage):
        decode_reply(pack({"command": "pushed_from_mq", "data": carried | {"tag": b"\xc4\x09data"}}))


def test_the_number_of_patterns_is_bounded() -> None:
    data = encode_request(Unsubscribe((Pattern("a", "b"),) * 3))
    assert isinstance(decode_request(data, patterns_max=3), Unsubscribe)
    with pytest.raises(TooManyPatterns) as raised:
        decode_request(data, patterns_max=2)
    assert (raised.value.count, raised.value.limit) == (3, 2)


@given(st.binary(max_size=200))
def test_nothing_but_gateway_errors_comes_out(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with contextlib.suppress(GatewayError):
            decode(data)


def test_patterns_compare_whole_fields() -> None:
    assert Pattern("p_q", "config").matches("p_q", "config")
    assert Pattern(ANY, "config").matches("p_q", "config")
    assert not Pattern("p_", ANY).matches("p_q", "config")
    assert not Pattern("p_*", ANY).matches("p_q", "config")
    assert not Pattern("p_q", "data").matches("p_q", "config")


@given(patterns, texts, texts)
def test_the_four_patterns_of_a_message_are_all_that_match(some: tuple[Pattern, ...], spec: str, type: str) -> None:
    four = gateway.patterns_of(spec, type)
    assert all(each.matches(spec, type) for each in four)
    for each in (*some, Pattern(spec, "x"), Pattern("x", type), Pattern(ANY, "x")):
        assert each.matches(spec, type) == (each in four)


def test_the_body_of_a_refused_handshake() -> None:
    assert encode_reply(ErrorReply(NO_COOKIE)) == b"\x81\xa5error\xbd" + NO_COOKIE.encode()

"""Targets: what MoniQue sends. What was read must be written and read again as the same."""

from __future__ import annotations

from fuzz.runner import Target
from penstock.wire.monique import bodies, gateway, tags
from penstock.wire.monique.errors import BodyError, GatewayError, TagError, ZmtpError
from penstock.wire.monique.tags import Dialect
from penstock.wire.monique.zmtp import Limits, NeedData, SocketType, ZmtpConnection

_TAG = b"config:example_calculator:0123456789012345678901234567890123456789::0000-0000-0000-tester"
_BODY = bodies.kill_body("0123456789" * 4, id="abcdefghij" * 4, creator="0000-tester", created_at_ms=1528138732079)
_PATTERNS = (gateway.Pattern("*", "*"), gateway.Pattern("example_calculator", "result"))
_LIMITS = Limits(message_bytes_max=4096, frames_max=4)


def _tag_corpus() -> list[bytes]:
    return [tags.pack_tag_frame(tag, dialect) for tag in (_TAG, b"data::::") for dialect in Dialect]


def _run_tag(data: bytes) -> None:
    tag, dialect = tags.unpack_tag_frame(data)
    parsed = tags.parse_tag(tag)
    assert parsed.encode() == tag, "the tag is written otherwise than it was read"
    assert tags.unpack_tag_frame(tags.pack_tag_frame(tag, dialect)) == (tag, dialect), "the frame does not survive"


def _body_corpus() -> list[bytes]:
    legacy = bodies.Body(
        type="result", spec="a_b", id="x=", pid="y=", creator="c", created_at_ms=1, data=b"{}", dialect=Dialect.LEGACY
    )
    whole = [bodies.encode_body(body) for body in (_BODY, legacy)]
    return [*whole, whole[0] + b"rest"]


def _run_body(data: bytes) -> None:
    body = bodies.decode_body(data)
    assert bodies.decode_body(bodies.encode_body(body)) == body, "the body does not survive"


def _request_corpus() -> list[bytes]:
    requests: list[gateway.Request] = [
        gateway.Ping(1528135691016224827),
        gateway.Subscribe(_PATTERNS),
        gateway.Unsubscribe(_PATTERNS),
        *(gateway.PushToMq(_TAG, b"message", dialect) for dialect in Dialect),
    ]
    return [gateway.encode_request(request) for request in requests]


def _run_request(data: bytes) -> None:
    request = gateway.decode_request(data)
    assert gateway.decode_request(gateway.encode_request(request)) == request, "the request does not survive"


def _reply_corpus() -> list[bytes]:
    replies: list[gateway.Reply] = [
        gateway.Pong(-1),
        gateway.Subscribed(_PATTERNS),
        gateway.Unsubscribed(()),
        gateway.ErrorReply("unknown message"),
        *(gateway.PushedToMq(_TAG, dialect) for dialect in Dialect),
        *(gateway.PushedFromMq(_TAG, b"message", dialect) for dialect in Dialect),
    ]
    return [gateway.encode_reply(reply) for reply in replies]


def _run_reply(data: bytes) -> None:
    reply = gateway.decode_reply(data)
    assert gateway.decode_reply(gateway.encode_reply(reply)) == reply, "the reply does not survive"


def _talk(socket_type: SocketType) -> bytes:
    """All that a PUSH or PULL peer says in a conversation."""
    peers = {each: ZmtpConnection(each, identity=b"one") for each in (SocketType.PUSH, SocketType.PULL)}
    me = peers.pop(socket_type)
    (other,) = peers.values()
    said = me.data_to_send()
    me.receive_data(other.data_to_send())
    me.next_event()
    said += me.data_to_send()
    other.receive_data(said)
    other.next_event()
    me.receive_data(other.data_to_send())
    me.next_event()
    me.send_ping(1000, b"context")
    if socket_type is SocketType.PUSH:
        me.send_message([_TAG, b"x" * 300])
        me.send_message([b""])
    return said + me.data_to_send()


def _subscribe() -> bytes:
    """What a SUB peer says, a type that we cannot be: as PULL does, under its own name, and two topics."""
    said = _talk(SocketType.PULL).replace(b"\0\0\0\4PULL", b"\0\0\0\3SUB")
    size_at = said.index(b"\5READY") - 1
    said = said[:size_at] + bytes((said[size_at] - 1,)) + said[size_at + 1 :]
    topics = (b"\1config:", b"\0config:")
    return said + b"".join(b"\0" + bytes((len(topic),)) + topic for topic in topics)


def _run_zmtp(socket_type: SocketType, data: bytes) -> None:
    connection = ZmtpConnection(socket_type, limits=_LIMITS)
    connection.receive_data(data)
    while not isinstance(connection.next_event(), NeedData):
        assert connection.buffered_bytes <= len(data)


TARGETS = (
    Target("monique-tag", _tag_corpus, _run_tag, (TagError,)),
    Target("monique-body", _body_corpus, _run_body, (BodyError,)),
    Target("monique-request", _request_corpus, _run_request, (GatewayError,)),
    Target("monique-reply", _reply_corpus, _run_reply, (GatewayError,)),
    Target(
        "zmtp-push",
        lambda: [_talk(SocketType.PULL)],
        lambda data: _run_zmtp(SocketType.PUSH, data),
        (ZmtpError,),
    ),
    Target(
        "zmtp-pull",
        lambda: [_talk(SocketType.PUSH)],
        lambda data: _run_zmtp(SocketType.PULL, data),
        (ZmtpError,),
    ),
    Target("zmtp-pub", lambda: [_subscribe()], lambda data: _run_zmtp(SocketType.PUB, data), (ZmtpError,)),
)

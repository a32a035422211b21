"""What the tests of the MoniQue codecs share: the byte vectors, and strategies for tags, bodies and commands."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from penstock.wire.monique.bodies import Body
from penstock.wire.monique.gateway import (
    ErrorReply,
    Pattern,
    Ping,
    Pong,
    PushedFromMq,
    PushedToMq,
    PushToMq,
    Reply,
    Request,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from penstock.wire.monique.tags import TYPES, Dialect

VECTORS_PATH = Path(__file__).parents[2] / "vectors" / "monique.json"


class Vector(NamedTuple):
    """Bytes of the original system, and what they say."""

    name: str
    direction: str
    data: bytes
    fields: Any
    tag: bytes
    expected_reply: str

    def __str__(self) -> str:
        return self.name


def _plain(value: Any) -> Any:
    """JSON has no binary values: they stand there as base64 under `$bin`."""
    if isinstance(value, dict):
        return (
            base64.b64decode(value["$bin"]) if "$bin" in value else {key: _plain(each) for key, each in value.items()}
        )
    return [_plain(each) for each in value] if isinstance(value, list) else value


def vectors() -> dict[str, Vector]:
    """All vectors by name."""
    return {
        entry["name"]: Vector(
            entry["name"],
            entry["direction"],
            bytes.fromhex(entry["hex"]),
            _plain(entry["decoded"]),
            bytes.fromhex(entry.get("frames", [""])[0]),
            entry.get("expected_reply", ""),
        )
        for entry in json.loads(VECTORS_PATH.read_text("utf-8"))
    }


def body_from(fields: dict[str, Any]) -> Body:
    """The body that a vector describes."""
    legacy = isinstance(fields["id"], bytes)
    return Body(
        type=fields["type"],
        spec=fields["spec"],
        id=fields["id"].decode() if legacy else fields["id"],
        pid=fields["pid"].decode() if legacy else fields["pid"],
        creator=fields["creator"],
        created_at_ms=fields["created_at"],
        expires_at_ms=fields["expires_at"],
        encoding=fields["encoding"],
        data=fields["data"],
        dialect=Dialect.LEGACY if legacy else Dialect.CURRENT,
    )


_PLAIN_COMMANDS: dict[str, Any] = {
    "ping": Ping,
    "pong": Pong,
    "subscribe": Subscribe,
    "subscribed": Subscribed,
    "unsubscribe": Unsubscribe,
    "unsubscribed": Unsubscribed,
}


def command_from(vector: Vector) -> Request | Reply:
    """The command that a vector describes."""
    fields = vector.fields
    if "error" in fields:
        return ErrorReply(fields["error"])
    name, data = fields["command"], fields["data"]
    if name in ("ping", "pong"):
        command: Request | Reply = _PLAIN_COMMANDS[name](data)
        return command
    if name in _PLAIN_COMMANDS:
        command = _PLAIN_COMMANDS[name](tuple(Pattern(**each) for each in data))
        return command
    tag = data if name == "pushed_to_mq" else data["tag"]
    dialect = Dialect.LEGACY if isinstance(tag, bytes) else Dialect.CURRENT
    tag = tag if isinstance(tag, bytes) else tag.encode()
    if name == "pushed_to_mq":
        return PushedToMq(tag, dialect)
    if name == "push_to_mq":
        return PushToMq(tag, data["message"], dialect)
    # The legacy gateway packs the tag once more: a head of two bytes for tags of up to 255.
    return PushedFromMq(tag[2:] if dialect is Dialect.LEGACY else tag, data["message"], dialect)


texts = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=40)
dialects = st.sampled_from(Dialect)
tags = st.builds(
    lambda first, others: ":".join([first, *others]).encode(),
    st.sampled_from(sorted(TYPES)),
    st.lists(texts, min_size=4, max_size=4),
)
moments = st.integers(-(2**63), 2**63 - 1)
bodies = st.builds(
    Body,
    type=texts,
    spec=texts,
    id=texts,
    pid=texts,
    creator=texts,
    created_at_ms=moments,
    expires_at_ms=moments,
    encoding=texts,
    data=st.binary(max_size=300),
    dialect=dialects,
)
numbers = st.integers(-(2**63), 2**64 - 1)
patterns = st.lists(st.builds(Pattern, texts, texts), max_size=5).map(tuple)
messages = st.binary(max_size=300)
requests = st.one_of(
    st.builds(Ping, numbers),
    st.builds(Subscribe, patterns),
    st.builds(Unsubscribe, patterns),
    st.builds(PushToMq, tags, messages, dialects),
)
replies = st.one_of(
    st.builds(Pong, numbers),
    st.builds(Subscribed, patterns),
    st.builds(Unsubscribed, patterns),
    st.builds(PushedToMq, tags, dialects),
    st.builds(PushedFromMq, tags, messages, dialects),
    st.builds(ErrorReply, texts),
)

"""Frames of the WebSocket gateway: what a client asks for, and what the server answers and pushes.

What belongs here: one MessagePack map per frame, from bytes to a typed command and back, for both sides.

    client                              server
    Ping           ──▶             ◀──  Pong, the same number
    Subscribe      ──▶             ◀──  Subscribed, the same patterns
    Unsubscribe    ──▶             ◀──  Unsubscribed, the same patterns
    PushToMq       ──▶             ◀──  PushedToMq, the same tag in the same form
                                   ◀──  PushedFromMq, for each message that matches a pattern
    anything else  ──▶             ◀──  ErrorReply, and the connection lives

The dialects differ in the form of tags: text in the current one, binary in the legacy one, where the tag of
PushedFromMq is moreover packed twice, because the old gateway relayed a frame that was packed already.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from penstock.wire.monique.bodies import text_or_binary, unpack_first
from penstock.wire.monique.errors import NotFromClient, TagError, TooManyPatterns, UnknownMessage
from penstock.wire.monique.tags import Dialect, pack_tag_frame, unpack_tag_frame

ANY: Final = "*"
"""In a pattern: whatever stands there."""

PATTERNS_MAX: Final = 1000
"""So many patterns may one request name."""

NO_COOKIE: Final = "user id not found in cookies."
"""Why a strict gateway refuses a handshake without the cookie `id`."""


class Pattern(Struct, frozen=True):
    """What a client wants to receive. Each field is compared as a whole, or is ANY."""

    spec: str
    type: str

    def matches(self, spec: str, type: str) -> bool:
        """Whether a message of this spec and type is wanted."""
        return self.spec in (ANY, spec) and self.type in (ANY, type)


def patterns_of(spec: str, type: str) -> tuple[Pattern, ...]:
    """All patterns that match a message of this spec and type."""
    return Pattern(spec, type), Pattern(spec, ANY), Pattern(ANY, type), Pattern(ANY, ANY)


class _Command(Struct, frozen=True, tag_field="command"):
    """A map of `command` and `data`, in this order."""


class Ping(_Command, frozen=True, tag="ping"):
    """Is the server there?"""

    number: int = msgspec.field(name="data")


class Pong(_Command, frozen=True, tag="pong"):
    """It is."""

    number: int = msgspec.field(name="data")


class Subscribe(_Command, frozen=True, tag="subscribe"):
    """Send me what matches one of these patterns."""

    patterns: tuple[Pattern, ...] = msgspec.field(name="data")


class Subscribed(_Command, frozen=True, tag="subscribed"):
    """From now on these patterns count."""

    patterns: tuple[Pattern, ...] = msgspec.field(name="data")


class Unsubscribe(_Command, frozen=True, tag="unsubscribe"):
    """Take these very patterns away again."""

    patterns: tuple[Pattern, ...] = msgspec.field(name="data")


class Unsubscribed(_Command, frozen=True, tag="unsubscribed"):
    """These patterns count no more."""

    patterns: tuple[Pattern, ...] = msgspec.field(name="data")


class PushToMq(Struct, frozen=True):
    """Publish this message."""

    tag: bytes
    message: bytes
    dialect: Dialect = Dialect.CURRENT


class PushedToMq(Struct, frozen=True):
    """The message with this tag is published."""

    tag: bytes
    dialect: Dialect = Dialect.CURRENT


class PushedFromMq(Struct, frozen=True):
    """A message that matches a pattern of yours."""

    tag: bytes
    message: bytes
    dialect: Dialect = Dialect.CURRENT


class ErrorReply(Struct, frozen=True):
    """Why the last request was not carried out."""

    text: str = msgspec.field(name="error")


Request: TypeAlias = Ping | Subscribe | Unsubscribe | PushToMq
Reply: TypeAlias = Pong | Subscribed | Unsubscribed | PushedToMq | PushedFromMq | ErrorReply


def decode_request(data: bytes, patterns_max: int = PATTERNS_MAX) -> Request:
    """Read what a client sent, or raise a GatewayError, whose text is to be answered."""
    found = _decode(data)
    if isinstance(found, Subscribe | Unsubscribe) and len(found.patterns) > patterns_max:
        raise TooManyPatterns(len(found.patterns), patterns_max)
    if isinstance(found, Ping | Subscribe | Unsubscribe | PushToMq):
        return found
    raise NotFromClient(_COMMAND_NAMES[type(found)])


def decode_reply(data: bytes) -> Reply:
    """Read what a server sent, or raise UnknownMessage."""
    try:
        found = _decode(data)
    except UnknownMessage:
        try:
            return unpack_first(_error_decoder, data)
        except (ValueError, RecursionError) as error:
            raise UnknownMessage(str(error)) from None
    if isinstance(found, Ping | Subscribe | Unsubscribe | PushToMq):
        raise UnknownMessage("a request came where a reply was expected")
    return found


def encode_request(request: Request) -> bytes:
    """Write what a client sends."""
    return _encode(_to_wire(request))


def encode_reply(reply: Reply) -> bytes:
    """Write what a server sends."""
    return _encode(_to_wire(reply))


# Commands with a tag, as they stand on the wire ------------------------------------------------------------------


class _Carried(Struct):
    message: bytes
    tag: msgspec.Raw


class _PushToMq(_Command, frozen=True, tag="push_to_mq"):
    data: _Carried


class _PushedToMq(_Command, frozen=True, tag="pushed_to_mq"):
    data: msgspec.Raw


class _PushedFromMq(_Command, frozen=True, tag="pushed_from_mq"):
    data: _Carried


_Plain: TypeAlias = Ping | Pong | Subscribe | Subscribed | Unsubscribe | Unsubscribed
_Wire: TypeAlias = _Plain | _PushToMq | _PushedToMq | _PushedFromMq
_COMMAND_NAMES: Final[dict[type, str]] = {
    Pong: "pong",
    Subscribed: "subscribed",
    Unsubscribed: "unsubscribed",
    PushedToMq: "pushed_to_mq",
    PushedFromMq: "pushed_from_mq",
}
_decoder: Final[msgspec.msgpack.Decoder[_Wire]] = msgspec.msgpack.Decoder(_Wire)
_error_decoder: Final = msgspec.msgpack.Decoder(ErrorReply)
_encode: Final = msgspec.msgpack.Encoder().encode


def _decode(data: bytes) -> _Plain | PushToMq | PushedToMq | PushedFromMq:
    try:
        found = unpack_first(_decoder, data)
        if isinstance(found, _PushToMq):
            tag, dialect = _open_tag(found.data.tag)
            return PushToMq(tag, found.data.message, dialect)
        if isinstance(found, _PushedToMq):
            return PushedToMq(*_open_tag(found.data))
        if isinstance(found, _PushedFromMq):
            tag, dialect = _open_tag(found.data.tag)
            if dialect is Dialect.LEGACY:
                tag = unpack_tag_frame(tag)[0]
            return PushedFromMq(tag, found.data.message, dialect)
        return found
    except (ValueError, RecursionError, TagError) as error:
        raise UnknownMessage(str(error)) from None


def _open_tag(raw: msgspec.Raw) -> tuple[bytes, Dialect]:
    tag = text_or_binary(raw)
    return (tag, Dialect.LEGACY) if isinstance(tag, bytes) else (tag.encode(), Dialect.CURRENT)


def _to_wire(message: Request | Reply) -> object:
    if isinstance(message, PushToMq):
        return _PushToMq(_Carried(message.message, _close_tag(message.tag, message.dialect)))
    if isinstance(message, PushedToMq):
        return _PushedToMq(_close_tag(message.tag, message.dialect))
    if isinstance(message, PushedFromMq):
        frame = pack_tag_frame(message.tag, message.dialect)
        return _PushedFromMq(_Carried(message.message, _close_tag(frame, message.dialect)))
    return message


def _close_tag(tag: bytes, dialect: Dialect) -> msgspec.Raw:
    """The tag packed in the form of the dialect. A current tag must be UTF-8, which parse_tag has made sure of."""
    return msgspec.Raw(_encode(tag if dialect is Dialect.LEGACY else tag.decode("utf-8")))

"""What a server says: one reply for each request, in order, and `awk` at any time between.

    SUB    Subscribed     {"cmd":"oksub","qname":"q"}
    PUB    Published      {"cmd":"ok"}   or   {"cmd":"ok","uid":"…"}   if the request asked for it
    FET    Message        {"cmd":"msg","qname":"q","uid":"…","error_count":0,"msg":"hello"}
                          {"cmd":"msg","qname":"q","uid":"…","error_count":0,"msg":"/w==","encoding":"base64"}
           NoMessage      {"cmd":"nomsg","qname":"q"}
    ISLP   Sleeping       {"cmd":"okslp","qname":"q"}
    ACK    Acknowledged   {"cmd":"okack","uid":"…","qname":"q"}
    any    Refused        {"cmd":"nok","err":"…"}
    push   Awake          {"cmd":"awk","qname":"q"}

The classes are the frames: their tags and the order of their fields are the bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.wire.etzel.errors import ReplyError


class Subscribed(Struct, frozen=True, gc=False, tag_field="cmd", tag="oksub"):
    """The connection is among the subscribers of the queue."""

    qname: str


class Published(Struct, frozen=True, gc=False, tag_field="cmd", tag="ok"):
    """The message is stored."""

    uid: str | UnsetType = UNSET


class Message(Struct, frozen=True, gc=False, kw_only=True, tag_field="cmd", tag="msg"):
    """A message for the client that fetched. `message` makes one from bytes, `payload` gives them back."""

    qname: str
    uid: str
    error_count: int | UnsetType = UNSET
    """How often it was delivered before. The original never says it."""
    msg: str
    encoding: Literal["base64"] | UnsetType = UNSET

    @property
    def payload(self) -> bytes:
        """The bytes that were published. Raises ReplyError if the frame's base64 is broken."""
        if self.encoding is UNSET:
            return self.msg.encode()
        try:
            return b64decode(self.msg, validate=True)
        except ValueError:
            raise ReplyError("the msg is not base64") from None


class NoMessage(Struct, frozen=True, gc=False, tag_field="cmd", tag="nomsg"):
    """The queue has nothing to take now."""

    qname: str


class Sleeping(Struct, frozen=True, gc=False, tag_field="cmd", tag="okslp"):
    """The connection will be woken when the queue has a message."""

    qname: str


class Acknowledged(Struct, frozen=True, gc=False, tag_field="cmd", tag="okack"):
    """The message is gone, if it ever was there."""

    uid: str
    qname: str


class Refused(Struct, frozen=True, gc=False, tag_field="cmd", tag="nok"):
    """The request changed nothing; `err` tells why. See Nok for the codes."""

    err: str


class Awake(Struct, frozen=True, gc=False, tag_field="cmd", tag="awk"):
    """The queue has a message: fetch, and sleep again if another was quicker."""

    qname: str


Reply: TypeAlias = Subscribed | Published | Message | NoMessage | Sleeping | Acknowledged | Refused | Awake

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def message(qname: str, uid: str, error_count: int, payload: bytes) -> Message:
    """The reply that carries a payload: as text if it is UTF-8, else in base64."""
    try:
        return Message(qname=qname, uid=uid, error_count=error_count, msg=payload.decode())
    except UnicodeDecodeError:
        text = b64encode(payload).decode("ascii")
        return Message(qname=qname, uid=uid, error_count=error_count, msg=text, encoding="base64")


def encode_reply(reply: Reply) -> bytes:
    """The text frame of a reply."""
    return _encode(reply)


def parse_reply(frame: bytes | str) -> Reply:
    """Read one text frame of a server. Raises ReplyError if it is no reply."""
    try:
        return _decoder.decode(frame)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"not a reply: {error}") from None

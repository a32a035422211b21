"""Tags, topics and ids: the names by which messages are found.

What belongs here: `type:spec:id:pid:creator`, taken apart and put together; the frame it travels in; the prefixes by
which ZeroMQ subscribers choose; how an id is made. A tag rules over the body that comes with it.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import string
from typing import Final, NamedTuple

import msgspec

from penstock.wire.monique.errors import FieldHasColon, TagMalformed, TagNotText, TagTooLong

TAG_BYTES_MAX: Final = 4096
"""A tag of the usual fields has some 150 bytes."""

TYPES: Final = frozenset(("config", "result", "data", "error"))
"""What the first field of a tag may be."""

ID_ALPHABET: Final = string.ascii_letters + string.digits
"""The characters of a current id."""

ID_LENGTH: Final = 40
"""So many random characters of ID_ALPHABET are a current id; whoever creates a message draws them."""

_BIN_HEADS: Final = (0xC4, 0xC5, 0xC6)
_unpack_bin: Final = msgspec.msgpack.Decoder(bytes).decode


class Dialect(enum.Enum):
    """The two generations of MoniQue, which differ in what is text and what is binary."""

    CURRENT = "current"
    """From mq 0.1.6.0 and mq-websocket 0.1.2.3 on: ids and tags are text."""
    LEGACY = "legacy"
    """Before: ids and tags are binary, and a tag is packed into its frame."""


class Tag(NamedTuple):
    """The five fields of a tag. All but the type may be empty."""

    type: str
    spec: str
    id: str
    pid: str
    creator: str

    def encode(self) -> bytes:
        """The tag as bytes. Raises when the result could not be parsed as this tag."""
        # A lone surrogate has no UTF-8: it is let through here, and parse_tag finds it.
        encoded = ":".join(self).encode("utf-8", "surrogatepass")
        for field, value in zip(self._fields, self, strict=True):
            if ":" in value:
                raise FieldHasColon(encoded, field, value)
        parse_tag(encoded)
        return encoded


def parse_tag(tag: bytes) -> Tag:
    """Take a tag apart, or raise a TagError."""
    if len(tag) > TAG_BYTES_MAX:
        raise TagTooLong(tag, TAG_BYTES_MAX)
    try:
        fields = tag.decode("utf-8").split(":")
    except UnicodeDecodeError:
        raise TagNotText(tag) from None
    if len(fields) != 5 or fields[0] not in TYPES:
        raise TagMalformed(tag)
    return Tag(*fields)


def pack_tag_frame(tag: bytes, dialect: Dialect) -> bytes:
    """The first frame of a ZeroMQ message: the tag as it is, or packed once more in the legacy dialect."""
    return tag if dialect is Dialect.CURRENT else msgspec.msgpack.encode(tag)


def unpack_tag_frame(frame: bytes) -> tuple[bytes, Dialect]:
    """The tag in a first frame, and the dialect. The two cannot be confused: every tag begins with a plain letter."""
    if frame and frame[0] in _BIN_HEADS:
        try:
            return _unpack_bin(frame), Dialect.LEGACY
        except msgspec.DecodeError:
            raise TagNotText(frame) from None
    return frame, Dialect.CURRENT


def topic(type: str, spec: str) -> bytes:
    """The prefix that all tags of this type and spec have, and no others.

    Older components leave out the last colon and so get longer specs too; that is a prefix as well.
    """
    return f"{type}:{spec}:".encode()


def legacy_id(creator: str, created_at_ms: int, spec: str) -> str:
    """The id of a legacy message; equal for two messages of one creator and spec in one millisecond."""
    digest = hashlib.sha1(f"{creator}:{created_at_ms}:{spec}".encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode("ascii")

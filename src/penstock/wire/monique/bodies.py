"""Bodies: what a message carries behind its tag, and the data of the technical messages.

What belongs here: the MessagePack map of nine keys in both dialects, and the JSON inside monitoring, kill and error
messages. Reading is lenient: text or binary where the dialects differ, keys in any order, further keys and bytes after
the map are ignored. Writing is canonical: keys in alphabetical order, the smallest form of each value.
"""

from __future__ import annotations

import enum
import re
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from penstock.wire.monique.errors import BodyMalformed, DataMalformed
from penstock.wire.monique.tags import Dialect, Tag

T = TypeVar("T")

_BIN_HEADS: Final = (0xC4, 0xC5, 0xC6)
_unpack_str: Final = msgspec.msgpack.Decoder(str).decode
_unpack_bin: Final = msgspec.msgpack.Decoder(bytes).decode


class Body(Struct, frozen=True, kw_only=True):
    """One message. Times are milliseconds since 1970."""

    type: str
    spec: str
    id: str
    creator: str
    created_at_ms: int
    data: bytes
    pid: str = ""
    """The id of the message that this one answers or follows from; empty for a first one."""
    expires_at_ms: int = 0
    """From then on the message is not delivered; zero or less means never."""
    encoding: str = "JSON"
    dialect: Dialect = Dialect.CURRENT

    @property
    def tag(self) -> Tag:
        """The tag that belongs to this body."""
        return Tag(self.type, self.spec, self.id, self.pid, self.creator)

    def expired(self, now_ms: int) -> bool:
        """Whether the message must no longer be delivered."""
        return 0 < self.expires_at_ms <= now_ms


class _Packed(Struct):
    """The nine keys in the order in which they are written."""

    created_at: int
    creator: str
    data: bytes
    encoding: str
    expires_at: int
    id: str | bytes
    pid: str | bytes
    spec: str
    type: str


class _Read(Struct):
    """The nine keys as they are read. Raw are the data, which is often not needed, and what the dialects write
    differently."""

    created_at: int
    creator: str
    data: msgspec.Raw
    encoding: str
    expires_at: int
    id: msgspec.Raw
    pid: msgspec.Raw
    spec: str
    type: str


class _Expiring(Struct):
    """The one key that whoever passes a message on must look at."""

    expires_at: int = 0


_decoder: Final = msgspec.msgpack.Decoder(_Read)
_expiring_decoder: Final = msgspec.msgpack.Decoder(_Expiring)
_encode: Final = msgspec.msgpack.Encoder().encode


def decode_body(data: bytes) -> Body:
    """Read a body of either dialect, or raise BodyMalformed. The dialect is told by the form of the id."""
    try:
        read = unpack_first(_decoder, data)
        own_id = text_or_binary(read.id)
        return Body(
            type=read.type,
            spec=read.spec,
            id=_as_text(own_id),
            pid=_as_text(text_or_binary(read.pid)),
            creator=read.creator,
            created_at_ms=_as_int64(read.created_at),
            expires_at_ms=_as_int64(read.expires_at),
            encoding=read.encoding,
            data=_unpack_bin(read.data),
            dialect=Dialect.LEGACY if isinstance(own_id, bytes) else Dialect.CURRENT,
        )
    except (ValueError, RecursionError) as error:
        raise BodyMalformed(str(error)) from None


def peek_tag(data: bytes) -> tuple[Tag, Dialect]:
    """The tag and the dialect of a body, without a copy of its data. Raises BodyMalformed as `decode_body` does."""
    try:
        read = unpack_first(_decoder, data)
        if memoryview(read.data)[0] not in _BIN_HEADS:
            raise BodyMalformed("the data is not binary")
        own_id = text_or_binary(read.id)
        tag = Tag(read.type, read.spec, _as_text(own_id), _as_text(text_or_binary(read.pid)), read.creator)
        return tag, Dialect.LEGACY if isinstance(own_id, bytes) else Dialect.CURRENT
    except (ValueError, RecursionError) as error:
        raise BodyMalformed(str(error)) from None


def peek_expires_at_ms(data: bytes) -> int:
    """When a message expires, as far as its body can be read; zero or less, and zero for an opaque one, means never."""
    try:
        return _as_int64(unpack_first(_expiring_decoder, data).expires_at)
    except (ValueError, RecursionError):
        return 0


def encode_body(body: Body) -> bytes:
    """Write a body in its dialect."""
    legacy = body.dialect is Dialect.LEGACY
    return _encode(
        _Packed(
            created_at=body.created_at_ms,
            creator=body.creator,
            data=body.data,
            encoding=body.encoding,
            expires_at=body.expires_at_ms,
            id=body.id.encode() if legacy else body.id,
            pid=body.pid.encode() if legacy else body.pid,
            spec=body.spec,
            type=body.type,
        )
    )


def text_or_binary(raw: msgspec.Raw) -> str | bytes:
    """What a raw value holds, if it is text or binary; ValueError if it is anything else."""
    return _unpack_bin(raw) if memoryview(raw)[0] in _BIN_HEADS else _unpack_str(raw)


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")


def _as_int64(value: int) -> int:
    """Numbers above Int64 are read as negative ones, as by the original."""
    return value if value < 2**63 else value - 2**64


# Bytes after the first object ------------------------------------------------------------------------------------

# msgspec decodes some 500 bytes in a microsecond even when each byte is an object of its own, so that short data need
# no other limit. Of long data the objects are counted first: a body has nineteen, and is long because of its data.

_UNCOUNTED_BYTES_MAX: Final = 1024 * 1024
_OBJECTS_MAX: Final = 10_000
_TRAILING: Final = re.compile(r"trailing characters \(byte ([0-9]+)\)$")
"""How msgspec reports bytes after the first object, and where that ends."""

# What follows the first byte of an object: bytes of its own, or a length of this number of bytes.
_FIXED_BYTES: Final = dict(
    zip(
        (0xC0, 0xC2, 0xC3, 0xCA, 0xCB, *range(0xCC, 0xD4), *range(0xD4, 0xD9)),
        (0, 0, 0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17),
        strict=True,
    )
)
_LENGTH_BYTES: Final = dict(
    zip(
        (*range(0xC4, 0xCA), *range(0xD9, 0xE0)),
        (1, 2, 4, 1, 2, 4, 1, 2, 4, 2, 4, 2, 4),
        strict=True,
    )
)


def unpack_first(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    """Decode the first object of `data` and ignore what follows it. Raises ValueError or RecursionError.

    Data longer than 1 MiB with more than 10,000 objects are refused: the work must be bounded.
    """
    if len(data) > _UNCOUNTED_BYTES_MAX:
        return decoder.decode(memoryview(data)[: _first_object_end(data)])
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        if trailing is None:
            raise
        return decoder.decode(memoryview(data)[: int(trailing[1])])


def _first_object_end(data: bytes) -> int:
    """Where the first object ends; beyond the data if it is cut. Raises ValueError if it has too many objects."""
    at = 0
    missing = 1
    for _ in range(_OBJECTS_MAX):
        if not missing or at >= len(data):
            return at
        at, inside = _skip_head(data, at)
        missing += inside - 1
    raise ValueError(f"more than {_OBJECTS_MAX} objects in more than {_UNCOUNTED_BYTES_MAX} bytes")


def _skip_head(data: bytes, at: int) -> tuple[int, int]:
    """Where the object at this place ends, its elements not counted, and how many elements it has."""
    head = data[at]
    at += 1
    if head <= 0x7F or head >= 0xE0:
        return at, 0
    if head <= 0x8F:
        return at, 2 * (head & 0x0F)
    if head <= 0x9F:
        return at, head & 0x0F
    if head <= 0xBF:
        return at + (head & 0x1F), 0
    if head in _FIXED_BYTES:
        return at + _FIXED_BYTES[head], 0
    if head not in _LENGTH_BYTES:
        return len(data), 0
    end = at + _LENGTH_BYTES[head]
    length = int.from_bytes(data[at:end], "big")
    if head >= 0xDC:
        return end, length if head <= 0xDD else 2 * length
    return end + length + (0xC7 <= head <= 0xC9), 0


# Technical messages ----------------------------------------------------------------------------------------------


class ErrorNumber(enum.IntEnum):
    """The numbers of errors that components know."""

    PROTOCOL = 100
    ENCODING = 101
    TRANSPORT = 200
    TAG = 201
    TECHNICAL = 300
    KILLED = 301
    COMPONENT = 500
    FOREIGN = 501
    INCORRECT_INPUT = 502


class Monitoring(Struct, frozen=True):
    """The data of a monitoring message: a component says how it is."""

    sync_time_ms: int = msgspec.field(name="sync_time")
    name: str
    is_alive: bool
    message: str


class Kill(Struct, frozen=True):
    """The data of a kill message: whoever works on this task shall stop."""

    task_id: str


class Failure(Struct, frozen=True):
    """The data of an error message."""

    code: int
    message: str


Technical = TypeVar("Technical", Monitoring, Kill, Failure)


def decode_data(kind: type[Technical], data: bytes) -> Technical:
    """Read the JSON data of a technical message, or raise DataMalformed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise DataMalformed(str(error)) from None


def encode_data(data: Monitoring | Kill | Failure) -> bytes:
    """Write the JSON data of a technical message."""
    return msgspec.json.encode(data)


def monitoring_body(monitoring: Monitoring, *, id: str, creator: str) -> Body:
    """The message by which a component says how it is, created when it looked."""
    created_at_ms = monitoring.sync_time_ms
    data = encode_data(monitoring)
    return Body(type="data", spec="monitoring", id=id, creator=creator, created_at_ms=created_at_ms, data=data)


def kill_body(task_id: str, *, id: str, creator: str, created_at_ms: int) -> Body:
    """The message that asks for the end of a task."""
    data = encode_data(Kill(task_id))
    return Body(type="config", spec="kill", id=id, creator=creator, created_at_ms=created_at_ms, data=data)


def error_body(
    failure: Failure, *, id: str, pid: str, creator: str, created_at_ms: int, expires_at_ms: int = 0
) -> Body:
    """The message that ends a task with an error."""
    return Body(
        type="error",
        spec="error",
        id=id,
        pid=pid,
        creator=creator,
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
        data=encode_data(failure),
    )


def killed_body(kill: Body, *, id: str, created_at_ms: int) -> Body:
    """The error 301 that a kill message brings about. Raises DataMalformed when it does not name a task."""
    return error_body(
        Failure(ErrorNumber.KILLED, "task killed"),
        id=id,
        pid=decode_data(Kill, kill.data).task_id,
        creator=kill.creator,
        created_at_ms=created_at_ms,
        expires_at_ms=kill.expires_at_ms,
    )

"""ZMTP 3.0 and 3.1 without a socket: the protocol of ZeroMQ for PUSH, PULL and PUB, security mechanism NULL.

What belongs here: greeting, handshake, frames and commands of one connection. The owner of the socket feeds what it
has read to `receive_data`, asks for events until NEED_DATA comes, and then writes what `data_to_send` returns:

    each side                                       the other
    greeting: signature, version, mechanism   ──▶
    READY command: Socket-Type, Identity      ──▶   PeerReady
    message: frames, all but the last MORE    ──▶   MessageReceived          (from PUSH to PULL only)
    PING command: time to live, context       ──▶   PingReceived; the PONG with its context goes out by itself
                                              ◀──   PONG command             (PongReceived)
    SUBSCRIBE or CANCEL command, or a message       TopicAdded, TopicRemoved (from SUB to PUB only)
    of one frame: 1 or 0 and the topic        ──▶

One connection is one peer. That is why we have a codec of our own: libzmq distributes messages among its peers by
itself, takes any number of frames and topics from them, and does not let us count or refuse them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from penstock.wire.monique.errors import (
    FrameMalformed,
    FrameTooLong,
    NotReady,
    NotZmtp,
    PeerRefused,
    TooManyFrames,
    UnexpectedFrame,
    VersionTooOld,
    WrongMechanism,
    WrongSocketType,
    ZmtpError,
)

COMMAND_BYTES_MAX: Final = 4096
"""A READY has some 30 bytes, with an identity at most 300."""

_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_GREETING_BYTES: Final = 64
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_NULL: Final = b"NULL".ljust(20, b"\0")
_GREETING: Final = _SIGNATURE + b"\x03\x01" + _NULL + bytes(32)
_PING_CONTEXT_BYTES_MAX: Final = 16


class SocketType(enum.Enum):
    """The kinds of sockets that we can be."""

    PUSH = b"PUSH"
    PULL = b"PULL"
    PUB = b"PUB"

    @property
    def peers(self) -> tuple[bytes, ...]:
        """The kinds that may be on the other side."""
        return _PEERS[self]


_PEERS: Final = {SocketType.PUSH: (b"PULL",), SocketType.PULL: (b"PUSH",), SocketType.PUB: (b"SUB", b"XSUB")}


class NeedData:
    """There is no event before more bytes have come."""

    def __repr__(self) -> str:
        return "NEED_DATA"


NEED_DATA: Final = NeedData()


@dataclass(frozen=True, slots=True)
class PeerReady:
    """The handshake is done."""

    identity: bytes
    minor: int
    """Of the peer's version, 3.`minor`."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A whole message."""

    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PingReceived:
    """The peer is alive, and wants to be taken for dead after so long without a sign; zero says nothing."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The answer to the ping with this context."""

    context: bytes


@dataclass(frozen=True, slots=True)
class TopicAdded:
    """The peer subscribes to all messages whose first frame begins with this."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """The peer no longer subscribes to this topic."""

    topic: bytes


Event: TypeAlias = PeerReady | MessageReceived | PingReceived | PongReceived | TopicAdded | TopicRemoved


class Limits(NamedTuple):
    """How much a peer may send in one message."""

    message_bytes_max: int = 64 << 20
    frames_max: int = 16


DEFAULT_LIMITS: Final = Limits()


class ZmtpConnection:
    """One side of one connection."""

    def __init__(self, socket_type: SocketType, *, identity: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> None:
        self._socket_type = socket_type
        self._limits = limits
        self._identity = identity
        self._received = bytearray()
        self._to_send: list[bytes] = [_GREETING]
        self._step: Callable[[], Event | NeedData | None] = self._read_greeting
        self._minor = 0
        self._ready = False
        self._frames: list[bytes] = []
        self._message_bytes = 0
        self._error: ZmtpError | None = None

    @property
    def ready(self) -> bool:
        """Whether the handshake is done and messages may go."""
        return self._ready and self._error is None

    @property
    def buffered_bytes(self) -> int:
        """Bytes received that no event has used up."""
        return len(self._received) + self._message_bytes

    def receive_data(self, data: bytes) -> None:
        """Take in what the peer has sent."""
        if self._error is None:
            self._received += data

    def next_event(self) -> Event | NeedData:
        """The next thing that happened, or NEED_DATA. Raises a ZmtpError when the connection must be closed."""
        if self._error is not None:
            raise self._error
        try:
            while (event := self._step()) is None:
                pass
        except ZmtpError as error:
            self._error = error
            self.discard()
            raise
        return event

    def discard(self) -> None:
        """Free what was received: no event will be asked for any more."""
        self._received.clear()
        self._frames.clear()
        self._message_bytes = 0

    def data_to_send(self) -> bytes:
        """What is to be written to the peer now; to be asked for at the start and after every event or send."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def send_message(self, frames: Iterable[bytes]) -> None:
        """Queue a message of one frame or more for `data_to_send`."""
        if not self.ready or self._socket_type is SocketType.PULL:
            raise NotReady("a message")
        self._to_send.append(encode_message(frames))

    def send_ping(self, ttl_ms: int = 0, context: bytes = b"") -> None:
        """Queue a sign of life that asks for one; only a peer of version 3.1 knows it."""
        if not self.ready or not self._minor or len(context) > _PING_CONTEXT_BYTES_MAX:
            raise NotReady("a ping")
        self._to_send.append(_command(b"PING", struct.pack(">H", min(ttl_ms // 100, 0xFFFF)) + context))

    # Steps: each returns an event, NEED_DATA, or None when the next step shall be tried at once.

    def _read_greeting(self) -> NeedData | None:
        start = bytes(self._received[:_GREETING_BYTES])
        # Say no as early as it can be known: a peer of another protocol may never send 64 bytes.
        if start[:1] not in (b"", b"\xff") or start[9:10] not in (b"", b"\x7f"):
            raise NotZmtp(start[:10])
        if len(start) > 10 and start[10] < 3:
            raise VersionTooOld(start[10])
        if len(start) < _GREETING_BYTES:
            return NEED_DATA
        if start[12:32] != _NULL:
            raise WrongMechanism(start[12:32].rstrip(b"\0"))
        del self._received[:_GREETING_BYTES]
        # A peer of a later version is served as 3.1: the versions above 3 must speak the lower ones.
        self._minor = start[11] if start[10] == 3 else 1
        properties = {b"Socket-Type": self._socket_type.value}
        if self._identity:
            properties[b"Identity"] = self._identity
        self._to_send.append(_command(b"READY", encode_properties(properties)))
        self._step = self._read_ready
        return None

    def _read_ready(self) -> PeerReady | NeedData:
        frame = self._read_frame()
        if frame is None:
            return NEED_DATA
        name, data = _split_command(frame[1])
        if name == b"ERROR":
            raise PeerRefused(data[1 : 1 + data[0]] if data else b"")
        if name != b"READY":
            raise UnexpectedFrame(f"command {name!r}", "READY")
        properties = decode_properties(data)
        peer_type = properties.get(b"socket-type", b"")
        if peer_type not in self._socket_type.peers:
            raise WrongSocketType(peer_type, self._socket_type.peers[0])
        self._ready = True
        self._step = self._read_traffic
        return PeerReady(properties.get(b"identity", b""), self._minor)

    def _read_traffic(self) -> Event | NeedData | None:
        frame = self._read_frame()
        if frame is None:
            return NEED_DATA
        flags, body = frame
        if flags & _COMMAND:
            return self._on_command(*_split_command(body))
        if self._socket_type is SocketType.PUB:
            return None if flags & _MORE else _topic_event(body)
        self._frames.append(body)
        self._message_bytes += len(body)
        if flags & _MORE:
            return None
        message = MessageReceived(tuple(self._frames))
        self._frames.clear()
        self._message_bytes = 0
        return message

    def _on_command(self, name: bytes, data: bytes) -> Event | None:
        if name == b"PING":
            context = data[2:]
            if len(data) < 2 or len(context) > _PING_CONTEXT_BYTES_MAX:
                raise FrameMalformed(f"a PING of {len(data)} bytes")
            self._to_send.append(_command(b"PONG", context))
            return PingReceived(100 * int.from_bytes(data[:2], "big"))
        if name == b"PONG":
            return PongReceived(data)
        if name == b"ERROR":
            raise PeerRefused(data[1 : 1 + data[0]] if data else b"")
        if self._socket_type is SocketType.PUB and name in _TOPIC_COMMANDS:
            return _topic_event(_TOPIC_COMMANDS[name] + data)
        return None  # what we do not know is not for us

    def _read_frame(self) -> tuple[int, bytes] | None:
        """The flags and the body of the next frame once it is whole. Its head is judged before its body is awaited."""
        received = self._received
        if not received:
            return None
        flags = received[0]
        if flags & ~(_MORE | _LONG | _COMMAND) or (flags & _COMMAND and flags & _MORE):
            raise FrameMalformed(f"flags 0x{flags:02x}")
        self._check_kind(flags)
        start = 9 if flags & _LONG else 2
        if len(received) < start:
            return None
        length = int.from_bytes(received[1:start], "big")
        self._check_length(flags, length)
        end = start + length
        if len(received) < end:
            return None
        body = bytes(memoryview(received)[start:end])
        del received[:end]
        return flags, body

    def _check_kind(self, flags: int) -> None:
        if flags & _COMMAND:
            return
        if not self._ready:
            raise UnexpectedFrame("a message", "READY")
        if self._socket_type is SocketType.PUSH:
            raise UnexpectedFrame("a message", "nothing but commands")
        if len(self._frames) >= self._limits.frames_max:
            raise TooManyFrames(self._limits.frames_max)

    def _check_length(self, flags: int, length: int) -> None:
        if flags & _COMMAND:
            if length > COMMAND_BYTES_MAX:
                raise FrameTooLong(length, COMMAND_BYTES_MAX)
        elif self._message_bytes + length > self._limits.message_bytes_max:
            raise FrameTooLong(self._message_bytes + length, self._limits.message_bytes_max)


def encode_message(frames: Iterable[bytes]) -> bytes:
    """A message of one frame or more as it is sent; the same for all peers."""
    whole = list(frames)
    if not whole:
        raise NotReady("a message without frames")
    parts: list[bytes] = []
    for frame in whole[:-1]:
        parts += (_frame_head(_MORE, len(frame)), frame)
    parts += (_frame_head(0, len(whole[-1])), whole[-1])
    return b"".join(parts)


_TOPIC_COMMANDS: Final = {b"SUBSCRIBE": b"\x01", b"CANCEL": b"\x00"}


def _topic_event(message: bytes) -> TopicAdded | TopicRemoved | None:
    """What a subscriber wants; None for a message that is not about topics."""
    if message[:1] == b"\x01":
        return TopicAdded(message[1:])
    return TopicRemoved(message[1:]) if message[:1] == b"\x00" else None


def encode_properties(properties: dict[bytes, bytes]) -> bytes:
    """The properties of a READY command."""
    return b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value for name, value in properties.items()
    )


def decode_properties(data: bytes) -> dict[bytes, bytes]:
    """The properties of a READY command by name; names are the same in upper and lower case and come out in lower."""
    properties: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        value_start = name_end + 4
        value_end = value_start + int.from_bytes(data[name_end:value_start], "big")
        if data[at] == 0 or value_end > len(data) or value_start > len(data):
            raise FrameMalformed("a READY whose properties are cut")
        properties[data[at + 1 : name_end].lower()] = data[value_start:value_end]
        at = value_end
    return properties


def _frame_head(flags: int, length: int) -> bytes:
    if length <= 0xFF:
        return bytes((flags, length))
    return struct.pack(">BQ", flags | _LONG, length)


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return _frame_head(_COMMAND, len(body)) + body


def _split_command(body: bytes) -> tuple[bytes, bytes]:
    """The name and the data of a command."""
    end = 1 + body[0] if body else 0
    if end < 2 or end > len(body):
        raise FrameMalformed("a command without a name")
    return body[1:end], body[end:]

"""Packets: the handshake, and the marker (and in seed 001 the length) around each body.

What belongs here: everything between the bytes of a connection and the bodies of commands.py and responses.py.

    both      'A' Byte method                         'a' Bool [String reason]
              'B' Int32 major, minor, patch           'b' Bool [String reason]
    000       'C' command                             'c' response
              'K' or 'Q' acknowledge, 'N' negative    'k' ok
              'M' cluster metadata                    'm' Int32 n, n × String, Int32 leader or -1, Int32 this node
                                                      'e' Int32 code, String     'l' Int32 leader or -1
    001       'C' or 'D' Int32 length, command        'c' or 'd' Int32 length, response
                                                      'e' String                 'l' Int32 leader or 0
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from penstock.wire.taskflux.commands import COMMAND_ENCODERS, FRAMED_COMMAND_ENCODERS
from penstock.wire.taskflux.errors import FieldOutOfRange, NotInDialect
from penstock.wire.taskflux.fields import INT32, INT32_PAIR, write_text
from penstock.wire.taskflux.messages import (
    NATIVE_MAJOR,
    VERSION_MAJOR,
    VERSION_MINOR,
    Acknowledge,
    AuthorizationRequest,
    AuthorizationResponse,
    BootstrapRequest,
    BootstrapResponse,
    ClusterMetadata,
    ClusterMetadataRequest,
    Dialect,
    ErrorPacket,
    NativeRequested,
    NegativeAcknowledge,
    NotLeader,
    Ok,
    ParameterError,
    UnsupportedVersion,
)
from penstock.wire.taskflux.responses import (
    CSHARP_ENCODERS,
    FRAMED_ENCODERS,
    SEED000_ENCODERS,
    BodyEncoders,
    code_to_wire,
)

PacketEncoders = dict[type, Callable[[Any], bytes]]
"""For each type of message that a dialect has, the function that writes its packet."""

LEADER_UNKNOWN: Final = -1
"""Leader id on the wire when none is known (seed 000 and csharp)."""

FRAMED_LEADER_UNKNOWN: Final = 0
"""Leader id on the wire when none is known (seed 001)."""

BOOTSTRAP_BYTES: Final = 13
"""Length of a Bootstrap Request with its marker."""

_BOOTSTRAP: Final = Struct(">ciii")

_CSHARP_VERSION_REASON: Final = "Версия клиента не поддерживается"


def judge_version(data: bytes, start: int, dialect: Dialect) -> BootstrapRequest | UnsupportedVersion | NativeRequested:
    """What the Bootstrap Request at `start` asks for: 1.0 with any patch is served, PENS is our own protocol."""
    _marker, major, minor, patch = _BOOTSTRAP.unpack_from(data, start)
    if major == VERSION_MAJOR and minor == VERSION_MINOR:
        return BootstrapRequest(major, minor, patch)
    if major == NATIVE_MAJOR:
        return NativeRequested(minor, patch)
    if dialect is Dialect.CSHARP:
        reason = _CSHARP_VERSION_REASON
    else:
        spoken = f"{VERSION_MAJOR}.{VERSION_MINOR}"
        reason = f"client version {major}.{minor}.{patch} is not supported, this server speaks {spoken}"
    return UnsupportedVersion(major, minor, patch, reason)


def encode(message: object, encoders: PacketEncoders, dialect: Dialect) -> bytes:
    """The packet of `message`, by a table from REQUEST_ENCODERS or REPLY_ENCODERS."""
    encoder = encoders.get(type(message))
    if encoder is None:
        raise NotInDialect(type(message).__name__, dialect.value)
    try:
        return encoder(message)
    except (struct.error, ValueError) as error:
        raise FieldOutOfRange(type(message).__name__, str(error)) from error


def _marked(marker: bytes, bodies: BodyEncoders) -> PacketEncoders:
    """Packets that are a marker and a body."""

    def packet_of(body: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda message: marker + body(message)

    return {kind: packet_of(body) for kind, body in bodies.items()}


def _framed(marker: bytes, bodies: BodyEncoders) -> PacketEncoders:
    """Packets that are a marker, a length and a body."""

    def packet_of(body: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        def encode_framed(message: Any) -> bytes:
            data = body(message)
            return marker + INT32.pack(len(data)) + data

        return encode_framed

    return {kind: packet_of(body) for kind, body in bodies.items()}


# --- requests -----------------------------------------------------------------------------------------------


def _authorization_request(request: AuthorizationRequest) -> bytes:
    return b"A" + bytes((request.method,))


def _bootstrap_request(request: BootstrapRequest) -> bytes:
    return _BOOTSTRAP.pack(b"B", request.major, request.minor, request.patch)


_HANDSHAKE_REQUESTS: Final[PacketEncoders] = {
    AuthorizationRequest: _authorization_request,
    BootstrapRequest: _bootstrap_request,
}

_SEED000_REQUESTS: Final[PacketEncoders] = {
    **_HANDSHAKE_REQUESTS,
    **_marked(b"C", COMMAND_ENCODERS),
    Acknowledge: lambda _request: b"K",
    NegativeAcknowledge: lambda _request: b"N",
    ClusterMetadataRequest: lambda _request: b"M",
}

REQUEST_ENCODERS: Final[dict[Dialect, PacketEncoders]] = {
    Dialect.SEED000: _SEED000_REQUESTS,
    Dialect.CSHARP: _SEED000_REQUESTS,
    Dialect.SEED001: {**_HANDSHAKE_REQUESTS, **_framed(b"C", FRAMED_COMMAND_ENCODERS)},
    Dialect.SEED001_DATA: {**_HANDSHAKE_REQUESTS, **_framed(b"D", FRAMED_COMMAND_ENCODERS)},
}
"""What a client can say in each dialect."""


# --- replies ------------------------------------------------------------------------------------------------


def _authorization_response(reply: AuthorizationResponse) -> bytes:
    return b"a\x01" if reply.success else b"a\x00" + write_text(reply.reason)


def _bootstrap_response(reply: BootstrapResponse) -> bytes:
    return b"b\x01" if reply.success else b"b\x00" + write_text(reply.reason)


def _not_leader(reply: NotLeader) -> bytes:
    return b"l" + INT32.pack(LEADER_UNKNOWN if reply.leader_id is None else reply.leader_id)


def _framed_not_leader(reply: NotLeader) -> bytes:
    return b"l" + INT32.pack(FRAMED_LEADER_UNKNOWN if reply.leader_id is None else reply.leader_id)


def _error_packet(reply: ErrorPacket) -> bytes:
    return b"e" + INT32.pack(reply.code) + write_text(reply.details)


def _error_packet_csharp(reply: ErrorPacket | ParameterError) -> bytes:
    return b"e" + INT32.pack(code_to_wire(reply.code, Dialect.CSHARP)) + write_text(reply.details)


def _error_packet_framed(reply: ErrorPacket) -> bytes:
    return b"e" + write_text(reply.details)


def _cluster_metadata(reply: ClusterMetadata) -> bytes:
    leader_id = LEADER_UNKNOWN if reply.leader_id is None else reply.leader_id
    addresses = [write_text(address) for address in reply.addresses]
    return b"".join((b"m", INT32.pack(len(addresses)), *addresses, INT32_PAIR.pack(leader_id, reply.node_id)))


_HANDSHAKE_REPLIES: Final[PacketEncoders] = {
    AuthorizationResponse: _authorization_response,
    BootstrapResponse: _bootstrap_response,
}

_UNFRAMED_REPLIES: Final[PacketEncoders] = {
    **_HANDSHAKE_REPLIES,
    Ok: lambda _reply: b"k",
    NotLeader: _not_leader,
    ClusterMetadata: _cluster_metadata,
}

_FRAMED_REPLIES: Final[PacketEncoders] = {
    **_HANDSHAKE_REPLIES,
    NotLeader: _framed_not_leader,
    ErrorPacket: _error_packet_framed,
}

REPLY_ENCODERS: Final[dict[Dialect, PacketEncoders]] = {
    Dialect.SEED000: {**_UNFRAMED_REPLIES, **_marked(b"c", SEED000_ENCODERS), ErrorPacket: _error_packet},
    Dialect.CSHARP: {
        **_UNFRAMED_REPLIES,
        **_marked(b"c", CSHARP_ENCODERS),
        ErrorPacket: _error_packet_csharp,
        ParameterError: _error_packet_csharp,
    },
    Dialect.SEED001: {**_FRAMED_REPLIES, **_framed(b"c", FRAMED_ENCODERS)},
    Dialect.SEED001_DATA: {**_FRAMED_REPLIES, **_framed(b"d", FRAMED_ENCODERS)},
}
"""What a server can say in each dialect."""

"""Targets: both sides of the TaskFlux codec.

Each input is parsed twice, whole and in pieces. Both must report the same, and what they report must be sayable again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from fuzz.runner import Target
from penstock.wire.taskflux import NATIVE_MAJOR, ClientConnection, Dialect, Limits, NeedData, ServerConnection
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.errors import ProtocolError

_LIMITS = Limits(payload_bytes_max=1024, name_bytes_max=300, text_bytes_max=300, reply_bytes_max=2048)
_DIALECTS = tuple(Dialect)

_HANDSHAKE: tuple[m.Request, ...] = (m.AuthorizationRequest(), m.BootstrapRequest())
_COMMANDS: tuple[m.Request, ...] = (
    m.Enqueue(b"orders", 5, b"abc"),
    m.Acknowledge(),
    m.Enqueue(b"", -(2**63), b"x" * 300),
    m.NegativeAcknowledge(),
    m.Dequeue(b"orders", 60_000),
    m.Acknowledge(),
    m.Count(b"n" * 255),
    m.CreateQueue(b"orders", 2, 100, 2048, (-5, 5)),
    m.CreateQueue(b"jobs"),
    m.ListQueues(),
    m.ClusterMetadataRequest(),
    m.DeleteQueue(b"orders"),
)
_FRAMED_COMMANDS: tuple[m.Request, ...] = (
    m.Enqueue(b"orders", 5, b"abc"),
    m.Enqueue(b"", 2**63 - 1, b""),
    m.Dequeue(b"orders"),
    m.Count(b"n" * 290),
)
_RESPONSES: tuple[m.Reply, ...] = (
    m.Ok(),
    m.DequeueEmpty(),
    m.DequeueResult(5, b"abc", 7),
    m.DequeueResult(-1, b"x" * 300, 2**64 - 1),
    m.CountResult(42),
    m.ErrorResult(9, "Очередь"),
    m.ParameterError(1, "a name"),
    m.GenericViolation("memory"),
    m.QueueSizeViolation(100),
    m.PayloadSizeViolation(2048),
    m.KeyRangeViolation(-5, 5),
    m.NotLeader(2),
    m.NotLeader(None),
    m.ErrorPacket(1, "boom"),
)
_UNFRAMED_RESPONSES: tuple[m.Reply, ...] = (
    m.ListResult([m.QueueInfo(b"", 0, {}), m.QueueInfo(b"orders", 3, {"max-queue-size": "100", "a": ""})]),
    m.ClusterMetadata(["tflux.1:5000", "127.0.0.1:5001"], None, 0),
)


def _server_corpus() -> list[bytes]:
    streams: list[tuple[Dialect, tuple[m.Request, ...]]] = [(Dialect.SEED000, _HANDSHAKE)]
    streams += [(Dialect.SEED000, (*_HANDSHAKE, command)) for command in _COMMANDS]
    streams.append((Dialect.SEED000, (*_HANDSHAKE, *_COMMANDS)))
    for dialect in (Dialect.SEED001, Dialect.SEED001_DATA):
        streams += [(dialect, (*_HANDSHAKE, command)) for command in _FRAMED_COMMANDS]
        streams.append((dialect, (*_HANDSHAKE, *_FRAMED_COMMANDS)))
    native = m.BootstrapRequest(NATIVE_MAJOR, 1, 0)
    streams.append((Dialect.SEED000, (m.AuthorizationRequest(), native, *_COMMANDS)))
    streams.append((Dialect.SEED000, (m.AuthorizationRequest(), m.BootstrapRequest(2, 0, 0), *_COMMANDS)))
    return [b"".join(map(ClientConnection(dialect).send, requests)) for dialect, requests in streams]


def _client_corpus() -> list[bytes]:
    corpus: list[bytes] = []
    for number, dialect in enumerate(_DIALECTS):
        say = _sayer(dialect)
        head = bytes((number,))
        handshake = say(m.AuthorizationResponse()) + say(m.BootstrapResponse())
        responses = _RESPONSES if dialect.length_framed else (*_RESPONSES, *_UNFRAMED_RESPONSES)
        packets = [say(reply) for reply in responses]
        corpus += [head + handshake + packet for packet in packets]
        corpus.append(head + handshake + b"".join(packets))
        corpus.append(head + say(m.AuthorizationResponse(False, "denied")))
        corpus.append(head + say(m.AuthorizationResponse()) + say(m.BootstrapResponse(False, "unsupported")))
    return corpus


def _sayer(dialect: Dialect) -> Callable[[m.Reply], bytes]:
    """The `send` of a server connection that speaks `dialect`."""
    server = ServerConnection(dialect if dialect is Dialect.CSHARP else Dialect.SEED000)
    if dialect.length_framed:
        server.receive_data(b"".join(map(ClientConnection(dialect).send, (*_HANDSHAKE, m.Count(b"")))))
        while not isinstance(server.next_event(), NeedData):
            pass
    return server.send


def _run_server(data: bytes) -> None:
    whole, whole_error, server = _drain(lambda: ServerConnection(Dialect.SEED000, _LIMITS), [data])
    parts, parts_error, _ = _drain(lambda: ServerConnection(Dialect.SEED000, _LIMITS), _cut(data))
    assert whole == parts, "the events depend on how the data was cut"
    assert str(whole_error) == str(parts_error), "the error depends on how the data was cut"
    said_again = b"".join(_say_event(event, server.dialect) for event in whole)
    again, _, _ = _drain(lambda: ServerConnection(Dialect.SEED000, _LIMITS), [said_again])
    assert again == whole, "the events said again are others"
    if whole_error is not None:
        raise whole_error


def _run_client(data: bytes) -> None:
    dialect = _DIALECTS[data[0] % len(_DIALECTS)] if data else Dialect.SEED000
    whole, whole_error, _ = _drain(lambda: ClientConnection(dialect, _LIMITS), [data[1:]])
    parts, parts_error, _ = _drain(lambda: ClientConnection(dialect, _LIMITS), _cut(data[1:]))
    assert whole == parts, "the replies depend on how the data was cut"
    assert str(whole_error) == str(parts_error), "the error depends on how the data was cut"
    said_again = b"".join(map(_sayer(dialect), whole))
    if not dialect.length_framed:  # which has fewer error codes to say than it has to hear
        again, _, _ = _drain(lambda: ClientConnection(dialect, _LIMITS), [said_again])
        assert again == whole, "the replies said again are others"
    if whole_error is not None:
        raise whole_error


def _say_event(event: m.Event, dialect: Dialect) -> bytes:
    """The bytes that a client would send to bring about `event`."""
    if isinstance(event, m.NativeRequested):
        event = m.BootstrapRequest(NATIVE_MAJOR, event.minor, event.patch)
    elif isinstance(event, m.UnsupportedVersion):
        event = m.BootstrapRequest(event.major, event.minor, event.patch)
    if isinstance(event, (m.Enqueue, m.Dequeue, m.Count)):
        return ClientConnection(dialect).send(event)
    return ClientConnection(Dialect.SEED000).send(event)


_Connection = TypeVar("_Connection", ServerConnection, ClientConnection)


def _drain(make: Callable[[], _Connection], pieces: list[bytes]) -> tuple[list[Any], ProtocolError | None, _Connection]:
    """Feed the pieces to a new connection; return what it reported, and the error that ended it."""
    connection = make()
    reported: list[Any] = []
    try:
        for piece in pieces:
            connection.receive_data(piece)
            while not isinstance(event := connection.next_event(), NeedData):
                reported.append(event)
    except ProtocolError as error:
        return reported, error, connection
    return reported, None, connection


def _cut(data: bytes) -> list[bytes]:
    """Cut `data` into pieces whose sizes depend on nothing but `data`."""
    random = Random(zlib.crc32(data))
    size_max = random.choice((1, 3, 20, 200))
    pieces: list[bytes] = []
    offset = 0
    while offset < len(data):
        size = random.randint(1, size_max)
        pieces.append(data[offset : offset + size])
        offset += size
    return pieces


TARGETS = (
    Target("taskflux-server", _server_corpus, _run_server, (ProtocolError,)),
    Target("taskflux-client", _client_corpus, _run_client, (ProtocolError,)),
)

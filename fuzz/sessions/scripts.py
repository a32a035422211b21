"""What one connection sends: the requests of one door, some of them damaged, and how the connection ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from fuzz.monique import TARGETS as MONIQUE_TARGETS
from fuzz.mutate import mutate
from fuzz.sessions.values import NAMES, QUEUES, Values
from fuzz.taskflux import TARGETS as TASKFLUX_TARGETS
from penstock.engine import commands as c
from penstock.wire.monique import gateway
from penstock.wire.monique.tags import Dialect
from penstock.wire.native import messages as m
from penstock.wire.native.frames import encode_frame
from penstock.wire.taskflux import NATIVE_MAJOR, ClientConnection
from penstock.wire.taskflux import messages as taskflux

CLOSE: Final = "close"
ABORT: Final = "abort"
HALF_CLOSE: Final = "half-close"
ENDINGS: Final = (CLOSE, CLOSE, ABORT, HALF_CLOSE)

_DAMAGED_SHARE: Final = 0.2
_BROKEN_SHARE: Final = 0.01
_INPUTS_MAX: Final = 60
_PRODUCERS: Final = (0, 0, 1, 2, 3)
_MASK: Final = b"\0\0\0\0"
_TASKFLUX_CORPUS: Final = next(target for target in TASKFLUX_TARGETS if target.name == "taskflux-server").corpus()
_ZMTP_CORPUS: Final = [data for target in MONIQUE_TARGETS if target.name.startswith("zmtp") for data in target.corpus()]
_TAGS: Final = (b"config:spec:id::me", b"result:spec:id:pid:me", b"error:spec:x:pid:me", b"a", b"", b":::::")


@dataclass(frozen=True)
class Script:
    """One connection: the door it goes to, what it sends, whether it reads, and how it ends."""

    door: str
    inputs: Iterator[bytes]
    count: int
    reads: bool
    ending: str
    waits_first: bool = False
    """Whether it waits for the answer to its first input, as WebSocket clients must."""
    learn: Callable[[int, bytes], None] | None = None
    """Given each frame of a native answer, as (status, body)."""


def make_script(random: Random) -> Script:
    """The next session."""
    door, make = random.choice(_DOORS)
    count = random.randint(1, _INPUTS_MAX)
    values = Values(random)
    learn = _learner(values) if door == "native" else None
    reads, ending = random.random() < 0.8, random.choice(ENDINGS)
    return Script(door, make(random, values, count), count, reads, ending, door in ("etzel", "gateway"), learn)


def _learner(values: Values) -> Callable[[int, bytes], None]:
    taken = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, ...]]])

    def learn(status: int, body: bytes) -> None:
        try:
            token, records = msgspec.msgpack.decode(body) if status == m.PUSH else taken.decode(body)
            values.handles += [(record[0], token) for record in records]
        except (ValueError, TypeError, IndexError, KeyError):
            return  # another kind of answer
        del values.handles[:-50]

    return learn


def _damaged(random: Random, data: bytes) -> bytes:
    return mutate(random, [data]) if random.random() < _DAMAGED_SHARE else data


def _native(random: Random, values: Values, count: int) -> Iterator[bytes]:
    yield ClientConnection().send(taskflux.AuthorizationRequest())
    yield ClientConnection().send(taskflux.BootstrapRequest(NATIVE_MAJOR, 1, 0))
    if random.random() < 0.9:
        yield encode_frame(m.HELLO, 1, c.encode(m.Hello(random.choice(_PRODUCERS), "fuzz")))
    kinds = list(m.CODES)
    for _ in range(count):
        # Mostly what makes sessions meet; now and then anything, the node's own operations among it.
        kind = random.choice(_COMMON) if random.random() < 0.6 else random.choice(kinds)
        number = random.randint(1, 30) if random.random() < 0.7 else random.getrandbits(64)
        body = c.encode(values.arguments(kind))
        if random.random() < _DAMAGED_SHARE:
            body = mutate(random, [body])
        frame = encode_frame(m.CODES[kind], number, body)
        # A damaged length ends the connection, so it is rare.
        yield mutate(random, [frame]) if random.random() < _BROKEN_SHARE else frame


_COMMON: Final = (c.Put, c.Put, c.Take, c.Take, c.Ack, c.AckTake, c.Return, c.CreateQueue, c.DeleteQueue, m.Subscribe)


def _taskflux(random: Random, _values: Values, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield _damaged(random, random.choice(_TASKFLUX_CORPUS))


def _etzel(random: Random, _values: Values, count: int) -> Iterator[bytes]:
    yield from _handshake(random, "/connect")
    for _ in range(count):
        request = {
            "cmd": random.choice(("PUB", "PUB", "SUB", "FET", "FET", "ISLP", "ACK", "DEL", "NONE")),
            "qname": random.choice(QUEUES),
            "msg": random.choice(("", "x", "é" * 100)),
            "uid": random.choice((True, "nosuch", "AAAAAQACAAAAAAAB", 1)),
            "delay": random.choice((0, 0, 1, 1.5, -1, 1e300)),
            "expires": random.choice((0, 0, 5, -1)),
            "priority": random.choice((0, 1, -(2**63), 2**70)),
        }
        data = json.dumps({key: request[key] for key in request if key in ("cmd", "qname") or random.random() < 0.5})
        yield _frame(random, _damaged(random, data.encode()), 1)


def _gateway(random: Random, _values: Values, count: int) -> Iterator[bytes]:
    yield from _handshake(random, "/")
    for _ in range(count):
        patterns = tuple(gateway.Pattern(random.choice(NAMES), random.choice(NAMES)) for _ in range(3))
        request = random.choice(
            (
                gateway.Ping(random.getrandbits(60)),
                gateway.Subscribe(patterns),
                gateway.Unsubscribe(patterns[:1]),
                gateway.PushToMq(random.choice(_TAGS), random.randbytes(20), random.choice(list(Dialect))),
            )
        )
        yield _frame(random, _damaged(random, gateway.encode_request(request)), 2)


def _zeromq(random: Random, _values: Values, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield _damaged(random, random.choice(_ZMTP_CORPUS))


def _handshake(random: Random, path: str) -> Iterator[bytes]:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        "Cookie: id=fuzz",
        "\r\n",
    ]
    data = "\r\n".join(lines).encode()
    yield data if random.random() < 0.9 else mutate(random, [data])


def _frame(random: Random, payload: bytes, opcode: int) -> bytes:
    """A client's frame; some are fragments, control frames or of no kind at all."""
    if random.random() < 0.1:
        opcode = random.randint(0, 15)
    final = 0x80 if random.random() < 0.95 else 0
    size = len(payload)
    if size <= 125:
        length = bytes((0x80 | size,))
    elif size <= 0xFFFF:
        length = bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    else:
        length = bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return (
        _damaged(random, bytes((final | opcode,)) + length + _MASK + payload)
        if random.random() < 0.1
        else (bytes((final | opcode,)) + length + _MASK + payload)
    )


_DOORS: Final[tuple[tuple[str, Callable[[Random, Values, int], Iterator[bytes]]], ...]] = (
    ("native", _native),
    ("native", _native),
    ("native", _native),
    ("taskflux", _taskflux),
    ("etzel", _etzel),
    ("gateway", _gateway),
    ("components", _zeromq),
    ("subscribers", _zeromq),
    ("workers", _zeromq),
)

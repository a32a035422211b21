"""Reading replies that carry no length, field by field, as their bytes arrive.

What belongs here: a reader whose every step is a generator that yields NEED_DATA until its bytes are there, and the
response bodies of seed 000 and csharp in terms of it. A reply is never parsed twice, so a long List costs the same in
pieces of one byte as in one.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from penstock.wire.taskflux.buffer import ReceiveBuffer
from penstock.wire.taskflux.errors import FieldTooLong, NegativeLength, PayloadTooLong, UnknownCommand
from penstock.wire.taskflux.fields import INT32, INT32_PAIR, INT64_PAIR, checked_length, decode_text
from penstock.wire.taskflux.messages import (
    NEED_DATA,
    CommandResponse,
    CountResult,
    DequeueEmpty,
    DequeueResult,
    Dialect,
    ErrorResult,
    GenericViolation,
    KeyRangeViolation,
    Limits,
    ListResult,
    NeedData,
    PayloadSizeViolation,
    PolicyViolation,
    QueueInfo,
    QueueSizeViolation,
)
from penstock.wire.taskflux.responses import code_from_wire

_T = TypeVar("_T")

Reading: TypeAlias = Generator[NeedData, None, _T]
"""A step of reading: yields NEED_DATA while it waits, and returns what it read."""

_KEY_AND_LENGTH: Final = Struct(">qi")
_ID_KEY_AND_LENGTH: Final = Struct(">Qqi")


class FieldStream:
    """Basic types read from a buffer that fills up, within a budget of bytes per reply."""

    __slots__ = ("_budget_bytes", "_buffer", "_position", "limits")

    def __init__(self, buffer: ReceiveBuffer, limits: Limits) -> None:
        self.limits = limits
        self._buffer = buffer
        self._position = 0
        self._budget_bytes = limits.reply_bytes_max

    def begin_reply(self) -> None:
        """Start a new reply with a full budget."""
        self._budget_bytes = self.limits.reply_bytes_max

    def take(self, count: int) -> Reading[bytes]:
        """The next `count` bytes, against the budget."""
        self._budget_bytes -= count
        if self._budget_bytes < 0:
            length_max = self.limits.reply_bytes_max
            raise FieldTooLong("reply", length_max - self._budget_bytes, length_max)
        return self._take(count)

    def payload(self, length: int) -> Reading[bytes]:
        """The payload of a record, which has a limit of its own."""
        if length < 0:
            raise NegativeLength("payload", length)
        if length > self.limits.payload_bytes_max:
            raise PayloadTooLong(length, self.limits.payload_bytes_max)
        return self._take(length)

    def framed_body(self, length: int) -> Reading[bytes]:
        """A body whose length the caller has checked."""
        return self._take(length)

    def byte(self) -> Reading[int]:
        """An unsigned byte."""
        return (yield from self.take(1))[0]

    def int32(self) -> Reading[int]:
        """An Int32."""
        value: int = INT32.unpack((yield from self.take(4)))[0]
        return value

    def count(self, count_max: int, field: str) -> Reading[int]:
        """An Int32 that counts something, within 0..count_max."""
        return checked_length((yield from self.int32()), count_max, field)

    def text(self, field: str) -> Reading[str]:
        """A String."""
        length = yield from self.count(self.limits.text_bytes_max, field)
        data = yield from self.take(length)
        return decode_text(data, self._position - length)

    def _take(self, count: int) -> Reading[bytes]:
        buffer = self._buffer
        while buffer.size < count:
            yield NEED_DATA
        self._position += count
        return buffer.take(count)


def read_response(stream: FieldStream, dialect: Dialect) -> Reading[CommandResponse]:
    """The body of a Command Response in seed 000's or the csharp dialect."""
    code = yield from stream.byte()
    if code == ord("d"):
        return (yield from _read_dequeue(stream, dialect))
    if code == ord("c"):
        return CountResult((yield from stream.int32()))
    if code == ord("l"):
        return (yield from _read_list(stream))
    if code == ord("p"):
        return (yield from _read_violation(stream, dialect))
    if code == (ord("e") if dialect is Dialect.CSHARP else ord("x")):
        error_code = code_from_wire((yield from stream.int32()), dialect)
        return ErrorResult(error_code, (yield from stream.text("error details")))
    raise UnknownCommand("response", code)


def _read_dequeue(stream: FieldStream, dialect: Dialect) -> Reading[CommandResponse]:
    if not (yield from stream.byte()):
        return DequeueEmpty()
    record_id = 0
    if dialect is Dialect.CSHARP:
        record_id, key, length = _ID_KEY_AND_LENGTH.unpack((yield from stream.take(20)))
    else:
        key, length = _KEY_AND_LENGTH.unpack((yield from stream.take(12)))
    return DequeueResult(key, (yield from stream.payload(length)), record_id)


def _read_list(stream: FieldStream) -> Reading[ListResult]:
    queues: list[QueueInfo] = []
    count = yield from stream.count(stream.limits.queues_max, "list of queues")
    for _ in range(count):
        name = yield from stream.take((yield from stream.byte()))
        record_count = yield from stream.int32()
        queues.append(QueueInfo(name, record_count, (yield from _read_policies(stream))))
    return ListResult(queues)


def _read_policies(stream: FieldStream) -> Reading[dict[str, str]]:
    """A Dict of texts; should a key come twice, the last one counts."""
    policies: dict[str, str] = {}
    count = yield from stream.count(stream.limits.policies_max, "policies of a queue")
    for _ in range(count):
        name = yield from stream.text("policy name")
        policies[name] = yield from stream.text("policy value")
    return policies


def _read_violation(stream: FieldStream, dialect: Dialect) -> Reading[PolicyViolation]:
    code = yield from stream.int32()
    if code == 0:
        return GenericViolation((yield from stream.text("policy message")))
    if code == 1:
        return QueueSizeViolation((yield from stream.int32()))
    payload_code, range_code = (3, 2) if dialect is Dialect.CSHARP else (2, 3)
    if code == payload_code:
        return PayloadSizeViolation((yield from stream.int32()))
    if code == range_code:
        key_min, key_max = INT64_PAIR.unpack((yield from stream.take(16)))
        return KeyRangeViolation(key_min, key_max)
    raise UnknownCommand("policy", code)


def read_leader_and_node(stream: FieldStream) -> Reading[tuple[int, int]]:
    """The two ids that end a Cluster Metadata reply."""
    leader_id, node_id = INT32_PAIR.unpack((yield from stream.take(8)))
    return leader_id, node_id

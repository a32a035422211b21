"""Bodies of responses in each dialect: written for all of them, and read for the length-framed ones.

What belongs here: the bytes of one response body. Reading the bodies that carry no length is in stream.py, the
packets around them are in packets.py.

    seed000   'd' Bool [Int64 key, Buffer]                 csharp   'd' Bool [UInt64 id, Int64 key, Buffer]
              'c' Int32                                             the same
              'x' Int32 code, String                                'e' Int32 code (other numbers, below), String
              'l' Int32 n, n × (QueueName, Int32, Dict)             the same
              'p' 0 String | 1 Int32 queue size                     the same
              'p' 2 Int32 payload size | 3 Int64 Int64 range        'p' 3 payload size | 2 range
    seed001   'e' Byte added | 'd' Byte [Int64 key, Buffer] | 'c' Int32 | 'E' Byte code, String

The original program has no number for "key out of range" (4): we say 0, unknown. Its 4..8 are seed 000's 5..9.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from penstock.wire.taskflux.errors import NegativeLength, PayloadTooLong, UnknownCommand
from penstock.wire.taskflux.fields import INT32, INT32_PAIR, Reader, write_queue_name, write_text
from penstock.wire.taskflux.messages import (
    CommandResponse,
    CountResult,
    DequeueEmpty,
    DequeueResult,
    Dialect,
    EnqueueResult,
    ErrorCode,
    ErrorResult,
    GenericViolation,
    KeyRangeViolation,
    Limits,
    ListResult,
    NoResult,
    Ok,
    ParameterError,
    PayloadSizeViolation,
    QueueSizeViolation,
)

BodyEncoders = dict[type, Callable[[Any], bytes]]
"""For each type of reply, the writer of its body, raising struct.error or ValueError for what does not fit."""

POLICY_QUEUE_SIZE_MAX: Final = "max-queue-size"
"""Name of the policy text in a List: a decimal Int32."""

POLICY_PAYLOAD_BYTES_MAX: Final = "max-payload-size"
"""Name of the policy text in a List: a decimal Int32."""

POLICY_KEY_RANGE: Final = "priority-range"
"""Name of the policy text in a List: two decimal Int64 with one space between."""

_KEY_AND_LENGTH: Final = Struct(">qi")
_ID_KEY_AND_LENGTH: Final = Struct(">Qqi")
_RANGE_POLICY: Final = Struct(">iqq")

_CSHARP_CODES: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 4, 6: 5, 7: 6, 8: 7, 9: 8}
_CODES_OF_CSHARP: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9}

_FRAMED_ERROR_TEXTS: Final = {
    ErrorCode.INVALID_QUEUE_NAME: "Неправильное название очереди",
    ErrorCode.QUEUE_MISSING: "Очередь не существует",
}
"""What the original program says when it has nothing more to tell; part of the older protocol."""


def code_to_wire(code: int, dialect: Dialect) -> int:
    """The number that stands for seed 000's error `code` in `dialect`, unknown (0) where it has none."""
    return _CSHARP_CODES.get(code, 0) if dialect is Dialect.CSHARP else code


def code_from_wire(code: int, dialect: Dialect) -> int:
    """Seed 000's number for what `dialect` calls `code`, unknown (0) for numbers that csharp does not have."""
    return _CODES_OF_CSHARP.get(code, 0) if dialect is Dialect.CSHARP else code


# --- seed 000 and csharp ------------------------------------------------------------------------------------


def _dequeue_result(reply: DequeueResult) -> bytes:
    return b"d\x01" + _KEY_AND_LENGTH.pack(reply.key, len(reply.payload)) + reply.payload


def _dequeue_result_with_id(reply: DequeueResult) -> bytes:
    return b"d\x01" + _ID_KEY_AND_LENGTH.pack(reply.record_id, reply.key, len(reply.payload)) + reply.payload


def _dequeue_empty(_reply: DequeueEmpty) -> bytes:
    return b"d\x00"


def _count_result(reply: CountResult) -> bytes:
    return b"c" + INT32.pack(reply.count)


def _list_result(reply: ListResult) -> bytes:
    parts = [b"l", INT32.pack(len(reply.queues))]
    for queue in reply.queues:
        parts += (write_queue_name(queue.name), INT32_PAIR.pack(queue.count, len(queue.policies)))
        for name, value in queue.policies.items():
            parts += (write_text(name), write_text(value))
    return b"".join(parts)


def _error_result(reply: ErrorResult | ParameterError) -> bytes:
    return b"x" + INT32.pack(reply.code) + write_text(reply.details)


def _error_result_csharp(reply: ErrorResult) -> bytes:
    return b"e" + INT32.pack(code_to_wire(reply.code, Dialect.CSHARP)) + write_text(reply.details)


def _generic_violation(reply: GenericViolation) -> bytes:
    return b"p" + INT32.pack(0) + write_text(reply.message)


def _queue_size_violation(reply: QueueSizeViolation) -> bytes:
    return b"p" + INT32_PAIR.pack(1, reply.queue_size_max)


def _payload_size_violation(reply: PayloadSizeViolation) -> bytes:
    return b"p" + INT32_PAIR.pack(2, reply.payload_bytes_max)


def _payload_size_violation_csharp(reply: PayloadSizeViolation) -> bytes:
    return b"p" + INT32_PAIR.pack(3, reply.payload_bytes_max)


def _key_range_violation(reply: KeyRangeViolation) -> bytes:
    return b"p" + _RANGE_POLICY.pack(3, reply.key_min, reply.key_max)


def _key_range_violation_csharp(reply: KeyRangeViolation) -> bytes:
    return b"p" + _RANGE_POLICY.pack(2, reply.key_min, reply.key_max)


SEED000_ENCODERS: Final[BodyEncoders] = {
    DequeueResult: _dequeue_result,
    DequeueEmpty: _dequeue_empty,
    CountResult: _count_result,
    ListResult: _list_result,
    ErrorResult: _error_result,
    ParameterError: _error_result,
    GenericViolation: _generic_violation,
    QueueSizeViolation: _queue_size_violation,
    PayloadSizeViolation: _payload_size_violation,
    KeyRangeViolation: _key_range_violation,
}
"""Response bodies as seed 000 has them."""

CSHARP_ENCODERS: Final[BodyEncoders] = {
    DequeueResult: _dequeue_result_with_id,
    DequeueEmpty: _dequeue_empty,
    CountResult: _count_result,
    ListResult: _list_result,
    ErrorResult: _error_result_csharp,
    GenericViolation: _generic_violation,
    QueueSizeViolation: _queue_size_violation,
    PayloadSizeViolation: _payload_size_violation_csharp,
    KeyRangeViolation: _key_range_violation_csharp,
}
"""Response bodies as the original program has them; its ParameterError is a packet of its own."""


# --- seed 001 -----------------------------------------------------------------------------------------------


def _framed_error(code: int, text: str) -> bytes:
    return b"E" + code.to_bytes(1, "big") + write_text(text)


def _framed_error_result(reply: ErrorResult | ParameterError) -> bytes:
    default = _FRAMED_ERROR_TEXTS.get(ErrorCode(reply.code)) if reply.code in (1, 2) else None
    if default is None:
        return _framed_error(ErrorCode.UNKNOWN, reply.details or f"error {reply.code}")
    return _framed_error(reply.code, reply.details or default)


def _framed_payload_size_violation(reply: PayloadSizeViolation) -> bytes:
    return _framed_error(ErrorCode.UNKNOWN, f"a payload of this queue has at most {reply.payload_bytes_max} bytes")


def _framed_key_range_violation(reply: KeyRangeViolation) -> bytes:
    return _framed_error(ErrorCode.UNKNOWN, f"a key of this queue lies in {reply.key_min}..{reply.key_max}")


FRAMED_ENCODERS: Final[BodyEncoders] = {
    Ok: lambda _reply: b"e\x01",
    EnqueueResult: lambda reply: b"e\x01" if reply.added else b"e\x00",
    QueueSizeViolation: lambda _reply: b"e\x00",
    DequeueResult: _dequeue_result,
    DequeueEmpty: _dequeue_empty,
    CountResult: _count_result,
    ErrorResult: _framed_error_result,
    ParameterError: _framed_error_result,
    GenericViolation: lambda reply: _framed_error(ErrorCode.UNKNOWN, reply.message),
    PayloadSizeViolation: _framed_payload_size_violation,
    KeyRangeViolation: _framed_key_range_violation,
    NoResult: lambda _reply: b"",
}
"""Response bodies as seed 001 has them, without their length."""


def framed_response_bytes_max(limits: Limits) -> int:
    """Length of the longest body that a response of seed 001 can have."""
    return 1 + 1 + 8 + 4 + max(limits.payload_bytes_max, limits.text_bytes_max)


def decode_framed_response(data: bytes, limits: Limits) -> CommandResponse:
    """Decode the response of seed 001 that fills `data` exactly."""
    if not data:
        return NoResult()
    reader = Reader(data)
    code = reader.byte("response")
    reply: CommandResponse
    if code == ord("e"):
        reply = EnqueueResult(reader.byte("success") != 0)
    elif code == ord("d"):
        reply = _read_framed_record(reader, limits) if reader.byte("success") else DequeueEmpty()
    elif code == ord("c"):
        reply = CountResult(reader.int32("count"))
    elif code == ord("E"):
        reply = ErrorResult(reader.byte("error type"), reader.text(limits.text_bytes_max, "message"))
    else:
        raise UnknownCommand("response", code)
    reader.finish()
    return reply


def _read_framed_record(reader: Reader, limits: Limits) -> DequeueResult:
    key = reader.int64("key")
    length = reader.int32("payload")
    if length < 0:
        raise NegativeLength("payload", length)
    if length > limits.payload_bytes_max:
        raise PayloadTooLong(length, limits.payload_bytes_max)
    return DequeueResult(key, reader.take(length, "payload"))

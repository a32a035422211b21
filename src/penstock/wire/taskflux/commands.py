"""Bodies of commands, in the form of seed 000 (no length, QueueName) and of seed 001 (length-framed, String).

What belongs here: the bytes of one command, both directions.

A decoder of the 000 form looks at a buffer that may end anywhere. It answers with the command and the offset after
it, or with a bare number: so many bytes, counted from `start`, must be there before it is worth trying again. That
number is always larger than what is there, and a length is checked as soon as it can be read.

    000   'E' QueueName Int64 Buffer                                      Enqueue
          'D' QueueName UInt32                                            Dequeue
          'C' QueueName                                                   Count
          'Q' QueueName Int32 Int32 Int32 Bool [Int64 Int64]              Create Queue
          'R' QueueName                                                   Delete Queue
          'L'                                                             List Queues
    001   'E' String Int64 Buffer | 'D' String | 'C' String
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from penstock.wire.taskflux.errors import NegativeLength, PayloadTooLong, UnknownCommand
from penstock.wire.taskflux.fields import INT64, INT64_PAIR, UINT32, Reader, write_buffer, write_queue_name
from penstock.wire.taskflux.messages import (
    Command,
    Count,
    CreateQueue,
    DeleteQueue,
    Dequeue,
    Enqueue,
    Limits,
    ListQueues,
)

Decoded: TypeAlias = tuple[Command, int] | int
"""A command and the offset after it, or how many bytes from the start are needed."""

_KEY_AND_LENGTH: Final = Struct(">qi")
_LIMITS_AND_PRESENCE: Final = Struct(">iii?")

_ENQUEUE: Final = ord("E")
_DEQUEUE: Final = ord("D")
_COUNT: Final = ord("C")
_CREATE: Final = ord("Q")
_DELETE: Final = ord("R")
_LIST: Final = ord("L")


# --- seed 000 -----------------------------------------------------------------------------------------------


def decode_command(data: bytes, start: int, limits: Limits) -> Decoded:
    """Decode the command body of seed 000 that begins at `start`, where at least one byte must be."""
    decoder = _DECODERS.get(data[start])
    if decoder is None:
        raise UnknownCommand("command", data[start])
    return decoder(data, start, limits)


def _decode_enqueue(data: bytes, start: int, limits: Limits) -> Decoded:
    available = len(data) - start
    if available < 2:
        return 2
    after_name = start + 2 + data[start + 1]
    header_bytes = after_name + 12 - start
    if available < header_bytes:
        return header_bytes
    key, length = _KEY_AND_LENGTH.unpack_from(data, after_name)
    if length < 0:
        raise NegativeLength("payload", length)
    if length > limits.payload_bytes_max:
        raise PayloadTooLong(length, limits.payload_bytes_max)
    if available < header_bytes + length:
        return header_bytes + int(length)
    end = after_name + 12 + length
    return Enqueue(data[start + 2 : after_name], key, data[after_name + 12 : end]), end


def _decode_dequeue(data: bytes, start: int, _limits: Limits) -> Decoded:
    available = len(data) - start
    if available < 2:
        return 2
    after_name = start + 2 + data[start + 1]
    if available < after_name + 4 - start:
        return after_name + 4 - start
    return Dequeue(data[start + 2 : after_name], UINT32.unpack_from(data, after_name)[0]), after_name + 4


def _decode_count(data: bytes, start: int, _limits: Limits) -> Decoded:
    name = _decode_only_name(data, start)
    return name if isinstance(name, int) else (Count(name), start + 2 + len(name))


def _decode_delete(data: bytes, start: int, _limits: Limits) -> Decoded:
    name = _decode_only_name(data, start)
    return name if isinstance(name, int) else (DeleteQueue(name), start + 2 + len(name))


def _decode_only_name(data: bytes, start: int) -> bytes | int:
    available = len(data) - start
    if available < 2:
        return 2
    needed = 2 + data[start + 1]
    return data[start + 2 : start + needed] if available >= needed else needed


def _decode_create(data: bytes, start: int, _limits: Limits) -> Decoded:
    available = len(data) - start
    if available < 2:
        return 2
    after_name = start + 2 + data[start + 1]
    end = after_name + 13
    if available < end - start:
        return end - start
    implementation, queue_size_max, payload_bytes_max, ranged = _LIMITS_AND_PRESENCE.unpack_from(data, after_name)
    key_range: tuple[int, int] | None = None
    if ranged:
        end += 16
        if available < end - start:
            return end - start
        key_min, key_max = INT64_PAIR.unpack_from(data, end - 16)
        key_range = (key_min, key_max)
    name = data[start + 2 : after_name]
    return CreateQueue(name, implementation, queue_size_max, payload_bytes_max, key_range), end


def _decode_list(_data: bytes, start: int, _limits: Limits) -> Decoded:
    return ListQueues(), start + 1


_DECODERS: Final[dict[int, Callable[[bytes, int, Limits], Decoded]]] = {
    _ENQUEUE: _decode_enqueue,
    _DEQUEUE: _decode_dequeue,
    _COUNT: _decode_count,
    _CREATE: _decode_create,
    _DELETE: _decode_delete,
    _LIST: _decode_list,
}

COMMAND_CODES: Final = frozenset(_DECODERS)
"""First bytes of the commands of seed 000."""


def _encode_enqueue(command: Enqueue) -> bytes:
    head = _KEY_AND_LENGTH.pack(command.key, len(command.payload))
    return b"E" + write_queue_name(command.queue) + head + command.payload


def _encode_dequeue(command: Dequeue) -> bytes:
    return b"D" + write_queue_name(command.queue) + UINT32.pack(command.timeout_ms)


def _encode_count(command: Count) -> bytes:
    return b"C" + write_queue_name(command.queue)


def _encode_create(command: CreateQueue) -> bytes:
    ranged = command.key_range is not None
    limits = _LIMITS_AND_PRESENCE.pack(
        command.implementation, command.queue_size_max, command.payload_bytes_max, ranged
    )
    key_range = INT64_PAIR.pack(*command.key_range) if command.key_range is not None else b""
    return b"Q" + write_queue_name(command.queue) + limits + key_range


def _encode_delete(command: DeleteQueue) -> bytes:
    return b"R" + write_queue_name(command.queue)


def _encode_list(_command: ListQueues) -> bytes:
    return b"L"


COMMAND_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    Enqueue: _encode_enqueue,
    Dequeue: _encode_dequeue,
    Count: _encode_count,
    CreateQueue: _encode_create,
    DeleteQueue: _encode_delete,
    ListQueues: _encode_list,
}
"""Body of each command in seed 000's form. Raise struct.error or ValueError for values that do not fit."""


# --- seed 001 -----------------------------------------------------------------------------------------------


def framed_body_bytes_max(limits: Limits) -> int:
    """Length of the longest body that a command of seed 001 can have."""
    return 1 + 4 + limits.name_bytes_max + 8 + 4 + limits.payload_bytes_max


def decode_framed_command(data: bytes, start: int, end: int, limits: Limits) -> Command:
    """Decode the command of seed 001 that fills `data[start:end]` exactly."""
    reader = Reader(data, start, end, origin=start)
    code = reader.byte("command")
    command: Command
    if code == _ENQUEUE:
        queue = reader.buffer(limits.name_bytes_max, "queue name")
        key = reader.int64("key")
        length = reader.int32("payload")
        if length > limits.payload_bytes_max:
            raise PayloadTooLong(length, limits.payload_bytes_max)
        if length < 0:
            raise NegativeLength("payload", length)
        command = Enqueue(queue, key, reader.take(length, "payload"))
    elif code == _DEQUEUE:
        command = Dequeue(reader.buffer(limits.name_bytes_max, "queue name"), 0)
    elif code == _COUNT:
        command = Count(reader.buffer(limits.name_bytes_max, "queue name"))
    else:
        raise UnknownCommand("command", code)
    reader.finish()
    return command


def _encode_framed_enqueue(command: Enqueue) -> bytes:
    return b"E" + write_buffer(command.queue) + INT64.pack(command.key) + write_buffer(command.payload)


def _encode_framed_dequeue(command: Dequeue) -> bytes:
    if command.timeout_ms:
        raise ValueError("a Dequeue of seed 001 does not wait: its timeout must be 0")
    return b"D" + write_buffer(command.queue)


def _encode_framed_count(command: Count) -> bytes:
    return b"C" + write_buffer(command.queue)


FRAMED_COMMAND_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    Enqueue: _encode_framed_enqueue,
    Dequeue: _encode_framed_dequeue,
    Count: _encode_framed_count,
}
"""Body of each command in seed 001's form, without its length. Raise as those above."""

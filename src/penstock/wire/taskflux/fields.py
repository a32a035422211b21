"""The basic types of the TaskFlux protocols, and what makes a queue name valid.

What belongs here: integers (big-endian), String, Buffer, QueueName; how they are written, and a Reader that takes
them from a body that is wholly there.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from penstock.wire.taskflux.errors import FieldTooLong, MalformedBody, NegativeLength

INT32: Final = Struct(">i")
UINT32: Final = Struct(">I")
INT64: Final = Struct(">q")
INT32_PAIR: Final = Struct(">ii")
INT64_PAIR: Final = Struct(">qq")

INT32_MAX: Final = 2**31 - 1
QUEUE_NAME_BYTES_MAX: Final = 255

_valid_name = re.compile(rb"[!-~]{0,255}\Z").match


def valid_queue_name(name: bytes) -> bool:
    """Tell whether `name` may name a queue: at most 255 bytes, each in 33..126. The empty name is the default queue."""
    return _valid_name(name) is not None


def write_queue_name(name: bytes) -> bytes:
    """QueueName: one byte of length, then the name, which is not judged. Raises ValueError above 255 bytes."""
    return len(name).to_bytes(1, "big") + name if len(name) <= QUEUE_NAME_BYTES_MAX else _refuse_name(name)


def write_buffer(data: bytes) -> bytes:
    """Buffer, and also String when `data` is UTF-8: Int32 length, then the bytes."""
    return INT32.pack(len(data)) + data


def write_text(text: str) -> bytes:
    """String: Int32 length in bytes, then UTF-8. What UTF-8 cannot hold becomes a question mark."""
    return write_buffer(text.encode("utf-8", "replace"))


def decode_text(data: bytes, offset: int) -> str:
    """The text of a String that was read at `offset`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"text is not UTF-8: {error.reason}", offset + error.start) from None


def checked_length(length: int, length_max: int, field: str) -> int:
    """Return `length` if it lies in 0..length_max, else raise the error that names the field."""
    if 0 <= length <= length_max:
        return length
    if length < 0:
        raise NegativeLength(field, length)
    raise FieldTooLong(field, length, length_max)


def _refuse_name(name: bytes) -> bytes:
    raise ValueError(f"a queue name has at most {QUEUE_NAME_BYTES_MAX} bytes, not {len(name)}")


class Reader:
    """Takes fields one after another from `data[offset:end]`, and never reads beyond `end`.

    Raises MalformedBody with the offset at which a field does not fit, counted from `origin`.
    """

    __slots__ = ("_data", "_end", "_origin", "offset")

    def __init__(self, data: bytes, offset: int = 0, end: int | None = None, origin: int = 0) -> None:
        self._data = data
        self._origin = origin
        self._end = len(data) if end is None else end
        self.offset = offset

    @property
    def remaining_bytes(self) -> int:
        """How many bytes are left."""
        return self._end - self.offset

    def take(self, count: int, field: str) -> bytes:
        """The next `count` bytes."""
        return self._data[self._advance(count, field) : self.offset]

    def byte(self, field: str) -> int:
        """An unsigned byte."""
        return self._data[self._advance(1, field)]

    def int32(self, field: str) -> int:
        """An Int32."""
        value: int = INT32.unpack_from(self._data, self._advance(4, field))[0]
        return value

    def uint32(self, field: str) -> int:
        """A UInt32."""
        value: int = UINT32.unpack_from(self._data, self._advance(4, field))[0]
        return value

    def int64(self, field: str) -> int:
        """An Int64."""
        value: int = INT64.unpack_from(self._data, self._advance(8, field))[0]
        return value

    def queue_name(self) -> bytes:
        """A QueueName; its bytes are not judged."""
        return self.take(self.byte("queue name"), "queue name")

    def buffer(self, length_max: int, field: str) -> bytes:
        """The bytes of a Buffer or String of at most `length_max` bytes."""
        return self.take(checked_length(self.int32(field), length_max, field), field)

    def text(self, length_max: int, field: str) -> str:
        """The text of a String of at most `length_max` bytes."""
        data = self.buffer(length_max, field)
        return decode_text(data, self.offset - len(data) - self._origin)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.offset != self._end:
            raise MalformedBody(f"{self._end - self.offset} bytes follow the last field", self.offset - self._origin)

    def _advance(self, count: int, field: str) -> int:
        """Step over `count` bytes and return where they begin."""
        start = self.offset
        if self._end - start < count:
            raise MalformedBody(f"{field} needs {count} bytes, {self._end - start} are left", start - self._origin)
        self.offset = start + count
        return start

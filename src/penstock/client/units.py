"""Seconds and dates of this package's users, milliseconds and microseconds of the wire; payloads and headers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from penstock.engine.commands import DURATION_MS_MAX

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a timedelta."""
Payload: TypeAlias = bytes | bytearray | memoryview | str
"""What a record carries; text is sent as UTF-8."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_encode = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(dict[str, str] | None).decode


def to_ms(duration: Seconds) -> int:
    """Milliseconds, rounded; what is more than nothing is at least one, since 0 has a meaning of its own."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds * 1000 <= DURATION_MS_MAX:
        raise ValueError(f"a duration lies between 0 and {DURATION_MS_MAX // 1000} seconds, not {duration!r}")
    return max(1, round(seconds * 1000)) if seconds else 0


def to_ms_or_none(duration: Seconds | None) -> int | None:
    """As ``to_ms``; None stays None."""
    return None if duration is None else to_ms(duration)


def to_us(moment: datetime) -> int:
    """Microseconds since 1970. A date without a time zone is refused rather than guessed at."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    return max(1, (moment - _EPOCH) // _MICROSECOND)


def to_datetime(time_us: int) -> datetime:
    """The moment of a time on the wire, in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def to_datetime_or_none(time_us: int) -> datetime | None:
    """As ``to_datetime``; 0 on the wire means that there is none."""
    return to_datetime(time_us) if time_us else None


def to_bytes(payload: Payload) -> bytes:
    """A payload as bytes."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    # Not bytes(payload): that makes zeros of a number and bytes of a list.
    raise TypeError(f"a payload must be str, bytes, bytearray or memoryview, not {type(payload).__name__}")


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Headers as they travel: a MessagePack map of strings to strings."""
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"headers map strings to strings, not {name!r} to {value!r}")
    return _encode(dict(headers))


def decode_headers(data: bytes) -> dict[str, str]:
    """Headers as they came; none where there are none."""
    return (_decode_headers(data) or {}) if data else {}

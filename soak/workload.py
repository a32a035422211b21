"""What is put. Everything about a message follows from its producer and number, so any copy can be checked whole."""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct(">HI")
_FILLER: Final = bytes(range(256)) * 40
_LONG_EVERY: Final = 211
_LONG_BYTES: Final = 9000


def key_of(producer: int, number: int) -> int:
    """A message's key: few different ones, so that many share each, and now and then one from all over Int64."""
    mixed = (number * 0x9E3779B97F4A7C15 + producer * 0x632BE5AB) & (2**64 - 1)
    if number % 13 == 0:
        return mixed - 2**63
    return (mixed >> 40) % 7 - 3


def payload_of(producer: int, number: int) -> bytes:
    """A message's payload: its name, then bytes that follow from it."""
    length = _LONG_BYTES if number % _LONG_EVERY == 0 else number * 31 % 240
    start = (number + producer) % 256
    return _HEAD.pack(producer, number) + _FILLER[start : start + length]


def name_of(payload: bytes, key: int) -> tuple[int, int] | None:
    """Producer and number of a message, or None if it is not, byte for byte, what was put."""
    if len(payload) < _HEAD.size:
        return None
    producer, number = _HEAD.unpack_from(payload)
    if payload != payload_of(producer, number) or key != key_of(producer, number):
        return None
    return producer, number

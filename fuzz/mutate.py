"""Making bad inputs out of good ones, the same ones for the same seed.

What belongs here: the mutations. Each takes bytes and a random generator and returns bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal

INPUT_BYTES_MAX: Final = 64 * 1024
"""No input grows beyond this, however often it is doubled."""

_MUTATIONS_MAX: Final = 6
_NUMBERS: Final = (0, 1, 2, 3, 4, 7, 8, 16, 32, 64, 127, 128, 255, 256, 4096, 65535, 65536, 2**24, 2**31 - 1, 2**31)


def mutate(random: Random, corpus: Sequence[bytes]) -> bytes:
    """One input: a member of the corpus with one to a few mutations."""
    data = random.choice(corpus)
    for _ in range(random.randint(1, _MUTATIONS_MAX)):
        data = random.choice(_MUTATIONS)(random, data, corpus)
    return data[:INPUT_BYTES_MAX]


def _flip_bit(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _set_byte(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + random.choice((b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", random.randbytes(1))) + data[at + 1 :]


def _insert(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.randbytes(random.choice((1, 1, 1, 2, 4, 8, 100))) + data[at:]


def _delete(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + data[at + random.choice((1, 1, 1, 2, 4, 8, 100)) :]


def _truncate(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    return data[: random.randint(0, len(data))]


def _double_slice(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    start = random.randint(0, len(data))
    end = random.randint(start, len(data))
    return data[:end] + data[start:end] + data[end:]


def _splice(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = random.choice(corpus)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _edit_number(random: Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    """Overwrite what may be a length or a count: an edge value, one near the input's own length, or the old one ± 1."""
    width = random.choice((1, 4, 4, 4, 8))
    if len(data) < width:
        return data
    at = random.randint(0, len(data) - width)
    order: Literal["big", "little"] = random.choice(("big", "big", "little"))
    old = int.from_bytes(data[at : at + width], order)
    near = len(data) + random.randint(-16, 16)
    value = random.choice((random.choice(_NUMBERS), -random.choice(_NUMBERS), near, old + 1, old - 1))
    written: bytes = (value % 2 ** (8 * width)).to_bytes(width, order)
    return data[:at] + written + data[at + width :]


_MUTATIONS: Final[tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...]] = (
    _flip_bit,
    _set_byte,
    _insert,
    _delete,
    _truncate,
    _double_slice,
    _splice,
    _edit_number,
    _edit_number,
)

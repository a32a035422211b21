"""The receive buffer: whatever the pieces, the bytes come out as they went in."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.taskflux.buffer import ReceiveBuffer


@given(st.lists(st.one_of(st.binary(max_size=9), st.integers(1, 12)), max_size=60))
def test_takes_give_back_what_was_fed_in_order(steps: list[bytes | int]) -> None:
    """A step is a piece to feed, or how many bytes to take if so many are there."""
    buffer = ReceiveBuffer()
    model = b""
    for step in steps:
        if isinstance(step, bytes):
            buffer.feed(step)
            model += step
        elif buffer.size >= step:
            assert buffer.take(step) == model[:step]
            model = model[step:]
        assert buffer.size == len(model)
    assert buffer.take(buffer.size) == model


def test_many_tiny_pieces_do_not_keep_an_object_each() -> None:
    buffer = ReceiveBuffer()
    piece_count = 100_000
    for number in range(piece_count):
        buffer.feed(b"%02d" % (number % 100))
    pieces = buffer._pieces
    kept_bytes = sys.getsizeof(pieces) + sum(map(sys.getsizeof, pieces))
    assert kept_bytes < 1.5 * buffer.size
    assert buffer.take(buffer.size) == b"".join(b"%02d" % (number % 100) for number in range(piece_count))


def test_clear_forgets_everything() -> None:
    buffer = ReceiveBuffer()
    for piece in (b"abc", b"def", b"ghi"):
        buffer.feed(piece)
    buffer.needed = 7
    buffer.clear()
    assert (buffer.size, buffer.needed) == (0, 1)
    buffer.feed(b"xyz")
    assert buffer.take(3) == b"xyz"

"""Basic types and queue names."""

from __future__ import annotations

import pytest

from penstock.wire.taskflux.errors import MalformedBody
from penstock.wire.taskflux.fields import Reader, valid_queue_name, write_text


def test_each_byte_of_a_name_lies_in_33_to_126() -> None:
    for byte in range(256):
        assert valid_queue_name(bytes((byte,))) == (33 <= byte <= 126)
        assert valid_queue_name(b"ab" + bytes((byte,))) == (33 <= byte <= 126)


@pytest.mark.parametrize(("length", "valid"), [(0, True), (1, True), (255, True), (256, False), (4096, False)])
def test_a_name_has_at_most_255_bytes(length: int, valid: bool) -> None:
    assert valid_queue_name(b"n" * length) is valid


def test_reader_stays_within_its_bounds_and_counts_offsets_from_its_origin() -> None:
    reader = Reader(b"..ab..", 2, 4, origin=2)
    assert reader.byte("first") == ord("a")
    with pytest.raises(MalformedBody) as raised:
        reader.int32("number")
    assert raised.value.offset == 1
    with pytest.raises(MalformedBody, match="1 bytes follow"):
        reader.finish()
    assert reader.take(1, "rest") == b"b"
    reader.finish()


def test_text_that_utf_8_cannot_hold_is_still_written() -> None:
    assert write_text("a\udc80b") == bytes.fromhex("00000003") + b"a?b"

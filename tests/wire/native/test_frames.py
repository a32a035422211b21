"""Frames that come in pieces: nothing is lost, and many small pieces cost little more than their bytes."""

from __future__ import annotations

from penstock.wire.native.frames import FRAME_BYTES_MAX, FrameReader, encode_frame


def test_a_frame_that_comes_byte_by_byte_is_kept_in_few_pieces() -> None:
    body = bytes(range(256)) * 20
    frame = encode_frame(7, 9, body)
    reader = FrameReader(FRAME_BYTES_MAX)
    pieces_max = 0
    for position in range(len(frame) - 1):
        assert not list(reader.feed(frame[position : position + 1]))
        pieces_max = max(pieces_max, len(reader._pieces))
    assert reader.kept_bytes == len(frame) - 1
    assert pieces_max < 300
    assert [tuple(each) for each in reader.feed(frame[-1:])] == [(7, 9, body)]
    assert reader.kept_bytes == 0


def test_the_number_of_a_half_request_is_known_once_its_header_has_come() -> None:
    frame = encode_frame(7, 9, b"body")
    reader = FrameReader(FRAME_BYTES_MAX)
    for position in range(len(frame) - 1):
        list(reader.feed(frame[position : position + 1]))
        assert reader.half_request() == (9 if position + 1 >= len(frame) - len(b"body") else None)

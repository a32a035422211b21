"""A snapshot in pieces: the blocks that were written, however it is cut, or an error; never a block that was not."""

from __future__ import annotations

import pytest

from penstock.storage.snapshot import SnapshotEncoder
from penstock.wire.native.errors import BadSnapshot
from penstock.wire.native.snapshots import SnapshotDecoder

BLOCKS = [b"head", b"x" * 300, b"\0", bytes(range(256)) * 3]
INDEX = 1234


def whole() -> bytes:
    encoder = SnapshotEncoder(INDEX, 7)
    return b"".join([encoder.header, *map(encoder.block, BLOCKS), encoder.end()])


def decode(data: bytes, step: int, index: int = INDEX) -> tuple[list[bytes], bool]:
    decoder = SnapshotDecoder(index)
    found = [block for start in range(0, len(data), step) for block in decoder.feed(data[start : start + step])]
    return found, decoder.is_whole


@pytest.mark.parametrize("step", [1, 7, 64, 5_000])
def test_pieces_of_any_length_give_the_blocks(step: int) -> None:
    assert decode(whole(), step) == (BLOCKS, True)


def test_no_part_is_taken_for_the_whole() -> None:
    data = whole()
    for length in range(len(data)):
        found, is_whole = decode(data[:length], 100)
        assert found == BLOCKS[: len(found)]
        assert not is_whole


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    data = whole()
    for position in range(len(data)):
        spoiled = data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :]
        try:
            found, is_whole = decode(spoiled, 1_000)
        except BadSnapshot:
            continue
        # A longer length is waited for in vain; the reader sees that the bytes end.
        assert found == BLOCKS[: len(found)]
        assert not is_whole


def test_blocks_lost_or_doubled_are_noticed() -> None:
    encoder = SnapshotEncoder(INDEX, 7)
    parts = [encoder.header, *map(encoder.block, BLOCKS), encoder.end()]
    for wrong in ([*parts[:2], *parts[3:]], [*parts[:3], parts[2], *parts[3:]]):
        with pytest.raises(BadSnapshot, match="does not agree"):
            decode(b"".join(wrong), 50)


def test_the_snapshot_of_another_index_is_refused() -> None:
    with pytest.raises(BadSnapshot, match="of index 1234, not of 5"):
        decode(whole(), 50, index=5)

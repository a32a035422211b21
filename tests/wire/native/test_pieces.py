"""Pieces of the history: every byte that is wrong and every cut is told, and what is right is found."""

from __future__ import annotations

from array import array
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.journal import ROW_BYTES
from penstock.storage import journalfile, records
from penstock.wire.native import pieces
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import BlockSpan, check_piece, read_offsets, spans

FIRST = 41
ENTRIES = [b"one", b"a longer one" * 20, b"three", b"4"]
FILE_OFFSET = 1_000
"""Where in its file the first record lies."""


def make_piece(mark_behind: int | None = 2) -> JournalPiece:
    """Four entries with events of two, and a mark behind one of them."""
    row = bytes(range(ROW_BYTES))
    blocks = journalfile.encode_block(FIRST, FIRST + 1, row * 3, ROW_BYTES)
    blocks += journalfile.encode_block(FIRST + 2, FIRST + 3, b"", ROW_BYTES)
    parts = [records.encode_record(FIRST + number, 7, entry, -1) for number, entry in enumerate(ENTRIES)]
    if mark_behind is not None:
        parts[mark_behind] += records.encode_mark(FIRST + mark_behind, 7, -1)
    offsets = array("q", accumulate(map(len, parts), initial=FILE_OFFSET))
    return JournalPiece(FIRST, FIRST + 3, blocks, offsets.tobytes(), b"".join(parts))


def test_the_layouts_are_those_of_the_files() -> None:
    assert pieces.BLOCK.format == journalfile.BLOCK.format
    assert pieces.RECORD.format == records.RECORD.format


def test_what_a_node_wrote_is_right() -> None:
    piece = make_piece()
    check_piece(piece)
    head, size = journalfile.BLOCK_HEADER_BYTES, 3 * ROW_BYTES
    assert list(spans(piece.blocks)) == [
        BlockSpan(FIRST, FIRST + 1, head, head + size),
        BlockSpan(FIRST + 2, FIRST + 3, 2 * head + size, 2 * head + size),
    ]
    offsets = read_offsets(piece)
    assert len(offsets) == len(ENTRIES) + 1
    assert offsets[0] == FILE_OFFSET
    check_piece(msgspec.structs.replace(piece, offsets=b"", log=b""))
    check_piece(msgspec.structs.replace(piece, blocks=b""))


@pytest.mark.parametrize("part", ["blocks", "log"])
def test_every_wrong_bit_is_told_with_its_place(part: str) -> None:
    piece = make_piece(mark_behind=None)
    data = getattr(piece, part)
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            with pytest.raises(BadPiece) as caught:
                check_piece(msgspec.structs.replace(piece, **{part: bytes(changed)}))
            assert caught.value.part == part
            assert caught.value.at <= at


def test_a_mark_is_no_entry_and_is_not_looked_at() -> None:
    piece = make_piece(mark_behind=2)
    end_of_third = read_offsets(piece)[3] - FILE_OFFSET
    changed = bytearray(piece.log)
    changed[end_of_third - 1] ^= 1
    check_piece(msgspec.structs.replace(piece, log=bytes(changed)))


@pytest.mark.parametrize("part", ["blocks", "log", "offsets"])
def test_every_cut_is_told(part: str) -> None:
    piece = make_piece()
    data = getattr(piece, part)
    whole_blocks = {block.end for block in spans(piece.blocks)}
    for size in range(1, len(data)):
        if part == "blocks" and size in whole_blocks:
            continue  # a piece with fewer blocks; whoever reads it sees that they do not cover it
        with pytest.raises(BadPiece):
            check_piece(msgspec.structs.replace(piece, **{part: data[:size]}))


def test_a_piece_of_nothing_is_told() -> None:
    with pytest.raises(BadPiece, match="covers no entry"):
        check_piece(JournalPiece(FIRST, FIRST - 1, b"", b"", b""))


def test_entries_under_other_numbers_are_told() -> None:
    piece = make_piece()
    with pytest.raises(BadPiece, match=f"no record of entry {FIRST + 1}"):
        check_piece(msgspec.structs.replace(piece, first_index=FIRST + 1, last_index=FIRST + 4))


@given(st.integers(0, 5), st.integers(-1, 5), st.binary(max_size=200), st.binary(max_size=64), st.binary(max_size=200))
def test_junk_is_told_and_nothing_else_happens(
    first: int, count: int, blocks: bytes, offsets: bytes, log: bytes
) -> None:
    piece = JournalPiece(first, first + count, blocks, offsets, log)
    if blocks or offsets or log:
        with pytest.raises(BadPiece):
            check_piece(piece)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5))
def test_offsets_that_lead_anywhere_are_told(offsets: list[int]) -> None:
    piece = make_piece()
    with pytest.raises(BadPiece):
        check_piece(msgspec.structs.replace(piece, offsets=array("q", offsets).tobytes()))

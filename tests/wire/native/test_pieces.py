"""Pieces of the history: every byte that is wrong and every cut is told, and what is right is found."""

from __future__ import annotations

import random
from array import array
from itertools import accumulate

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.journal import ROW_BYTES
from penstock.spark.source.heads import check_heads
from penstock.storage import journalfile, records
from penstock.wire.native import pieces
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import (
    CHUNK_BYTES,
    SUM_BYTES,
    BlockSpan,
    HeadsCheck,
    check_each_head,
    check_piece,
    read_offsets,
    spans,
)

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


# Checksums of chunks.

CHECKS = pytest.mark.parametrize("check", [check_each_head, check_heads], ids=["plain", "numpy"])


def with_sums(piece: JournalPiece) -> JournalPiece:
    """The same piece with the checksums of its chunks."""
    start = read_offsets(piece)[0]
    first, end = -(-start // CHUNK_BYTES), (start + len(piece.log)) // CHUNK_BYTES
    chunks = [piece.log[number * CHUNK_BYTES - start :][:CHUNK_BYTES] for number in range(first, end)]
    return msgspec.structs.replace(piece, sums=array("I", map(crc32c, chunks)).tobytes())


def long_piece(entry_bytes: int = 300) -> JournalPiece:
    """Entries over five chunks, of which the first and the last are not whole."""
    parts = [records.encode_record(FIRST + number, 7, b"x" * entry_bytes, -1) for number in range(1_000)]
    offsets = array("q", accumulate(map(len, parts), initial=FILE_OFFSET))
    return with_sums(JournalPiece(FIRST, FIRST + len(parts) - 1, b"", offsets.tobytes(), b"".join(parts)))


@CHECKS
def test_records_in_good_chunks_are_not_checked_one_by_one(check: HeadsCheck) -> None:
    piece = long_piece()
    check_piece(piece, check)
    assert len(piece.sums) == 4 * SUM_BYTES
    log = bytearray(piece.log)
    log[CHUNK_BYTES * 2 - FILE_OFFSET + 16] ^= 1  # in the bytes of an entry, in the third chunk of the file
    changed = msgspec.structs.replace(piece, log=bytes(log))
    with pytest.raises(BadPiece, match="wrong checksum of entry"):
        check_piece(changed, check)
    check_piece(with_sums(changed), check)


@CHECKS
def test_every_flip_is_told_with_checksums_of_chunks_too(check: HeadsCheck) -> None:
    piece, chance = long_piece(), random.Random(1)
    for part in ("log", "offsets"):
        data = getattr(piece, part)
        for _ in range(300):
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            with pytest.raises(BadPiece):
                check_piece(msgspec.structs.replace(piece, **{part: bytes(changed)}), check)


@CHECKS
def test_wrong_checksums_of_chunks_are_not_believed_against_the_records(check: HeadsCheck) -> None:
    piece = long_piece()
    for at in range(len(piece.sums)):
        changed = bytearray(piece.sums)
        changed[at] ^= 1
        check_piece(msgspec.structs.replace(piece, sums=bytes(changed)), check)
    for size in range(len(piece.sums)):
        check_piece(msgspec.structs.replace(piece, sums=piece.sums[:size]), check)
    check_piece(msgspec.structs.replace(piece, sums=piece.sums * 5), check)
    check_piece(msgspec.structs.replace(piece, sums=bytes(len(piece.sums))), check)


@CHECKS
@pytest.mark.parametrize("entry_bytes", [1, 70_000, 200_000])
def test_records_of_any_length_have_checksums_of_chunks(check: HeadsCheck, entry_bytes: int) -> None:
    count = max(3, 400_000 // (entry_bytes + records.RECORD_HEADER_BYTES))
    parts = [records.encode_record(FIRST + number, 7, b"y" * entry_bytes, -1) for number in range(count)]
    offsets = array("q", accumulate(map(len, parts), initial=FILE_OFFSET))
    piece = with_sums(JournalPiece(FIRST, FIRST + count - 1, b"", offsets.tobytes(), b"".join(parts)))
    check_piece(piece, check)
    for at in range(0, len(piece.log), 29_989):
        changed = bytearray(piece.log)
        changed[at] ^= 4
        with pytest.raises(BadPiece):
            check_piece(msgspec.structs.replace(piece, log=bytes(changed)), check)


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

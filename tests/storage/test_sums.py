"""Checksums by chunks: made from what is written, used where they are right, and never believed against a record."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.heads import check_heads
from penstock.storage.errors import UnreadableData
from penstock.storage.layout import Layout
from penstock.storage.pieces import Events, read_piece
from penstock.storage.reading import MemorySource
from penstock.storage.segmentfiles import closing_index, sealed_segment
from penstock.storage.store import StoreSettings
from penstock.storage.sums import LONG_BYTES, RunningSums, first_wrong_chunk, load_sums, read_sums
from penstock.storage.verify import verify
from penstock.wire.native.errors import BadPiece
from penstock.wire.native.messages import JournalPiece
from penstock.wire.native.pieces import (
    CHUNK_BYTES,
    LENGTH_END,
    RECORD,
    SUM_BYTES,
    HeadsCheck,
    check_each_head,
    check_piece,
    read_offsets,
)
from tests.storage.support import entries, open_store, rows_of

SETTINGS = StoreSettings(segment_bytes=280_000, reserve_bytes=0)
CHECKS = pytest.mark.parametrize("check", [check_each_head, check_heads], ids=["plain", "numpy"])


def test_the_first_chunk_that_differs_from_its_sum_is_found_and_unknown_sums_are_passed_over() -> None:
    data = bytes(3 * CHUNK_BYTES)
    sums = sums_of(data)
    damaged = data[: 2 * CHUNK_BYTES] + b"x" + data[2 * CHUNK_BYTES + 1 :]
    assert first_wrong_chunk(MemorySource(data), sums) is None
    assert first_wrong_chunk(MemorySource(damaged), sums) == 2
    sums[2] = 0
    assert first_wrong_chunk(MemorySource(damaged), sums) is None


def sums_of(data: bytes) -> array[int]:
    return array("I", [crc32c(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)])


@given(st.lists(st.integers(1, LONG_BYTES - 1), max_size=12), st.integers(0, 255))
def test_running_sums_are_those_of_the_bytes_however_they_come(sizes: list[int], fill: int) -> None:
    running, whole = RunningSums(), b""
    for number, size in enumerate(sizes):
        data = bytes([fill ^ number]) * size
        running.feed(data)
        whole += data
    assert running.all() == sums_of(whole)
    assert running.closed == sums_of(whole)[: len(whole) // CHUNK_BYTES]


def test_chunks_of_a_long_write_are_unknown_and_others_are_right() -> None:
    running = RunningSums()
    parts = [b"a" * 1000, b"b" * LONG_BYTES, b"c" * (3 * CHUNK_BYTES // 2)]
    for part in parts:
        running.feed(part)
    whole = sums_of(b"".join(parts))
    assert running.all()[:3] == array("I", [0, 0, 0])
    assert running.all()[3:] == whole[3:]


def make(path: Path, count: int = 4_000) -> Layout:
    """Some sealed segments with short records, written in batches and with marks, and one restart."""
    store, _ = open_store(path, SETTINGS)
    for first in range(0, count, 10):
        if first == count // 2:
            store.close()
            store, recovered = open_store(path, SETTINGS)
            assert list(recovered.entries)[-1][0] == first - 1
            for index in range(recovered.journal_last_index + 1, first):
                store.journal_append(index, rows_of(index))
        store.append([(index, term, data * 3) for index, term, data in entries(first, first + 10)])
        store.sync()
        if first % 50 == 0:
            store.mark()
        for index in range(first, first + 10):
            store.journal_append(index, rows_of(index))
    store.close()
    return Layout(path)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return make(tmp_path_factory.mktemp("sums"))


def test_every_sealed_segment_has_the_sums_of_its_file(layout: Layout) -> None:
    sealed = layout.sealed_first_indexes()
    assert len(sealed) > 2
    for first in sealed:
        log = layout.sealed_log(first).read_bytes()
        assert load_sums(layout, first) == sums_of(log)
        assert read_sums(layout.sealed_sums(first).read_bytes(), layout.sealed_sums(first))[:2] == (first, len(log))
    assert verify(layout.data_dir).ok


def test_dropping_entries_takes_their_sums_back(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, SETTINGS)
    store.append(entries(0, 3_000))
    store.truncate_from(700)
    store.append(entries(700, 5_000))
    store.close()
    layout = Layout(tmp_path)
    assert len(layout.sealed_first_indexes()) > 0
    for first in layout.sealed_first_indexes():
        assert load_sums(layout, first) == sums_of(layout.sealed_log(first).read_bytes())


def test_sums_that_do_not_fit_are_found_by_verify_and_not_used(tmp_path: Path) -> None:
    layout = make(tmp_path)
    first = layout.sealed_first_indexes()[0]
    path = layout.sealed_sums(first)
    data = path.read_bytes()
    chance = random.Random(1)
    for _ in range(50):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        assert load_sums(layout, first) is None
        assert [problem.file for problem in verify(tmp_path).problems] == [path]


# Pieces.


def raw_piece(layout: Layout) -> JournalPiece:
    """Most of the first segment's log; it begins and ends inside of chunks."""
    first = layout.sealed_first_indexes()[0]
    last = closing_index(layout, first)
    records = sealed_segment(layout, first, last).records
    return read_piece(Events([], layout.sealed_events(first)), records, first + 7, last - 5, 1 << 30, True)


@CHECKS
def test_a_flip_in_a_sealed_log_is_found_with_sums_too(tmp_path: Path, check: HeadsCheck) -> None:
    layout = make(tmp_path)
    path = layout.sealed_log(layout.sealed_first_indexes()[0])
    whole = raw_piece(layout)
    assert len(whole.sums) >= 3 * SUM_BYTES
    check_piece(whole, check)
    data, chance = path.read_bytes(), random.Random(2)
    found = 0
    for _ in range(200):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            read = raw_piece(layout)
            check_piece(read, check)
        except (BadPiece, UnreadableData):
            found += 1
        else:
            assert entries_in(read) == entries_in(whole)  # in a mark, or around the piece
    assert found > 150


def entries_in(piece: JournalPiece) -> list[bytes]:
    offsets = read_offsets(piece)
    return [
        piece.log[
            start - offsets[0] : start - offsets[0] + LENGTH_END + RECORD.unpack_from(piece.log, start - offsets[0])[1]
        ]
        for start in offsets[:-1]
    ]

"""The journal: blocks cut at the same rows whatever happens between them, sealed with the log's segments, rebuilt."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import journalfile
from penstock.storage.journal import BLOCK_LOG_BYTES, BLOCK_ROWS, JournalGap
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import (
    ROW_BYTES,
    SMALL,
    all_rows,
    close_as_if_killed,
    entries,
    joined,
    open_store,
    replay,
    rows_of,
    take_snapshot,
    write,
)

WIDE = StoreSettings(segment_bytes=1 << 20, reserve_bytes=0)
WIDEST = StoreSettings(segment_bytes=1 << 23, reserve_bytes=0)


def blocks_of(path: Path) -> list[tuple[int, int, int]]:
    """First index, last index and number of rows of each block."""
    with FileSource(path) as source:
        return [
            (block.first_index, block.last_index, block.row_count) for block in journalfile.iterate_blocks(source, path)
        ]


def many_rows(index: int, count: int) -> bytes:
    return b"".join(struct.pack("<QQ", index, number) for number in range(count))


def journal_files(path: Path) -> dict[str, bytes]:
    layout = Layout(path)
    return {file.name: file.read_bytes() for file in [*sorted(layout.archive.glob("*.events")), layout.live_events]}


def test_a_block_is_closed_at_the_first_entry_that_fills_it(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, WIDE)
    counts = [0, 500, 11, 1, 0, 0, 1300, 0, 512, 3]
    store.append([(index, 1, b"x") for index in range(len(counts))])
    for index, count in enumerate(counts):
        store.journal_append(index, many_rows(index, count))
    assert blocks_of(Layout(tmp_path).live_events) == [(0, 3, 512), (4, 6, 1300), (7, 8, 512)]
    assert joined(store.journal_rows(0, 99)) == joined(many_rows(index, count) for index, count in enumerate(counts))
    store.close()


def write_long(store: Store, first: int, end: int) -> None:
    """Entries of 300 KB with one row each, as a node writes them."""
    for index in range(first, end):
        data = bytes([index]) * 300_000
        store.append([(index, 1, data)])
        store.sync()
        store.journal_append(index, many_rows(index, 1), len(data))


def test_a_block_is_closed_at_the_first_entry_that_makes_its_log_long(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, WIDEST)
    write_long(store, 0, 10)
    assert blocks_of(Layout(tmp_path).live_events) == [(0, 3, 4), (4, 7, 4)]
    store.close()


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_blocks_with_a_long_log_are_the_same_after_any_restart(tmp_path: Path, with_snapshot: bool) -> None:
    """Where a block ends depends on the log alone, not on when the node was stopped or which rows it found again."""
    store, _ = open_store(tmp_path / "whole", WIDEST)
    write_long(store, 0, 10)
    store.close()
    whole = journal_files(tmp_path / "whole")
    for stopped_at in range(1, 10):
        path = tmp_path / f"stopped{stopped_at}"
        store, _ = open_store(path, WIDEST)
        write_long(store, 0, stopped_at)
        store.mark()  # marks differ between nodes, so they must not count
        if with_snapshot:
            take_snapshot(store, stopped_at - 1)
        store.close()
        store, recovered = open_store(path, WIDEST)
        assert recovered.notes == []
        for index, _, data in recovered.entries:
            store.journal_append(index, many_rows(index, 1), len(data))
        write_long(store, stopped_at, 10)
        assert joined(store.journal_rows(0, 9)) == joined(many_rows(index, 1) for index in range(10))
        store.close()
        assert journal_files(path) == whole


def test_a_journal_from_before_blocks_were_cut_by_their_log_goes_on(tmp_path: Path) -> None:
    """Its blocks cover any length of log, and none says why it was closed."""
    store, _ = open_store(tmp_path, WIDEST)
    for index in range(6):
        store.append([(index, 1, bytes([index]) * 600_000)])
        store.journal_append(index, many_rows(index, 200))  # without the length, as it was counted then
    assert blocks_of(Layout(tmp_path).live_events) == [(0, 2, 600), (3, 5, 600)]
    store.close()
    store, recovered = open_store(tmp_path, WIDEST)
    assert recovered.notes == []
    assert recovered.journal_last_index == 5
    write_long(store, 6, 11)
    assert blocks_of(Layout(tmp_path).live_events) == [(0, 2, 600), (3, 5, 600), (6, 9, 4)]
    assert len(joined(store.journal_rows(0, 10))) == (1200 + 5) * ROW_BYTES
    store.close()


def test_rows_can_be_asked_for_by_any_range(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 250)
    assert len(Layout(tmp_path).sealed_first_indexes()) > 4
    for first in range(0, 260, 13):
        for last in (first, first + 1, first + 40, 249, 1000):
            assert joined(store.journal_rows(first, last)) == all_rows(first, min(last, 249) + 1)
    for piece in store.journal_rows(0, 249):
        assert len(piece) % ROW_BYTES == 0
    store.close()


def test_rows_are_settled_by_the_call_and_read_while_the_journal_goes_on(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write(store, 0, 100)
    unused = store.journal_rows(0, 500)
    rows = store.journal_rows(0, 500)
    write(store, 100, 200)
    assert joined(rows) == all_rows(0, 100)
    del unused
    store.close()


def test_the_journal_passes_to_the_next_segment_when_its_entries_are_applied(tmp_path: Path) -> None:
    """The log may be segments ahead: entries are appended first and applied when they are committed."""
    ahead, _ = open_store(tmp_path / "ahead")
    ahead.append(entries(0, 200))
    segments = Layout(tmp_path / "ahead").sealed_first_indexes()
    assert len(segments) > 3
    assert list(Layout(tmp_path / "ahead").archive.glob("*.events")) == []
    for index in range(200):
        ahead.journal_append(index, rows_of(index))
    ahead.close()
    beside, _ = open_store(tmp_path / "beside")
    write(beside, 0, 200)
    beside.close()
    assert journal_files(tmp_path / "ahead") == journal_files(tmp_path / "beside")


def test_what_comes_again_is_passed_over_and_what_is_missing_is_refused(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.append(entries(0, 10))
    store.journal_append(0, rows_of(0))
    store.journal_append(1, rows_of(1))
    store.journal_append(1, rows_of(1))
    store.journal_append(0, b"")
    with pytest.raises(ValueError, match="after 1"):
        store.journal_append(3, rows_of(3))
    with pytest.raises(ValueError, match="15 bytes"):
        store.journal_append(2, b"x" * 15)
    assert joined(store.journal_rows(0, 9)) == all_rows(0, 2)
    assert store.journal_last_index == 1
    store.close()


def test_a_journal_ahead_of_the_log_is_cut_back(tmp_path: Path) -> None:
    """The log lost its unsynced end and the journal did not, as a power cut may leave them in mode interval or none."""
    store, _ = open_store(tmp_path, replace(WIDE, is_durable=False))
    write(store, 0, 100)
    layout = Layout(tmp_path)
    log = layout.log.read_bytes()
    write(store, 100, 300)
    last_block = blocks_of(layout.live_events)[-1]
    assert last_block[1] > 100
    close_as_if_killed(store)
    layout.log.write_bytes(log)
    store, recovered = open_store(tmp_path, WIDE)
    assert recovered.journal_last_index <= 99
    assert replay(store, recovered) == entries(0, 100)
    assert joined(store.journal_rows(0, 500)) == all_rows(0, 100)
    write(store, 100, 300)
    store.close()
    reference, _ = open_store(tmp_path / "reference", WIDE)
    write(reference, 0, 300)
    reference.close()
    assert journal_files(tmp_path) == journal_files(tmp_path / "reference")


def test_rows_in_memory_at_a_snapshot_come_back_from_the_tail(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, WIDE)
    write(store, 0, 75)
    take_snapshot(store, 74)
    store.close()
    assert blocks_of(Layout(tmp_path).live_events)[-1][1] < 74
    store, recovered = open_store(tmp_path, WIDE)
    assert recovered.journal_last_index == 74
    assert recovered.journal_gap is None
    assert joined(store.journal_rows(0, 99)) == all_rows(0, 75)
    store.close()


@pytest.mark.parametrize("lost", ["live.events", "tail", "both"])
def test_rows_before_the_snapshot_that_are_lost_are_reported_as_a_gap(tmp_path: Path, lost: str) -> None:
    store, _ = open_store(tmp_path, WIDE)
    write(store, 0, 140)
    take_snapshot(store, 139)
    write(store, 140, 145)
    store.close()
    layout = Layout(tmp_path)
    if lost in ("live.events", "both"):
        layout.live_events.unlink()
    if lost in ("tail", "both"):
        layout.tail.unlink()
    store, recovered = open_store(tmp_path, WIDE)
    gap = recovered.journal_gap
    assert gap is not None
    assert gap.last_index == 139
    assert str(gap) in recovered.notes
    assert (gap.first_index == 0) == (lost != "tail")
    assert replay(store, recovered) == entries(140, 145)
    write(store, 145, 220)
    expected = all_rows(0, gap.first_index) + all_rows(140, 220)
    assert joined(store.journal_rows(0, 219)) == expected
    store.close()
    store, recovered = open_store(tmp_path, WIDE)
    assert recovered.journal_gap is None, "the journal has gone on behind the gap"
    replay(store, recovered)
    assert joined(store.journal_rows(0, 219)) == expected
    store.close()


def test_a_block_damaged_before_the_snapshot_is_a_gap_and_after_it_is_written_again(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, WIDE)
    write(store, 0, 110)
    take_snapshot(store, 109)
    write(store, 110, 400)
    store.close()
    layout = Layout(tmp_path)
    original = layout.live_events.read_bytes()
    blocks = blocks_of(layout.live_events)
    before = original.index(rows_of(20))
    after = original.index(rows_of(200))
    for position, gapless in ((after, True), (before, False)):
        data = bytearray(original)
        data[position] ^= 1
        layout.live_events.write_bytes(data)
        store, recovered = open_store(tmp_path, WIDE)
        assert (recovered.journal_gap is None) == gapless
        replay(store, recovered)
        store.close()
        if gapless:
            assert layout.live_events.read_bytes() == original
        else:
            assert recovered.journal_gap == JournalGap(blocks[0][0], 109)


def test_rows_of_another_length_start_the_live_journal_anew(tmp_path: Path) -> None:
    """A release with longer rows: what the live file holds cannot be gone on with."""
    store, _ = open_store(tmp_path, WIDE)
    write(store, 0, 100)
    store.close()
    store, recovered = Store.open(tmp_path, row_bytes=32, new_cluster_id=bytes(16), node_id=7, settings=WIDE)
    assert recovered.journal_gap is None
    for index, _, _ in recovered.entries:
        store.journal_append(index, struct.pack("<Q24x", index))
    assert len(joined(store.journal_rows(0, 99))) == 100 * 32
    store.close()


Run = tuple[int, int, float | None, bool]
"""How many entries, in batches of how many, a snapshot where along them (or none), and whether it ends properly."""

RUNS = st.lists(
    st.tuples(st.integers(0, 120), st.integers(1, 60), st.none() | st.floats(0, 1), st.booleans()), max_size=6
)


@given(RUNS)
def test_the_journal_is_the_same_bytes_however_often_the_node_starts(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run]
) -> None:
    path = tmp_path_factory.mktemp("journal")
    end = 0
    for count, batch, snapshot_at, properly in [*runs, (40, 1, None, True)]:
        store, recovered = open_store(path, SMALL)
        replay(store, recovered)
        assert store.last_index == end - 1
        write(store, end, end + count, batch=batch)
        end += count
        if snapshot_at is not None and end:
            oldest = max(store.snapshot_index, 0)
            take_snapshot(store, oldest + round((end - 1 - oldest) * snapshot_at))
        assert joined(store.journal_rows(0, end)) == all_rows(0, end)
        if properly:
            store.close()
        else:
            store._log.close(sync=False)
            store._journal.close()
            store._lock.release()
    assert journal_files(path) == _reference(tmp_path_factory, end)


_references: dict[int, dict[str, bytes]] = {}


def _reference(tmp_path_factory: pytest.TempPathFactory, end: int) -> dict[str, bytes]:
    if end not in _references:
        path = tmp_path_factory.mktemp("reference")
        store, _ = open_store(path, SMALL)
        write(store, 0, end)
        store.close()
        _references[end] = journal_files(path)
    return _references[end]


def test_a_block_has_512_rows_or_a_mebibyte_of_log() -> None:
    """Part of the format: another number would make journals that differ between nodes."""
    assert BLOCK_ROWS == 512
    assert BLOCK_LOG_BYTES == 1024 * 1024

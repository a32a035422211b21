"""A segment goes when a snapshot covers it and it is old or the archive large; never before, and the oldest first."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import (
    FAR_FUTURE_US,
    SMALL,
    all_rows,
    entries,
    joined,
    open_store,
    replay,
    rows_of,
    stamp_us,
    take_snapshot,
    write,
)

HOUR_US = 3_600_000_000
ENTRIES = 250
NOW_US = stamp_us(ENTRIES)
FOREVER = 1 << 40


def filled(path: Path, *, hours: float = 10, size: int = FOREVER, snapshot: int | None = 249) -> Store:
    """A store with a handful of sealed segments, and two snapshots, the older one at `snapshot`."""
    settings = replace(SMALL, retention_hours=hours, retention_bytes=size)
    store, _ = open_store(path, settings)
    write(store, 0, ENTRIES)
    if snapshot is not None:
        take_snapshot(store, snapshot)
        take_snapshot(store, ENTRIES - 1)
    return store


def hours_since_sealed(path: Path, position: int) -> float:
    """The age of a segment: the log time since the first entry of the next one."""
    return (NOW_US - stamp_us(segments(path)[position + 1])) / HOUR_US


def segments(path: Path) -> list[int]:
    return Layout(path).sealed_first_indexes()


def archive_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in Layout(path).archive.iterdir())


def test_old_segments_go_and_their_journals_with_them(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = segments(tmp_path)
    assert len(before) >= 6
    hours = hours_since_sealed(tmp_path, len(before) - 3) + 0.1
    store, _ = open_store(tmp_path, replace(SMALL, retention_hours=hours))
    retired = store.run_retention(NOW_US)
    assert retired == before[:-3]
    assert segments(tmp_path) == before[-3:]
    assert sorted(int(path.stem) for path in Layout(tmp_path).archive.glob("*.events")) == before[-3:]
    assert store.first_index == before[-3]
    assert store.run_retention(NOW_US) == []
    assert list(store.read(store.first_index, 249)) == entries(store.first_index, 250)
    with pytest.raises(ValueError, match="gone"):
        list(store.read(0, 10))
    assert store.term_of(0) is None
    assert joined(store.journal_rows(0, 249)) == all_rows(store.first_index, 250)
    store.close()
    store, recovered = open_store(tmp_path)
    assert store.first_index == before[-3]
    assert replay(store, recovered) == []
    store.close()


def test_without_a_snapshot_nothing_goes(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=0, size=0, snapshot=None)
    before = segments(tmp_path)
    assert store.run_retention(NOW_US) == []
    assert segments(tmp_path) == before
    store.close()


def test_what_follows_the_older_snapshot_stays(tmp_path: Path) -> None:
    """So that a newest snapshot that is damaged later is no loss."""
    store, _ = open_store(tmp_path, replace(SMALL, retention_hours=0, retention_bytes=0))
    write(store, 0, ENTRIES)
    cuts = segments(tmp_path)
    take_snapshot(store, cuts[3])
    assert store.run_retention(FAR_FUTURE_US) == [], "the first snapshot has none before it"
    take_snapshot(store, ENTRIES - 1)
    assert store.run_retention(FAR_FUTURE_US) == cuts[:3]
    store.close()
    layout = Layout(tmp_path)
    store, _ = open_store(tmp_path)
    assert (store.older_snapshot_index, store.snapshot_index) == (cuts[3], ENTRIES - 1)
    store.close()
    layout.older_snapshot.replace(layout.snapshot)
    store, recovered = open_store(tmp_path)
    assert list(recovered.entries) == entries(cuts[3] + 1, ENTRIES)
    store.close()


def test_a_segment_that_the_older_snapshot_covers_in_part_stays(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    filled(path).close()
    cuts = segments(path)
    for snapshot, gone in ((cuts[3] - 1, cuts[:3]), (cuts[3] - 2, cuts[:2]), (cuts[3], cuts[:3])):
        store = filled(tmp_path / str(snapshot), hours=0, size=0, snapshot=snapshot)
        assert store.run_retention(NOW_US) == gone
        store.close()
        store, recovered = open_store(tmp_path / str(snapshot))
        assert replay(store, recovered) == []
        store.close()


def test_a_large_archive_loses_its_oldest_segments_whatever_their_age(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=1000, size=20_000)
    before = segments(tmp_path)
    assert archive_bytes(tmp_path) > 20_000
    retired = store.run_retention(NOW_US)
    assert retired
    assert retired == before[: len(retired)]
    assert archive_bytes(tmp_path) <= 20_000
    store.close()


def test_a_named_reader_holds_old_segments_but_not_a_large_archive(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=0, size=32_000)
    before = segments(tmp_path)
    store.hold("spark", before[1])
    store.hold("backup", before[3] + 5)
    retired = store.run_retention(NOW_US)
    assert retired == before[: len(retired)]
    assert len(retired) > 1, "the size limit is stronger than the hold"
    assert archive_bytes(tmp_path) <= 32_000
    left = segments(tmp_path)
    assert left, "what the hold and the size allow stays, however old"
    store.release("spark")
    store.release("spark")
    store.hold("backup", left[1] + 1)
    assert store.run_retention(NOW_US) == left[:1]
    store.release("backup")
    assert store.run_retention(NOW_US) == left[1:]
    assert segments(tmp_path) == []
    store.close()


def test_a_segment_stays_until_the_journal_has_passed_it(tmp_path: Path) -> None:
    """The snapshot alone does not make it superfluous: rows of its entries may still be in memory."""
    settings = StoreSettings(segment_bytes=4096, reserve_bytes=0, retention_hours=0, retention_bytes=0)
    store, _ = open_store(tmp_path, settings)
    store.append(entries(0, 250))
    cuts = segments(tmp_path)
    for index in range(cuts[2]):
        store.journal_append(index, rows_of(index))
    take_snapshot(store, cuts[2] - 1)
    take_snapshot(store, cuts[2] - 1)
    assert store.run_retention(NOW_US) == cuts[:1]
    store.journal_append(cuts[2], rows_of(cuts[2]))
    assert store.run_retention(NOW_US) == cuts[1:2]
    store.close()


def test_after_a_jump_of_the_clock_ages_count_from_the_jump(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=168)
    before = segments(tmp_path)
    jumped_us = NOW_US + 8 * 24 * HOUR_US
    assert store.run_retention(jumped_us, kept_since_us=jumped_us) == []
    week_later_us = jumped_us + 168 * HOUR_US
    assert store.run_retention(week_later_us, kept_since_us=jumped_us) == []
    assert store.run_retention(week_later_us + 1, kept_since_us=jumped_us) == before
    store.close()


def test_after_a_jump_the_size_limit_still_holds(tmp_path: Path) -> None:
    store = filled(tmp_path, size=20_000)
    jumped_us = NOW_US + 8 * 24 * HOUR_US
    assert store.run_retention(jumped_us, kept_since_us=jumped_us)
    assert archive_bytes(tmp_path) <= 20_000
    store.close()


@pytest.mark.parametrize("position", [0, 2])
def test_a_segment_removed_by_hand_is_reported_once_and_retention_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, position: int
) -> None:
    store = filled(tmp_path, hours=10_000)
    before = segments(tmp_path)
    Layout(tmp_path).sealed_log(before[position]).unlink()
    with caplog.at_level(logging.ERROR):
        assert store.run_retention(NOW_US) == []
        assert store.run_retention(NOW_US) == []
    (message,) = [record.message for record in caplog.records]
    assert message.startswith(f"{Layout(tmp_path).sealed_log(before[position])} is gone")
    assert store.first_index == before[position + 1]
    assert store.run_retention(FAR_FUTURE_US) == before
    assert list(Layout(tmp_path).archive.iterdir()) == []
    store.close()


def test_the_age_is_read_from_the_first_entry_also_if_that_is_long(tmp_path: Path) -> None:
    """What cannot be read at once, or at all, must not make a segment old."""
    store, _ = open_store(tmp_path, replace(SMALL, retention_hours=1))
    for index in range(6):
        store.append([(index, 1, (index * HOUR_US).to_bytes(8, "little") + bytes(100_000))])
        store.sync()
        store.journal_append(index, b"")
    take_snapshot(store, 5)
    take_snapshot(store, 5)
    assert segments(tmp_path) == [0, 1, 2, 3, 4]
    Layout(tmp_path).sealed_log(4).write_bytes(b"damaged")
    assert store.run_retention(4 * HOUR_US + 1) == [0, 1, 2]
    assert store.run_retention(5 * HOUR_US + 1) == []
    assert store.run_retention(6 * HOUR_US + 1) == [3, 4]
    store.close()

"""A segment goes when a snapshot covers it and it is old or the archive large; never before, and the oldest first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.storage.layout import Layout
from penstock.storage.store import Store, StoreSettings
from tests.storage.support import all_rows, entries, joined, open_store, replay, rows_of, take_snapshot, write

HOUR_S = 3600.0
NOW_S = 1_900_000_000.0
FOREVER = 1 << 40


def filled(path: Path, *, hours: float = 10, size: int = FOREVER, snapshot: int | None = 249) -> Store:
    """A store with a handful of sealed segments, one hour old each more than the next."""
    settings = StoreSettings(segment_bytes=4096, reserve_bytes=0, retention_hours=hours, retention_bytes=size)
    store, _ = open_store(path, settings)
    write(store, 0, 250)
    if snapshot is not None:
        take_snapshot(store, snapshot)
    layout = Layout(path)
    for age, first in enumerate(reversed(layout.sealed_first_indexes())):
        modified = NOW_S - (age + 0.5) * HOUR_S
        os.utime(layout.sealed_log(first), (modified, modified))
    return store


def segments(path: Path) -> list[int]:
    return Layout(path).sealed_first_indexes()


def archive_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in Layout(path).archive.iterdir())


def test_old_segments_go_and_their_journals_with_them(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=3)
    before = segments(tmp_path)
    assert len(before) >= 6
    retired = store.run_retention(NOW_S)
    assert retired == before[:-3]
    assert segments(tmp_path) == before[-3:]
    assert sorted(int(path.stem) for path in Layout(tmp_path).archive.glob("*.events")) == before[-3:]
    assert store.first_index == before[-3]
    assert store.run_retention(NOW_S) == []
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
    assert store.run_retention(NOW_S) == []
    assert segments(tmp_path) == before
    store.close()


def test_a_segment_that_the_snapshot_covers_in_part_stays(tmp_path: Path) -> None:
    path = tmp_path / "probe"
    filled(path).close()
    cuts = segments(path)
    for snapshot, gone in ((cuts[3] - 1, cuts[:3]), (cuts[3] - 2, cuts[:2]), (cuts[3], cuts[:3])):
        store = filled(tmp_path / str(snapshot), hours=0, size=0, snapshot=snapshot)
        assert store.run_retention(NOW_S) == gone
        store.close()
        store, recovered = open_store(tmp_path / str(snapshot))
        assert replay(store, recovered) == entries(snapshot + 1, 250)
        store.close()


def test_a_large_archive_loses_its_oldest_segments_whatever_their_age(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=1000, size=20_000)
    before = segments(tmp_path)
    assert archive_bytes(tmp_path) > 20_000
    retired = store.run_retention(NOW_S)
    assert retired
    assert retired == before[: len(retired)]
    assert archive_bytes(tmp_path) <= 20_000
    store.close()


def test_a_named_reader_holds_old_segments_but_not_a_large_archive(tmp_path: Path) -> None:
    store = filled(tmp_path, hours=0, size=32_000)
    before = segments(tmp_path)
    store.hold("spark", before[1])
    store.hold("backup", before[3] + 5)
    retired = store.run_retention(NOW_S)
    assert retired == before[: len(retired)]
    assert len(retired) > 1, "the size limit is stronger than the hold"
    assert archive_bytes(tmp_path) <= 32_000
    left = segments(tmp_path)
    assert left, "what the hold and the size allow stays, however old"
    store.release("spark")
    store.release("spark")
    store.hold("backup", left[1] + 1)
    assert store.run_retention(NOW_S) == left[:1]
    store.release("backup")
    assert store.run_retention(NOW_S) == left[1:]
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
    assert store.run_retention(NOW_S) == cuts[:1]
    store.journal_append(cuts[2], rows_of(cuts[2]))
    assert store.run_retention(NOW_S) == cuts[1:2]
    store.close()

"""2,000 flipped bits in each kind of file, through a real start: never served as data.

Metadata and snapshot are refused. A journal is cut at the damaged block and written again from the log, to the same
bytes. (``test_scan`` has the flips in the log and in sealed segments; here some of them go through a whole start.)
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.errors import Damaged, UnreadableData
from penstock.storage.layout import Layout
from penstock.storage.metadata import load_metadata
from penstock.storage.snapshot import SnapshotReader
from penstock.storage.verify import verify
from tests.storage.support import all_rows, entries, files_of, joined, open_store, replay, take_snapshot, write

LAST, SNAPSHOT = 159, 150
FLIPS = 2000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with archive, snapshot, journal with full and open blocks, and a tail."""
    path = tmp_path_factory.mktemp("good")
    store, _ = open_store(path)
    write(store, 0, SNAPSHOT + 1)
    take_snapshot(store, SNAPSHOT)
    write(store, SNAPSHOT + 1, LAST + 1)
    store.mark()
    store.save_metadata(4, 2)
    store.close()
    assert verify(path).ok
    return path


def flips(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """The data with one bit changed, at so many places."""
    chance = random.Random(seed)
    for _ in range(count):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        yield bytes(flipped)


def copy_of(good: Path, tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(good, target)
    return target


def test_every_flip_in_the_metadata_is_refused(good: Path, tmp_path: Path) -> None:
    layout = Layout(copy_of(good, tmp_path))
    for flipped in flips(layout.metadata.read_bytes(), FLIPS, 1):
        layout.metadata.write_bytes(flipped)
        with pytest.raises(UnreadableData) as caught:
            load_metadata(layout)
        assert caught.value.file == layout.metadata


def test_every_flip_in_the_snapshot_is_refused(good: Path, tmp_path: Path) -> None:
    path = Layout(copy_of(good, tmp_path)).snapshot
    for flipped in flips(path.read_bytes(), FLIPS, 2):
        path.write_bytes(flipped)
        with pytest.raises(UnreadableData) as caught:
            list(SnapshotReader(path))
        assert caught.value.file == path


def test_a_flip_in_the_live_journal_is_cut_and_written_again(good: Path, tmp_path: Path) -> None:
    """Without a snapshot everything can be written again, whatever the flip hit."""
    source = tmp_path / "source"
    store, _ = open_store(source)
    write(store, 0, 20)
    for index in range(20, 33):
        store.append(entries(index, index + 1))
        store.journal_append(index, all_rows(index, index + 1) * 4)
    store.close()
    original = Layout(source).live_events.read_bytes()
    assert len(original) > 8192
    layout = Layout(copy_of(source, tmp_path))
    cut = 0
    for flipped in flips(original, FLIPS, 3):
        layout.live_events.write_bytes(flipped)
        store, recovered = open_store(layout.data_dir)
        assert recovered.journal_gap is None
        cut += recovered.journal_last_index < 20
        for index in range(33):
            rows = all_rows(index, index + 1)
            store.journal_append(index, rows if index < 20 else rows * 4)
        store.close()
        assert layout.live_events.read_bytes() == original
    assert cut > FLIPS // 2


def test_a_flip_in_a_sealed_journal_never_gives_other_rows(good: Path, tmp_path: Path) -> None:
    layout = Layout(copy_of(good, tmp_path))
    path = layout.sealed_events(layout.sealed_first_indexes()[1])
    store, recovered = open_store(layout.data_dir)
    replay(store, recovered)
    expected = all_rows(0, LAST + 1)
    assert joined(store.journal_rows(0, LAST)) == expected
    refused = 0
    for flipped in flips(path.read_bytes(), FLIPS, 4):
        path.write_bytes(flipped)
        try:
            rows = joined(store.journal_rows(0, LAST))
        except UnreadableData:
            refused += 1
        else:
            assert rows == expected
    assert refused > FLIPS * 9 // 10
    store.close()


def test_a_flip_in_the_tail_is_never_taken_for_rows(good: Path, tmp_path: Path) -> None:
    """The rows of the tail cannot be written again: a gap is reported, and nothing wrong is told."""
    gaps = 0
    for flipped in flips(Layout(good).tail.read_bytes(), 200, 5):
        path = copy_of(good, tmp_path)
        Layout(path).tail.write_bytes(flipped)
        store, recovered = open_store(path)
        replay(store, recovered)
        rows = joined(store.journal_rows(0, LAST))
        if recovered.journal_gap is None:
            assert rows == all_rows(0, LAST + 1)
        else:
            gaps += 1
            gap = recovered.journal_gap
            assert gap.last_index == SNAPSHOT
            assert rows == all_rows(0, gap.first_index) + all_rows(SNAPSHOT + 1, LAST + 1)
        store.close()
    assert gaps > 0


def test_flips_in_any_file_of_a_directory_are_found_by_verify(good: Path, tmp_path: Path) -> None:
    """But for a few bytes in the header of a journal, which has no checksum, every flip is a problem with its file."""
    path = copy_of(good, tmp_path)
    consensus = path / "consensus"
    chance = random.Random(6)
    missed: list[str] = []
    for _ in range(300):
        file = chance.choice([file for file in files_of(consensus) if file.stat().st_size])
        data = file.read_bytes()
        flipped = bytearray(data)
        position = chance.randrange(len(data))
        flipped[position] ^= 1 << chance.randrange(8)
        file.write_bytes(flipped)
        report = verify(path)
        if not report.problems:
            missed.append(f"{file.name} {position}")
        elif file.suffix != ".events":
            assert any(problem.file == file for problem in report.problems)
        file.write_bytes(data)
    assert all(".events" in name and 8 <= int(name.split()[1]) < 24 for name in missed)
    assert verify(path).ok


def test_flips_in_the_log_through_a_whole_start(good: Path, tmp_path: Path) -> None:
    """Refused, or everything is there."""
    refused = 0
    used = len(Layout(good).log.read_bytes().rstrip(b"\0"))
    for flipped in flips(Layout(good).log.read_bytes()[:used], 150, 7):
        path = copy_of(good, tmp_path)
        Layout(path).log.write_bytes(flipped + bytes(4096 - used))
        try:
            store, recovered = open_store(path)
        except UnreadableData as error:
            refused += 1
            message = str(error)
            assert str(Layout(path).log) in message
            continue
        assert list(recovered.entries) == entries(SNAPSHOT + 1, LAST + 1)
        store.close()
    assert refused > 100


def test_flips_in_sealed_segments_through_a_whole_replay(good: Path, tmp_path: Path) -> None:
    path = copy_of(good, tmp_path)
    Layout(path).snapshot.unlink()
    first = Layout(path).sealed_first_indexes()[1]
    sealed = Layout(path).sealed_log(first)
    original = sealed.read_bytes()
    for flipped in flips(original, 100, 8):
        sealed.write_bytes(flipped)
        with pytest.raises(UnreadableData):
            _replay_all(path)
        sealed.write_bytes(original)
    assert _replay_all(path) == entries(0, LAST + 1)


def _replay_all(path: Path) -> list[tuple[int, int, bytes]]:
    store, recovered = open_store(path)
    try:
        return list(recovered.entries)
    finally:
        store.close()


def test_the_damaged_error_names_file_offset_and_reason(good: Path, tmp_path: Path) -> None:
    layout = Layout(copy_of(good, tmp_path))
    data = bytearray(layout.snapshot.read_bytes())
    data[60] ^= 1
    layout.snapshot.write_bytes(data)
    with pytest.raises(Damaged) as caught:
        list(SnapshotReader(layout.snapshot))
    error = caught.value
    assert (error.file, error.offset, error.code) == (layout.snapshot, 48, "damaged")
    assert str(layout.snapshot) in str(error)
    assert "48" in str(error)
    assert "checksum" in str(error)

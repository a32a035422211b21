"""The history out of files: as it was written, to the byte, or an error that names the file; never wrong rows."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.engine import commands as c
from penstock.engine import snapshot as engine_snapshot
from penstock.engine.journal import ROW_BYTES
from penstock.engine.machine import Engine
from penstock.storage.errors import (
    Damaged,
    EntriesGone,
    EntriesLost,
    NewerVersion,
    NotADataDirectory,
    OlderVersion,
    StorageError,
    StorageFailed,
    WrongCluster,
    WrongMarker,
)
from penstock.storage.history import HistoryFiles
from penstock.storage.journal import BLOCK_ROWS
from penstock.storage.journalfile import iterate_blocks
from penstock.storage.layout import Layout
from penstock.storage.reading import FileSource
from penstock.storage.scan import scan_live, scan_sealed
from penstock.storage.segmenthead import SegmentHead, read_segment_head
from penstock.storage.verify import verify
from penstock.wire.native.messages import PIECE_BYTES_MAX
from tests.storage.comparing import assert_is_part, assert_is_true, fingerprint, read, snapshot_of
from tests.storage.histories import BEGAN_US, Truth, Writer
from tests.storage.support import CLUSTER_ID, FailingDisk, files_of

KILLED_TAIL = "tail-of-the-snapshot"
"""What a node that is killed leaves in place of the tail that one that stops writes."""


@cache
def made(tmp: Path) -> tuple[Path, Truth]:
    """A history of several segments with a snapshot in the middle, and queues made and deleted around it."""
    writer = Writer(tmp / "data")
    for name in ("jobs", "early"):
        writer.apply(c.CreateQueue(name, c.QueueSettings()))
    writer.apply(c.DeleteQueue("early"))
    writer.fill(36)
    writer.snapshot()
    tail = Layout(tmp / "data").tail.read_bytes()
    writer.apply(c.CreateQueue("late", c.QueueSettings()))
    writer.fill(31)
    writer.store.close()
    (tmp / "data" / KILLED_TAIL).write_bytes(tail)
    return tmp / "data", writer.truth


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    return made(tmp_path_factory.mktemp("history"))


@pytest.fixture
def data(original: tuple[Path, Truth], tmp_path: Path) -> tuple[Path, Truth]:
    """A copy that a test may spoil."""
    shutil.copytree(original[0], tmp_path / "data")
    return tmp_path / "data", original[1]


# Where it is found.


def as_data_dir(data: Path) -> Path:
    return data


def as_consensus(data: Path) -> Path:
    return Layout(data).consensus


def as_backup(data: Path) -> Path:
    return Path(shutil.copytree(Layout(data).consensus, data.parent / "backup-of-monday"))


def as_killed(data: Path) -> Path:
    (data / KILLED_TAIL).replace(Layout(data).tail)
    return data


def test_a_node_that_stopped_is_read_without_applying_its_log(
    data: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, truth = data
    monkeypatch.setattr(Engine, "apply", None)
    with HistoryFiles(path) as history:
        assert_is_true(history, truth)
    with HistoryFiles(as_killed(path)) as history, pytest.raises(TypeError):
        assert_is_true(history, truth)


@pytest.mark.parametrize("bytes_max", [1, 20_000, PIECE_BYTES_MAX])
@pytest.mark.parametrize("place", [as_data_dir, as_consensus, as_backup, as_killed])
def test_a_stopped_nodes_whole_history_is_read(
    data: tuple[Path, Truth], place: Callable[[Path], Path], bytes_max: int
) -> None:
    path, truth = data
    assert len(Layout(path).sealed_first_indexes()) > 3
    with HistoryFiles(place(path)) as history:
        reach = history.reach()
        assert (reach.first_index, reach.applied_index) == (0, len(truth.entries) - 1)
        assert reach.cluster == CLUSTER_ID.hex()
        assert reach.log_time_us == BEGAN_US + (len(truth.entries) - 1) * 1_000_000
        assert_is_true(history, truth, bytes_max)
        index, blocks = history.state()
        assert (index, list(blocks)) == (len(truth.entries) - 1, snapshot_of(truth.engine))


def as_folder(archive: Path) -> Path:
    return archive


def as_logs(archive: Path) -> list[Path]:
    return sorted(archive.glob("*.log"))


def as_everything(archive: Path) -> list[str]:
    return [str(path) for path in archive.iterdir()]


@pytest.mark.parametrize("place", [as_folder, as_logs, as_everything])
def test_sealed_segments_are_read_by_themselves(data: tuple[Path, Truth], place: Callable[[Path], Path]) -> None:
    path, truth = data
    with HistoryFiles(place(Layout(path).archive)) as history:
        reach = history.reach()
        assert reach.cluster == ""
        assert reach.first_index == 0
        first, rows, entries = read(history)
        assert (first, len(entries)) == (0, reach.applied_index + 1)
        assert entries == truth.entries[: len(entries)]
        assert rows == truth.all_rows(0, len(entries) - 1)
        index, blocks = history.state()
        assert index == reach.applied_index
        # The names that were given in these segments are known, the others are not.
        names = {"", "jobs", "early"} | ({"late"} if b"late" in b"".join(entries) else set())
        assert set(history.queue_names().values()) == names
        assert next(blocks)


def test_segments_in_the_middle_tell_their_events_and_no_state(data: tuple[Path, Truth]) -> None:
    path, truth = data
    logs = sorted(Layout(path).archive.glob("*.log"))[1:3]
    with HistoryFiles(logs) as history:
        assert history.reach().first_index == int(logs[0].stem)
        assert_is_part(history, truth)
        assert "jobs" not in history.queue_names().values()
        with pytest.raises(NotADataDirectory, match="the state cannot be told"):
            history.state()


def test_segments_with_a_hole_between_them_are_read_up_to_it_and_behind_it(data: tuple[Path, Truth]) -> None:
    """Who comes to the hole is told where it ends; nothing guesses at what was in it."""
    path, truth = data
    logs = sorted(Layout(path).archive.glob("*.log"))
    hole, behind = int(logs[1].stem), int(logs[2].stem)
    with HistoryFiles([logs[0], logs[2]]) as history:
        last = history.reach().applied_index
        with pytest.raises(EntriesGone, match=f"entry {hole} is gone, the history begins at {behind}") as caught:
            list(history.pieces(0, last))
        assert (caught.value.file, caught.value.wanted, caught.value.first_index) == (logs[2], hole, behind)
        for first, end in ((0, hole - 1), (behind, last)):
            _, rows, entries = read(history, first, end)
            assert (rows, entries) == (truth.all_rows(first, end), truth.entries[first : end + 1])
        for rows_max in (0, 1, 600):
            cuts = history.cuts(0, last, rows_max=rows_max)
            kept = truth.all_rows(0, hole - 1) + truth.all_rows(behind, last)
            assert sum(cut.rows for cut in cuts) == len(kept) // ROW_BYTES
            assert cuts[-1].last_index == last
        assert [cut.last_index for cut in history.cuts(hole, hole)] == [hole]
        assert history.entries([0, hole, behind]) == {index: truth.entries[index] for index in (0, behind)}
        for index in (hole - 1, hole, behind - 1, behind):
            # What was stamped in the hole is not known any more, so reading begins with it.
            found = history.find_time(BEGAN_US + index * 1_000_000)
            assert found == (hole if hole <= index <= behind else index)
        assert "jobs" in history.queue_names().values()
        with pytest.raises(NotADataDirectory, match=f"entries {hole} to {behind - 1} are missing before it"):
            history.state()


def test_segments_that_overlap_are_refused(data: tuple[Path, Truth]) -> None:
    first, second, *_ = sorted(Layout(data[0]).archive.glob("*.log"))
    inside = first.with_name(f"{int(second.stem) - 1:020d}.log")
    shutil.copy(second, inside)
    with pytest.raises(Damaged, match="the segment before it ends with") as caught:
        HistoryFiles([first, inside])
    assert caught.value.file == inside


def test_what_is_no_history_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotADataDirectory, match="does not exist"):
        HistoryFiles(tmp_path / "nowhere")
    with pytest.raises(NotADataDirectory, match="has neither"):
        HistoryFiles(tmp_path)
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    with pytest.raises(NotADataDirectory, match="twenty digits"):
        HistoryFiles([tmp_path / "notes.txt", tmp_path / "00000000000000000000.log"])


# The rest of the methods.


def test_names_are_those_of_the_snapshot_and_of_what_came_after(data: tuple[Path, Truth]) -> None:
    path, truth = data
    st = truth.engine.state
    expected = {uid: queue.name for uid, queue in st.by_uid.items()} | st.former_names
    assert set(expected.values()) == {"", "jobs", "early", "late"}
    with HistoryFiles(path) as history:
        assert history.queue_names() == expected


def test_entries_and_times_are_found(data: tuple[Path, Truth]) -> None:
    path, truth = data
    last = len(truth.entries) - 1
    with HistoryFiles(path) as history:
        assert history.entries([last, 0, 10**9, 7]) == {index: truth.entries[index] for index in (last, 0, 7)}
        assert history.find_time(0) == 0
        assert history.find_time(BEGAN_US + 5_000_001) == 6
        assert history.find_time(BEGAN_US + 10**12) == last + 1


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(600, 0), (0, 60_000), (1, 1), (0, 0)])
def test_cuts_are_consecutive_and_hold_what_they_say(data: tuple[Path, Truth], rows_max: int, bytes_max: int) -> None:
    path, truth = data
    last = len(truth.entries) - 1
    with HistoryFiles(path) as history:
        cuts = history.cuts(0, last, rows_max=rows_max, bytes_max=bytes_max)
        assert sum(cut.rows for cut in cuts) == len(truth.all_rows()) // ROW_BYTES
        assert sum(cut.bytes for cut in cuts) > len(truth.all_rows()) + sum(map(len, truth.entries))
        start = 0
        for cut in cuts:
            _, rows, _ = read(history, start, cut.last_index)
            assert len(rows) == cut.rows * ROW_BYTES
            assert rows == truth.all_rows(start, cut.last_index)
            start = cut.last_index + 1
        assert start == last + 1
        assert (len(cuts) == 1) == (not rows_max and not bytes_max)


def test_what_is_not_there_is_not_given(data: tuple[Path, Truth]) -> None:
    path, truth = data
    layout = Layout(path)
    firsts = layout.sealed_first_indexes()
    for suffix in ("log", "events", "offsets"):
        (layout.archive / f"{firsts[0]:020d}.{suffix}").unlink()
    with HistoryFiles(path) as history:
        assert history.reach().first_index == firsts[1]
        with pytest.raises(EntriesGone) as caught:
            next(history.pieces(0, 10))
        assert (caught.value.wanted, caught.value.first_index) == (0, firsts[1])
        with pytest.raises(EntriesGone):
            history.cuts(0, 10)
        with pytest.raises(ValueError, match="the last one is"):
            next(history.pieces(len(truth.entries), len(truth.entries) + 1))
        assert_is_part(history, truth)


# Nothing is touched.


def test_reading_writes_nothing_and_takes_no_lock(data: tuple[Path, Truth]) -> None:
    path, truth = data
    before = fingerprint(path)
    with HistoryFiles(path) as history:
        assert_is_true(history, truth)
        history.queue_names()
        history.state()
        assert fingerprint(path) == before
        Writer(path, truth).store.close()  # would be refused if somebody had the lock


# A node that runs.


def test_of_a_running_node_what_its_closed_blocks_hold_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    with HistoryFiles(tmp_path / "data") as history:
        assert history.reach().applied_index == -1  # all is in the node's memory
        counts = [0]
        for _ in range(6):
            writer.fill(8)
            counts.append(assert_is_part(history, writer.truth))
            assert counts[-1] <= len(writer.truth.entries)
        assert counts == sorted(counts)
        assert counts[-1] > counts[1] > 0
        writer.snapshot()  # with which the node saves what it has in memory
        assert assert_is_part(history, writer.truth) == len(writer.truth.entries)
        assert history.state()[0] == len(writer.truth.entries) - 1
        assert set(history.queue_names().values()) == {"", "jobs"}
        writer.fill(1)
        writer.store.close()
        assert assert_is_part(history, writer.truth) == len(writer.truth.entries)


def test_a_reader_waits_for_what_a_running_node_adds(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    writer.fill(10)
    with HistoryFiles(tmp_path / "data") as history:
        known = history.reach().applied_index
        assert history.reach(known, 0.01).applied_index == known
        writer.fill(10)
        assert history.reach(known, 30.0).applied_index > known
    writer.store.close()


def test_a_log_that_is_replaced_while_it_is_read_is_told_and_can_be_read_again(data: tuple[Path, Truth]) -> None:
    """As a node does that starts meanwhile and goes on in a new file."""
    path, truth = data
    log = Layout(path).log
    with HistoryFiles(path) as history:
        shutil.copy(log, log.with_suffix(".copy"))
        log.with_suffix(".copy").replace(log)
        with pytest.raises(Damaged, match="read it again"):
            history.cuts(0, len(truth.entries))
        assert_is_true(history, truth)


# What a crash leaves.


def test_events_that_were_in_memory_are_found_again(data: tuple[Path, Truth]) -> None:
    """However much of the journal's live file is left, and whatever is wrong with it."""
    path, truth = data
    live = Layout(path).live_events
    whole = live.read_bytes()
    assert len(whole) > 2 * BLOCK_ROWS * ROW_BYTES
    for length in [0, 3, 20, 24, 25, *range(100, len(whole), 7_919), len(whole)]:
        live.write_bytes(whole[:length])
        with HistoryFiles(path) as history:
            assert_is_true(history, truth)
    for position in range(0, len(whole), 4_999):
        live.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with HistoryFiles(path) as history:
            assert_is_true(history, truth)
    live.unlink()
    with HistoryFiles(path) as history:
        assert_is_true(history, truth)


def test_only_who_reads_events_that_were_in_memory_applies_the_log(
    data: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a large state that takes long: neither planning does it nor who reads what is in files."""
    path, truth = data
    last = len(truth.entries) - 1
    apply, applied = Engine.apply, []
    monkeypatch.setattr(Engine, "apply", lambda self, *args: (applied.append(args[0]), apply(self, *args))[1])
    with HistoryFiles(as_killed(path)) as history:
        ends = [-1]
        while ends[-1] < last:
            ends.append(history.segment_end(ends[-1] + 1))
        saved = ends[-2]
        cuts = history.cuts(0, last, rows_max=1)
        assert [cut.last_index for cut in cuts][-2:] == [saved, last], "what is in no file is one range"
        assert cuts[-1].rows > 0
        assert (history.reach().applied_index, history.find_time(0)) == (last, 0)
        _, rows, _ = read(history, 0, saved)
        assert rows == truth.all_rows(0, saved)
        assert set(history.queue_names().values()) == {"", "jobs", "early", "late"}
        assert applied == []
        _, rows, _ = read(history, saved + 1, last)
        assert rows == truth.all_rows(saved + 1, last)
        assert last in applied


def test_a_log_that_was_cut_short_ends_earlier_only_where_nothing_tells_of_more(data: tuple[Path, Truth]) -> None:
    """A node that was killed: what was in its memory is in no file, but the blocks of its journal prove a loss."""
    path, truth = data
    as_killed(path)
    layout = Layout(path)
    whole = layout.log.read_bytes().rstrip(b"\0")
    with FileSource(layout.live_events) as source:
        blocks_last = list(iterate_blocks(source, layout.live_events))[-1].last_index
    counts, lost = set(), set()
    for length in range(len(whole), 40, -397):
        layout.log.write_bytes(whole[:length])
        problem = problem_of(path, truth)
        if problem is None:
            with HistoryFiles(path) as history:
                counts.add(assert_is_part(history, truth))
            continue
        assert isinstance(problem, EntriesLost)
        assert problem.last_index == blocks_last
        assert problem.reason in {each.reason for each in verify(path).problems}
        lost.add(problem.first_index)
    assert max(counts) >= len(truth.entries) - 1
    assert min(counts) > blocks_last >= max(lost)
    assert len(counts) > 1
    assert len(lost) > 1


def test_a_log_that_is_shorter_than_the_tail_of_a_stopped_node_is_damage(data: tuple[Path, Truth]) -> None:
    """Its last entries were left out without a word. Sealed segments are still read by themselves."""
    path, truth = data
    layout = Layout(path)
    with FileSource(layout.log) as source:
        end = scan_live(source, layout.log, None, 0).offsets[-1]
    layout.log.write_bytes(layout.log.read_bytes()[:end])
    with HistoryFiles(path) as history:
        with pytest.raises(EntriesLost, match="events/tail"):
            history.reach()
        with pytest.raises(EntriesLost):
            history.state()
    with HistoryFiles(layout.archive) as history:
        assert assert_is_part(history, truth) > layout.sealed_first_indexes()[-1]


def test_entries_that_a_relaxed_mode_may_lose_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(tmp_path / "run", is_durable=False)
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    writer.fill(20)
    path = tmp_path / "cut off"
    shutil.copytree(tmp_path / "run", path)
    writer.store.close()
    layout = Layout(path)
    with FileSource(layout.log) as source:
        scan = scan_live(source, layout.log, None, 0)
    layout.log.write_bytes(layout.log.read_bytes()[: scan.offsets[1]])
    with HistoryFiles(path) as history:
        assert assert_is_part(history, writer.truth) == scan.first_index + 1
    assert f"ends with entry {scan.first_index}, but" in caplog.text


def test_a_log_of_another_cluster_is_not_read(data: tuple[Path, Truth]) -> None:
    """Neither raft.log nor a sealed segment."""
    path, truth = data
    layout = Layout(path)
    for file in (layout.log, layout.sealed_log(layout.sealed_first_indexes()[1])):
        whole = file.read_bytes()
        with FileSource(file) as source:
            head = read_segment_head(source, file)
        file.write_bytes(SegmentHead.new(b"another cluster!", head.salt).encode() + whole[head.size_bytes :])
        with pytest.raises(WrongCluster) as caught:
            read_everything(path, truth)
        assert caught.value.file == file
        file.write_bytes(whole)
    read_everything(path, truth)


@pytest.mark.parametrize("site", ["log.create", "log.seal", "log.publish"])
def test_a_roll_that_was_interrupted_loses_nothing(tmp_path: Path, site: str) -> None:
    """Neither for readers of the files, nor for the next start."""
    writer = Writer(tmp_path / "data", disk=FailingDisk(site, errno.EIO, nth=3))
    writer.apply(c.CreateQueue("jobs", c.QueueSettings()))
    with pytest.raises(StorageFailed):
        writer.fill(100)
    writer.store.close()
    assert Layout(tmp_path / "data").log.exists() == (site != "log.publish")
    with HistoryFiles(tmp_path / "data") as history:
        assert_is_true(history, writer.truth)
    Writer(tmp_path / "data", writer.truth).store.close()
    with HistoryFiles(tmp_path / "data") as history:
        assert_is_true(history, writer.truth)


def test_events_lost_before_the_snapshot_are_told_and_the_rest_is_read(data: tuple[Path, Truth]) -> None:
    path, truth = data
    layout = Layout(path)
    index = engine_snapshot.restore(iter(_blocks(layout))).state.index
    lost = max(first for first in layout.sealed_first_indexes() if first <= index)
    for path_ in [*layout.archive.glob("*.events")]:
        if int(path_.stem) >= lost:
            path_.unlink()
    layout.live_events.unlink()
    layout.tail.unlink()
    with HistoryFiles(path) as history:
        with pytest.raises(Damaged, match=f"lacks the events of entries {lost} to"):
            read(history)
        _, rows, _ = read(history, index + 1)
        assert rows == truth.all_rows(index + 1)


def _blocks(layout: Layout) -> Iterator[bytes]:
    from penstock.storage.snapshot import SnapshotReader

    return iter(SnapshotReader(layout.snapshot))


# Damage.


def read_everything(path: Path | list[Path], truth: Truth) -> None:
    """Whatever is given out is right; raises ``StorageError`` where it cannot be."""
    with HistoryFiles(path) as history:
        assert_is_part(history, truth)
        history.queue_names()


def problem_of(path: Path, truth: Truth) -> StorageError | None:
    try:
        read_everything(path, truth)
    except StorageError as error:
        return error
    return None


def test_flipped_bits_are_found_wherever_they_are(data: tuple[Path, Truth]) -> None:
    """In every file, about every 1,500th byte and each of the first hundred: an error with its file, or the truth."""
    path, truth = data
    layout = Layout(path)
    refused = 0
    sealed = {file for file in layout.archive.iterdir() if file.suffix in (".log", ".events")}
    for file in files_of(layout.consensus):
        whole = file.read_bytes().rstrip(b"\0") if file == layout.log else file.read_bytes()
        for position in sorted({*range(0, min(100, len(whole)), 9), *range(0, len(whole), 1_501)}):
            spoiled = whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :]
            file.write_bytes(spoiled)
            error = problem_of(path, truth)
            if error is not None:
                refused += 1
                assert error.file == file or error.file.stem == file.stem, str(error)
            else:
                # Marks inside a log are not given out, so one that is damaged does not matter.
                assert file not in sealed or file.suffix == ".log", f"{file} at {position}"
        file.write_bytes(whole)
    assert refused > 100


def boundaries(file: Path) -> list[int]:
    """Where a file could end so that all that is left of it is good in itself."""
    with FileSource(file) as source:
        if file.suffix == ".events":
            return [block.offset for block in iterate_blocks(source, file)]
        if file.suffix == ".log":
            return list(scan_sealed(source, file, None).offsets)[::9]
    return []


def test_files_cut_short_are_found_wherever_they_end(data: tuple[Path, Truth]) -> None:
    path, truth = data
    archive = Layout(path).archive
    logs = sorted(archive.glob("*.log"))
    for file in sorted(archive.iterdir()):
        whole = file.read_bytes()
        for length in sorted({*range(0, 60, 7), *range(0, len(whole), 4_001), *boundaries(file), len(whole) - 1}):
            file.write_bytes(whole[:length])
            for place in (path, logs):
                if file.suffix in (".offsets", ".sums"):
                    read_everything(place, truth)  # the log itself is enough
                else:
                    with pytest.raises(StorageError) as caught:
                        read_everything(place, truth)
                    assert caught.value.file.stem == file.stem or place == path
        file.write_bytes(whole)


def test_a_missing_journal_and_a_missing_log_are_told(data: tuple[Path, Truth]) -> None:
    path, truth = data
    layout = Layout(path)
    first, second = layout.sealed_first_indexes()[:2]
    events = layout.sealed_events(first)
    events.rename(events.with_suffix(".away"))
    with pytest.raises(Damaged, match="is missing") as caught:
        read_everything(path, truth)
    assert caught.value.file == events
    events.with_suffix(".away").rename(events)
    layout.sealed_events(second).write_bytes(events.read_bytes())
    with pytest.raises(Damaged, match="is of the segment at"):
        read_everything(path, truth)
    layout.log.unlink()
    with pytest.raises(Damaged, match="is missing") as caught:
        HistoryFiles(path)
    assert caught.value.file == layout.log


def test_another_version_is_told(data: tuple[Path, Truth]) -> None:
    path, truth = data
    layout = Layout(path)
    log = layout.sealed_log(0)
    whole = log.read_bytes()
    for version, error in ((4, NewerVersion), (1, OlderVersion), (-5, WrongMarker)):
        log.write_bytes(whole[:4] + version.to_bytes(4, "little", signed=True) + whole[8:])
        with pytest.raises(error) as caught:
            read_everything(path, truth)
        assert caught.value.file == log
    log.write_bytes(b"PK\x03\x04" + whole[4:])
    with pytest.raises(WrongMarker):
        read_everything([log], truth)

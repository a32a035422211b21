"""The whole history over the native protocol: pieces are the journal and the log to the byte, wherever they are cut."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client import history as client_history
from penstock.client.errors import HistoryGone
from penstock.client.history import HistoryReader
from penstock.engine import snapshot
from penstock.engine.entries import decode_entry
from penstock.engine.journal import PUT, QUEUE_DELETED, ROW, ROW_BYTES
from penstock.node import states
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage import feed
from penstock.storage.errors import DiskExhausted
from penstock.storage.journalfile import BLOCK, BLOCK_HEADER_BYTES
from penstock.storage.layout import Layout
from penstock.storage.records import MARK_BYTES, RECORD_HEADER_BYTES
from penstock.storage.snapshot import SnapshotWriter
from penstock.testing import OTHER_DOORS_CLOSED, TestServer
from penstock.wire.native import messages as m

PAYLOADS = [b"payload %d " % number * (number % 7 + 1) for number in range(400)]


class OnDisk(TestServer):
    """A server with a data directory, whose log has many short segments."""

    def __init__(self, data_dir: Path, **storage: int) -> None:
        chosen = {"segment_bytes": 8192, "reserve_bytes": 0, **storage}
        super().__init__(
            Settings(
                data_dir=str(data_dir),
                taskflux=TaskfluxSettings(port=0),
                storage=StorageSettings(**chosen),
                **OTHER_DOORS_CLOSED,
            ),
            in_memory=False,
        )


def use(url: str) -> None:
    """A little of everything: batches and single puts, takes, a queue that is deleted."""
    with penstock.connect_sync(url) as client:
        jobs, gone = client.queue("jobs"), client.queue("gone")
        jobs.create()
        gone.create()
        for payload in PAYLOADS[:100]:
            jobs.put(payload)
        for start in range(100, len(PAYLOADS), 50):
            jobs.put_many(PAYLOADS[start : start + 50])
        for message in jobs.take_many(30):
            message.ack()
        gone.drop()


@pytest.fixture(params=["memory", "disk"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestServer]:
    made = OnDisk(tmp_path / "data") if request.param == "disk" else TestServer()
    with made as running:
        use(running.url)
        yield running


def rows_of(piece: m.JournalPiece) -> list[tuple[int, ...]]:
    rows, at = [], 0
    while at < len(piece.blocks):
        _, _, _, _, count, _ = BLOCK.unpack_from(piece.blocks, at)
        at += BLOCK_HEADER_BYTES
        for _ in range(count):
            row = ROW.unpack_from(piece.blocks, at)
            if piece.first_index <= row[0] <= piece.last_index:
                rows.append(row)
            at += ROW_BYTES
    return rows


def entries_of(piece: m.JournalPiece) -> dict[int, bytes]:
    offsets = struct.unpack(f"<{len(piece.offsets) // 8}q", piece.offsets)
    found = {}
    for number, start in enumerate(offsets[:-1]):
        at = start - offsets[0]
        _, length, _, _, index, _ = struct.unpack_from("<iiIIqq", piece.log, at)
        assert index == piece.first_index + number
        found[index] = piece.log[at + RECORD_HEADER_BYTES : at + 8 + length]
    return found


def all_entries(reader: HistoryReader, last_index: int) -> dict[int, bytes]:
    return {index: entry for piece in reader.pieces(0, last_index) for index, entry in entries_of(piece).items()}


@pytest.mark.parametrize("bytes_max", [1, 5_000, m.PIECE_BYTES_MAX])
def test_pieces_of_any_size_are_the_whole_history(server: TestServer, bytes_max: int) -> None:
    with HistoryReader(server.url) as reader:
        reach = reader.reach()
        rows: list[tuple[int, ...]] = []
        entries: dict[int, bytes] = {}
        expected = reach.first_index
        for piece in reader.pieces(reach.first_index, reach.applied_index, bytes_max=bytes_max):
            assert piece.first_index == expected
            expected = piece.last_index + 1
            rows += rows_of(piece)
            entries |= entries_of(piece)
        assert expected == reach.applied_index + 1
        names = reader.queue_names()
    assert list(entries) == list(range(reach.first_index, reach.applied_index + 1))
    assert [row[:3] for row in rows] == sorted({row[:3] for row in rows})
    puts = [row for row in rows if row[3] == PUT]
    payloads = [entries[row[15]][row[16] : row[16] + row[17]] for row in puts]
    assert payloads == PAYLOADS
    assert {names[row[9]] for row in puts} == {"jobs"}
    (deleted,) = [row for row in rows if row[3] == QUEUE_DELETED]
    assert names[deleted[9]] == "gone"
    assert entries[deleted[15]][deleted[16] : deleted[16] + deleted[17]] == b"gone"


def test_a_segment_without_its_side_file_is_walked(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "data") as server:
        use(server.url)
        layout = Layout(tmp_path / "data")
        with HistoryReader(server.url) as reader:
            whole = all_entries(reader, reader.reach().applied_index)
        sealed = layout.sealed_first_indexes()
        assert len(sealed) > 3
        layout.sealed_offsets(sealed[0]).unlink()
        layout.sealed_offsets(sealed[1]).write_bytes(b"junk")
    with OnDisk(tmp_path / "data") as server, HistoryReader(server.url) as reader:
        assert all_entries(reader, max(whole)) == whole


def test_single_entries_and_times_are_found(server: TestServer) -> None:
    with HistoryReader(server.url) as reader:
        last = reader.reach().applied_index
        entries = reader.entries([last, 0, 10**9, 3])
        assert set(entries) == {last, 0, 3}
        stamps = {index: decode_entry(entry).stamp_us for index, entry in entries.items()}
        assert reader.find_time(0) == 0
        assert reader.find_time(stamps[last] + 1) == last + 1
        found = reader.find_time(stamps[3])
        assert found <= 3
        assert decode_entry(reader.entries([found])[found]).stamp_us == stamps[3]


def test_the_latest_index_is_waited_for(server: TestServer) -> None:
    with HistoryReader(server.url) as reader, penstock.connect_sync(server.url) as client:
        known = reader.reach().applied_index
        began = time.monotonic()
        assert reader.reach(known, 0.05).applied_index == known
        assert time.monotonic() - began >= 0.05
        threading.Timer(0.05, lambda: client.queue("jobs").put(b"one more")).start()
        assert reader.reach(known, 30.0).applied_index > known
        assert time.monotonic() - began < 25


def test_what_is_gone_is_told_with_where_the_history_begins(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "data", retention_bytes=0, retention_hours=0, snapshot_bytes=8192) as server:
        use(server.url)
        with penstock.connect_sync(server.url) as client, HistoryReader(server.url) as reader:
            queue = client.queue("jobs")
            while not (first := reader.reach().first_index):
                queue.put_many([b"x" * 100] * 100)
            with pytest.raises(HistoryGone) as caught:
                next(reader.pieces(0, 10))
            assert caught.value.first_index is not None
            assert caught.value.first_index >= first
            assert next(reader.pieces(caught.value.first_index, 10**6)).first_index == caught.value.first_index


def test_a_reader_that_does_not_read_gets_no_further_piece(tmp_path: Path) -> None:
    """Whatever it asks for, the node holds at most one piece for it."""
    settings = {"segment_bytes": 64 * 1024 * 1024}
    with OnDisk(tmp_path / "data", **settings) as server, penstock.connect_sync(server.url) as client:
        big = client.queue("big")
        big.create()
        big.put_many([b"x" * 1_000_000] * 8)
        with HistoryReader(server.url) as reader:
            last = reader.reach().applied_index
            assert reader._link._socket is not None
            reader._link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(200):
                reader._link.send(m.ReadJournal(0, last))
            assert big.put(b"still served")
            (keeper,) = {door.keeper for door in server.server.doors}
            assert sum(connection.unsent_bytes for connection in keeper.connections) < 20_000_000


# Cuts.


def rows_between(reader: HistoryReader, first: int, last: int) -> list[tuple[int, ...]]:
    return [row for piece in reader.pieces(first, last) for row in rows_of(piece)]


def ranges_of(cuts: list[m.Cut], first: int) -> list[tuple[int, int]]:
    return [*zip([first, *(cut.last_index + 1 for cut in cuts)], [cut.last_index for cut in cuts], strict=False)]


def busy(url: str, rounds: int = 12) -> None:
    """Enough events for many blocks."""
    with penstock.connect_sync(url) as client:
        queue = client.queue("busy")
        queue.create()
        for number in range(rounds):
            queue.put_many([b"x" * (number + 1)] * 200)


@pytest.mark.parametrize(
    ("limits", "first"), [({"rows_max": 700}, 0), ({"bytes_max": 100_000}, 5), ({"rows_max": 900, "bytes_max": 1}, 1)]
)
def test_cuts_are_the_longest_ranges_within_the_limits(server: TestServer, limits: dict[str, int], first: int) -> None:
    busy(server.url)
    with HistoryReader(server.url) as reader:
        last = reader.reach().applied_index
        cuts = reader.cuts(first, last, **limits)
        ranges = ranges_of(cuts, first)
        assert cuts[-1].last_index == last
        assert len(cuts) > 3
        assert [row for each in ranges for row in rows_between(reader, *each)] == rows_between(reader, first, last)
        # The finest cuts there are: one block, or one entry, each. No range could have had one more.
        finest = {cut.last_index: cut for cut in reader.cuts(first, last, rows_max=1, bytes_max=1)}
        assert {cut.last_index for cut in cuts} <= set(finest)
        for (start, end), cut in zip(ranges, cuts, strict=True):
            units = [unit for index, unit in finest.items() if start <= index <= end]
            assert cut.rows == sum(unit.rows for unit in units)
            # An idle node ends its log with a mark, which may have come in between.
            assert 0 <= sum(unit.bytes for unit in units) - cut.bytes <= MARK_BYTES
            fits = all(getattr(cut, name.removesuffix("_max")) <= limit for name, limit in limits.items())
            assert fits or len(units) == 1
            following = next((unit for index, unit in finest.items() if index > end), None)
            assert following is None or any(
                getattr(cut, name.removesuffix("_max")) + getattr(following, name.removesuffix("_max")) > limit
                for name, limit in limits.items()
            )


def test_without_a_limit_there_is_one_range_and_its_count_is_exact(server: TestServer) -> None:
    with HistoryReader(server.url) as reader:
        last = reader.reach().applied_index
        (cut,) = reader.cuts(0, last + 10**6)
        rows = rows_between(reader, 0, last)
        assert (cut.last_index, cut.rows) == (last, len(rows))
        assert cut.bytes >= len(rows) * ROW_BYTES + sum(len(entry) for entry in all_entries(reader, last).values())


def test_so_many_ranges_and_no_more_are_cut(server: TestServer) -> None:
    busy(server.url)
    with HistoryReader(server.url) as reader:
        last = reader.reach().applied_index
        every = reader.cuts(0, last, rows_max=1)
        some = reader.cuts(0, last, rows_max=1, count_max=3)
        assert [cut.last_index for cut in some] == [cut.last_index for cut in every[:3]]
        (after,) = reader.cuts(every[2].last_index + 1, last, rows_max=1, count_max=1)
        assert after.last_index == every[3].last_index


def test_entries_that_are_not_there_cannot_be_cut(server: TestServer) -> None:
    with HistoryReader(server.url) as reader:
        last = reader.reach().applied_index
        with pytest.raises(penstock.BadRequest, match="not there yet"):
            reader.cuts(last + 1, last + 2)
        with pytest.raises(penstock.BadRequest, match="before the first"):
            reader.cuts(3, 2)


def test_cutting_again_opens_no_sealed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream asks with every poll: what is sealed is known after the first time."""
    with OnDisk(tmp_path / "data") as server, HistoryReader(server.url) as reader:
        use(server.url)
        last = reader.reach().applied_index
        first_time = reader.cuts(0, last, rows_max=1)
        opened: list[Path] = []
        make = feed.FileSource.__init__
        monkeypatch.setattr(
            feed.FileSource, "__init__", lambda source, path: (opened.append(path), make(source, path))[1]
        )
        assert len(reader.cuts(0, last, rows_max=1)) == len(first_time)
        assert opened == []


# The state.


def test_the_state_is_that_of_the_engine(server: TestServer) -> None:
    with HistoryReader(server.url) as reader:
        index, blocks = reader.state()
        assert index == reader.reach().applied_index
        assert list(blocks) == list(snapshot.begin(server.server.node.engine))


def test_the_state_is_of_one_moment_however_the_service_goes_on(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read a little at a time. In between much is put and taken, and later snapshots take its place."""
    monkeypatch.setattr(client_history, "_SNAPSHOT_PIECE_BYTES", 32)
    with HistoryReader(server.url) as reader, penstock.connect_sync(server.url) as client:
        queue = client.queue("jobs")
        before = list(snapshot.begin(server.server.node.engine))
        index, blocks = reader.state()
        found: list[bytes] = []
        later = 0
        for block in blocks:
            found.append(block)
            queue.put_many([b"later"] * 10)
            for message in queue.take_many(5):
                message.ack()
            if len(found) % 3 == 0:  # a piece holds three blocks at most, so this one was asked for in between
                with HistoryReader(server.url) as another:
                    assert another.state()[0] > index
                    later += 1
        assert found == before
        assert later >= states.HELD_MAX


def test_what_is_up_to_date_is_not_taken_again(server: TestServer) -> None:
    with HistoryReader(server.url) as reader, HistoryReader(server.url) as another:
        first, _ = reader.state()
        assert another._ask(m.Snapshot(first, 0)).index == first
        assert another._ask(m.Snapshot(0, 0)).index == first
        assert another.state()[0] == first


def test_a_snapshot_that_is_no_longer_held_is_told(server: TestServer) -> None:
    with HistoryReader(server.url) as reader, penstock.connect_sync(server.url) as client:
        _, blocks = reader.state()
        for _ in range(states.HELD_MAX):
            client.queue("jobs").put(b"more")
            with HistoryReader(server.url) as another:
                another.state()
        with pytest.raises(HistoryGone, match="the snapshot at"):
            next(blocks)
        # And a state that is asked for anew is there.
        assert reader.state()[0] == reader.reach().applied_index


def test_a_snapshot_of_what_is_not_there_yet_is_refused(server: TestServer) -> None:
    with HistoryReader(server.url) as reader, pytest.raises(penstock.BadRequest, match="not there yet"):
        reader._ask(m.Snapshot(10**6, 0))


def test_who_does_not_wait_is_told_to_ask_again(server: TestServer) -> None:
    with HistoryReader(server.url) as reader:
        applied = reader.reach().applied_index
        answers = [reader._ask(m.Snapshot(applied, 0)).index]
        while answers[-1] < 0:
            answers.append(reader._ask(m.Snapshot(applied, 100)).index)
        assert (answers[0], answers[-1]) == (-1, applied)


def test_without_space_for_a_snapshot_the_state_is_refused_and_the_service_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OnDisk(tmp_path / "data") as server, HistoryReader(server.url) as reader:
        use(server.url)

        def full(writer: SnapshotWriter, block: bytes) -> None:
            raise DiskExhausted("snapshot.write", tmp_path, errno.ENOSPC)

        monkeypatch.setattr(SnapshotWriter, "write_block", full)
        with pytest.raises(penstock.DiskFull, match="no snapshot could be taken"):
            reader.state()
        monkeypatch.undo()
        use_again = penstock.connect_sync(server.url)
        with use_again as client:
            assert client.queue("jobs").put(b"still served")
        assert reader.state()[0] == reader.reach().applied_index


def test_snapshots_that_nobody_reads_are_let_go(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LET_GO_AFTER_S", 0.05)
    with HistoryReader(server.url) as reader:
        reader.state()
        held = server.server.node.feeding.states._held
        give_up_s = time.monotonic() + 30
        while held:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)

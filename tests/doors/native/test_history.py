"""The whole history over the native protocol: pieces are the journal and the log to the byte, wherever they are cut."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.errors import HistoryGone
from penstock.client.history import HistoryReader
from penstock.engine.entries import decode_entry
from penstock.engine.journal import PUT, QUEUE_DELETED, ROW, ROW_BYTES
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.storage.journalfile import BLOCK, BLOCK_HEADER_BYTES
from penstock.storage.layout import Layout
from penstock.storage.records import RECORD_HEADER_BYTES
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
            reader._live().setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(200):
                reader._live().sendall(reader._session.call(m.ReadJournal(0, last), reader).frame)
            assert big.put(b"still served")
            (keeper,) = {door.keeper for door in server.server.doors}
            assert sum(connection.unsent_bytes for connection in keeper.connections) < 20_000_000

"""Whatever a node accepts can be read again over the native protocol, of any length and by any client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.blocking import BlockingLink
from penstock.client.errors import AnswerTooLarge, BadAnswer
from penstock.client.history import HistoryReader
from penstock.engine.errors import ANSWER_TOO_LARGE, Refusal
from penstock.settings import LimitsSettings, Settings, StorageSettings, TaskfluxSettings
from penstock.testing import OTHER_DOORS_CLOSED, TestServer
from penstock.wire.native import messages as m
from penstock.wire.native.frames import FRAME_BYTES_MAX_LEAST
from tests.doors.native.test_history import entries_of, rows_of

MIB = 1024 * 1024


def server_with(data_dir: Path | None, payload_bytes: int = 16 * MIB) -> TestServer:
    settings = Settings(
        data_dir=str(data_dir or "unused"),
        taskflux=TaskfluxSettings(port=0),
        limits=LimitsSettings(payload_bytes=payload_bytes),
        storage=StorageSettings(reserve_bytes=0),
        **OTHER_DOORS_CLOSED,
    )
    return TestServer(settings, in_memory=data_dir is None)


@pytest.fixture(params=["memory", "disk"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestServer]:
    with server_with(tmp_path / "data" if request.param == "disk" else None) as running:
        yield running


def history_of(reader: HistoryReader, **options: int) -> tuple[list[tuple[int, ...]], dict[int, bytes]]:
    reach = reader.reach()
    rows: list[tuple[int, ...]] = []
    entries: dict[int, bytes] = {}
    for piece in reader.pieces(0, reach.applied_index, **options):
        assert (piece.blocks_bytes, piece.log_bytes) == (0, 0)
        rows += rows_of(piece)
        entries |= entries_of(piece)
    assert list(entries) == list(range(reach.applied_index + 1))
    return rows, entries


@pytest.mark.parametrize("bytes_max", [1, 300_000, m.PIECE_BYTES_MAX])
def test_a_history_longer_than_frames_is_read_in_parts(server: TestServer, bytes_max: int) -> None:
    """With frames of 1 MiB at most: entries of 3 MiB, one with 10,000 events, and blocks with many MiB of log."""
    payloads = [bytes([number]) * (3 * MIB) for number in range(3)]
    with penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        for payload in payloads:
            queue.put(payload)
        queue.put_many([b"small"] * 10_000)
        queue.put_many([b"y" * 100_000] * 12)
    with HistoryReader(server.url, frame_bytes_max=FRAME_BYTES_MAX_LEAST) as small, HistoryReader(server.url) as reader:
        rows, entries = history_of(small, bytes_max=bytes_max)
        assert (rows, entries) == history_of(reader)
        assert len(rows) > 10_012
        found = [entries[row[15]][row[16] : row[16] + row[17]] for row in rows if row[17] == 3 * MIB]
        assert found == payloads
        assert small.entries(list(entries)) == entries
        index, blocks = small.state()
        assert sum(map(len, blocks)) > 9 * MIB
        assert index >= max(entries)


def test_a_block_of_the_journal_with_a_long_log_is_read_entry_by_entry(tmp_path: Path) -> None:
    """40 puts of 1 MiB are few events, with more log than fits into a frame of 32 MiB."""
    with server_with(tmp_path / "data") as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        for number in range(40):
            queue.put(bytes([number]) * MIB)
        with BlockingLink(server.url) as link:
            answer = link.ask(m.ReadJournal(0, 10**6))
            assert isinstance(answer, m.JournalPiece)
            assert 0 < len(answer.log) <= m.PIECE_BYTES_MAX
        with HistoryReader(server.url) as reader:
            rows, _ = history_of(reader)
        assert len(rows) > 40


def test_a_client_that_knows_no_parts_is_refused_with_the_figures(server: TestServer) -> None:
    with penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put(b"x" * 3 * MIB)
        with BlockingLink(server.url, frame_bytes_max=FRAME_BYTES_MAX_LEAST) as link:
            reach = link.ask(m.Latest())
            last = reach.applied_index
            for request in (m.ReadJournal(last, last), m.ReadEntries([last])):
                answer = link.ask(request)
                assert isinstance(answer, Refusal)
                assert answer.code == ANSWER_TOO_LARGE
                assert answer.figures[0] > 3 * MIB > FRAME_BYTES_MAX_LEAST >= answer.figures[1]
        # One that reads frames of 32 MiB gets such an entry whole, as before there were parts.
        with BlockingLink(server.url) as link:
            assert len(link.ask(m.ReadJournal(last, last)).log) > 3 * MIB
            assert len(link.ask(m.ReadEntries([last])).entries[0]) > 3 * MIB


def test_a_record_that_the_client_cannot_read_is_refused_and_comes_back(server: TestServer) -> None:
    with penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        number = queue.put(b"x" * 3 * MIB).id
        with penstock.connect_sync(server.url, frame_bytes_max=FRAME_BYTES_MAX_LEAST) as small:
            for ask in (small.queue("q").take, small.queue("q").peek, lambda: small.queue("q").get(number)):
                with pytest.raises(AnswerTooLarge, match="this client reads frames up to 1048576") as caught:
                    ask()
                assert caught.value.limit_bytes == FRAME_BYTES_MAX_LEAST
            with small.queue("q").subscribe() as messages, pytest.raises(AnswerTooLarge):
                next(iter(messages))
            assert small.ping() >= 0
        message = queue.take()
        assert message is not None
        assert message.deliveries == 1
        message.ack()


@pytest.mark.parametrize("payload_bytes", [1, 33 * MIB])
def test_the_largest_payload_comes_back_by_every_way(tmp_path: Path, payload_bytes: int) -> None:
    payload = b"x" * payload_bytes
    with server_with(tmp_path / "data", payload_bytes) as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        number = queue.put(payload).id
        assert [record.payload for record in queue.peek()] == [payload]
        assert [record.payload for record in queue.browse()] == [payload]
        assert queue.get(number).payload == payload
        with queue.subscribe() as messages:
            assert next(iter(messages)).payload == payload
        with HistoryReader(server.url) as reader:
            _, entries = history_of(reader)
        assert sum(payload in entry for entry in entries.values()) >= 1
        with pytest.raises(penstock.PayloadTooLarge):
            queue.put(payload + b"x")


def test_what_is_added_between_two_parts_is_no_part_of_the_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node writes a mark behind its last entry when it is idle, and adds events to its last block."""
    request = m.ReadJournal(5, 5, in_parts=True)
    first = m.JournalPiece(5, 5, b"blocks", b"offsets", b"the fi", blocks_bytes=6, log_bytes=10)
    asked: list[m.ReadJournal] = []

    def ask(part: m.ReadJournal) -> m.JournalPiece:
        asked.append(part)
        return m.JournalPiece(5, 5, b" and more", b"", b"rst, and a mark", blocks_bytes=15, log_bytes=21)

    with HistoryReader("penstock://127.0.0.1:1") as reader:
        monkeypatch.setattr(reader, "_ask", ask)
        piece = reader._whole(request, first)
    assert asked == [m.ReadJournal(5, 5, in_parts=True, blocks_from=6, log_from=6)]
    assert piece == m.JournalPiece(5, 5, b"blocks", b"offsets", b"the first,"[:10])


def test_a_part_of_another_piece_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = m.JournalPiece(5, 5, b"blocks", b"offsets", b"the fi", blocks_bytes=6, log_bytes=10)
    others = [
        m.JournalPiece(5, 6, b"", b"", b"rst.", blocks_bytes=6, log_bytes=10),
        m.JournalPiece(5, 5, b"", b"", b"rst", blocks_bytes=6, log_bytes=9),
        m.JournalPiece(5, 5, b"", b"", b"", blocks_bytes=6, log_bytes=10),
    ]
    with HistoryReader("penstock://127.0.0.1:1") as reader:
        for other in others:
            monkeypatch.setattr(reader, "_ask", lambda _, other=other: other)
            with pytest.raises(BadAnswer, match="does not belong to it"):
                reader._whole(m.ReadJournal(5, 5, in_parts=True), first)

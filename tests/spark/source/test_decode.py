"""Decoding whole columns gives what the reader that goes row by row gives, whatever the piece; damage is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import BadAnswer, HistoryGone
from penstock.client.history import HistoryReader
from penstock.engine.journal import BROADCAST, KINDS, PUT, ROW_BYTES
from penstock.spark.schemas import EVENTS, arrow_schema
from penstock.spark.source import decode
from penstock.spark.source.decode import Filter, decode_batches, decode_piece, needs_log
from penstock.spark.source.extents import gather
from penstock.spark.source.names import QueueNames
from penstock.spark.source.rows import ROW, Gap, Records, read_records, read_rows
from penstock.wire.native.messages import PIECE_BYTES_MAX, JournalPiece
from tests.spark.source.making import OnDisk, expected_events

ALL = tuple(EVENTS)
LIGHT = tuple(name for name in EVENTS if not needs_log([name]))


def as_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows whose times are numbers and whose headers are dictionaries."""
    arrays = [array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array for array in batch.columns]
    rows = pa.RecordBatch.from_arrays(arrays, batch.schema.names).to_pylist()
    for row in rows:
        if row.get("headers") is not None:
            row["headers"] = dict(row["headers"])
    return rows


def whole(reader: HistoryReader, **how: Any) -> Iterator[JournalPiece]:
    return reader.pieces(0, reader.reach().applied_index, **how)


def no_entries(indexes: list[int]) -> dict[int, bytes]:
    return {}


def test_the_history_has_every_kind_and_many_segments(reader: HistoryReader) -> None:
    events = expected_events(reader, 0, reader.reach().applied_index)
    assert {event["kind"] for event in events} == {name for name, _ in KINDS.values()}
    assert len(list(whole(reader))) > 5


def test_a_row_has_the_width_of_the_journals() -> None:
    assert ROW.itemsize == ROW_BYTES


@pytest.mark.parametrize("bytes_max", [1, 20_000, PIECE_BYTES_MAX])
def test_columns_are_what_the_rows_are(reader: HistoryReader, bytes_max: int) -> None:
    names = reader.queue_names()
    found = []
    for piece in whole(reader, bytes_max=bytes_max):
        batch = decode_piece(piece, names, ALL, reader.entries)
        assert batch.schema.equals(arrow_schema(EVENTS))
        batch.validate(full=True)
        found += as_rows(batch)
    assert found == expected_events(reader, 0, reader.reach().applied_index)


def test_what_needs_no_log_is_read_without_it(reader: HistoryReader) -> None:
    names = reader.queue_names()
    with_log = [decode_piece(piece, names, LIGHT, no_entries) for piece in whole(reader)]
    without = [decode_piece(piece, names, LIGHT, no_entries) for piece in whole(reader, with_log=False)]
    assert pa.Table.from_batches(with_log).equals(pa.Table.from_batches(without))
    assert set(ALL) - set(LIGHT) == {"term", "payload", "headers", "tag", "text"}


def test_columns_come_in_the_order_asked_for(reader: HistoryReader) -> None:
    piece = next(whole(reader))
    asked = ("payload", "index", "kind")
    batch = decode_piece(piece, {}, asked, no_entries)
    assert tuple(batch.schema.names) == asked
    assert decode_piece(piece, {}, (), no_entries).num_columns == 0


def test_a_name_that_is_not_known_is_null(reader: HistoryReader) -> None:
    batch = decode_piece(next(whole(reader)), {}, ("queue_uid", "queue"), reader.entries)
    assert batch.column("queue").null_count == batch.num_rows


class Forgetful(HistoryReader):
    """A node that knows no names any more, since all queues were deleted long ago."""

    asked = 0

    def queue_names(self) -> dict[int, str]:
        self.asked += 1
        return {}


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_forgotten_name_is_looked_up_where_the_queue_was_made(node: OnDisk, is_remote: bool) -> None:
    with Forgetful(node.url) as forgetful, HistoryReader(node.url) as reader:
        names = QueueNames(forgetful, is_remote=is_remote)
        found: dict[int, str | None] = {}
        for piece in whole(forgetful):
            found |= names.of(read_rows(piece)[0])
        assert found == reader.queue_names()
        assert {"", "jobs", "gone"} <= set(found.values())
        assert forgetful.asked == is_remote


def test_a_name_older_than_the_history_is_asked_for(reader: HistoryReader, monkeypatch: pytest.MonkeyPatch) -> None:
    last = reader.reach().applied_index
    (piece,) = list(reader.pieces(last, last))
    rows = np.zeros(3, ROW)
    known = {uid: name for uid, name in reader.queue_names().items() if uid}
    uid = next(iter(known))
    rows["queue"] = [uid, 99 << 16, uid]

    def gone(*_: Any) -> Iterator[JournalPiece]:
        raise HistoryGone("", (100,))
        yield piece

    monkeypatch.setattr(reader, "pieces", gone)
    found = QueueNames(reader, is_remote=False).of(rows)
    assert (found[uid], found[99 << 16]) == (known[uid], None)


@pytest.mark.parametrize(
    ("only", "keeps"),
    [
        (Filter(kinds=frozenset((PUT, BROADCAST))), lambda row: row["kind"] in ("put", "broadcast")),
        (Filter(queues=frozenset(("gone", "letters"))), lambda row: row["queue"] in ("gone", "letters")),
        (Filter(queues=frozenset(("nowhere",))), lambda row: False),
        (Filter(queues=frozenset(("",))), lambda row: row["payload"] == b"in the default queue"),
        (
            Filter(frozenset(("jobs",)), frozenset((PUT,))),
            lambda row: row["queue"] == "jobs" and row["kind"] == "put",
        ),
    ],
)
def test_only_what_is_wanted_is_decoded(reader: HistoryReader, only: Filter, keeps: Any) -> None:
    names = reader.queue_names()
    found = [
        row
        for piece in whole(reader)
        for batch in decode_batches(piece, read_rows(piece)[0], names, ALL, reader.entries, only)
        for row in as_rows(batch)
    ]
    assert found == [row for row in expected_events(reader, 0, reader.reach().applied_index) if keeps(row)]


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(7, 10**9), (10**9, 300), (1, 1)])
def test_batches_are_bounded_in_rows_and_bytes(
    reader: HistoryReader, monkeypatch: pytest.MonkeyPatch, rows_max: int, bytes_max: int
) -> None:
    monkeypatch.setattr(decode, "BATCH_ROWS_MAX", rows_max)
    monkeypatch.setattr(decode, "BATCH_BYTES_MAX", bytes_max)
    names = reader.queue_names()
    found = []
    for piece in whole(reader):
        for batch in decode_batches(piece, read_rows(piece)[0], names, ALL, reader.entries):
            sizes = [row["payload_bytes"] or 0 for row in batch.to_pylist()]
            assert 0 < len(sizes) <= rows_max
            assert len(sizes) == 1 or sum(sizes) <= bytes_max
            found += as_rows(batch)
    assert found == expected_events(reader, 0, reader.reach().applied_index)


def test_a_payload_whose_entry_is_gone_is_null_and_its_size_is_kept(reader: HistoryReader) -> None:
    rows = [row for piece in whole(reader) for row in as_rows(decode_piece(piece, {}, ALL, no_entries))]
    expected = expected_events(reader, 0, reader.reach().applied_index)
    lost = [(row, right) for row, right in zip(rows, expected, strict=True) if row["payload"] != right["payload"]]
    assert len(lost) == 90  # of 120, whose last 30 lie in the same piece as their publication
    assert all(row["payload"] is None and row["payload_bytes"] == right["payload_bytes"] for row, right in lost)
    assert {right["payload"][:6] for _, right in lost} == {b"staged"}


@pytest.mark.parametrize("part", ["blocks", "log"])
def test_a_damaged_piece_is_told_and_never_decoded(
    reader: HistoryReader, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Pieces are checked when they come from the network, so that nobody behind has to."""
    answer = reader._ask

    def damaged(request: Any, call: Any = None) -> Any:
        piece = answer(request, call)
        if not isinstance(piece, JournalPiece):
            return piece
        changed = bytearray(getattr(piece, part))
        changed[50] ^= 0x10
        return msgspec.structs.replace(piece, **{part: bytes(changed)})

    last = reader.reach().applied_index
    monkeypatch.setattr(reader, "_ask", damaged)
    with pytest.raises(BadAnswer, match=f"byte 0 of its {part}: wrong checksum"):
        next(reader.pieces(0, last))


def test_an_event_that_names_bytes_behind_its_entry_is_refused() -> None:
    """Arrow would read whatever lies there."""
    records = Records(0, b"x" * 100, np.array([32]), np.array([60]), np.array([1], np.int32))
    rows = np.zeros(1, ROW)
    rows["payload_bytes"], rows["payload_offset"] = 10, 19
    with pytest.raises(BadAnswer, match="behind the end"):
        gather(rows, "payload", np.array([True]), records, no_entries)
    rows["payload_offset"] = 18
    assert gather(rows, "payload", np.array([True]), records, no_entries).to_pylist() == [b"x" * 10]


def test_entries_that_no_block_covers_are_a_gap(reader: HistoryReader) -> None:
    pieces = list(whole(reader))
    assert [read_rows(piece)[1] for piece in pieces] == [[]] * len(pieces)
    piece = pieces[0]
    last = piece.last_index
    bare = msgspec.structs.replace(piece, blocks=b"")
    assert read_rows(bare)[1] == [Gap(0, last)]
    behind = msgspec.structs.replace(piece, last_index=last + 5)
    assert read_rows(behind)[1] == [Gap(last + 1, last + 5)]
    jump = msgspec.structs.replace(piece, blocks=piece.blocks + pieces[2].blocks, last_index=pieces[2].last_index)
    assert read_rows(jump)[1] == [Gap(last + 1, pieces[2].first_index - 1)]


@given(
    entries=st.dictionaries(st.integers(0, 9), st.binary(max_size=30), max_size=6),
    first=st.integers(0, 9),
    wanted=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 8), st.booleans()), max_size=30),
)
def test_bytes_from_anywhere_are_gathered(
    entries: dict[int, bytes], first: int, wanted: list[tuple[int, int, int, bool]]
) -> None:
    """Rising, unsorted, repeated, overlapping, empty, in the piece or in older entries, gone."""
    here = {index: entries[index] for index in range(first, 10) if index in entries}
    log, starts = b"", []
    for index in range(first, first + 3):
        log += b"gap"
        starts.append(len(log))
        log += here.get(index, b"")
    ends = [start + len(here.get(first + number, b"")) for number, start in enumerate(starts)]
    records = Records(first, log, np.array(starts), np.array(ends), np.ones(3, np.int32))
    rows = np.zeros(len(wanted), ROW)
    expected: list[bytes | None] = []
    for row, (index, offset, size, is_wanted) in zip(rows, wanted, strict=True):
        body = entries.get(index, b"")
        inside = first <= index < first + 3 or index in entries
        offset = min(offset, len(body))
        size = min(size, len(body) - offset) if inside else size
        row["payload_index"], row["payload_offset"], row["payload_bytes"] = index, offset, size
        lost = size > 0 and not inside
        expected.append(body[offset : offset + size] if is_wanted and not lost else None)
    mask = np.array([each[3] for each in wanted], np.bool_)
    found = gather(rows, "payload", mask, records, lambda asked: {i: entries[i] for i in asked if i in entries})
    found.validate(full=True)
    assert found.to_pylist() == expected


def test_a_piece_without_log_has_no_records(reader: HistoryReader) -> None:
    assert read_records(next(whole(reader, with_log=False))) is None

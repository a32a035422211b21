"""What is read is chosen and cut from figures alone, even by events, every entry once; offsets know their cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.history import HistoryReader
from penstock.spark.errors import AnotherCluster, DataLost, SparkSideError
from penstock.spark.source import planning
from penstock.spark.source.history import History, open_history
from penstock.spark.source.offsets import Offset, check_cluster, first_kept, read_offset
from penstock.spark.source.options import SourceOptions, read_options
from penstock.spark.source.planning import Range, choose_range, plan
from penstock.wire.native.messages import Reach
from tests.spark.source.making import BEGIN_US, OnDisk


@pytest.fixture(params=["endpoint", "path"])
def history(request: pytest.FixtureRequest, node: OnDisk, data_dir: Path) -> Iterator[History]:
    """The same history by both ways; the node's has one entry more, from its own start."""
    endpoint, path = (node.endpoint, None) if request.param == "endpoint" else (None, str(data_dir))
    with open_history(endpoint, path) as opened:
        yield opened


def options(**given: str) -> SourceOptions:
    return read_options({"endpoint": "127.0.0.1:1", **given})


def whole(history: History) -> Range:
    return choose_range(history, options())


@pytest.mark.parametrize("partitions", [1, 2, 5, 1_000])
def test_parts_are_the_whole_range_once(history: History, partitions: int) -> None:
    entries = whole(history)
    assert entries.first_index == 0
    parts = plan(history, entries, partitions)
    expected = 0
    for part in parts:
        assert part.first_index == expected <= part.last_index
        expected = part.last_index + 1
    assert expected == entries.last_index + 1
    assert len(parts) >= min(partitions, 5)  # as many as there are blocks at least


def test_parts_are_even_by_events(history: History) -> None:
    entries = whole(history)
    (total,) = history.cuts(entries.first_index, entries.last_index, count_max=1)
    (largest,) = history.cuts(entries.first_index, entries.last_index, rows_max=1, count_max=1)
    for part in plan(history, entries, 4):
        (cut,) = history.cuts(part.first_index, part.last_index, count_max=1)
        assert cut.rows <= max(-(-total.rows // 4), largest.rows, 512)


def test_few_events_are_one_part_and_many_are_several(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = whole(history)
    assert len(plan(history, entries, 0)) == 1
    monkeypatch.setattr(planning, "ROWS_MIN", 10)
    assert len(plan(history, entries, 0)) > 1
    monkeypatch.setattr(planning, "ROWS_MIN", 1_000_000)
    monkeypatch.setattr(planning, "ROWS_MAX", 50)
    assert len(plan(history, entries, 0)) > 1


def test_the_driver_reads_no_block(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a block was read")

    monkeypatch.setattr(type(history), "pieces", refuse)
    monkeypatch.setattr(type(history), "entries", refuse)
    assert len(plan(history, whole(history), 3)) >= 3


def test_ranges(history: History) -> None:
    last = history.reach().applied_index

    def chosen(**given: str) -> tuple[int, int]:
        found = choose_range(history, options(**given))
        return found.first_index, found.last_index

    assert chosen() == (0, last)
    assert chosen(startingIndex="5", endingIndex="9") == (5, 9)
    assert chosen(endingIndex="1000000") == (0, last)
    assert chosen(startingIndex="1000000") == (1_000_000, last)
    # Entry 3 was stamped four seconds after the beginning: both ends are included.
    at = str(BEGIN_US // 1_000_000 + 4)
    assert chosen(startingTimestamp=at, endingTimestamp=at) == (3, 3)
    assert chosen(endingTimestamp=f"{at}.5") == (0, 3)
    assert chosen(startingTimestamp=f"{at}.5", endingIndex="8") == (4, 8)


def test_nothing_is_no_part(history: History) -> None:
    assert plan(history, Range("", 5, 4), 0) == []


def test_parts_travel(history: History) -> None:
    part = plan(history, whole(history), 2)[1]
    copy = pickle.loads(pickle.dumps(part))
    assert (copy.cluster, copy.first_index, copy.last_index) == (part.cluster, part.first_index, part.last_index)


def test_an_offset_is_what_spark_keeps() -> None:
    offset = Offset("ab", 7)
    assert offset.to_json() == {"cluster": "ab", "index": 7}
    assert read_offset(offset.to_json()) == offset


@pytest.mark.parametrize("bad", [{}, {"index": 1}, {"cluster": "ab", "index": "1"}, {"cluster": "ab", "index": -1}])
def test_an_offset_of_something_else_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(SparkSideError, match="not of this source"):
        read_offset(bad)


def test_another_cluster_is_told_as_far_as_ids_are_known() -> None:
    reach = Reach("cd", 0, 10, 0)
    check_cluster("cd", reach)
    check_cluster("", reach)
    check_cluster("ab", Reach("", 0, 10, 0))
    with pytest.raises(AnotherCluster, match="cluster cd, reading began with ab"):
        check_cluster("ab", reach)


def test_what_is_gone_fails_or_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    assert first_kept(5, 5, fail_on_data_loss=True) == 5
    with pytest.raises(DataLost, match="failOnDataLoss=false"):
        first_kept(4, 9, fail_on_data_loss=True)
    assert not caplog.records
    assert first_kept(4, 9, fail_on_data_loss=False) == 9
    assert "entries 4 to 8" in caplog.text


def test_a_reader_reads_on_after_asking_for_something_between(reader: HistoryReader) -> None:
    """The next piece is asked for ahead; what is asked in between must not lose its answer, nor take it."""
    last = reader.reach().applied_index
    expected = [piece.last_index for piece in reader.pieces(0, last)]
    found = []
    for piece in reader.pieces(0, last):
        found.append(piece.last_index)
        assert set(reader.entries([1, 2])) == {1, 2}
        if len(found) == 2:
            reader.close()
    assert found == expected
    assert len(found) > 4

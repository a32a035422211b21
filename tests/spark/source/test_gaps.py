"""Histories that lack something, through Spark itself: it is told, or all the rest is read and each row once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from penstock.client.history import HistoryReader
from penstock.storage.layout import Layout
from tests.spark.source.making import OnDisk, expected_events, let_a_node_take_a_snapshot, lose_a_stretch
from tests.spark.source.test_batch import error_of, load, rows
from tests.spark.source.test_stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


@pytest.fixture(scope="module")
def whole(node: OnDisk) -> list[Row]:
    """All events of the history of which the tests below lack some."""
    with HistoryReader(node.url) as reader:
        return expected_events(reader, 0, reader.reach().applied_index - 1)


@pytest.fixture(scope="module")
def lossy(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OnDisk, int, int, list[Row]]]:
    """A node that has lost the events of some entries in the middle; which; and the events that it has."""
    copy = tmp_path_factory.mktemp("lossy") / "data"
    shutil.copytree(data_dir, copy)
    first, last = lose_a_stretch(copy)
    with OnDisk(copy) as server, HistoryReader(server.url) as reader:
        kept = expected_events(reader, 0, first - 1)
        kept += expected_events(reader, last + 1, reader.reach().applied_index)
        yield server, first, last, kept


def test_events_lost_in_the_middle_fail_a_query_or_are_passed_over(
    spark: SparkSession, lossy: tuple[OnDisk, int, int, list[Row]]
) -> None:
    server, first, last, kept = lossy
    said = error_of(lambda: load(spark, endpoint=server.endpoint, minPartitions=3))
    assert f"entry {first} of the history is gone, what is kept begins at {last + 1}" in said
    assert "failOnDataLoss=false" in said
    for parts in (1, 3):
        frame = load(spark, endpoint=server.endpoint, minPartitions=parts, failOnDataLoss="false")
        assert rows(frame) == kept
    inside = load(spark, endpoint=server.endpoint, startingIndex=first, endingIndex=last, failOnDataLoss="false")
    assert rows(inside) == []


def test_events_lost_in_the_middle_fail_a_stream_or_are_passed_over(
    spark: SparkSession, lossy: tuple[OnDisk, int, int, list[Row]], tmp_path: Path
) -> None:
    """The same stream, from the batch at which it failed on."""
    server, first, _, kept = lossy
    checkpoint = tmp_path / "checkpoint"
    given = {"endpoint": server.endpoint, "maxRowsPerBatch": 100}
    strict = Stream(spark, checkpoint, **given)
    with pytest.raises(PySparkException, match=f"entry {first} of the history is gone, what is kept begins at"):
        strict.to_the_end()
    assert strict.rows == [row for row in kept if row["index"] < first][: len(strict.rows)]
    lenient = Stream(spark, checkpoint, **given, failOnDataLoss="false")
    lenient.to_the_end()
    assert strict.rows + lenient.rows == kept


def with_snapshot(data_dir: Path, copy: Path) -> tuple[Path, list[int]]:
    """A copy of a data directory whose oldest segments may go; and where its segments begin."""
    shutil.copytree(data_dir, copy)
    let_a_node_take_a_snapshot(copy)
    return copy, Layout(copy).sealed_first_indexes()


def let_go(path: Path, count: int) -> None:
    """The oldest segments go, as retention lets them go."""
    layout = Layout(path)
    for first in layout.sealed_first_indexes()[:count]:
        for file in (*layout.beside_sealed(first), layout.sealed_log(first)):
            file.unlink(missing_ok=True)


def events(found: list[Row]) -> list[Row]:
    """The rows without the bytes that a publication brings out of older entries, which may be gone with these."""
    return [row | {"payload": None, "headers": None} for row in found]


def test_a_start_that_is_gone_from_files_fails_or_is_passed_over(
    spark: SparkSession, data_dir: Path, tmp_path: Path
) -> None:
    """A query that asks for it, and a stream that stopped before it."""
    path, firsts = with_snapshot(data_dir, tmp_path / "data")
    everything = rows(load(spark, path=path))
    checkpoint = tmp_path / "checkpoint"
    Stream(spark, checkpoint, path=path, endingIndex=3).to_the_end()
    let_go(path, 2)
    kept = events([row for row in everything if row["index"] >= firsts[2]])
    told = f"is gone, what is kept begins at {firsts[2]}"
    assert f"entry 0 of the history {told}" in error_of(lambda: load(spark, path=path, startingIndex=0))
    assert events(rows(load(spark, path=path, startingIndex=0, failOnDataLoss="false"))) == kept
    assert events(rows(load(spark, path=path))) == kept
    with pytest.raises(PySparkException, match=f"entry 4 of the history {told}"):
        Stream(spark, checkpoint, path=path).to_the_end()
    stream = Stream(spark, checkpoint, path=path, failOnDataLoss="false", maxRowsPerBatch=200)
    stream.to_the_end()
    assert events(stream.rows) == kept


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_what_goes_between_planning_and_reading_fails_or_is_passed_over(
    spark: SparkSession, data_dir: Path, tmp_path: Path, fail_on_data_loss: str
) -> None:
    """The parts that were planned first are gone when their tasks begin, whichever of these is the first to say so."""
    path, firsts = with_snapshot(data_dir, tmp_path / "data")
    everything = rows(load(spark, path=path))
    frame = load(spark, path=path, minPartitions=4, failOnDataLoss=fail_on_data_loss)
    assert planned(frame) >= 4
    let_go(path, 3)
    if fail_on_data_loss == "true":
        told = rf"entry \d+ of the history is gone, what is kept begins at {firsts[3]};"
        assert re.search(told, error_of(lambda: frame))
    else:
        assert events(rows(frame)) == events([row for row in everything if row["index"] >= firsts[3]])


def planned(frame: DataFrame) -> int:
    """Let Spark plan a query, which it keeps for when it is run; how many parts there are."""
    parts: int = frame._jdf.queryExecution().toRdd().getNumPartitions()  # type: ignore[operator]
    return parts


def test_a_segment_missing_between_others_fails_or_is_passed_over(
    spark: SparkSession, data_dir: Path, whole: list[Row]
) -> None:
    layout = Layout(data_dir)
    firsts = layout.sealed_first_indexes()
    given = ",".join(str(layout.sealed_log(firsts[place])) for place in (0, 2, 3))
    said = error_of(lambda: load(spark, path=given))
    assert f"entry {firsts[1]} of the history is gone, what is kept begins at {firsts[2]}" in said
    found = rows(load(spark, path=given, failOnDataLoss="false", minPartitions=2))
    kept = [row for row in whole if row["index"] < firsts[1] or firsts[2] <= row["index"] < firsts[4]]
    assert events([row | {"queue": None} for row in found]) == events([row | {"queue": None} for row in kept])


def test_a_segment_missing_in_a_data_directory_is_damage(spark: SparkSession, data_dir: Path, tmp_path: Path) -> None:
    """Whatever failOnDataLoss says: a node lets go of the oldest ones only."""
    copy = tmp_path / "data"
    shutil.copytree(data_dir, copy)
    layout = Layout(copy)
    firsts = layout.sealed_first_indexes()
    layout.sealed_log(firsts[2]).unlink()
    said = error_of(lambda: load(spark, path=copy, failOnDataLoss="false"))
    assert f"begins at entry {firsts[3]}, entries from 0 on are missing" in said

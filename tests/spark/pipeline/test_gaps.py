"""Histories that lack something: bronze has the rest once, and the manifest names what was gone, once and exactly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.client.history import HistoryReader
from penstock.spark.errors import DataLost, PipelineError
from penstock.spark.pipeline import bronze
from penstock.spark.pipeline.bronze import append_events, write_partition
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.files import Target
from penstock.spark.pipeline.manifest import File, Gap, Table, load_manifest, new_manifest
from penstock.spark.pipeline.run import Pipeline
from penstock.spark.source import reading
from penstock.spark.source.history import open_history
from penstock.spark.source.options import SourceOptions, read_options
from penstock.spark.source.planning import EntriesPartition
from penstock.spark.source.reading import BATCH_ROWS_MIN
from penstock.storage.layout import Layout
from tests.spark.pipeline.keeping import all_tables
from tests.spark.source.making import CLUSTER, OnDisk, expected_events, lose_a_stretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = None
NAME = "bronze.events"


@pytest.fixture(scope="module")
def segments(data_dir: Path) -> list[Path]:
    """The logs of the history's sealed segments."""
    return [Layout(data_dir).sealed_log(first) for first in Layout(data_dir).sealed_first_indexes()]


def options(path: object, *, allow_gap: bool = True) -> SourceOptions:
    return read_options({"path": str(path), "failOnDataLoss": str(not allow_gap).lower()})


def indexes(directory: Path, files: list[File] | tuple[File, ...]) -> list[int]:
    """The entries of all events in these files, as often as they are there."""
    return [index for file in files if file.path for index in pq.read_table(directory / file.path)["index"].to_pylist()]


def known(path: Path, first_index: int, last_index: int) -> list[int]:
    """The entries of all events of a whole history."""
    with open_history(None, str(path)) as history:
        return [row["index"] for row in expected_events(history, first_index, last_index)]  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_rows_min", [1, BATCH_ROWS_MIN])
def test_a_task_writes_what_lies_before_and_behind_a_gap_once(
    data_dir: Path, segments: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows_min: int
) -> None:
    """Also if some of what lies before it was written when the gap was found."""
    monkeypatch.setattr(reading, "BATCH_ROWS_MIN", batch_rows_min)
    first, second, third, fourth = (int(log.stem) for log in segments[:4])
    given = options(f"{segments[0]},{segments[2]}")
    part = EntriesPartition("", 0, fourth - 1)
    files = write_partition(Target(tmp_path, NAME, fourth - 1), given, part)
    assert [Gap(file.first_index, file.last_index) for file in files if not file.path] == [Gap(second, third - 1)]
    expected = [index for index in known(data_dir, first, fourth - 1) if not second <= index < third]
    assert indexes(tmp_path, files) == expected
    with pytest.raises(DataLost, match=f"entry {second} of the history is gone, what is kept begins at {third}"):
        write_partition(Target(tmp_path, NAME, fourth - 1), options(given.path, allow_gap=False), part)


def test_several_gaps_and_one_that_goes_on_in_the_next_part(
    data_dir: Path, segments: list[Path], tmp_path: Path
) -> None:
    """Each task tells of its own entries, so that none is told of twice."""
    starts = [int(log.stem) for log in segments]
    given = options(",".join(str(log) for log in (segments[0], segments[2], segments[5])))
    end = starts[6] - 1
    cut = starts[4]
    told, found = [], []
    for part in (EntriesPartition("", 0, cut), EntriesPartition("", cut + 1, end)):
        files = write_partition(Target(tmp_path, NAME, end), given, part)
        told += [(file.first_index, file.last_index) for file in files if not file.path]
        found += indexes(tmp_path, files)
    assert told == [(starts[1], starts[2] - 1), (starts[3], cut), (cut + 1, starts[5] - 1)]
    gone = {index for first, last in told for index in range(first, last + 1)}
    assert found == [index for index in known(data_dir, 0, end) if index not in gone]


def test_what_goes_while_a_turn_is_planned_is_recorded(
    data_dir: Path, segments: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = (int(log.stem) for log in segments[1:3])
    written: list[EntriesPartition] = []

    def write_all(_: Any, __: Any, ___: Any, partitions: list[EntriesPartition]) -> list[File]:
        written.extend(partitions)
        return []

    monkeypatch.setattr(bronze, "_write_all", write_all)
    given = options(segments[1])
    with Directory(tmp_path) as directory, open_history(None, given.path) as history:
        directory.begin(new_manifest("", 0, format="parquet", buckets=32))
        table, gaps = append_events(NO_SPARK, directory, history, given, third - 1)
        assert (table.watermark, gaps) == (third - 1, [Gap(0, second - 1)])
        assert [(part.first_index, part.last_index) for part in written] == [(second, third - 1)]
        written.clear()
        assert append_events(NO_SPARK, directory, history, given, second - 5)[1] == [Gap(0, second - 5)]
        assert written == []


@pytest.mark.parametrize("allow_gap", [True, False])
def test_what_went_since_the_run_began_is_passed_over_if_that_is_allowed(
    data_dir: Path, segments: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_gap: bool
) -> None:
    second = int(segments[1].stem)
    given = f"{segments[1]},{segments[2]}"
    written: list[EntriesPartition] = []
    monkeypatch.setattr(bronze, "_write_all", lambda *args: written.extend(args[3]) or [])
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("", 0, format="parquet", buckets=32))
    with (
        Pipeline(NO_SPARK, given, tmp_path, allow_gap=allow_gap) as pipeline,
        pipeline.open_history() as history,
    ):
        last_index = history.reach().applied_index
        if not allow_gap:
            with pytest.raises(DataLost) as lost:
                pipeline.append(history, last_index)
            assert (lost.value.wanted, lost.value.first) == (0, second)
            assert written == []
            return
        assert pipeline.append(history, last_index) == last_index
    assert load_manifest(tmp_path).gaps == (Gap(0, second - 1),)
    assert [(part.first_index, part.last_index) for part in written] == [(second, last_index)]


def test_gaps_add_up_whoever_publishes(tmp_path: Path) -> None:
    """Silver and gold are published by another thread than bronze, and know nothing of its gaps."""
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("c", 0, format="parquet", buckets=32))
        directory.publish({NAME: Table(9)}, gaps=[Gap(3, 4)])
        directory.publish({"silver.messages": Table(9)})
        directory.publish({NAME: Table(19)}, gaps=[Gap(12, 13)])
    assert load_manifest(tmp_path).gaps == (Gap(3, 4), Gap(12, 13))


@pytest.fixture(scope="module")
def lossy(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OnDisk, int, int]]:
    """A node that has lost the events of some entries in the middle, and which."""
    copy = tmp_path_factory.mktemp("lossy") / "data"
    shutil.copytree(data_dir, copy)
    first, last = lose_a_stretch(copy)
    with OnDisk(copy) as server:
        yield server, first, last


def test_a_run_over_lost_events_fails_or_records_the_gap(
    spark: SparkSession, lossy: tuple[OnDisk, int, int], tmp_path: Path
) -> None:
    """By a node of which some events are lost for good; every other event is in bronze once."""
    server, first, last = lossy
    with Pipeline(spark, server.endpoint, tmp_path) as pipeline:
        with pytest.raises(
            PipelineError, match=f"entry {first} of the history is gone, what is kept begins at {last + 1}"
        ):
            pipeline.run_once()
        assert load_manifest(tmp_path).tables[NAME].watermark == -1
    with Pipeline(spark, server.endpoint, tmp_path, allow_gap=True) as pipeline, HistoryReader(server.url) as reader:
        reach = reader.reach()
        expected = [
            row
            for bounds in ((0, first - 1), (last + 1, reach.applied_index))
            for row in expected_events(reader, *bounds)
        ]
        assert pipeline.run_once() == len(expected)
    manifest = load_manifest(tmp_path)
    assert manifest.gaps == (Gap(first, last),)
    assert manifest.cluster == CLUSTER.hex()
    assert {table.watermark for table in manifest.tables.values()} == {reach.applied_index}
    found = all_tables(tmp_path)[NAME].select(["index", "n", "item"]).to_pylist()
    positions = [(row["index"], row["n"], row["item"]) for row in found]
    assert sorted(positions) == [(row["index"], row["n"], row["item"]) for row in expected]

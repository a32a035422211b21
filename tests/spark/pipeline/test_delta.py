"""Tables as Delta tables: the same files, in one transaction a publication, whatever a crash left undone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.errors import ExtraMissing, PipelineError
from penstock.spark.pipeline.delta import publish_delta
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.files import PartWriter, Target
from penstock.spark.pipeline.manifest import File, Table, load_manifest, new_manifest
from penstock.spark.pipeline.run import Pipeline
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from tests.spark.generated.comparing import differences
from tests.spark.generated.history import Generated, generate
from tests.spark.pipeline.keeping import DAY, DAY_US, all_tables, write_events

NO_SPARK: Any = None
EVENTS = "bronze.events"
MESSAGES = "silver.messages"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A short history."""
    return generate(tmp_path_factory.mktemp("generated") / "data", 100)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """A directory with one file of events."""
    made = Directory(tmp_path)
    made.begin(new_manifest("c1", 0, format="delta", buckets=32))
    made.publish({EVENTS: Table(29, DAY_US, tuple(write_events(tmp_path, 0, 30)))})
    return made


def delta(directory: Path, name: str = EVENTS) -> DeltaTable:
    """The Delta table beside the files."""
    return DeltaTable(str(directory.joinpath(*name.split("."))))


def assert_equal(directory: Path) -> None:
    """Each Delta table has the rows of its files."""
    for name, expected in all_tables(directory).items():
        assert differences(name, expected, delta(directory, name).to_pyarrow_table()) == []


def test_every_table_can_be_a_delta_table(directory: Directory) -> None:
    publish_delta(directory.path, directory.published)
    assert_equal(directory.path)
    assert delta(directory.path).transaction_version("penstock.c1") == 29
    assert delta(directory.path).to_pyarrow_table().num_rows == 30


def test_what_came_and_went_is_one_transaction(directory: Directory) -> None:
    publish_delta(directory.path, directory.published)
    directory.publish({EVENTS: Table(79, DAY_US, tuple(write_events(directory.path, 30, 50)))})
    publish_delta(directory.path, directory.published, [EVENTS])
    table = delta(directory.path)
    assert table.version() == 1
    assert table.to_pyarrow_table().num_rows == 50
    assert table.history(1)[0]["watermark"] == 79
    table.load_as_version(0)
    assert table.to_pyarrow_table().num_rows == 30


def test_a_watermark_that_moves_alone_is_told(directory: Directory) -> None:
    """Entries without events change no file."""
    publish_delta(directory.path, directory.published)
    directory.publish({EVENTS: Table(40, DAY_US, directory.tables[EVENTS].files)})
    publish_delta(directory.path, directory.published, [EVENTS])
    assert delta(directory.path).transaction_version("penstock.c1") == 40
    assert delta(directory.path).to_pyarrow_table().num_rows == 30


def test_a_repeat_adds_nothing(directory: Directory) -> None:
    for _ in range(2):
        publish_delta(directory.path, directory.published)
    assert {delta(directory.path, name).version() for name in PIPELINE_TABLES} == {0}


def test_a_table_without_the_newest_columns_is_continued(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its older rows have null there, also where nothing but the columns is new."""
    path, columns = directory.path, PIPELINE_TABLES[MESSAGES]

    def message(number: int) -> tuple[File, ...]:
        writer = PartWriter(Target(path, MESSAGES, number))
        row = {"queue_uid": 1, "id": number, "done": DAY_US, "failure": "x", "worker": "x"}
        writer.write(pa.RecordBatch.from_pylist([row], schema=arrow_schema(PIPELINE_TABLES[MESSAGES])), DAY)
        return tuple(writer.close())

    with monkeypatch.context() as older:
        before = {name: kind for name, kind in columns.items() if name not in ("failure", "worker")}
        older.setitem(PIPELINE_TABLES, MESSAGES, before)
        first = message(1)
        directory.publish({MESSAGES: Table(1, DAY_US, first)})
        publish_delta(path, directory.published)
    publish_delta(path, directory.published)
    assert delta(path, MESSAGES).to_pyarrow_table().column_names == list(columns)
    directory.publish({MESSAGES: Table(2, DAY_US, (*first, *message(2)))})
    publish_delta(path, directory.published)
    found = sorted(delta(path, MESSAGES).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["failure"], row["worker"]) for row in found] == [(1, None, None), (2, "x", "x")]
    assert_equal(path)


def test_files_are_left_out_by_their_figures_and_no_row_with_them(directory: Directory) -> None:
    """Times have microseconds, figures of Delta milliseconds."""
    files = [*directory.tables[EVENTS].files, *write_events(directory.path, 30, 1, step_us=1001)]
    directory.publish({EVENTS: Table(30, DAY_US, tuple(files))})
    publish_delta(directory.path, directory.published)
    (last,) = write_events(directory.path, 30, 1, step_us=1001)
    found = delta(directory.path).to_pyarrow_table(filters=[("index", "=", 30)])
    assert found.num_rows == 1
    by_time = delta(directory.path).to_pyarrow_table(filters=[("time", ">=", found["time"][0].as_py())])
    assert by_time.num_rows == 1
    assert last.last_us % 1000 != 0, "the test needs a time that is no whole millisecond"


def test_what_a_crash_left_undone_is_done_by_the_next_run(history: Generated, tmp_path: Path) -> None:
    """The manifest was published, the Delta logs were not written."""
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest(history.cluster_id.hex(), 0, format="delta", buckets=32))
        last_index = history.last_index
        directory.publish({EVENTS: Table(last_index, DAY_US, tuple(write_events(tmp_path, 0, 30)))})
        watermarks = {name: Table(last_index) for name in PIPELINE_TABLES if name != EVENTS}
        directory.publish(watermarks)
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline:
        assert pipeline.run_once() == 0
    assert_equal(tmp_path)


def test_tables_can_become_delta_tables_and_not_cease_to_be(history: Generated, tmp_path: Path) -> None:
    for chosen in (None, "delta"):
        with Pipeline(NO_SPARK, history.directory, tmp_path, format=chosen) as pipeline:
            pipeline.stop.set()
            pipeline.run_once()
    assert load_manifest(tmp_path).format == "delta"
    assert_equal(tmp_path)
    with (
        Pipeline(NO_SPARK, history.directory, tmp_path, format="parquet") as pipeline,
        pytest.raises(PipelineError, match="--format delta"),
    ):
        pipeline.run_once()


def test_without_the_package_the_extra_is_named(
    history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'penstock\[delta\]'"):
        Pipeline(NO_SPARK, history.directory, tmp_path, format="delta")
    assert not (tmp_path / "lock").exists()

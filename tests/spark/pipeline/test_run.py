"""Runs: however the log is cut, whatever fails in between, the tables are the same, and readers see whole ones only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.spark.errors import AnotherCluster, DataLost, PipelineError, TablesInUse
from penstock.spark.pipeline import directory as directory_module
from penstock.spark.pipeline import run as run_module
from penstock.spark.pipeline.compaction import FILES_MAX
from penstock.spark.pipeline.directory import Directory, named
from penstock.spark.pipeline.manifest import File, Gap, Manifest, Table, load_manifest, new_manifest, store_manifest
from penstock.spark.pipeline.run import Pipeline, Progress
from penstock.spark.pipeline.tables import read_table, table_files
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from tests.spark.generated.checking import run_to
from tests.spark.generated.history import Generated, generate
from tests.spark.pipeline.keeping import (
    DAY_US,
    all_tables,
    assert_same_tables,
    files_on_disk,
    table_of,
    write_events,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 2_500
ROWS_PER_SLICE = 400
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A history with all there is, over some days."""
    return generate(tmp_path_factory.mktemp("generated") / "data", EVENTS, seed=5)


@pytest.fixture(scope="module")
def whole_directory(spark: SparkSession, history: Generated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables after one run over all of it. Leave them as they are."""
    directory = tmp_path_factory.mktemp("whole") / "tables"
    with Pipeline(spark, history.directory, directory) as pipeline:
        assert pipeline.run_once() == sum(history.events)
    return directory


@pytest.fixture(scope="module")
def whole(whole_directory: Path) -> dict[str, pa.Table]:
    """The same as Arrow tables."""
    return all_tables(whole_directory)


ADDED = {"bronze.events": ["text"], "silver.messages": ["failure", "worker"]}
"""Columns that the tables of an earlier version lack."""


def test_tables_of_an_earlier_version_are_continued(
    spark: SparkSession, history: Generated, whole: dict[str, pa.Table], tmp_path: Path
) -> None:
    """What their files lack is null; all else is as if the newest version had made them."""
    with Pipeline(spark, history.directory, tmp_path) as pipeline:
        run_to(pipeline, [history.last_index // 8])
    for name, columns in ADDED.items():
        for path in table_files(tmp_path, name):
            pq.write_table(pq.read_table(path).drop_columns(columns), path)
    data = msgspec.json.decode((tmp_path / "manifest.json").read_bytes())
    for table in data["tables"].values():
        del table["owner_names"]
        for file in table["files"]:
            del file["owner_events"]
    store_manifest(tmp_path, msgspec.convert(data, Manifest))
    with Pipeline(spark, history.directory, tmp_path) as pipeline:
        pipeline.run_once()
    found = all_tables(tmp_path)
    for name, column in (("bronze.events", "text"), ("silver.messages", "worker")):
        assert found[name][column].null_count < found[name].num_rows, "new rows have it"
    expected = {name: table.drop_columns(ADDED.get(name, [])) for name, table in whole.items()}
    assert_same_tables(expected, {name: table.drop_columns(ADDED.get(name, [])) for name, table in found.items()})


def test_a_run_fills_all_tables_and_spark_reads_the_same(
    spark: SparkSession, history: Generated, whole: dict[str, pa.Table], whole_directory: Path
) -> None:
    manifest = load_manifest(whole_directory)
    assert manifest.cluster == history.cluster_id.hex()
    assert {table.watermark for table in manifest.tables.values()} == {history.last_index}
    assert whole["bronze.events"].num_rows == sum(history.events)
    assert all(table.num_rows for table in whole.values())
    for name in ("silver.messages", "silver.tasks"):
        frame = read_table(spark, whole_directory, name)
        assert frame.count() == whole[name].num_rows
        assert (
            frame.where("done is null").count()
            == whole[name].num_rows - pc.sum(pc.is_valid(whole[name]["done"])).as_py()
        )
    for name in ("silver.messages", "silver.tasks"):
        parts = [file.part for file in manifest.tables[name].files if file.is_open]
        assert len(parts) == len(set(parts)) > 0, "a bucket has one file"
    # The figures of the manifest are those of the files.
    for name, table in manifest.tables.items():
        assert sum(file.rows for file in table.files) == whole[name].num_rows
        assert all((whole_directory / file.path).stat().st_size == file.bytes for file in table.files)


def test_a_run_without_news_writes_nothing(spark: SparkSession, history: Generated, whole_directory: Path) -> None:
    before = files_on_disk(whole_directory)
    generation = load_manifest(whole_directory).generation
    with Pipeline(spark, history.directory, whole_directory) as pipeline:
        assert pipeline.run_once() == 0
    assert files_on_disk(whole_directory) == before
    assert load_manifest(whole_directory).generation == generation


@pytest.fixture(scope="module")
def half_directory(spark: SparkSession, history: Generated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bronze is there in many small slices; silver and gold have taken in about half of them. To be copied."""
    directory = tmp_path_factory.mktemp("half") / "tables"
    with Pipeline(spark, history.directory, directory, rows_per_run=ROWS_PER_SLICE) as pipeline:
        pipeline.run_bronze()
        assert len(pipeline.directory.tables["bronze.events"].files) > 4
    with Pipeline(spark, history.directory, directory, rows_per_run=EVENTS // 2) as pipeline:
        assert pipeline.derive()
    return directory


def test_in_slices_the_tables_are_the_same_and_readers_see_whole_ones(
    spark: SparkSession, history: Generated, whole: dict[str, pa.Table], half_directory: Path, tmp_path: Path
) -> None:
    """Bronze is cut otherwise than silver and gold; meanwhile a reader looks on."""
    shutil.copytree(half_directory, tmp_path, dirs_exist_ok=True)
    steps: list[Progress] = []
    with (
        watching(tmp_path) as seen,
        Pipeline(spark, history.directory, tmp_path, on_progress=steps.append) as pipeline,
    ):
        first = load_manifest(tmp_path)
        assert -1 < first.tables["silver.messages"].watermark < first.tables["bronze.events"].watermark
        pipeline.run_once()
    assert_same_tables(whole, all_tables(tmp_path))
    generations = [manifest.generation for manifest in seen]
    assert generations == sorted(generations)
    assert first.generation in generations, "the reader has not looked in time"
    assert [step.step for step in steps] == ["silver", "gold", "done"]
    assert [step.index for step in steps] == sorted(step.index for step in steps)


@contextmanager
def watching(directory: Path) -> Iterator[list[Manifest]]:
    """A reader that reads all tables again and again, each time by the manifest that it finds, and checks them."""
    seen: list[Manifest] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def watch() -> None:
        try:
            while not over.is_set():
                if (directory / "manifest.json").exists():
                    manifest = load_manifest(directory)
                    assert_consistent(directory, manifest)
                    seen.append(manifest)
                over.wait(0.05)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def assert_consistent(directory: Path, manifest: Manifest) -> None:
    """Silver and gold say of the same moment what bronze says of it."""
    silver = manifest.tables["silver.messages"]
    assert {table.watermark for name, table in manifest.tables.items() if name != "bronze.events"} == {silver.watermark}
    events = table_of(directory, manifest, "bronze.events").filter(pc.field("index") <= silver.watermark)
    begun = events.filter(pc.field("kind").isin(["put", "moved in"]))
    messages = table_of(directory, manifest, "silver.messages")
    minutes = table_of(directory, manifest, "gold.queue_minutes")
    assert messages.num_rows == begun.num_rows
    assert sum(minutes["arrivals"].to_pylist()) == begun.num_rows
    assert sum(minutes["completions"].to_pylist()) == messages.num_rows - messages["done"].null_count


class Killed(BaseException):
    """Stands for a crash: nothing in the program may catch it or clean up because of it."""


def test_whatever_crashes_the_tables_stay_and_the_next_run_makes_up_for_it(
    spark: SparkSession,
    history: Generated,
    whole: dict[str, pa.Table],
    half_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash in the middle of a turn, then one between writing and publishing."""
    shutil.copytree(half_directory, tmp_path, dirs_exist_ok=True)
    before = all_tables(tmp_path)
    for module, name, crash in (
        (run_module, "fold_messages", crash_behind),
        (directory_module, "store_manifest", crash_before),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, crash(getattr(module, name)))
            with pytest.raises(Killed), Pipeline(spark, history.directory, tmp_path) as pipeline:
                pipeline.run_once()
        assert_same_tables(before, all_tables(tmp_path))
        left = files_on_disk(tmp_path) - named(load_manifest(tmp_path))
        assert left, f"a crash at {name} should leave files that nobody names"
    with Pipeline(spark, history.directory, tmp_path) as pipeline:
        pipeline.run_once()
        manifest = pipeline.directory.published
    assert_same_tables(whole, all_tables(tmp_path))
    assert files_on_disk(tmp_path) == named(manifest) | {each.path for each in manifest.dropped}


def crash_behind(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but the program ends when it is done."""

    def call(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        raise Killed

    return call


def crash_before(_: Callable[..., Any]) -> Callable[..., Any]:
    """Instead of the function the end of the program."""

    def call(*_: Any, **__: Any) -> Any:
        raise Killed

    return call


KILLED_PROGRAM = """
import os, signal, sys
from penstock.spark.pipeline import run
from penstock.spark.pipeline.directory import Directory
from penstock.spark.session import open_session

moment, history, tables = sys.argv[1:]
published = 0
publish = Directory.publish

def kill_before_publishing(self, tables, **changes):
    global published
    published += 1
    if published > int(moment):
        os.kill(os.getpid(), signal.SIGKILL)
    publish(self, tables, **changes)

Directory.publish = kill_before_publishing
run.Pipeline(open_session(master="local[2]"), history, tables).run_once()
"""


@pytest.mark.long
def test_kill_9_between_writing_and_publishing(
    spark: SparkSession, history: Generated, whole: dict[str, pa.Table], half_directory: Path, tmp_path: Path
) -> None:
    """A process of its own, with Spark of its own, killed when all files of its turn are written."""
    shutil.copytree(half_directory, tmp_path, dirs_exist_ok=True)
    command = [sys.executable, "-c", KILLED_PROGRAM, "0", str(history.directory), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    assert done.returncode == -9, done.stderr
    assert load_manifest(tmp_path) == load_manifest(half_directory)
    left = files_on_disk(tmp_path) - files_on_disk(half_directory)
    assert {path.rsplit("/", 2)[0] for path in left} >= {"silver/messages", "gold/queue_minutes"}
    with Pipeline(spark, history.directory, tmp_path) as pipeline:
        pipeline.run_once()
    assert_same_tables(whole, all_tables(tmp_path))


# What is refused before anything is read. None of it needs Spark to be noticed.

NO_SPARK: Any = None


def test_another_cluster_is_noticed(history: Generated, tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.begin(new_manifest("f" * 32, 0, format="parquet", buckets=32))
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline, pytest.raises(AnotherCluster, match="f" * 32):
        pipeline.run_once()


@pytest.mark.parametrize("first_kept", [11, 40])
def test_entries_that_are_gone_are_noticed(
    history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_kept: int
) -> None:
    """Also if it is a single one."""
    begin_later(monkeypatch, first_kept)
    tables_up_to(tmp_path, history, 9)
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline, pytest.raises(DataLost) as lost:
        pipeline.run_once()
    assert (lost.value.wanted, lost.value.first) == (10, first_kept)
    assert load_manifest(tmp_path).gaps == ()


def test_what_is_kept_without_a_gap_is_no_gap(
    history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_later(monkeypatch, 10)
    tables_up_to(tmp_path, history, 9)
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline:
        pipeline.stop.set()
        pipeline.run_once()
    assert load_manifest(tmp_path).gaps == ()


def test_a_gap_that_is_allowed_is_recorded(history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_later(monkeypatch, 40)
    tables_up_to(tmp_path, history, 9)
    with Pipeline(NO_SPARK, history.directory, tmp_path, allow_gap=True) as pipeline:
        pipeline.stop.set()
        pipeline.run_once()
    manifest = load_manifest(tmp_path)
    assert manifest.gaps == (Gap(10, 39),)
    assert manifest.tables["bronze.events"].watermark == 39


def begin_later(monkeypatch: pytest.MonkeyPatch, first_index: int) -> None:
    """Let histories out of files begin with this entry, as if what lies before had been let go."""
    from penstock.storage.history import HistoryFiles
    from penstock.wire.native.messages import Reach

    reach = HistoryFiles.reach

    def later(self: HistoryFiles, after: int = -1, wait_seconds: float = 0.0) -> Reach:
        found = reach(self, after, wait_seconds)
        return Reach(found.cluster, max(found.first_index, first_index), found.applied_index, found.log_time_us)

    monkeypatch.setattr(HistoryFiles, "reach", later)


def tables_up_to(directory: Path, history: Generated, index: int) -> None:
    """Empty tables that are complete up to an entry."""
    with Directory(directory) as made:
        made.begin(new_manifest(history.cluster_id.hex(), index + 1, format="parquet", buckets=32))


def test_a_second_pipeline_is_refused(history: Generated, tmp_path: Path) -> None:
    with Pipeline(NO_SPARK, history.directory, tmp_path), pytest.raises(TablesInUse, match=f"process {os.getpid()}"):
        Pipeline(NO_SPARK, history.directory, tmp_path)


def test_a_fresh_directory_begins_where_the_history_does(
    history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_later(monkeypatch, 40)
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline:
        pipeline.stop.set()
        pipeline.run_once()
    manifest = load_manifest(tmp_path)
    assert (manifest.first_index, manifest.gaps) == (40, ())
    assert table_files(tmp_path, "bronze.events") == []


def test_a_run_joins_small_files_at_its_end(
    history: Generated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_index = history.last_index
    tables_up_to(tmp_path, history, last_index)
    with Directory(tmp_path) as directory:
        files = [file for n in range(FILES_MAX + 1) for file in write_events(tmp_path, n * 10, 10)]
        directory.publish({"bronze.events": Table(last_index, DAY_US, tuple(files))})
    asked: list[tuple[str, list[list[File]]]] = []

    def join(_: Any, __: Path, name: str, table: Table, runs: list[list[File]]) -> Table:
        asked.append((name, runs))
        return Table(table.watermark, table.time_us, (*table.files[:1],))

    monkeypatch.setattr(run_module, "compact", join)
    with Pipeline(NO_SPARK, history.directory, tmp_path) as pipeline:
        assert pipeline.run_once() == 0
    assert asked == [("bronze.events", [files])]
    assert load_manifest(tmp_path).tables["bronze.events"].files == (files[0],)


# Faults that happen while it runs.


def test_a_disk_that_is_full_leaves_the_tables(spark: SparkSession, history: Generated, tmp_path: Path) -> None:
    target = tmp_path / "small"
    target.mkdir()
    with mounted(target):
        with Pipeline(spark, history.directory, target, rows_per_run=500) as pipeline:
            with pytest.raises(PipelineError, match=r"No space left on device.*; the tables are as they were"):
                pipeline.run_once()
            shown = load_manifest(target)
        assert {table.watermark for table in shown.tables.values()} == {-1}
        for name in PIPELINE_TABLES:
            assert table_of(target, shown, name) == arrow_schema(PIPELINE_TABLES[name]).empty_table()


@contextmanager
def mounted(target: Path) -> Iterator[None]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("to mount a small file system one has to be root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(target)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)


def test_damage_in_the_history_is_told_in_a_sentence(spark: SparkSession, history: Generated, tmp_path: Path) -> None:
    data, tables = tmp_path / "data", tmp_path / "tables"
    shutil.copytree(history.directory, data)
    segment = max(data.rglob("*.events"), key=lambda path: path.stat().st_size)
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    segment.write_bytes(bytes(damaged))
    with Pipeline(spark, data, tables) as pipeline:
        with pytest.raises(Exception, match=segment.name) as raised:
            pipeline.run_once()
        assert "Traceback" not in str(raised.value)
        assert len(str(raised.value).splitlines()) == 1
    assert {table.watermark for table in load_manifest(tables).tables.values()} == {-1}

"""Pipelines that go on: what passes is waited for, what does not ends them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.client.errors import ConnectionLost
from penstock.client.history import HistoryReader
from penstock.spark.errors import AnotherCluster, DataLost, NoTables, PipelineError
from penstock.spark.pipeline import loops
from penstock.spark.pipeline.bronze import NAME as BRONZE
from penstock.spark.pipeline.directory import Directory
from penstock.spark.pipeline.failures import reason_of, told_plainly
from penstock.spark.pipeline.loops import run_continuously, run_every
from penstock.spark.pipeline.manifest import Table, load_manifest, new_manifest
from penstock.spark.pipeline.run import Pipeline, is_path
from penstock.spark.pipeline.tables import table_files
from penstock.wire.native.messages import Reach
from tests.spark.source.making import OnDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 240.0
NO_SPARK: Any = None


def test_a_continuous_pipeline_follows_a_node_through_its_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_RETRY_SECONDS", 0.2)
    data, tables = tmp_path / "data", tmp_path / "tables"
    failures: list[Exception] = []
    with OnDisk(data) as server:
        put(server, 5)
        pipeline = Pipeline(spark, server.endpoint, tables)
        with running(pipeline, lambda: run_continuously(pipeline, 0.1, on_failure=failures.append)):
            wait_until(lambda: arrivals(tables) == 5)
            put(server, 2)
            wait_until(lambda: puts_in_bronze(tables) == 7)
            server.stop()
            with OnDisk(data, port=server.port) as again:
                put(again, 3)
                wait_until(lambda: arrivals(tables) == 10)
    assert puts_in_bronze(tables) == 10
    assert {type(failure) for failure in failures} <= {ConnectionLost}, "a node may be away for long, nothing else"


def test_a_node_that_is_away_is_told_and_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    data, tables, port = tmp_path / "data", tmp_path / "tables", free_port()
    failures: list[Exception] = []
    published: list[int] = []
    pipeline = Pipeline(spark, f"127.0.0.1:{port}", tables)
    pipeline.options = replace(pipeline.options, timeout_seconds=0.0)
    with running(
        pipeline,
        lambda: run_every(
            pipeline, 0.2, on_failure=failures.append, on_published=lambda: published.append(arrivals(tables))
        ),
    ):
        wait_until(lambda: len(failures) >= 2)
        assert {type(failure) for failure in failures} == {ConnectionLost}
        with OnDisk(data, port=port) as server:
            put(server, 4)
            wait_until(lambda: 4 in published)


def put(server: OnDisk, count: int) -> None:
    """Put so many messages into a queue."""
    with penstock.connect_sync(server.url) as client:
        queue = client.queue("jobs")
        if not any(view.name == "jobs" for view in client.queues()):
            queue.create()
        for number in range(count):
            queue.put(b"job %d" % number)


@contextmanager
def running(pipeline: Pipeline, loop: Callable[[], None]) -> Iterator[None]:
    """A loop in a thread of its own, told to stop at the end; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            loop()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        pipeline.stop.set()
        thread.join(PATIENCE_S)
        pipeline.close()
    assert not thread.is_alive()
    if raised:
        raise raised[0]


def wait_until(happened: Callable[[], bool]) -> None:
    """Look again and again, with patience."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def arrivals(tables: Path) -> int:
    """How many messages have come, by gold."""
    try:
        return sum(
            sum(pq.read_table(path)["arrivals"].to_pylist()) for path in table_files(tables, "gold.queue_minutes")
        )
    except NoTables:
        return 0


def puts_in_bronze(tables: Path) -> int:
    """How many messages have come, by bronze."""
    return sum(pq.read_table(path)["kind"].to_pylist().count("put") for path in table_files(tables, "bronze.events"))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_another_cluster_ends_the_loop(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "data") as server:
        with Directory(tmp_path / "tables") as directory:
            directory.begin(new_manifest("f" * 32, 0, format="parquet", buckets=32))
        for loop in (run_every, run_continuously):
            with Pipeline(NO_SPARK, server.endpoint, tmp_path / "tables") as pipeline, pytest.raises(AnotherCluster):
                loop(pipeline, 0.0, on_failure=lambda error: pytest.fail(str(error)))
    assert load_manifest(tmp_path / "tables").generation == 1


def test_entries_that_are_gone_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not come back, and whether to go on without them is for the user to say."""

    def fail(*_: Any) -> Any:
        raise DataLost(3, 7)

    with OnDisk(tmp_path / "data") as server, Pipeline(NO_SPARK, server.endpoint, tmp_path / "tables") as pipeline:
        monkeypatch.setattr(pipeline, "begin", fail)
        for loop in (run_every, run_continuously):
            with pytest.raises(DataLost):
                loop(pipeline, 0.0, on_failure=lambda error: pytest.fail(str(error)))


def test_a_node_that_is_wiped_while_it_is_followed_ends_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach, asked = HistoryReader.reach, []

    def wiped_after_the_first(self: HistoryReader, after: int = -1, wait_seconds: float = 0.0) -> Reach:
        asked.append(after)
        found = reach(self, after, wait_seconds)
        return found if len(asked) == 1 else Reach("f" * 32, 0, found.applied_index, found.log_time_us)

    monkeypatch.setattr(HistoryReader, "reach", wiped_after_the_first)
    with OnDisk(tmp_path / "data") as server, Pipeline(NO_SPARK, server.endpoint, tmp_path / "tables") as pipeline:
        with pytest.raises(AnotherCluster):
            run_continuously(pipeline, 3600.0, on_failure=lambda error: pytest.fail(str(error)))
        assert pipeline.directory.tables[BRONZE].watermark == -1


def test_a_continuous_pipeline_joins_small_files_of_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of bronze by the thread that writes it, the others by the other one: a table has one writer."""
    joined: list[tuple[str, ...]] = []
    with OnDisk(tmp_path / "data") as server, Pipeline(NO_SPARK, server.endpoint, tmp_path / "tables") as pipeline:

        def append(_: Any, last_index: int) -> int:
            pipeline.directory.publish({BRONZE: Table(last_index)})
            return last_index

        def compact(names: tuple[str, ...]) -> None:
            joined.append(names)
            if len(joined) == 2:
                pipeline.stop.set()

        turns = [True]
        monkeypatch.setattr(pipeline, "append", append)
        monkeypatch.setattr(pipeline, "derive", lambda: bool(turns and turns.pop()))
        monkeypatch.setattr(pipeline, "compact", compact)
        with running(pipeline, lambda: run_continuously(pipeline, 3600.0, on_failure=lambda e: pytest.fail(str(e)))):
            assert pipeline.stop.wait(PATIENCE_S)
    assert sorted(joined) == [(BRONZE,), ("silver.messages", "silver.tasks")]


def test_without_spark_there_is_nothing_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(NO_SPARK, f"127.0.0.1:{free_port()}", tmp_path) as pipeline:

        def fail() -> int:
            raise PipelineError("a task failed")

        monkeypatch.setattr(pipeline, "run_once", fail)
        with pytest.raises(PipelineError, match="Spark has ended: a task failed"):
            run_every(pipeline, 0.0, on_failure=lambda error: pytest.fail(str(error)))


def test_a_failure_of_a_task_is_told_by_its_last_line(spark: SparkSession) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        from penstock.spark.errors import DataLost

        yield from batches
        raise DataLost(3, 7)

    with pytest.raises(PipelineError) as raised, told_plainly():
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    assert str(raised.value).startswith("entry 3 of the history is gone, what is kept begins at 7;")
    assert str(raised.value).endswith("; the tables are as they were")
    assert "\n" not in str(raised.value)


def test_what_is_no_trace_is_told_by_its_first_line() -> None:
    assert reason_of("\n  Job aborted: no memory\n\tat org.apache...") == "Job aborted: no memory"
    assert reason_of("") == "Spark failed"


def test_what_is_a_path_and_what_a_node() -> None:
    assert [is_path(each) for each in (Path("data"), "/data", "./data", "a/b")] == [True] * 4
    assert [is_path(each) for each in ("host:2602", "a:1,b:2", "penstock://a:1,b:2")] == [False] * 3

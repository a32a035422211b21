"""Batch queries with Spark itself: by endpoint and by path the same rows, cut as asked for, and errors that say why."""

from __future__ import annotations

import hashlib
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import penstock
from penstock.client.history import HistoryReader
from penstock.spark.schemas import EVENTS, NEVER_NULL
from penstock.storage.layout import Layout
from tests.spark.source.making import OnDisk, expected_events
from tests.spark.source.test_decode import as_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, **options: Any) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("penstock").options(**given).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows in the order of events, with times as numbers."""
    found = [row for batch in frame.toArrow().to_batches() for row in as_rows(batch)]
    return sorted(found, key=lambda row: (row["index"], row["n"], row["item"]))


def error_of(frame: Callable[[], DataFrame]) -> str:
    with pytest.raises(PySparkException) as caught:
        frame().toArrow()
    return str(caught.value)


def test_endpoint_and_path_give_all_events_once(
    spark: SparkSession, node: OnDisk, reader: HistoryReader, data_dir: Path
) -> None:
    """The node has one entry more, the term that it began itself."""
    expected = expected_events(reader, 0, reader.reach().applied_index)
    by_endpoint = load(spark, endpoint=node.endpoint, minPartitions=4)
    assert by_endpoint.schema.simpleString() == f"struct<{','.join(f'{name}:{kind}' for name, kind in EVENTS.items())}>"
    assert {field.name for field in by_endpoint.schema.fields if not field.nullable} == NEVER_NULL
    assert rows(by_endpoint) == expected
    parts = by_endpoint.selectExpr("spark_partition_id() AS part").distinct().count()
    assert parts >= 4
    by_path = spark.read.format("penstock").load(str(data_dir))
    assert rows(by_path) == [row for row in expected if row["index"] < expected[-1]["index"]]


def test_options_choose_what_is_read(spark: SparkSession, node: OnDisk, reader: HistoryReader) -> None:
    columns = ("index", "n", "item", "payload", "headers", "queue")
    frame = load(
        spark,
        endpoint=node.endpoint,
        startingIndex=3,
        endingIndex=50,
        queues="jobs",
        kinds="put,acked",
        columns=",".join(columns),
        payload="false",
    )
    assert tuple(frame.columns) == columns
    expected = [
        {name: row[name] for name in columns} | {"payload": None}
        for row in expected_events(reader, 3, 50)
        if row["queue"] == "jobs" and row["kind"] in ("put", "acked")
    ]
    assert rows(frame) == expected
    assert any(row["headers"] for row in expected)


def test_sql_and_a_schema_by_hand(spark: SparkSession, node: OnDisk, reader: HistoryReader) -> None:
    last = reader.reach().applied_index
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW history USING penstock OPTIONS (endpoint '{node.endpoint}', kinds 'put')"
    )
    (found,) = spark.sql("SELECT count(*), max(`index`) FROM history").collect()
    puts = [row for row in expected_events(reader, 0, last) if row["kind"] == "put"]
    assert tuple(found) == (len(puts), puts[-1]["index"])
    chosen = spark.read.format("penstock").option("endpoint", node.endpoint).schema("key bigint, `index` bigint")
    assert chosen.load().columns == ["key", "index"]
    assert chosen.load().where("`index` = 3").count() == 20
    wrong = spark.read.format("penstock").option("endpoint", node.endpoint).schema("key string")
    assert "no such column key: it is bigint" in error_of(wrong.load)
    null = spark.read.format("penstock").option("endpoint", node.endpoint).schema("payload binary NOT NULL")
    assert "the column payload of events may be null" in error_of(null.load)


def test_an_empty_range_is_an_empty_table(spark: SparkSession, node: OnDisk) -> None:
    frame = load(spark, endpoint=node.endpoint, startingIndex=1_000_000)
    assert frame.count() == 0
    assert frame.toArrow().schema.names == list(EVENTS)


def test_wrong_options_are_told(spark: SparkSession, node: OnDisk) -> None:
    assert "did you mean startingIndex?" in error_of(lambda: load(spark, endpoint=node.endpoint, startingIndx=1))


def test_an_unreachable_node_is_told(spark: SparkSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        said = error_of(lambda: load(spark, endpoint=endpoint, timeoutSeconds=0.3))
    assert f"no connection to {endpoint}" in said


def damaged(data_dir: Path, tmp_path: Path) -> tuple[Path, Layout]:
    copy = tmp_path / "copy"
    shutil.copytree(data_dir, copy)
    return copy, Layout(copy)


def test_damaged_files_are_told_and_make_no_rows(spark: SparkSession, data_dir: Path, tmp_path: Path) -> None:
    copy, layout = damaged(data_dir, tmp_path)
    first, second, third, *_ = layout.sealed_first_indexes()
    flipped = layout.sealed_events(second)
    data = bytearray(flipped.read_bytes())
    data[200] ^= 1
    flipped.write_bytes(data)
    said = error_of(lambda: load(spark, path=copy, startingIndex=second))
    assert flipped.name in said
    assert "wrong checksum" in said
    unharmed = rows(load(spark, path=data_dir, endingIndex=second - 1))
    assert rows(load(spark, path=copy, endingIndex=second - 1)) == unharmed
    cut = layout.sealed_log(third)
    cut.write_bytes(cut.read_bytes()[:-100])
    said = error_of(lambda: load(spark, path=copy, startingIndex=third))
    assert cut.name in said
    assert "offset" in said
    assert rows(load(spark, path=layout.sealed_log(first))) == unharmed


def test_a_file_of_another_version_or_none_is_told(spark: SparkSession, data_dir: Path, tmp_path: Path) -> None:
    copy, layout = damaged(data_dir, tmp_path)
    data = bytearray(layout.log.read_bytes())
    data[4:8] = (7).to_bytes(4, "little")
    layout.log.write_bytes(data)
    assert "has version 7" in error_of(lambda: load(spark, path=copy))
    assert "does not exist" in error_of(lambda: load(spark, path=tmp_path / "nowhere"))


def test_a_start_that_is_gone_fails_or_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    short = {"retention_bytes": 0, "retention_hours": 0, "snapshot_bytes": 8192}
    with OnDisk(tmp_path / "data", **short) as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("jobs")
        queue.create()
        with HistoryReader(server.url) as reader:
            while not reader.reach().first_index:
                queue.put_many([b"x" * 100] * 100)
            said = error_of(lambda: load(spark, endpoint=server.endpoint, startingIndex=0))
            assert "entry 0 of the history is gone" in said
            assert "failOnDataLoss=false" in said
            frame = load(spark, endpoint=server.endpoint, startingIndex=0, failOnDataLoss="false")
            found = rows(frame)
            reach = reader.reach()
            assert found == expected_events(reader, reach.first_index, reach.applied_index)


def test_a_lost_stretch_of_the_journal_fails_or_is_passed_over(
    spark: SparkSession, data_dir: Path, tmp_path: Path
) -> None:
    """A segment without its journal, from before a snapshot: its events cannot be made again."""
    copy, layout = damaged(data_dir, tmp_path)
    with OnDisk(copy, snapshot_bytes=4096) as server, penstock.connect_sync(server.url) as client:
        while not client.status().snapshot_index > 0:
            client.queue("jobs").put_many([b"x" * 100] * 100)
    first, second, *_ = layout.sealed_first_indexes()
    layout.sealed_events(first).unlink()
    with OnDisk(copy) as server, HistoryReader(server.url) as reader:
        said = error_of(lambda: load(spark, endpoint=server.endpoint, endingIndex=second + 3))
        assert f"entry {first} of the history is gone, what is kept begins at {second}" in said
        frame = load(spark, endpoint=server.endpoint, endingIndex=second + 3, failOnDataLoss="false")
        assert rows(frame) == expected_events(reader, second, second + 3)


def test_messages_of_every_length_are_read_by_endpoint_and_path(spark: SparkSession, tmp_path: Path) -> None:
    """Up to the longest that a node takes by default: an entry of 16 MiB comes in parts."""
    sizes = [0, 1, 64 * 1024, 1024 * 1024, 16 * 1024 * 1024]
    with OnDisk(tmp_path / "data") as server, penstock.connect_sync(server.url) as client:
        queue = client.queue("long")
        queue.create()
        for size in sizes:
            queue.put(b"x" * size)
        puts = load(spark, endpoint=server.endpoint, queues="long", kinds="put", columns="id,payload")
        measured = puts.selectExpr("id", "octet_length(payload) AS size", "md5(payload) AS digest")
        found = sorted((row["id"], row["size"], row["digest"]) for row in measured.collect())
    expected = [
        (number, size, hashlib.md5(b"x" * size, usedforsecurity=False).hexdigest())
        for number, size in enumerate(sizes, 1)
    ]
    assert found == expected
    by_path = load(spark, path=tmp_path / "data", queues="long", kinds="put", columns="id,payload")
    assert sorted((row["id"], len(row["payload"])) for row in by_path.collect()) == list(enumerate(sizes, 1))

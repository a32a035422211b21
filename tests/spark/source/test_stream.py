"""Streams with Spark itself: every event once, however the stream is cut, stopped, and whatever the node does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import penstock
from penstock.client.history import HistoryReader
from tests.spark.source.making import OnDisk, expected_events
from tests.spark.source.test_batch import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ENOUGH_S = 120


class Stream:
    """A query over our source, and the rows of its batches."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: Any) -> None:
        given = {name: str(value) for name, value in options.items()}
        self.batches: list[list[dict[str, Any]]] = []
        self._writer = (
            spark.readStream.format("penstock")
            .options(**given)
            .load()
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(checkpoint))
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch]

    def to_the_end(self) -> StreamingQuery:
        """Run over what is there now."""
        query = self._writer.trigger(availableNow=True).start()
        assert query.awaitTermination(_ENOUGH_S)
        return query

    def follow(self) -> StreamingQuery:
        """Run until it is stopped."""
        return self._writer.start()

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches.append(rows(frame))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OnDisk]:
    with OnDisk(tmp_path / "data") as running:
        put(running, 0, 300)
        yield running


def put(server: OnDisk, first: int, last: int) -> None:
    with penstock.connect_sync(server.url) as client:
        queue = client.queue("jobs")
        for start in range(first, last, 20):
            queue.put_each([b"payload %d" % number for number in range(start, min(start + 20, last))], create=True)


def history(server: OnDisk, first_index: int = 0) -> list[dict[str, Any]]:
    with HistoryReader(server.url) as reader:
        return expected_events(reader, first_index, reader.reach().applied_index)


def test_a_limited_stream_gives_every_event_once_and_shows_its_lag(
    spark: SparkSession, node: OnDisk, reader: HistoryReader, tmp_path: Path
) -> None:
    reach = reader.reach()
    stream = Stream(spark, tmp_path / "checkpoint", endpoint=node.endpoint, maxRowsPerBatch=150, minPartitions=3)
    query = stream.to_the_end()
    assert stream.rows == expected_events(reader, 0, reach.applied_index)
    assert len(stream.batches) > 1
    first, *_, last = [progress.sources[0] for progress in query.recentProgress if progress.numInputRows]
    assert json.loads(first.latestOffset) == {"cluster": reach.cluster, "index": reach.applied_index + 1}
    assert json.loads(first.endOffset)["index"] < reach.applied_index + 1
    assert json.loads(last.endOffset) == json.loads(last.latestOffset)


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, server: OnDisk, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    first = Stream(spark, checkpoint, endpoint=server.endpoint, maxRowsPerBatch=100)
    first.to_the_end()
    assert first.rows == history(server)
    put(server, 300, 330)
    second = Stream(spark, checkpoint, endpoint=server.endpoint)
    second.to_the_end()
    assert first.rows + second.rows == history(server)
    assert sum(row["kind"] == "put" for row in second.rows) == 30


def test_a_stream_over_files(spark: SparkSession, data_dir: Path, node: OnDisk, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path / "checkpoint", path=data_dir, maxRowsPerBatch=200, kinds="put")
    stream.to_the_end()
    assert stream.rows == [row for row in history(node) if row["kind"] == "put"]


def test_a_node_that_restarts_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """In mid-stream, on the same port, with the same data: nothing is missing and nothing comes twice."""
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    with OnDisk(data) as server:
        put(server, 0, 100)
        stream = Stream(spark, checkpoint, endpoint=server.endpoint)
        query = stream.follow()
        query.processAllAvailable()
        assert stream.rows == history(server)
    try:
        with OnDisk(data, port=server.port) as again:
            put(again, 100, 250)
            query.processAllAvailable()
            assert stream.rows == history(again)
            assert sum(row["kind"] == "put" for row in stream.rows) == 250
    finally:
        query.stop()


def test_a_wiped_cluster_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with OnDisk(tmp_path / "data") as server:
        put(server, 0, 40)
        Stream(spark, checkpoint, endpoint=server.endpoint).to_the_end()
    with OnDisk(tmp_path / "other", port=server.port) as wiped:
        put(wiped, 0, 400)
        stream = Stream(spark, checkpoint, endpoint=wiped.endpoint)
        with pytest.raises(PySparkException, match="it was wiped, or another answers"):
            stream.to_the_end()
        assert stream.rows == []


def test_a_start_that_was_compacted_away_fails_or_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    short = {"retention_bytes": 0, "retention_hours": 0, "snapshot_bytes": 8192}
    with OnDisk(tmp_path / "data", **short) as server, HistoryReader(server.url) as reader:
        put(server, 0, 20)
        Stream(spark, checkpoint, endpoint=server.endpoint).to_the_end()
        stopped_at = reader.reach().applied_index + 1
        while reader.reach().first_index <= stopped_at:
            put(server, 0, 200)
        with pytest.raises(PySparkException, match=f"entry {stopped_at} of the history is gone"):
            Stream(spark, checkpoint, endpoint=server.endpoint).to_the_end()
        stream = Stream(spark, checkpoint, endpoint=server.endpoint, failOnDataLoss="false")
        stream.to_the_end()
        assert stream.rows == history(server, reader.reach().first_index)


def test_what_is_no_stream_is_refused(spark: SparkSession, node: OnDisk, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="records is a state and no stream"):
        Stream(spark, tmp_path / "checkpoint", endpoint=node.endpoint, table="records").to_the_end()

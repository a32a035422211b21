"""DataFrames into queues through Spark itself: every column, batch and stream, and what is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import penstock
from penstock.client.blocking import BlockingLink
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.errors import Refusal
from penstock.wire.native import messages as m
from soak.spark_sink import Broker, lose_last_commit, write_files


def write(rows: DataFrame, broker: Broker, **options: Any) -> None:
    rows.write.format("penstock").mode("append").options(endpoint=broker.endpoint, **options).save()


def numbered(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr("id % 3 AS key", "CAST(id AS string) AS payload")


def fails(rows: DataFrame, broker: Broker, **options: Any) -> str:
    """What a user reads of a write that fails."""
    with pytest.raises(PySparkException) as told:
        write(rows, broker, **options)
    return str(told.value)


def test_every_column_becomes_what_it_says(spark: SparkSession, broker: Broker, queue: str) -> None:
    rows = spark.sql(f"""
        SELECT '{queue}' AS queue, 7 AS key, CAST('all' AS binary) AS payload, INTERVAL '1' HOUR AS delay,
               TIMESTAMP '2100-01-01 00:00:00' AS expires_at, map('a', '1') AS headers, 'once' AS dedup_key
        UNION ALL SELECT '{queue}', NULL, CAST('none' AS binary), NULL, NULL, NULL, NULL
        UNION ALL SELECT '{queue}', 8, CAST('again' AS binary), NULL, NULL, NULL, 'once'
    """).coalesce(1)
    write(rows, broker)
    with penstock.connect_sync(broker.url) as client:
        every, none = client.queue(queue).browse()
    assert (every.key, every.payload, every.headers, every.dedup_key) == (7, b"all", {"a": "1"}, "once")
    assert every.state == "delayed"
    assert every.available_at is not None
    assert 3500 < (every.available_at - every.published_at).total_seconds() < 3700
    assert every.expires_at is not None
    assert every.expires_at.isoformat() == "2100-01-01T00:00:00+00:00"
    assert (none.key, none.payload, none.state, none.headers, none.expires_at) == (0, b"none", "ready", {}, None)


def test_a_batch_is_whole_and_keeps_the_order_of_each_partition(
    spark: SparkSession, broker: Broker, queue: str
) -> None:
    write(spark.range(0, 15_000, 1, 1).selectExpr("CAST(id AS string) AS payload"), broker, queue=queue)
    wait_for(broker, queue, 15_000)
    assert broker.payloads(queue) == [str(number).encode() for number in range(15_000)]


def wait_for(broker: Broker, queue: str, count: int) -> None:
    """What is beyond the first 10,000 of a publication follows in later entries; a take waits for none of them."""
    with penstock.connect_sync(broker.url) as client:
        view = client.queue(queue).info()
        while view.put < count:
            view = client.queue(queue).info()
    assert view.put == count


def test_rows_go_to_the_queues_they_name(spark: SparkSession, broker: Broker, queue: str) -> None:
    rows = spark.range(0, 3000, 1, 2).selectExpr(
        f"concat('{queue}-', CAST(id % 3 AS string)) AS queue", "CAST(id AS string) AS payload"
    )
    told = fails(rows, broker)
    assert f"there is no queue '{queue}-" in told
    assert "createQueues=true" in told
    write(rows, broker, createQueues="true")
    for n in range(3):
        found = sorted(int(payload) for payload in broker.payloads(f"{queue}-{n}"))
        assert found == list(range(n, 3000, 3))


def test_a_row_without_payload_or_queue_is_named(spark: SparkSession, broker: Broker, queue: str) -> None:
    rows = spark.sql("SELECT IF(id = 17, NULL, 'p') AS payload FROM range(0, 20, 1, 1)")
    assert "row 17 of partition 0, both counted from 0: payload is null" in fails(rows, broker, queue=queue)
    rows = spark.sql(f"SELECT IF(id = 3, NULL, '{queue}') AS queue, 'p' AS payload FROM range(0, 20, 1, 1)")
    assert "row 3 of partition 0, both counted from 0: queue is null" in fails(rows, broker)
    assert broker.payloads(queue) == []


def test_a_row_that_cannot_be_said_is_named(spark: SparkSession, broker: Broker, queue: str) -> None:
    for column, reason in {
        "IF(id = 5, -1, 1) AS delay": "row 5 of partition 0, both counted from 0: a delay lies between",
        "repeat('k', IF(id = 6, 256, 1)) AS dedup_key": "row 6 of partition 0.*a dedup_key has at most 255 characters",
        "map('h', IF(id = 7, NULL, 'v')) AS headers": "row 7 of partition 0.*a header is null",
    }.items():
        told = fails(spark.sql(f"SELECT 'p' AS payload, {column} FROM range(0, 20, 1, 1)"), broker, queue=queue)
        assert reason.split(".*")[0] in told
        assert reason.split(".*")[-1] in told
    assert broker.payloads(queue) == []


def test_a_row_that_the_queue_refuses_is_named(spark: SparkSession, broker: Broker, queue: str) -> None:
    """Also where rows were sorted by queue before they were sent, and in a later part."""
    narrow = f"{queue}-narrow"
    broker.ask(c.CreateQueue(narrow, c.QueueSettings(key_range=(0, 9))))
    rows = spark.sql(f"""
        SELECT IF(id % 2 = 0, '{queue}', '{narrow}') AS queue, IF(id = 7777, 10, 1) AS key, 'p' AS payload
        FROM range(0, 9000, 1, 1)
    """)
    assert "row 7777 of partition 0, both counted from 0: a key is outside 0..9" in fails(rows, broker)
    assert broker.payloads(queue) == []


def test_a_write_that_failed_leaves_nothing_staged(spark: SparkSession, broker: Broker, queue: str) -> None:
    """The first rows are staged when the first bad one comes; then the batch is aborted."""
    rows = spark.sql("SELECT IF(id = 25000, NULL, 'p') AS payload FROM range(0, 30000, 1, 1)")
    assert "payload is null" in fails(rows, broker, queue=queue, query=queue, batch="3")
    assert broker.events(j.ABORTED)[-1].value == 3
    assert broker.ask(c.Abort(queue, 3)).count == 0
    assert broker.payloads(queue) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queue": "q", "query": "w"}, "option batch: is missing"),
        ({"queue": "q", "batch": "1"}, "option query: is missing"),
        ({"queue": "q", "query": "w", "batch": "-1"}, "option batch: '-1' is no number"),
        ({"queue": "q", "query": "w" * 256, "batch": "1"}, "option query: a name has 1 to 255"),
        ({"queue": "q", "createQueues": "perhaps"}, "option createQueues: 'perhaps'"),
        ({"queue": "q", "timeoutSeconds": "soon"}, "option timeoutSeconds: is a number"),
        ({"queues": "q"}, "option queues: is not known; did you mean queue?"),
        ({}, "option queue: is missing"),
    ],
)
def test_an_option_that_makes_no_sense_is_told(
    spark: SparkSession, broker: Broker, options: dict[str, str], reason: str
) -> None:
    assert reason in fails(numbered(spark, 1), broker, **options)


def test_only_append_is_possible(spark: SparkSession, broker: Broker, queue: str) -> None:
    writer = numbered(spark, 1).write.format("penstock").mode("overwrite")
    with pytest.raises(PySparkException, match="a queue can only be added to"):
        writer.options(endpoint=broker.endpoint, queue=queue).save()


def test_a_missing_endpoint_and_a_node_that_is_not_there_are_told(spark: SparkSession, free_port: int) -> None:
    with pytest.raises(PySparkException, match="option endpoint: is missing"):
        numbered(spark, 1).write.format("penstock").mode("append").option("queue", "q").save()
    writer = numbered(spark, 1, 1).write.format("penstock").mode("append")
    with pytest.raises(PySparkException, match=f"no connection to 127.0.0.1:{free_port}"):
        writer.options(endpoint=f"127.0.0.1:{free_port}", queue="q", timeoutSeconds="0").save()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_batch_write_with_a_name_can_be_repeated(spark: SparkSession, broker: Broker, queue: str) -> None:
    rows = numbered(spark, 1000)
    write(rows, broker, queue=queue, query=queue, batch="4")
    write(rows, broker, queue=queue, query=queue, batch="4")
    write(rows, broker, queue=queue, query=queue, batch="3")
    assert len(broker.payloads(queue)) == 1000
    write(rows, broker, queue=queue, query=queue, batch="5")
    write(rows, broker, queue=queue)
    assert len(broker.payloads(queue)) == 3000


def test_no_rows_are_no_records(spark: SparkSession, broker: Broker, queue: str) -> None:
    write(numbered(spark, 0), broker, queue=queue)
    write(numbered(spark, 1, 3), broker, queue=queue)  # two of the partitions are empty
    assert broker.payloads(queue) == [b"0"]


# Streams.


def stream(spark: SparkSession, broker: Broker, queue: str, directory: Path, **options: str) -> StreamingQuery:
    rows = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 2).json(str(directory / "files"))
    writer = rows.selectExpr("lpad(CAST(number AS string), 100, '0') AS payload").writeStream.format("penstock")
    writer = writer.options(endpoint=broker.endpoint, queue=queue, **options)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()


@pytest.fixture
def numbers(tmp_path: Path) -> list[bytes]:
    return write_files(tmp_path / "files", 6, 50)


def test_a_stream_is_written_once_also_if_its_last_commit_is_lost(
    spark: SparkSession, broker: Broker, queue: str, tmp_path: Path, numbers: list[bytes]
) -> None:
    query = stream(spark, broker, queue, tmp_path)
    query.awaitTermination()
    assert sorted(broker.payloads(queue)) == numbers
    staged = len(broker.events(j.STAGED))
    assert lose_last_commit(tmp_path / "checkpoint")
    again = stream(spark, broker, queue, tmp_path)
    again.awaitTermination()
    assert again.id == query.id
    assert [progress["batchId"] for progress in again.recentProgress if progress["numInputRows"]] == [2]
    assert sorted(broker.payloads(queue)) == numbers
    # What is staged for a batch that was published is not even kept.
    assert len(broker.events(j.STAGED)) == staged


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, queue: str, tmp_path: Path, numbers: list[bytes]
) -> None:
    stream(spark, broker, queue, tmp_path).awaitTermination()
    (tmp_path / "files" / "more.json").write_text('{"number": 300}\n')
    stream(spark, broker, queue, tmp_path).awaitTermination()
    assert sorted(broker.payloads(queue)) == [*numbers, b"%0100d" % 300]
    published = [event.value for event in broker.events(j.PUBLISHED)][-4:]
    assert published == [0, 1, 2, 3]


def test_a_stream_can_have_a_name_of_its_own(
    spark: SparkSession, broker: Broker, queue: str, tmp_path: Path, numbers: list[bytes]
) -> None:
    stream(spark, broker, queue, tmp_path, query=queue).awaitTermination()
    refusal = broker.ask(c.Publish(queue, 3, [(0, 0)]))
    assert isinstance(refusal, Refusal)
    assert broker.ask(c.Publish(queue, 2, [(0, 0)])).fresh is False


def test_a_streams_own_options_are_let_through_and_a_batch_is_not(
    spark: SparkSession, broker: Broker, queue: str, tmp_path: Path, numbers: list[bytes]
) -> None:
    rows = spark.readStream.schema("number bigint").json(str(tmp_path / "files"))
    writer = rows.selectExpr("CAST(number AS string) AS payload").writeStream.format("penstock")
    writer = writer.options(endpoint=broker.endpoint, queue=queue).trigger(availableNow=True).queryName("named")
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert len(broker.payloads(queue)) == len(numbers)
    query = writer.option("batch", "1").option("checkpointLocation", str(tmp_path / "other")).start()
    with pytest.raises(PySparkException, match="numbered by Spark"):
        query.awaitTermination()


def test_a_batch_that_somebody_dropped_half_way_is_not_published(
    spark: SparkSession, broker: Broker, queue: str
) -> None:
    """The first rows are staged, somebody else aborts the batch, and staging goes on: the count tells it."""
    url = broker.url

    def drop_the_first(batches: Iterator[Any]) -> Iterator[Any]:
        with BlockingLink(url) as link:
            before = link.ask(m.Latest(-1, 0)).applied_index
            for n, batch in enumerate(batches):
                if n == 2:
                    link.ask(m.Latest(before, 30_000))
                    assert link.ask(c.Abort(queue, 0)).count == 1
                yield batch

    rows = spark.range(0, 30_000, 1, 1).selectExpr("lpad(CAST(id AS string), 100, '0') AS payload")
    rows = rows.mapInArrow(drop_the_first, "payload string")
    told = fails(rows, broker, queue=queue, query=queue, batch="0")
    assert "records are staged for batch 0, there should be 30000" in told
    assert "nothing of it is visible: write it again" in told
    assert broker.payloads(queue) == []

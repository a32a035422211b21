"""Every row once, whatever happens on the way: twins, ghosts, a lost node, tasks that fail and drivers that are killed.

What Spark's local mode does not do by itself is directed here, with the sink's own parts and a real node.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client.history import HistoryReader
from penstock.client.stager import Stager
from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.engine.answers import Published
from penstock.engine.entries import Entry, decode_entry
from penstock.engine.errors import BATCH_NOT_STAGED
from penstock.spark.errors import NotWritten
from penstock.spark.source.staging import Partition
from penstock.spark.source.writing import BatchWriter, Staged, StreamWriter, read_options
from penstock.wire.native import messages as m
from soak.process import wait_until
from soak.spark_sink import QUEUE, Broker, Plan, kill_drivers, run_to_end, write_files

SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
KILLS = 40 if os.environ.get("PENSTOCK_SOAK") else 2


def batches(first: int, last: int, rows_per_batch: int = 1000) -> Iterator[pa.RecordBatch]:
    """Rows that carry their number, from first up to last, not included."""
    for start in range(first, last, rows_per_batch):
        numbers = range(start, min(last, start + rows_per_batch))
        yield pa.record_batch({"payload": pa.array([str(number).encode() for number in numbers])})


def payloads(first: int, last: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, last)]


def stage(
    broker: Broker, queue: str, attempt: int, rows: Iterator[pa.RecordBatch], *, partition: int = 0, batch: int = 0
) -> Staged:
    """What a task does, under a number of an attempt that the test chooses."""
    with Stager(broker.url, queue, batch) as stager:
        staging = Partition(stager, partition, attempt, queue=queue)
        staging.stage(rows)
    return Staged(queue, batch, partition, attempt, staging.records)


def writer(broker: Broker, queue: str) -> BatchWriter:
    return BatchWriter(read_options({"endpoint": broker.endpoint, "queue": queue}), queue, 0)


def logged(broker: Broker, after: int = -1) -> list[Any]:
    """The commands of the log behind an entry."""
    with HistoryReader(broker.url) as reader:
        reach = reader.reach()
        entries = reader.entries(list(range(max(reach.first_index, after + 1), reach.applied_index + 1)))
    return [command.args for data in entries.values() for command in (decode_entry(data) or Entry(0, [])).commands]


def test_of_two_attempts_at_a_partition_one_is_published(broker: Broker, queue: str) -> None:
    """A speculative twin stages the same rows at the same time, cut in another way; the driver names one of them."""
    ours: list[Staged] = []
    threads = [
        threading.Thread(target=lambda: ours.append(stage(broker, queue, 11, batches(0, 9000, 700)))),
        threading.Thread(target=lambda: ours.append(stage(broker, queue, 12, batches(0, 9000)))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = stage(broker, queue, 13, batches(9000, 9500), partition=1)
    chosen = next(staged for staged in ours if staged.attempt == 12)
    writer(broker, queue).commit([chosen, other])
    assert broker.payloads(queue) == payloads(0, 9500)
    # The late twin is not published by a second driver either.
    writer(broker, queue).commit([next(staged for staged in ours if staged.attempt == 11), other])
    assert broker.payloads(queue) == payloads(0, 9500)


def test_what_a_dead_driver_left_is_not_mixed_in(broker: Broker, queue: str) -> None:
    """It staged a part of the partition, and a ghost of it goes on while the batch is written anew."""

    def going_on_beside(ghost: Partition) -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(batches(0, 5000)):
            if n == 2:
                ghost.stage(batches(2500, 4000, 333))
            yield batch

    with Stager(broker.url, queue, 0) as stager:
        ghost = Partition(stager, 0, 1, queue=queue)
        ghost.stage(batches(0, 2500, 333))
        staged = stage(broker, queue, 2, going_on_beside(ghost))
        writer(broker, queue).commit([staged])
        ghost.stage(batches(4000, 5000))
    assert broker.payloads(queue) == payloads(0, 5000)
    assert broker.ask(c.Abort(queue, 0)).count == 0


def test_attempts_are_told_apart_by_chance_and_not_by_counting(spark: SparkSession, broker: Broker, queue: str) -> None:
    """Spark counts attempts from 0 whenever a batch is written again; what the log has are other numbers each time."""
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS string) AS payload")
    for _ in range(2):
        sink = rows.write.format("penstock").mode("append").options(endpoint=broker.endpoint, queue=queue)
        sink.options(query=queue, batch="0").save()
    stages = [args for args in logged(broker) if isinstance(args, c.Stage) and args.query == queue]
    assert sorted(args.partition for args in stages) == [0, 0, 1, 1]
    assert len({args.attempt for args in stages}) == 4
    assert sorted(broker.payloads(queue)) == sorted(payloads(0, 100))


def test_only_a_write_that_has_a_name_is_remembered(spark: SparkSession, broker: Broker, queue: str) -> None:
    """A cluster remembers so many queries for ever: a name that is drawn for one write must not be one of them."""
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS string) AS payload")
    sink = rows.write.format("penstock").mode("append").options(endpoint=broker.endpoint, queue=queue)
    for options, is_last in (({}, True), ({"query": queue, "batch": "0"}, False)):
        before = broker.ask(m.Latest(-1, 0)).applied_index
        sink.options(**options).save()
        written = [args for args in logged(broker, before) if isinstance(args, c.Stage | c.Publish)]
        assert [(type(args), args.is_last) for args in written] == [(c.Stage, is_last)] * 2 + [(c.Publish, is_last)]
        # Asked once more by somebody else, the node knows the batch or finds nothing of it. It never adds it again.
        again = broker.ask(written[-1])
        assert again.code == BATCH_NOT_STAGED if is_last else again == Published(0, False)
    assert sorted(broker.payloads(queue)) == sorted(payloads(0, 100) * 2)


def test_a_write_without_a_name_outlives_a_node_that_dies_before_it_is_published(broker: Broker, queue: str) -> None:
    sink = read_options({"endpoint": broker.endpoint, "queue": queue})
    staged = stage(broker, queue, 61, batches(0, 2000))
    broker.kill()
    committing = threading.Thread(target=BatchWriter(sink, queue, 0, is_last=True).commit, args=([staged],))
    committing.start()
    broker.start()
    committing.join(60)
    assert not committing.is_alive()
    assert broker.payloads(queue) == payloads(0, 2000)


def test_a_node_that_dies_between_stage_and_publish_publishes_all(broker: Broker, queue: str) -> None:
    staged = [stage(broker, queue, 21 + n, batches(n * 2000, (n + 1) * 2000), partition=n) for n in range(2)]
    broker.kill()
    committing = threading.Thread(target=writer(broker, queue).commit, args=(staged,))
    committing.start()
    broker.start()
    committing.join(60)
    assert not committing.is_alive()
    assert broker.payloads(queue) == payloads(0, 4000)
    writer(broker, queue).commit(list(staged))
    assert broker.payloads(queue) == payloads(0, 4000)


def test_a_node_that_dies_while_rows_are_staged_gets_each_once(broker: Broker, queue: str) -> None:
    """Parts are in flight when it dies; those without an answer are sent again."""

    def killing() -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(batches(0, 9000, 500)):
            if n in (3, 9, 17):
                broker.kill()
                broker.start()
            yield batch

    staged = stage(broker, queue, 31, killing())
    assert staged.records == 9000
    writer(broker, queue).commit([staged])
    assert broker.payloads(queue) == payloads(0, 9000)


def test_a_node_that_stays_away_leaves_a_write_that_says_so(broker: Broker, queue: str) -> None:
    staged = stage(broker, queue, 41, batches(0, 10))
    sink = read_options({"endpoint": broker.endpoint, "queue": queue, "timeoutSeconds": "0"})
    broker.kill()
    try:
        with pytest.raises(NotWritten, match=f"batch 0 of {queue} with 10 records: no connection"):
            BatchWriter(sink, queue, 0).commit([staged])
    finally:
        broker.start()
    BatchWriter(sink, queue, 0).commit([staged])
    assert broker.payloads(queue) == payloads(0, 10)


def test_a_batch_that_was_aborted_is_not_published(broker: Broker, queue: str) -> None:
    staged = stage(broker, queue, 51, batches(0, 10))
    stream = StreamWriter(read_options({"endpoint": broker.endpoint, "queue": queue}))
    stream.abort([None, staged], 0)
    with pytest.raises(NotWritten, match="write it again"):
        stream.commit([staged], 0)
    again = stage(broker, queue, 52, batches(0, 10))
    stream.commit([again], 0)
    assert broker.payloads(queue) == payloads(0, 10)


def test_a_stream_goes_on_while_its_node_is_killed(
    spark: SparkSession, broker: Broker, queue: str, tmp_path: Path
) -> None:
    """The node is killed as soon as something of a batch is staged, so mostly before it is published."""
    expected = write_files(tmp_path / "files", 8, 500)
    rows = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 2).json(str(tmp_path / "files"))
    sink = rows.selectExpr("lpad(CAST(number AS string), 100, '0') AS payload").writeStream.format("penstock")
    sink = sink.options(endpoint=broker.endpoint, queue=queue, checkpointLocation=str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    for _ in range(3):
        seen = broker.ask(m.Latest(-1, 0)).applied_index
        if not wait_until(lambda seen=seen: not query.isActive or broker.ask(m.Latest(seen, 0)).applied_index > seen):
            break
        broker.kill()
        broker.start()
    query.awaitTermination()
    assert sorted(broker.payloads(queue)) == expected


def test_a_task_that_fails_after_a_part_was_staged_is_tried_again(java: None, tmp_path: Path) -> None:
    expected = write_files(tmp_path / "files", 2, 6000)
    marker = tmp_path / "failed"
    with Broker(tmp_path) as broker:
        broker.ask(c.CreateQueue(QUEUE, c.QueueSettings()))
        files, checkpoint = str(tmp_path / "files"), str(tmp_path / "checkpoint")
        plan = Plan(broker.endpoint, files, checkpoint, master="local[2,4]", marker=str(marker))
        run_to_end(plan, tmp_path / "driver.errors")
        assert wait_until(lambda: broker.ask(m.ShowQueue(QUEUE)).put >= len(expected))
        assert sorted(broker.payloads(QUEUE)) == expected
        assert marker.exists()
        assert sum(event.key for event in broker.events(j.STAGED)) > len(expected)
        assert [event.key for event in broker.events(j.PUBLISHED)] == [len(expected)]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_drivers_that_are_killed_lose_and_double_nothing(
    java: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = kill_drivers(tmp_path, SEED, KILLS, files=8 + 2 * KILLS, rows_per_file=500)
    with capsys.disabled():
        print(f"\n{outcome}")
    assert outcome.is_exact
    assert outcome.kills > KILLS / 2

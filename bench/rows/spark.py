"""The history in Spark: reading it beside what a user would do instead, decoding, tables, the sink, and how soon.

All on two cores, with messages of 100 bytes, on the columns that most queries want. Each way of reading runs over the
same rows and hands them to Spark's sink that drops everything, so nothing is measured but the way there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import ServerFailed
from bench.histories import growing, make_history, make_single_history
from bench.model import Bench, Bound, Entry, Goal, Plan, Row, Sample
from bench.quantiles import quantile
from bench.servers import Penstock
from bench.spark import decoding, following

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("index", "n", "time", "queue", "id", "kind", "key", "payload")
JOURNAL = "penstock, files"
NETWORK = "penstock, over the network"
PARQUET = "Parquet"
READY = "Python source, batches ready-made"
ROWWISE = "Python source, row at a time"
JSON_LINES = "JSON lines"
DECODE = "decode, one core"
SINGLES = "decode, one event per entry"
BRONZE = "bronze to Parquet"
SINK = "sink, exactly once"
VISIBLE = "append to visible in bronze"
EARLY = "after a short history"
LATE = "after a long history"
_PARTITIONS_MIN = 2
_WARM_UPS = 3
"""Java compiles what it runs often: Parquet is three times as fast the fourth time as the first."""
_DRAINS = 3
"""What takes ten times as long is counted, which warms up too, and then drained once."""
_VISIBLE_LIMIT_S = 120.0
_LOOK_EVERY_S = 0.005


@cache
def _session() -> SparkSession:
    from penstock.spark.pipeline.run import SETTINGS
    from penstock.spark.session import open_session

    return open_session("penstock-bench", master="local[2]", settings=SETTINGS)


def _history(bench: Bench) -> tuple[Path, int]:
    """The data directory that all reads share, made once a run, and its events."""
    folder = bench.workshop.folder / "history"
    count = bench.workshop.folder / "history.events"
    if not count.exists():
        count.write_text(str(make_history(folder, bench.plan.spark_events)))
    return folder, int(count.read_text())


def _journal(**options: str) -> DataFrame:
    """The history through our data source."""
    reader = _session().read.format("penstock").option("columns", ",".join(COLUMNS))
    return reader.options(**options).load()


def _measure_read(
    open_frame: Callable[[Bench], DataFrame], warm_ups: int = _WARM_UPS, drains: int = _DRAINS
) -> Callable[[Bench], Sample]:
    """Rows a second from the first byte until Spark has all of them, once both Java and the workers are warm."""

    def measure(bench: Bench) -> Sample:
        _, events = _history(bench)
        frame = open_frame(bench)
        found = frame.count()
        if found < events:
            raise ServerFailed("spark", f"{events} events were written, {found} are read")
        took_s = [_drain(frame) for _ in range(warm_ups + drains)][warm_ups:]
        return {"rows_per_s": events / quantile(took_s, 0.5)}

    return measure


def _drain(frame: DataFrame) -> float:
    """Let Spark have all rows, and drop them; how long it took."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _from_files(bench: Bench) -> DataFrame:
    frame = _journal(path=str(_history(bench)[0]))
    partitions = frame.rdd.getNumPartitions()
    if partitions < _PARTITIONS_MIN:
        raise ServerFailed("spark", f"the history is read in {partitions} partition, so not on both cores")
    return frame


def _copy(bench: Bench, kind: str) -> Path:
    """The same rows in another format, written once a run."""
    target = bench.workshop.folder / f"history.{kind}"
    if not target.exists():
        _from_files(bench).write.format(kind).save(str(target))
    return target


def _from_parquet(bench: Bench) -> DataFrame:
    return _session().read.parquet(str(_copy(bench, "parquet")))


def _from_json(bench: Bench) -> DataFrame:
    schema = _from_files(bench).schema
    return _session().read.schema(schema).json(str(_copy(bench, "json")))


def _row_by_row(bench: Bench) -> DataFrame:
    from bench.spark import rowwise

    _session().dataSource.register(rowwise.RowSource)
    return _session().read.format(rowwise.RowSource.name()).option("path", str(_history(bench)[0])).load()


def _ready_made(bench: Bench) -> DataFrame:
    from bench.spark import readymade

    history, events = _history(bench)
    _session().dataSource.register(readymade.ReadySource)
    reader = _session().read.format(readymade.ReadySource.name()).option("columns", ",".join(COLUMNS))
    return reader.option("path", str(history)).option("rows", str(events)).load()


def _measure_network(bench: Bench) -> Sample:
    """The same from a node that serves the history."""
    with _served(bench) as server:
        return _measure_read(lambda _: _journal(endpoint=f"127.0.0.1:{server.port}"))(bench)


@contextmanager
def _served(bench: Bench) -> Iterator[Penstock]:
    """A node on a copy of the history; what the node itself writes adds a handful of events."""
    history, _ = _history(bench)
    copy = shutil.copytree(history, _fresh(bench, "served"))
    with Penstock(bench.workshop, ("--data-dir", str(copy))) as server:
        yield server


def _measure_decode(bench: Bench) -> Sample:
    """Pieces of the history turned into record batches in one process, without Spark."""
    return {"rows_per_s": decoding.rate(_history(bench)[0], COLUMNS)}


def _measure_singles(bench: Bench) -> Sample:
    """The same for a history with one event in each entry, whose records are short."""
    logs = make_single_history(_fresh(bench, "singles"), bench.plan.single_events)
    if not logs:
        raise ServerFailed("spark", f"{bench.plan.single_events} events fill no segment of the log")
    return {"rows_per_s": decoding.rate(logs, COLUMNS)}


def _measure_bronze(bench: Bench) -> Sample:
    """The whole history into the pipeline's first table."""
    history, events = _history(bench)
    _drain(_journal(path=str(history)))
    target = _fresh(bench, "tables")
    from penstock.spark.pipeline.run import Pipeline

    with Pipeline(_session(), history, target) as pipeline:
        began = time.perf_counter()
        pipeline.run_bronze()
        return {"rows_per_s": events / (time.perf_counter() - began)}


def _measure_sink(bench: Bench) -> Sample:
    """Rows into a durable node, published as one batch, until all of them can be taken and not one more."""
    records = bench.plan.sink_records
    with Penstock(bench.workshop) as server:
        frame = (
            _session()
            .range(records, numPartitions=2)
            .selectExpr(
                "'bench' AS queue", "id % 10 AS key", "cast(lpad(cast(id AS string), 100, '0') AS binary) AS payload"
            )
        )
        writer = frame.write.format("penstock").option("endpoint", f"127.0.0.1:{server.port}")
        writer = writer.option("createQueues", "true").mode("append")
        began = time.perf_counter()
        writer.save()
        # What was decided moves into its queue a slice at a time.
        while (found := server.status().records) < records and time.perf_counter() - began < _VISIBLE_LIMIT_S:
            time.sleep(_LOOK_EVERY_S)
        took_s = time.perf_counter() - began
        if found != records:
            raise ServerFailed(server.name, f"{records} records were written, {found} are there")
        return {"rate_per_s": records / took_s}


def _measure_visible(bench: Bench) -> Sample:
    """From the answer to a put until the manifest of a continuous pipeline covers it."""
    with Penstock(bench.workshop) as server:
        delays_s = following.delays_s(bench, server, _fresh(bench, "tables"))
    return {"p50_ms": quantile(delays_s, 0.5) * 1e3, "p99_ms": quantile(delays_s, 0.99) * 1e3}


def _measure_increment(before: Callable[[Plan], int]) -> Callable[[Bench], Sample]:
    """All tables brought up to date after a million new events, with so many events in the history already."""

    def measure(bench: Bench) -> Sample:
        from penstock.spark.pipeline.run import Pipeline

        data, target = _fresh(bench, "growing"), _fresh(bench, "tables")
        with growing(data) as history:
            history.grow(before(bench.plan))
        with Pipeline(_session(), data, target) as pipeline:
            pipeline.run_once()
        with growing(data) as history:
            history.grow(bench.plan.increment_events)
        with Pipeline(_session(), data, target) as pipeline:
            began = time.perf_counter()
            pipeline.run_once()
            took_s = time.perf_counter() - began
        return {"run_s": took_s}

    return measure


def _fresh(bench: Bench, name: str) -> Path:
    folder = bench.workshop.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def rows(plan: Plan) -> tuple[Row, ...]:
    """The rows of this subject."""
    columns = ", ".join(COLUMNS)
    return (
        Row(
            name="spark-read",
            title=f"{plan.spark_events:,} events into Spark: {columns}",
            entries=(
                Entry(JOURNAL, _measure_read(_from_files)),
                Entry(NETWORK, _measure_network),
                Entry(PARQUET, _measure_read(_from_parquet)),
                Entry(READY, _measure_read(_ready_made)),
                Entry(ROWWISE, _measure_read(_row_by_row, warm_ups=0, drains=1)),
                Entry(JSON_LINES, _measure_read(_from_json, warm_ups=0, drains=1)),
            ),
            goals=(
                Goal(JOURNAL, "rows_per_s", Bound(2_500_000)),
                Goal(JOURNAL, "rows_per_s", Bound(0.7, PARQUET)),
                Goal(NETWORK, "rows_per_s", Bound(1_000_000)),
            ),
        ),
        Row(
            name="spark-decode",
            title="the journal decoded to Arrow by one process",
            entries=(Entry(DECODE, _measure_decode), Entry(SINGLES, _measure_singles)),
            goals=(
                Goal(DECODE, "rows_per_s", Bound(7_000_000)),
                Goal(SINGLES, "rows_per_s", Bound(8_000_000)),
            ),
        ),
        Row(
            name="spark-bronze",
            title="the history into the table bronze.events, all columns",
            entries=(Entry(BRONZE, _measure_bronze),),
            goals=(Goal(BRONZE, "rows_per_s", Bound(800_000)),),
        ),
        Row(
            name="spark-sink",
            title=f"{plan.sink_records:,} rows into a durable node",
            entries=(Entry(SINK, _measure_sink),),
            goals=(Goal(SINK, "rate_per_s", Bound(100_000)),),
        ),
        Row(
            name="spark-visible",
            title="penstock pipeline run --continuous: a put until it can be read in bronze",
            entries=(Entry(VISIBLE, _measure_visible),),
            goals=(Goal(VISIBLE, "p50_ms", Bound(1_000), most=True),),
            rounds_max=1,
        ),
        Row(
            name="spark-increment",
            title=f"{plan.increment_events:,} new events after {plan.short_events:,} / {plan.long_events:,}",
            entries=(
                Entry(EARLY, _measure_increment(lambda plan: plan.short_events)),
                Entry(LATE, _measure_increment(lambda plan: plan.long_events)),
            ),
            goals=(
                Goal(LATE, "run_s", Bound(60), most=True),
                Goal(LATE, "run_s", Bound(1.3, EARLY), most=True),
            ),
            rounds_max=1,
        ),
    )

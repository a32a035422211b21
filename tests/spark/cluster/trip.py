"""A program for a cluster: reads a queue's history by batch and by stream, and writes it into two other queues.

Run as a process of its own, since a process has one session: `trip.py master|remote URL ENDPOINT FOLDER`. What it saw
is written to standard output as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(kind: str, url: str, endpoint: str, folder: str) -> None:
    # On a cluster both workers must have come before the first job is cut.
    settings = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    spark = open_session(remote=url) if kind == "remote" else open_session(master=url, settings=settings)
    source = {"endpoint": endpoint, "queues": "in", "kinds": "put", "minPartitions": "4"}
    events = spark.read.format("penstock").options(**source).load()
    seen = {
        "keys": sorted(row.key for row in events.select("key").collect()),
        "places": sorted({row.place for row in events.mapInArrow(where_it_runs, "place string").collect()}),
    }
    sink = {"endpoint": endpoint, "createQueues": "true"}
    events.select("key", "payload").write.format("penstock").options(queue=f"{kind}-batch", **sink).mode(
        "append"
    ).save()
    stream(spark, source, {"queue": f"{kind}-stream", **sink}, folder)
    print(json.dumps(seen))
    spark.stop()


def where_it_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The folder in which a task works, one for each executor of a cluster."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"place": [str(Path.cwd())]})


def stream(spark: SparkSession, source: dict[str, str], sink: dict[str, str], folder: str) -> None:
    """What is there now, in several batches."""
    events: DataFrame = spark.readStream.format("penstock").options(**source, maxRowsPerBatch="1500").load()
    writing = events.select("key", "payload").writeStream.format("penstock").options(**sink)
    query = writing.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

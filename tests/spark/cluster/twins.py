"""A program for a cluster: writes rows into a queue, one task of which is so slow that Spark gives it a twin.

Run as a process of its own: `twins.py URL ENDPOINT QUEUE FOLDER`. The slow task has handed on all its rows when it
begins to wait; it goes on when its twin has done the same. So both have staged, and end at about the same time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from penstock.spark.session import open_session

ROWS_PER_TASK = 25_000
TASKS = 4
SETTINGS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
_PATIENCE_S = 120.0


def main(url: str, endpoint: str, queue: str, folder: str) -> None:
    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            yield pa.record_batch({"payload": pa.array([str(number).encode() for number in numbers])})
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0:
            Path(folder, f"attempt-{task.attemptNumber()}").touch()
            give_up_s = time.monotonic() + _PATIENCE_S
            while not Path(folder, "attempt-1").exists() and time.monotonic() < give_up_s:
                time.sleep(0.01)

    spark = open_session(master=url, settings=SETTINGS)
    rows = spark.range(0, TASKS * ROWS_PER_TASK, 1, TASKS).mapInArrow(hand_on, "payload binary")
    rows.write.format("penstock").options(endpoint=endpoint, queue=queue).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Compaction: many small files of a day become one, so that reading stays cheap however often the pipeline runs.

Neighbours in the order of the log are joined, in steps: files below 1 MiB, below 16 MiB, below 128 MiB. So each row is
written again a few times in its life, and a day has a few dozen small files at most. The rows and their order stay as
they are; the manifest changes from the small files to the large one in one publication, as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from penstock.spark.pipeline.files import FILES_DDL, PartWriter, Target, collect_files, files_batch
from penstock.spark.pipeline.manifest import File, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTED: Final = ("bronze.events", "silver.messages", "silver.tasks")
"""The tables to which files are only added. Others are written anew by each run."""
FILES_MAX: Final = 16
"""So many neighbours below a size may stay."""
STEPS_BYTES: Final = (1 << 20, 16 << 20, 128 << 20)
_BATCH_ROWS: Final = 16 * 1024


def choose(table: Table, files_max: int = FILES_MAX) -> list[list[File]]:
    """Which files to join: lists of neighbours of one day."""
    days: dict[str, list[File]] = {}
    for file in sorted(table.files, key=lambda file: (file.first_index, file.last_index, file.path)):
        if not file.is_open:
            days.setdefault(file.part, []).append(file)
    return [run for files in days.values() for run in _runs(files, files_max)]


def _runs(files: list[File], files_max: int) -> list[list[File]]:
    """Of one day: the runs of small neighbours that are too many, by the smallest step that finds some.

    Files that an earlier step would join do not count: else each of them would have a large one written again.
    """
    above_bytes = 0
    for below_bytes in STEPS_BYTES:
        runs = _neighbours(files, below_bytes)
        found = [run for run in runs if sum(file.bytes >= above_bytes for file in run) > files_max]
        if found:
            return found
        above_bytes = below_bytes
    return []


def _neighbours(files: list[File], below_bytes: int) -> Iterator[list[File]]:
    run: list[File] = []
    for file in files:
        if file.bytes < below_bytes:
            run.append(file)
        elif run:
            yield run
            run = []
    if run:
        yield run


def compact(spark: SparkSession, directory: Path, name: str, table: Table, runs: list[list[File]]) -> Table:
    """Join files; the table that this gives. Each join is a task of its own."""
    target = Target(directory, name, table.watermark)

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield files_batch(_join(target, runs[number]))

    count = len(runs)
    joined = collect_files(spark.range(0, count, 1, count).mapInArrow(join, FILES_DDL))
    gone = {file.path for run in runs for file in run}
    files = [*(file for file in table.files if file.path not in gone), *joined]
    return structs.replace(table, files=tuple(files))


def _join(target: Target, files: list[File]) -> list[File]:
    writer = PartWriter(target)
    for file in files:
        with pq.ParquetFile(target.directory / file.path) as source:
            for batch in source.iter_batches(_BATCH_ROWS):
                writer.write(batch, file.part)
    return writer.close()

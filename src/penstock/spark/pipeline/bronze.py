"""Bronze: the events of the history as they are, by day.

Each task reads its entries as the data source does and writes them to Parquet at once. The rows never enter the JVM,
which would cost several times what reading and writing do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.spark.errors import DataLost
from penstock.spark.pipeline.files import FILES_DDL, PartWriter, Target, collect_files, files_batch
from penstock.spark.pipeline.manifest import File, Gap, Table
from penstock.spark.source.history import History
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.planning import EntriesPartition, Range
from penstock.spark.source.reading import plan_entries, read_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.directory import Directory

NAME: Final = "bronze.events"
_GAP: Final = "gap"
"""The part of what is no file: a task tells of entries that are gone in the same way as of files."""


def append_events(
    spark: SparkSession, directory: Directory, history: History, options: SourceOptions, last_index: int
) -> tuple[Table, list[Gap]]:
    """Write the events up to an entry, all of them, and give the table with them; and what was gone meanwhile.

    Gaps are only passed over where the options allow it.
    """
    table = directory.tables[NAME]
    entries = Range(directory.published.cluster, table.watermark + 1, last_index)
    partitions = plan_entries(history, entries, options)
    told = _write_all(spark, Target(directory.path, NAME, last_index), options, partitions)
    files = [file for file in told if file.part != _GAP]
    gaps = [Gap(file.first_index, file.last_index) for file in told if file.part == _GAP]
    first_planned = partitions[0].first_index if partitions else last_index + 1
    if first_planned > entries.first_index:
        gaps.insert(0, Gap(entries.first_index, first_planned - 1))
    time_us = max((file.last_us for file in files), default=table.time_us)
    return Table(last_index, time_us, (*table.files, *files)), gaps


def _write_all(
    spark: SparkSession, target: Target, options: SourceOptions, partitions: list[EntriesPartition]
) -> list[File]:
    if not partitions:
        return []

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield files_batch(write_partition(target, options, partitions[number]))

    count = len(partitions)
    return collect_files(spark.range(0, count, 1, count).mapInArrow(write, FILES_DDL))


def write_partition(target: Target, options: SourceOptions, partition: EntriesPartition) -> list[File]:
    """Write the events of some entries, in a task; the files, and gaps where the options allow them."""
    strict = replace(options, fail_on_data_loss=True)
    ranges = [partition]
    gaps: list[File] = []
    while True:
        writer = PartWriter(target)
        try:
            for each in ranges:
                for batch in read_partition(strict, each):
                    writer.write_days(batch)
            return [*writer.close(), *gaps]
        except DataLost as lost:
            if options.fail_on_data_loss:
                raise
            # From the beginning, in new files: how much of what lies before the gap was written is not known.
            # What is gone of the next parts is told by their tasks.
            last_gone = min(lost.first - 1, partition.last_index)
            gaps.append(File(path="", part=_GAP, rows=0, bytes=0, first_index=lost.wanted, last_index=last_gone))
            ranges = list(_without(ranges, lost.wanted, lost.first))


def _without(ranges: list[EntriesPartition], first_gone: int, next_kept: int) -> Iterator[EntriesPartition]:
    for each in ranges:
        if each.first_index < first_gone:
            yield EntriesPartition(each.cluster, each.first_index, min(each.last_index, first_gone - 1))
        if each.last_index >= next_kept:
            yield EntriesPartition(each.cluster, max(each.first_index, next_kept), each.last_index)

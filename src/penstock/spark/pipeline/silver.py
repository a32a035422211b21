"""Silver: the lives of messages and tasks, brought up to date with a slice of events.

What has ended is appended to the day of its end and never touched again. What is open lies in hash buckets; those that
the slice touches are read, folded with it and written anew. So a step costs what its events and the open rows of their
buckets cost, however long the history is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.spark.pipeline import messages, tasks, workers
from penstock.spark.pipeline.files import PART, Target, write_frame
from penstock.spark.pipeline.manifest import File, Manifest, Table, bucket_part
from penstock.spark.pipeline.slices import Slice, read_slice
from penstock.spark.pipeline.tables import read_files
from penstock.spark.source import topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = "silver.messages"
TASKS: Final = "silver.tasks"
BUCKETS: Final = 64
BULKY: Final = ("payload", "headers", "tag")
"""Columns of events that no fold of messages looks at."""

_BLOCK_BITS: Final = 16
"""Messages are hashed by blocks of so many bits of ids: what happens lately happens to few blocks, and few buckets."""
_WHOLE_QUEUE: Final = ("queue purged", "queue deleted")
_DAY_US: Final = 86_400_000_000


def fold_messages(spark: SparkSession, directory: Path, manifest: Manifest, part: Slice) -> Table:
    """Write the messages as they are after a slice; the table that this gives."""
    old = manifest.tables[MESSAGES]
    events = read_slice(spark, directory, part).drop(*BULKY)
    bucket = message_bucket(manifest.buckets)
    touched = _touched_by_events(events, bucket, manifest.buckets)
    opened = [file for file in old.files if file.part in touched]
    # Mostly no connection comes or goes, and then nothing has to be found out about names.
    changes_names = any(file.owner_events for file in part.files)
    named = old.owner_names if old.owner_names or changes_names else None
    rows = messages.fold(events, read_files(spark, directory, MESSAGES, opened), named)
    written = _write(directory, MESSAGES, old, opened, rows, bucket, part)
    named = workers.named_after(events, old.owner_names) if changes_names else old.owner_names
    return structs.replace(written, owner_names=named)


def fold_tasks(spark: SparkSession, directory: Path, manifest: Manifest, part: Slice) -> Table:
    """Write the tasks as they are after a slice; the table that this gives. Without a broadcast nothing is read."""
    old = manifest.tables[TASKS]
    if not any(file.broadcasts for file in part.files):
        return Table(part.last_index, part.last_us, old.files)
    # It is asked several times what they say, and to take bodies apart is dear.
    heard = topics.parse(read_slice(spark, directory, part)).where("channel = 'com'").persist()
    try:
        return _fold_heard(spark, directory, manifest, part, heard)
    finally:
        heard.unpersist()


def _fold_heard(spark: SparkSession, directory: Path, manifest: Manifest, part: Slice, heard: DataFrame) -> Table:
    old = manifest.tables[TASKS]
    touched = _touched_by_topics(heard, manifest.buckets)
    opened = [file for file in old.files if file.part in touched]
    ended = [file for file in old.files if not file.is_open]

    def find_ended(ids: DataFrame) -> DataFrame:
        known = read_files(spark, directory, TASKS, ended).join(F.broadcast(ids.select("id")), "id", "left_semi")
        # A task that was sent again after its end has several rows; children are of the last one.
        begun = F.struct("started_index", "done_index")
        return known.groupBy("id").agg(F.max_by("depth", begun).alias("depth"))

    rows = tasks.fold(heard, read_files(spark, directory, TASKS, opened), find_ended)
    return _write(directory, TASKS, old, opened, rows, task_bucket(manifest.buckets), part)


def message_bucket(buckets: int) -> Column:
    """The bucket that a message is in while it is open."""
    return F.pmod(F.hash(F.col("queue_uid"), F.shiftright("id", _BLOCK_BITS)), F.lit(buckets))


def task_bucket(buckets: int) -> Column:
    """The bucket that a task is in while it is open."""
    return F.pmod(F.hash("id"), F.lit(buckets))


def day_of(time: str) -> Column:
    """The day of a column of times in UTC, as text, whatever the time zone of the session."""
    return F.expr(f"cast(date_from_unix_date(cast(unix_micros({time}) div {_DAY_US} as int)) as string)")


def _touched_by_events(events: DataFrame, bucket: Column, buckets: int) -> set[str]:
    # A purge, or the end of a queue, names no message: they may be anywhere.
    everywhere = F.col("kind").isin(*_WHOLE_QUEUE)
    touching = events.where(everywhere | (F.col("id") != 0))
    return _distinct(touching.select(F.when(everywhere, F.lit(-1)).otherwise(bucket)), buckets)


def _touched_by_topics(heard: DataFrame, buckets: int) -> set[str]:
    # What a task was made for is needed too: its depth is in its row.
    names = heard.select(F.explode(F.array_compact(F.array("id", "pid"))).alias("id"))
    return _distinct(names.select(task_bucket(buckets)), buckets)


def _distinct(found: DataFrame, buckets: int) -> set[str]:
    numbers = {row[0] for row in found.distinct().collect()}
    return {bucket_part(number) for number in (range(buckets) if -1 in numbers else numbers)}


def _write(
    directory: Path, name: str, old: Table, opened: Iterable[File], rows: DataFrame, bucket: Column, part: Slice
) -> Table:
    label = F.format_string("open-%02d", bucket)
    split = rows.withColumn(PART, F.when(F.col("done").isNull(), label).otherwise(day_of("done")))
    # All of a bucket goes to one task, and into one file. What ended is spread over all tasks.
    spread = split.repartition(F.when(F.col("done").isNull(), bucket).otherwise(F.hash("id")))
    written = write_frame(spread, Target(directory, name, part.last_index))
    replaced = {file.path for file in opened}
    kept = [file for file in old.files if file.path not in replaced]
    return Table(part.last_index, part.last_us, (*kept, *written))

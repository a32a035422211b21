"""Gold: the figures of each minute, computed anew from the first minute that a slice changes.

The time of the log never falls, so minutes before that one are final. Of the files only those of the day in which it
lies, and of later ones, are written anew; what that day had before is carried over.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from penstock.spark.pipeline import gold
from penstock.spark.pipeline.bronze import NAME as BRONZE
from penstock.spark.pipeline.files import PART, Target, write_frame
from penstock.spark.pipeline.manifest import Manifest, Table
from penstock.spark.pipeline.silver import BULKY, MESSAGES, TASKS, day_of
from penstock.spark.pipeline.slices import Slice, read_minutes
from penstock.spark.pipeline.tables import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPEC_MINUTES: Final = "gold.spec_minutes"


def fold_minutes(spark: SparkSession, directory: Path, manifest: Manifest, part: Slice) -> dict[str, Table]:
    """Write all gold tables as they are after a slice that silver, in this manifest, has taken in."""

    def of_messages(make: Callable[[DataFrame, DataFrame, datetime, datetime], DataFrame]) -> DataFrame:
        events = read_minutes(spark, directory, manifest.tables[BRONZE], part).drop(*BULKY)
        messages = _open_and_ended(spark, directory, manifest, MESSAGES, part)
        return make(events, messages, part.watermark, part.from_minute)

    def of_tasks() -> DataFrame:
        return gold.spec_minutes(_open_and_ended(spark, directory, manifest, TASKS, part), part.from_minute)

    made: dict[str, Callable[[], DataFrame]] = {name: partial(of_messages, make) for name, make in gold.TABLES.items()}
    tables: dict[str, Table] = {}
    if any(file.broadcasts for file in part.files):
        made[SPEC_MINUTES] = of_tasks
    else:
        tables[SPEC_MINUTES] = Table(part.last_index, part.last_us, manifest.tables[SPEC_MINUTES].files)
    # They are small and mostly wait for Spark to plan and start them, so they wait together.
    with ThreadPoolExecutor(len(made)) as pool:
        futures = {
            name: pool.submit(_replace_minutes, spark, directory, manifest.tables[name], name, make, part)
            for name, make in made.items()
        }
        return tables | {name: future.result() for name, future in futures.items()}


def _open_and_ended(spark: SparkSession, directory: Path, manifest: Manifest, name: str, part: Slice) -> DataFrame:
    """All that is open, and what ended since the first minute."""
    files = [file for file in manifest.tables[name].files if file.is_open or file.last_us >= part.from_minute_us]
    since = F.timestamp_micros(F.lit(part.from_minute_us))
    return read_files(spark, directory, name, files).where(F.col("done").isNull() | (F.col("done") >= since))


def _replace_minutes(
    spark: SparkSession, directory: Path, old: Table, name: str, make: Callable[[], DataFrame], part: Slice
) -> Table:
    first_day = part.from_minute.date().isoformat()
    final = [file for file in old.files if file.part < first_day]
    carried = [file for file in old.files if file.part == first_day and file.first_us < part.from_minute_us]
    rows = make()
    if carried:
        before = F.col("minute") < F.timestamp_micros(F.lit(part.from_minute_us))
        rows = read_files(spark, directory, name, carried).where(before).unionByName(rows)
    by_day = rows.withColumn(PART, day_of("minute")).repartition(PART).sortWithinPartitions("minute")
    written = write_frame(by_day, Target(directory, name, part.last_index))
    return Table(part.last_index, part.last_us, (*final, *written))

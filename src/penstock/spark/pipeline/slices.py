"""Slices of bronze: the new events that silver and gold take in one step, found from the manifest alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.pipeline.bronze import NAME
from penstock.spark.pipeline.manifest import File, Table
from penstock.spark.pipeline.tables import moment, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Slice:
    """The events behind one entry up to another one."""

    after_index: int
    last_index: int
    from_us: int
    """No event of it is earlier, and no minute before this time can change."""
    last_us: int
    """The time of its last event, or of the last one before it."""
    files: tuple[File, ...]
    """The files of bronze that have its events, and perhaps others."""

    @property
    def rows(self) -> int:
        """How many events it has at most."""
        return sum(file.rows for file in self.files)

    @property
    def from_minute_us(self) -> int:
        """The beginning of the first minute that it changes."""
        return self.from_us - self.from_us % _MINUTE_US

    @property
    def from_minute(self) -> datetime:
        """The same, as a moment."""
        found = moment(self.from_minute_us)
        assert found is not None, "an event has a time"
        return found

    @property
    def watermark(self) -> datetime:
        """The time of its last event, as a moment."""
        found = moment(self.last_us)
        assert found is not None, "an event has a time"
        return found


def next_slice(bronze: Table, silver: Table, rows_max: int) -> Slice:
    """What silver lacks of bronze: whole files of up to so many events, but at least one."""
    waiting = sorted(
        (file for file in bronze.files if file.last_index > silver.watermark), key=lambda file: file.first_index
    )
    rows = 0
    chosen: list[File] = []
    for file in waiting:
        if chosen and rows + file.rows > rows_max:
            break
        chosen.append(file)
        rows += file.rows
    last_index = chosen[-1].last_index if len(chosen) < len(waiting) else bronze.watermark
    # The minute of the last event before the slice is looked at again, also if nothing more happened in it: it was not
    # over, and ages go by the end of a minute. As the time of the log never falls, nothing new is earlier.
    from_us = silver.time_us or min((file.first_us for file in chosen), default=0)
    last_us = max([silver.time_us, *(file.last_us for file in chosen)])
    return Slice(silver.watermark, last_index, from_us, last_us, tuple(chosen))


def read_slice(spark: SparkSession, directory: Path, part: Slice) -> DataFrame:
    """Its events."""
    events = read_files(spark, directory, NAME, part.files)
    return events.where(f"index > {part.after_index} and index <= {part.last_index}")


def read_minutes(spark: SparkSession, directory: Path, bronze: Table, part: Slice) -> DataFrame:
    """Its events, and those before it in the minute in which it begins."""
    files = [file for file in bronze.files if file.last_us >= part.from_minute_us and file.first_us <= part.last_us]
    events = read_files(spark, directory, NAME, files)
    return events.where(f"time >= timestamp_micros({part.from_minute_us}) and index <= {part.last_index}")

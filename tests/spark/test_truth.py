"""The tables of the pipeline are true: over a generated history, row by row, however the log is cut.

Silver is held against what was kept while the history was made, gold against what DuckDB computes from the same bronze
files, bronze against the journal itself. Each is told with the rows that differ.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.spark.pipeline.run import Pipeline
from penstock.spark.pipeline.tables import watermark
from penstock.spark.schemas import PIPELINE_TABLES
from soak.spark_sink import Broker
from tests.spark.generated.checking import Told, found, run_to, wrong
from tests.spark.generated.comparing import differences, totals_of
from tests.spark.generated.history import MINUTE_US, Generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_US = 1440 * MINUTE_US


@pytest.mark.parametrize("name", PIPELINE_TABLES)
def test_a_table_is_true(told: Told, name: str) -> None:
    """Row by row and column by column; every row once, and none besides."""
    assert told.expected[name].num_rows > 100
    said = differences(name, told.expected[name], found(told.directory, name))
    assert not said, "\n".join(said)
    assert watermark(told.directory, name).index == told.made.last_index


def test_the_minutes_add_up(told: Told) -> None:
    """What gold counts by minute is, in all, what was counted while the history was made."""
    assert totals_of(found(told.directory, "gold.queue_minutes")) == told.made.truth.totals()


# Cuts.


def in_a_busy_minute(made: Generated) -> int:
    """An entry in the middle of the minute that has most entries."""
    minutes: dict[int, list[int]] = {}
    for index, stamp_us in enumerate(made.stamps_us):
        minutes.setdefault(stamp_us // MINUTE_US, []).append(index)
    busiest = max(minutes.values(), key=len)
    assert len(busiest) > 50
    return busiest[len(busiest) // 2]


def before_a_midnight(made: Generated) -> int:
    """The last entry of a day that ends in silence, so that its last minute was not over when it was last looked at."""
    times = list(enumerate(pairwise(made.stamps_us)))
    return next(
        index
        for index, (before_us, after_us) in times
        if before_us // DAY_US < after_us // DAY_US and after_us - before_us > MINUTE_US
    )


def test_a_cut_in_a_busy_minute_and_one_at_midnight_change_nothing(
    told: Told, spark: SparkSession, tmp_path: Path
) -> None:
    """Half a minute is completed by the next turn; a day that ended in silence is looked at again."""
    made = told.made
    with Pipeline(spark, made.directory, tmp_path) as pipeline:
        run_to(pipeline, sorted((in_a_busy_minute(made), before_a_midnight(made), made.last_index)))
    said = wrong(told.expected, tmp_path)
    assert not said, "\n".join(said)


@pytest.mark.long
def test_a_random_cut_and_going_on_over_the_network_change_nothing(
    told: Told, spark: SparkSession, tmp_path: Path
) -> None:
    """Something is read from the files, then a single entry, and the rest from a node that has the same files."""
    made = told.made
    cut = Random(1).randrange(made.last_index)
    shutil.copytree(made.directory, tmp_path / "data")
    with Pipeline(spark, made.directory, tmp_path / "tables") as pipeline:
        run_to(pipeline, [cut, cut + 1])
    with Broker(tmp_path) as broker, Pipeline(spark, broker.endpoint, tmp_path / "tables") as pipeline:
        run_to(pipeline, [made.last_index])
    said = wrong(told.expected, tmp_path / "tables")
    assert not said, "\n".join(said)

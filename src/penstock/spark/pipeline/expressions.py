"""Expressions that several transforms share: what happened, how long it took, and the shape of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine.journal import KINDS, REASONS
from penstock.spark.schemas import Columns

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PERCENTS: Final = (50, 95, 99)


def is_kind(*kinds: int) -> Column:
    """Whether an event is of one of these kinds of ``engine.journal``."""
    return F.col("kind").isin(*(KINDS[kind][0] for kind in kinds))


def is_reason(*reasons: int) -> Column:
    """Whether an event has one of these reasons of ``engine.journal``; false where it has none."""
    return F.coalesce(F.col("reason").isin(*(REASONS[reason] for reason in reasons)), F.lit(False))


def count_where(condition: Column) -> Column:
    """How many rows of a group meet a condition."""
    return F.sum(F.when(condition, F.lit(1)).otherwise(F.lit(0)))


def elapsed_us(start: Column, end: Column) -> Column:
    """Microseconds from one time to another."""
    return F.unix_micros(end) - F.unix_micros(start)


def at(moment: datetime) -> Column:
    """A moment, which must say its time zone, as Spark has it; to the microsecond."""
    return F.timestamp_micros(F.lit((moment - _EPOCH) // timedelta(microseconds=1)))


def minute_of(time: Column) -> Column:
    """The beginning of the minute that a time lies in."""
    return F.date_trunc("minute", time)


def percentiles(values: DataFrame, keys: Sequence[str], value: str, prefix: str) -> DataFrame:
    """For each group p50, p95 and p99 as ``<prefix>_p50_us`` and so on, over the values that are not null.

    A percentile is the smallest value of the group that at least so many percent of its values do not exceed (as
    SQL's ``percentile_disc``), so it is exact and is one of them.
    """
    known = values.filter(F.col(value).isNotNull())
    # The rank as a fraction is compared without error: a division gives the double nearest to the true quotient, and so
    # does a literal, so they are equal where they should be.
    share = F.cume_dist().over(Window.partitionBy(*keys).orderBy(value))
    figures = [
        F.min(F.when(F.col("share") >= F.lit(percent / 100), F.col(value))).alias(f"{prefix}_p{percent}_us")
        for percent in _PERCENTS
    ]
    return known.withColumn("share", share).groupBy(*keys).agg(*figures)


def conform(rows: DataFrame, columns: Columns) -> DataFrame:
    """The rows with exactly the columns of a table, in its order and of its types."""
    return rows.select(*(F.col(name).cast(kind).alias(name) for name, kind in columns.items()))

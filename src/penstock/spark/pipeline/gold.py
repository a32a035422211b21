"""Figures per minute from events, messages and tasks: of queues, dead letters, bands of keys, workers and specs.

Every function gives all rows of the minutes from ``from_minute`` on and none before. It is given all events since then,
all messages that are open at the watermark or ended since then, and likewise tasks; so rows are made anew from all that
belongs to their minute, and nothing counts twice. As log time never falls, minutes before that of the last event of the
run before are final. For the same reason nothing here looks at what may still change about a minute that is over, such
as the last key of a message.

The functions of ``TABLES`` are called alike, so each takes what any of them needs.
"""
# ruff: noqa: ARG001

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine import journal as j
from penstock.spark.pipeline.bands import band_of
from penstock.spark.pipeline.expressions import (
    at,
    conform,
    count_where,
    elapsed_us,
    is_kind,
    is_reason,
    minute_of,
    percentiles,
)
from penstock.spark.schemas import (
    DEAD_LETTERS,
    KEY_BANDS,
    QUEUE_MINUTES,
    SPEC_MINUTES,
    WAIT_BUCKETS,
    WORKER_MINUTES,
)

_MINUTE: Final = ("queue_uid", "minute")
_BELOW_US_MIN: Final = 1024


def queue_minutes(events: DataFrame, messages: DataFrame, watermark: datetime, from_minute: datetime) -> DataFrame:
    """What happened to each queue in each minute, and how it stood at the end of it: rows of QUEUE_MINUTES."""
    facts = _message_facts(messages, from_minute).unionByName(_event_facts(events, from_minute))
    figures = _standing(_counted(facts), watermark)
    since = at(from_minute)
    delivered = messages.filter(F.col("first_delivered") >= since)
    waits = percentiles(_by_minute(delivered, "first_delivered"), _MINUTE, "waited_us", "wait")
    acked = messages.filter((F.col("done") >= since) & (F.col("outcome") == "acked"))
    works = percentiles(_by_minute(acked, "done"), _MINUTE, "worked_us", "work")
    return conform(figures.join(waits, list(_MINUTE), "left").join(works, list(_MINUTE), "left"), QUEUE_MINUTES)


def _by_minute(rows: DataFrame, time: str) -> DataFrame:
    return rows.withColumn("minute", minute_of(F.col(time)))


def _message_facts(messages: DataFrame, from_minute: datetime) -> DataFrame:
    """That messages arrived, were first delivered, ended; and, without a minute, that they are open."""

    def fact(time: str, what: Column) -> Column:
        return F.struct(F.col(time).alias("time"), what.alias("what"))

    facts = F.array(
        fact("published", F.lit("arrival")),
        fact("first_delivered", F.lit("first delivery")),
        fact("done", F.coalesce("outcome", F.lit("open"))),
    )
    exploded = messages.select("queue_uid", "queue", "published", F.explode(facts).alias("fact"))
    what, time = F.col("fact.what"), F.col("fact.time")
    is_over = ~what.isin("arrival", "first delivery")
    return exploded.filter((time >= at(from_minute)) | (what == "open")).select(
        *("queue_uid", "queue", what.alias("what"), minute_of(time).alias("minute")),
        F.when(is_over, F.col("published")).alias("published"),
    )


def _event_facts(events: DataFrame, from_minute: datetime) -> DataFrame:
    """That messages were delivered and came back."""
    is_failure = is_reason(j.REASON_NACK, j.REASON_LEASE_TIMEOUT)
    what = F.when(is_kind(j.TAKEN), "delivery").when(is_failure, "failure").otherwise("return")
    wanted = is_kind(j.TAKEN, j.RETURNED) & (F.col("time") >= at(from_minute))
    return events.filter(wanted).select(
        *("queue_uid", "queue", what.alias("what"), minute_of(F.col("time")).alias("minute")),
        F.lit(None).cast("timestamp").alias("published"),
    )


def _counted(facts: DataFrame) -> DataFrame:
    """Counts for each queue and minute; the row without a minute counts what is open."""

    def count(*what: str) -> Column:
        return count_where(F.col("what").isin(*what))

    return facts.groupBy(*_MINUTE).agg(
        F.max("queue").alias("queue"),
        count("arrival").alias("arrivals"),
        count("acked").alias("acked"),
        count("expired").alias("expired"),
        count("dead-lettered").alias("dead_lettered"),
        count("deleted", "purged", "queue-deleted").alias("deleted"),
        count("moved").alias("moved"),
        count("delivery").alias("deliveries"),
        (count("delivery") - count("first delivery")).alias("redeliveries"),
        count("failure").alias("failures"),
        count("open").alias("open"),
        F.min("published").alias("oldest"),
    )


def _standing(counted: DataFrame, watermark: datetime) -> DataFrame:
    """To each minute how many messages were open at its end, and the age of the oldest.

    Both are found backwards from the watermark. What was open at the end of a minute has ended later or is still open,
    and did not arrive later. Of what has ended later or is open, the one published first is the oldest; if it was
    published after the minute, none was open then.
    """
    later = (
        Window.partitionBy("queue_uid")
        .orderBy(F.col("minute").desc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    completions = F.col("acked") + F.col("expired") + F.col("dead_lettered") + F.col("deleted") + F.col("moved")
    end = F.col("minute") + F.expr("interval 1 minute")
    moment = F.least(end, at(watermark))
    oldest = F.min("oldest").over(later)
    is_there = F.when(end > at(watermark), oldest <= moment).otherwise(oldest < end)
    change = F.col("open") + F.col("completions") - F.col("arrivals")
    stood = counted.withColumn("completions", completions).withColumns(
        {
            "depth": F.coalesce(F.sum(change).over(later), F.lit(0)),
            "oldest_age_us": F.when(is_there, elapsed_us(oldest, moment)),
            "redelivery_rate": F.coalesce(F.try_divide("redeliveries", "deliveries"), F.lit(0.0)),
        }
    )
    return stood.filter(F.col("minute").isNotNull())


def dead_letters(events: DataFrame, messages: DataFrame, watermark: datetime, from_minute: datetime) -> DataFrame:
    """How many messages became dead letters, by the queue that they left and the reason: rows of DEAD_LETTERS."""
    ended = messages.filter((F.col("done") >= at(from_minute)) & (F.col("outcome") == "dead-lettered"))
    counted = _by_minute(ended, "done").groupBy(*_MINUTE, "reason")
    return conform(counted.agg(F.max("queue").alias("queue"), F.count("*").alias("count")), DEAD_LETTERS)


def key_bands(events: DataFrame, messages: DataFrame, watermark: datetime, from_minute: datetime) -> DataFrame:
    """How many messages arrived, by the band of the key that they came with: rows of KEY_BANDS."""
    arrived = events.filter(is_kind(j.PUT, j.MOVED_IN) & (F.col("time") >= at(from_minute)))
    counted = _by_minute(arrived, "time").groupBy(*_MINUTE, band_of(F.col("key")).alias("band"))
    return conform(counted.agg(F.max("queue").alias("queue"), F.count("*").alias("arrivals")), KEY_BANDS)


def wait_buckets(events: DataFrame, messages: DataFrame, watermark: datetime, from_minute: datetime) -> DataFrame:
    """How long messages waited for their first delivery, by the band of the key that they had then: WAIT_BUCKETS."""
    wanted = (F.col("first_delivered") >= at(from_minute)) & F.col("waited_us").isNotNull()
    keyed = messages.filter(wanted).join(F.broadcast(_keys_then(events)), ["queue_uid", "id"], "left")
    # The binary digits of a number are as many as the exponent of the next power of two above it.
    above = F.expr("shiftleft(1L, length(bin(waited_us)))")
    counted = _by_minute(keyed, "first_delivered").groupBy(
        *_MINUTE,
        band_of(F.coalesce("key_then", "key")).alias("band"),
        F.greatest(above, F.lit(_BELOW_US_MIN)).alias("below_us"),
    )
    return conform(counted.agg(F.max("queue").alias("queue"), F.count("*").alias("count")), WAIT_BUCKETS)


def _keys_then(events: DataFrame) -> DataFrame:
    """The key at the first delivery of those messages, mostly few, whose key may have been changed after it."""
    edited = events.filter(is_kind(j.EDITED)).select("queue_uid", "id").distinct()
    first = events.filter(is_kind(j.TAKEN) & (F.col("deliveries") == 1))
    key_then = F.min_by("key", F.struct("index", "n", "item")).alias("key_then")
    return first.join(F.broadcast(edited), ["queue_uid", "id"], "left_semi").groupBy("queue_uid", "id").agg(key_then)


def worker_minutes(events: DataFrame, messages: DataFrame, watermark: datetime, from_minute: datetime) -> DataFrame:
    """What each connection put, got, acknowledged and gave back: rows of WORKER_MINUTES.

    What came back because its time was over was given back by the node itself, owner 0.
    """
    done = events.filter(is_kind(j.PUT, j.TAKEN, j.ACKED, j.RETURNED) & (F.col("time") >= at(from_minute)))
    counted = _by_minute(done, "time").groupBy("door", "owner", "minute")
    figures = counted.agg(
        count_where(is_kind(j.PUT)).alias("arrivals"),
        count_where(is_kind(j.TAKEN)).alias("deliveries"),
        count_where(is_kind(j.ACKED)).alias("acked"),
        count_where(is_kind(j.RETURNED)).alias("returned"),
    )
    return conform(figures, WORKER_MINUTES)


def spec_minutes(tasks: DataFrame, from_minute: datetime) -> DataFrame:
    """How many tasks of each spec began and ended, and how long those took that ended: rows of SPEC_MINUTES."""
    keys = ("spec", "minute")
    moments = F.array(
        F.struct(F.col("started").alias("time"), F.lit("started").alias("what")),
        F.struct(F.col("done").alias("time"), F.col("outcome").alias("what")),
    )
    facts = tasks.select("spec", "duration_us", F.explode(moments).alias("fact"))
    facts = facts.filter(F.col("fact.time") >= at(from_minute)).select(
        *("spec", F.col("fact.what").alias("what"), minute_of(F.col("fact.time")).alias("minute"), "duration_us")
    )
    results, errors = (count_where(F.col("what") == what) for what in ("result", "error"))
    counted = facts.groupBy(*keys).agg(
        count_where(F.col("what") == "started").alias("started"),
        results.alias("results"),
        errors.alias("errors"),
        F.try_divide(results, results + errors).alias("success_rate"),
    )
    durations = percentiles(facts.filter(F.col("what") != "started"), keys, "duration_us", "duration")
    return conform(counted.join(durations, list(keys), "left"), SPEC_MINUTES)


TABLES: Final[dict[str, Callable[[DataFrame, DataFrame, datetime, datetime], DataFrame]]] = {
    "gold.queue_minutes": queue_minutes,
    "gold.dead_letters": dead_letters,
    "gold.key_bands": key_bands,
    "gold.wait_buckets": wait_buckets,
    "gold.worker_minutes": worker_minutes,
}
"""How each table that is made from events and messages is made."""

"""The names of workers: which name a connection had when it took a message.

A connection says its name once, in an event of its own, and the name is valid until an event says that the connection
has ended, or until the next term. The names that are valid at the end of a slice are kept with the table of messages in
the manifest, so a step needs the names of the connections that live, and never the events of earlier slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine import journal as j
from penstock.engine.owners import OWNER_NAMES_MAX
from penstock.engine.state import OWNER_TERM_SHIFT
from penstock.spark.pipeline.expressions import is_kind
from penstock.spark.schemas import EVENTS

KINDS: Final = (j.OWNER_NAMED, j.OWNER_GONE, j.NEW_TERM)
"""The events that change which names are valid."""

_POSITION: Final = ("index", "n", "item")
_NAMED_DDL: Final = "`owner` bigint, `text` string"


def with_workers(steps: DataFrame, events: DataFrame, named: Mapping[int, str] | None) -> DataFrame:
    """Steps of messages with the column `worker`: in each step that is a delivery, the name of the connection.

    ``named`` has the names that are valid before the events; None if the events change no name and none is valid.
    """
    if named is None:
        return steps.withColumn("worker", F.lit(None).cast("string"))
    spans = _spans(events, named)
    position = F.struct(*(F.col(name) for name in _POSITION))
    is_valid = (
        is_kind(j.TAKEN)
        & (F.col("owner") == F.col("named_owner"))
        & (_term_of(F.col("owner")) >= F.col("term"))
        & (position > F.col("since"))
        & (F.col("until_position").isNull() | (position < F.col("until_position")))
    )
    return steps.join(F.broadcast(spans), is_valid, "left").drop("named_owner", "since", "until_position")


def _spans(events: DataFrame, named: Mapping[int, str]) -> DataFrame:
    """From where to where in the log each name is valid."""
    changes = _changes(events.filter(is_kind(j.OWNER_NAMED, j.OWNER_GONE)), named)
    following = F.lead("since").over(Window.partitionBy("owner").orderBy("since"))
    return (
        changes.withColumn("until_position", following)
        .filter(F.col("text").isNotNull())
        .select(F.col("owner").alias("named_owner"), F.col("text").alias("worker"), "since", "until_position")
    )


def named_after(events: DataFrame, named: Mapping[int, str]) -> dict[int, str]:
    """The names that are valid after the events, by connection, if ``named`` are valid before them.

    At most ``OWNER_NAMES_MAX``, those that were said last: as many as a node keeps.
    """
    changes = _changes(events.filter(is_kind(*KINDS)), named)
    last = changes.groupBy("owner").agg(
        F.max("term").alias("term"), F.max("since").alias("since"), F.max_by("text", "since").alias("text")
    )
    # The node itself, connection 0, stands for the terms, also where only a new term happened.
    rows = last.filter(F.col("text").isNotNull() | (F.col("owner") == 0)).collect()
    term = max((row["term"] or 0 for row in rows), default=0)
    alive = [row for row in rows if row["text"] is not None and row["owner"] >> OWNER_TERM_SHIFT >= term]
    alive.sort(key=lambda row: (row["since"], row["owner"]))
    return {row["owner"]: row["text"] for row in alive[-OWNER_NAMES_MAX:]}


def _changes(events: DataFrame, named: Mapping[int, str]) -> DataFrame:
    """What is said of names, in rows of (owner, text, term, since); the text is null where a name ends."""
    position = F.struct(*(F.col(name) for name in _POSITION)).alias("since")
    text = F.when(is_kind(j.OWNER_NAMED), F.col("text")).alias("text")
    said = events.select("owner", text, "term", position)
    if not named:
        return said
    spark = events.sparkSession
    before = F.struct(*(F.lit(-1).cast(EVENTS[name]).alias(name) for name in _POSITION))
    known = spark.createDataFrame(list(named.items()), _NAMED_DDL)
    return said.unionByName(known.withColumns({"term": F.lit(None).cast("int"), "since": before}))


def _term_of(owner: Column) -> Column:
    return F.shiftright(owner, OWNER_TERM_SHIFT)

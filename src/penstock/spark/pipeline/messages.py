"""The life of each message, folded from its events: one row per message, slice by slice of the log.

An event and the row of an open message are both taken as *steps* of the message: an open row is a step that stands
before all events of the slice and brings what was known so far. Steps are brought together by message once; a message
that begins and ends in the slice meets nothing else. Because an open row says all that later events may ask for, it
does not matter where the log is cut.

What lies before the beginning of the history is not known, and null: when and by whom a message was published whose
first event is not there, how long it waited, how long it was worked on, how often it came back.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine import journal as j
from penstock.spark.pipeline.expressions import conform, count_where, elapsed_us, is_kind, is_reason
from penstock.spark.pipeline.workers import with_workers
from penstock.spark.schemas import MESSAGES

READY: Final = "ready"
DELAYED: Final = "delayed"
LEASED: Final = "leased"
BURIED: Final = "buried"
ENDED: Final = "ended"

_BEGIN: Final = (j.PUT, j.MOVED_IN)
_END: Final = (j.ACKED, j.EXPIRED, j.DEAD_LETTERED, j.DELETED, j.MOVED_OUT)
_BETWEEN: Final = (j.AVAILABLE, j.TAKEN, j.RETURNED, j.EXTENDED, j.BURIED, j.KICKED, j.EDITED)
_POSITION: Final = ("index", "n", "item")
_MESSAGE: Final = ("queue_uid", "id")
_STEP: Final = (
    *(*_MESSAGE, *_POSITION, "time", "kind", "state", "queue", "key", "payload_bytes"),
    *("door", "owner", "worker", "deliveries", "reason", "until", "other_queue_uid", "other_id", "text"),
)
"""The columns of a step that an event brings."""
_NOBODY: Final[Mapping[int, str]] = MappingProxyType({})


def fold(events: DataFrame, open_messages: DataFrame, named: Mapping[int, str] | None = _NOBODY) -> DataFrame:
    """The open messages given and all that the events touch, as they are after the events: rows of MESSAGES.

    ``events`` is a slice of the log without gaps, in any order; ``open_messages`` has at least those messages that were
    open before it and that it touches, and with each event that purges or deletes a queue all open ones of that queue.
    ``named`` has the names of connections that are valid before the slice; None says that there are none, nor in it.
    """
    steps = _from_events(events, named).unionByName(_from_open(open_messages))
    lives = _merge(_gather(_with_lease_times(steps)))
    return conform(_end_with_queue(lives, events), MESSAGES)


def _from_events(events: DataFrame, named: Mapping[int, str] | None) -> DataFrame:
    waits = F.when(F.col("until").isNull(), READY).otherwise(DELAYED)
    state = (
        F.when(is_kind(j.PUT, j.RETURNED, j.EDITED), waits)
        .when(is_kind(j.TAKEN, j.EXTENDED), LEASED)
        .when(is_kind(j.BURIED), BURIED)
        .when(is_kind(*_END), ENDED)
        .otherwise(READY)
    )
    touching = events.filter((F.col("id") != 0) & is_kind(*_BEGIN, *_BETWEEN, *_END))
    steps = with_workers(touching.withColumn("state", state), events, named)
    return steps.select(*_STEP, F.lit(None).cast(_before_type()).alias("before"))


def _from_open(open_messages: DataFrame) -> DataFrame:
    """A step of each open message. Its time is when its lease began: what is counted as work goes on from there."""
    known = {
        "index": F.col("last_index"),
        "n": F.col("last_n"),
        "item": F.col("last_item"),
        "time": F.col("leased_since"),
        **{name: F.col(name) for name in (*_MESSAGE, "queue", "key", "deliveries", "reason", "state")},
    }
    types = {"time": "timestamp", "until": "timestamp", "payload_bytes": "int"}
    types |= dict.fromkeys(("kind", "door", "worker", "text"), "string")
    step = [known.get(name, F.lit(None).cast(types.get(name, "bigint"))).alias(name) for name in _STEP]
    return open_messages.select(*step, F.struct(*MESSAGES).cast(_before_type()).alias("before"))


def _before_type() -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in MESSAGES.items())}>"


def _with_lease_times(steps: DataFrame) -> DataFrame:
    """To each step how long the message has been under a lease since the step before."""
    in_order = Window.partitionBy(*_MESSAGE).orderBy(*_POSITION)
    leased_at = F.lag(F.when(F.col("state") == LEASED, F.col("time"))).over(in_order)
    return steps.withColumn("leased_us", elapsed_us(leased_at, F.col("time")))


def _gather(steps: DataFrame) -> DataFrame:
    """The steps of each message in one row: its first ones, its last ones, and sums. No message begins twice."""
    taken = is_kind(j.TAKEN)
    makes_ready = is_kind(j.AVAILABLE, j.KICKED, j.TAKEN) | (is_kind(j.EDITED) & F.col("until").isNull())
    returned = is_kind(j.RETURNED)
    # A nack without a text is the last failure, too, and says nothing of why.
    fails = F.col("text").isNotNull() | (returned & is_reason(j.REASON_NACK))
    begun = F.struct(
        *("time", "index", "door", "owner", "until"),
        F.when(is_kind(j.PUT), F.col("payload_bytes")).alias("payload_bytes"),
        *(F.when(is_kind(j.MOVED_IN), F.col(name)).alias(name) for name in ("other_queue_uid", "other_id")),
    )
    last = F.struct(*_POSITION, "time", "kind", "state", "key", "deliveries", "door", "other_queue_uid", "other_id")
    # A struct is compared field by field, and no two steps of a message have the same position.
    return steps.groupBy(*_MESSAGE).agg(
        F.max("queue").alias("queue"),
        F.first("before", ignorenulls=True).alias("before"),
        F.first(F.when(is_kind(*_BEGIN), begun), ignorenulls=True).alias("begun"),
        F.min(F.when(makes_ready, F.col("time"))).alias("made_ready"),
        F.min(F.when(taken & (F.col("deliveries") == 1), F.col("time"))).alias("first_taken"),
        F.max(F.when(taken, F.struct(*_POSITION, "time", "door", "owner", "worker"))).alias("taken"),
        F.max(F.when(F.col("reason").isNotNull(), F.struct(*_POSITION, "reason"))).alias("said"),
        F.max(F.when(fails, F.struct(*_POSITION, "text"))).alias("failed"),
        F.max(last).alias("last"),
        count_where(returned & is_reason(j.REASON_NACK)).alias("failures"),
        count_where(returned & is_reason(j.REASON_LEASE_TIMEOUT)).alias("timeouts"),
        count_where(returned & ~is_reason(j.REASON_NACK, j.REASON_LEASE_TIMEOUT, j.REASON_UNSENT)).alias("releases"),
        F.sum("leased_us").alias("leased_us"),
    )


def _merge(gathered: DataFrame) -> DataFrame:
    """Rows of MESSAGES from what was known before the slice and what its events say."""
    is_begun = F.col("begun").isNotNull()

    def total(name: str, added: Column) -> Column:
        return F.coalesce(F.col(f"before.{name}"), F.when(is_begun, F.lit(0))) + added

    def either(before: str, since: str) -> Column:
        return F.coalesce(F.col(f"before.{before}"), F.col(since))

    def latest(before: str, since: str) -> Column:
        return F.coalesce(F.col(since), F.col(f"before.{before}"))

    is_ended, is_leased = F.col("last.state") == ENDED, F.col("last.state") == LEASED
    # The number of a queue may be 0, that of a message may not.
    is_moved = is_ended & (F.col("last.other_id") != 0)
    published, last_delivered = either("published", "begun.time"), latest("last_delivered", "taken.time")
    first_delivered = either("first_delivered", "first_taken")
    at_once = F.when(is_begun & F.col("begun.until").isNull(), F.col("begun.time"))
    first_available = F.coalesce(
        F.col("before.first_available"), at_once, F.when(published.isNotNull(), F.col("made_ready"))
    )
    # A lease that has not ended is not counted yet, however often it was extended.
    unfinished_us = F.when(is_leased, elapsed_us(last_delivered, F.col("last.time"))).otherwise(F.lit(0))
    outcome = F.when(F.col("last.kind") == j.KINDS[j.MOVED_OUT][0], "moved").otherwise(F.col("last.kind"))
    columns = {
        "queue": F.col("queue"),
        "key": F.col("last.key"),
        "published": published,
        "published_index": either("published_index", "begun.index"),
        "payload_bytes": either("payload_bytes", "begun.payload_bytes"),
        "door_in": either("door_in", "begun.door"),
        "owner_in": either("owner_in", "begun.owner"),
        "first_available": first_available,
        "first_delivered": first_delivered,
        "last_delivered": last_delivered,
        "done": F.when(is_ended, F.col("last.time")),
        "done_index": F.when(is_ended, F.col("last.index")),
        "outcome": F.when(is_ended, outcome),
        "reason": F.col("said.reason"),
        "state": F.col("last.state"),
        "door_out": F.coalesce(latest("door_out", "taken.door"), F.when(is_ended, F.col("last.door"))),
        "owner_out": latest("owner_out", "taken.owner"),
        "deliveries": F.col("last.deliveries"),
        "failures": total("failures", F.col("failures")),
        "releases": total("releases", F.col("releases")),
        "timeouts": total("timeouts", F.col("timeouts")),
        "waited_us": elapsed_us(first_available, first_delivered),
        "worked_us": total("worked_us", F.coalesce(F.col("leased_us"), F.lit(0)) - unfinished_us),
        "leased_since": F.when(is_leased, last_delivered),
        "origin_queue_uid": either("origin_queue_uid", "begun.other_queue_uid"),
        "origin_id": either("origin_id", "begun.other_id"),
        "target_queue_uid": F.when(is_moved, F.col("last.other_queue_uid")),
        "target_id": F.when(is_moved, F.col("last.other_id")),
        **{f"last_{name}": F.col(f"last.{name}") for name in _POSITION},
        "failure": F.when(F.col("failed").isNotNull(), F.col("failed.text")).otherwise(F.col("before.failure")),
        # A later delivery to a connection without a name leaves none.
        "worker": F.when(F.col("taken").isNotNull(), F.col("taken.worker")).otherwise(F.col("before.worker")),
    }
    return gathered.select(*_MESSAGE, *(value.alias(name) for name, value in columns.items()))


def _end_with_queue(lives: DataFrame, events: DataFrame) -> DataFrame:
    """End what a purge or the deletion of its queue ended: neither says so of each message."""
    is_waiting = F.when(F.col("state").isin(READY, DELAYED), True).when(F.col("state") != ENDED, False)
    last = F.struct(*(f"last_{name}" for name in _POSITION))
    covers = (
        (F.col("queue_uid") == F.col("end.queue_uid"))
        & (is_waiting == F.col("end.of_waiting"))
        & (last < F.col("end.position"))
        & (F.col("end.previous").isNull() | (last > F.col("end.previous")))
    )
    joined = lives.join(F.broadcast(_queue_ends(events)), covers, "left")
    is_over = F.col("end").isNotNull()
    worked_us = F.col("worked_us") + elapsed_us(F.col("leased_since"), F.col("end.time"))
    changes = {
        "done": F.col("end.time"),
        "done_index": F.col("end.position.index"),
        "outcome": F.col("end.outcome"),
        "state": F.lit(ENDED),
        "door_out": F.coalesce(F.col("door_out"), F.col("end.door")),
        "worked_us": F.when(F.col("state") == LEASED, worked_us).otherwise(F.col("worked_us")),
        "leased_since": F.lit(None),
        **{f"last_{name}": F.col(f"end.position.{name}") for name in _POSITION},
    }
    return joined.withColumns({name: F.when(is_over, value).otherwise(F.col(name)) for name, value in changes.items()})


def _queue_ends(events: DataFrame) -> DataFrame:
    """Each event that ends messages of its queue without naming them, with the one before it: the column ``end``.

    A message that waits is ended by the first such event after its last step, whichever it is: had it still waited at
    an earlier one, that would have ended it. One that is held or set aside is ended by the deletion of its queue alone,
    of which there is one.
    """
    is_deletion = is_kind(j.QUEUE_DELETED)
    position = F.struct(*_POSITION)
    previous = F.lag(position).over(Window.partitionBy("queue_uid").orderBy(*_POSITION))
    ends = events.filter(is_kind(j.QUEUE_PURGED, j.QUEUE_DELETED)).select(
        *("queue_uid", "time", "door"),
        position.alias("position"),
        previous.alias("previous"),
        F.when(is_deletion, "queue-deleted").otherwise("purged").alias("outcome"),
    )
    of_held = ends.filter(F.col("outcome") == "queue-deleted").withColumn("previous", F.lit(None))
    both = ends.withColumn("of_waiting", F.lit(True)).unionByName(of_held.withColumn("of_waiting", F.lit(False)))
    return both.select(F.struct("*").alias("end"))

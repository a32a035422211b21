"""The columns of every table: what the data source yields and what the pipeline keeps.

A schema is written once, as names and types of Spark's SQL, and turned into what Arrow or Spark want. Columns may be
null unless `NEVER_NULL` names them. Times are timestamps in microseconds, UTC; durations are bigint and end in `_us`.
What a column means stands beside it here and in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

Columns = dict[str, str]
"""Names and types, in order."""

EVENTS: Final[Columns] = {
    "index": "bigint",  # the log entry; (index, n, item) names an event and is the order of all
    "n": "int",  # the command in the entry
    "item": "int",  # the event of that command
    "term": "int",
    "time": "timestamp",  # log time; never falls from one entry to the next
    "kind": "string",  # a name of engine.journal.KINDS
    "queue": "string",  # null where the event concerns none, or its name is no longer known
    "queue_uid": "bigint",  # 0 is the default queue's, and stands where the event concerns none: `id` and `kind` tell
    "id": "bigint",  # the record; 0 where the event concerns none
    "key": "bigint",
    "payload": "binary",  # of what brings one (put, broadcast), else null
    "payload_bytes": "int",
    "headers": "map<string,string>",  # of a put that has some, else null; of a copy by a binding the broadcast tells
    "tag": "string",  # of a broadcast, else null
    "channel": "string",  # of a broadcast: com or tech, else null
    "door": "string",  # a name of engine.journal.DOORS
    "owner": "bigint",  # the connection that asked for it: which worker, which producer; 0 is the node itself
    "deliveries": "int",  # so far
    "reason": "string",  # a name of engine.journal.REASONS, null where there is none
    "until": "timestamp",  # put, returned, edited: when it becomes available; taken, extended: the lease's deadline
    "value": "bigint",  # as the journal has it, by kind
    "other_queue_uid": "bigint",  # the other end of a move
    "other_id": "bigint",  # 0 where there is none
    "text": "string",  # returned, buried, dead-lettered, moved in: what failed; owner named: the name; else null
}

NEVER_NULL: Final = frozenset(EVENTS) - {
    *("queue", "payload", "payload_bytes", "headers", "tag", "channel", "reason", "until", "text"),
}
"""Columns of events that every row has. Spark is told so, and then need not look: a tenth of what reading costs it."""

RECORDS: Final[Columns] = {
    "index": "bigint",  # the log entry up to which this is the state; the same in all rows
    "queue": "string",
    "queue_uid": "bigint",
    "id": "bigint",
    "key": "bigint",
    "place": "bigint",
    "state": "string",  # ready, delayed, leased, buried
    "payload": "binary",
    "headers": "map<string,string>",
    "published": "timestamp",
    "available_at": "timestamp",
    "expires_at": "timestamp",
    "leased_until": "timestamp",
    "deliveries": "int",
    "failures": "int",
    "releases": "int",
    "timeouts": "int",
    "dedup_key": "string",
    "reason": "string",  # why it was buried or dead-lettered
    "origin_queue": "string",
    "origin_id": "bigint",
    "failure": "string",  # what failed and why, by its last failure
}

QUEUES: Final[Columns] = {
    "index": "bigint",
    "queue": "string",
    "queue_uid": "bigint",
    "implementation": "string",
    "paused": "boolean",
    "ready": "bigint",
    "delayed": "bigint",
    "leased": "bigint",
    "buried": "bigint",
    "size_max": "bigint",
    "lease_ms": "bigint",
    "deliveries_max": "int",
    "dead_letter": "string",
    "expires_ms": "bigint",
}

TOPICS: Final[Columns] = {
    "index": "bigint",
    "n": "int",
    "item": "int",
    "time": "timestamp",
    "channel": "string",  # com or tech
    "tag": "string",
    "type": "string",  # config, result, error, data
    "spec": "string",
    "id": "string",
    "pid": "string",
    "creator": "string",
    "created_at": "timestamp",
    "expires_at": "timestamp",
    "encoding": "string",
    "data": "binary",
    "readable": "boolean",  # false where the body could not be taken apart; then the columns from the tag stand alone
    "door": "string",
    "owner": "bigint",
}

MESSAGES: Final[Columns] = {
    "queue_uid": "bigint",  # (queue_uid, id) names a message for ever
    "id": "bigint",
    "queue": "string",
    "key": "bigint",  # the last one it had
    "published": "timestamp",  # put or moved in; null where that lies before the history
    "published_index": "bigint",
    "payload_bytes": "int",
    "door_in": "string",
    "owner_in": "bigint",
    "first_available": "timestamp",  # when it could first be taken; null if never yet
    "first_delivered": "timestamp",
    "last_delivered": "timestamp",
    "done": "timestamp",  # null while it is open
    "done_index": "bigint",
    "outcome": "string",  # acked, expired, dead-lettered, deleted, moved, purged, queue-deleted; null while it is open
    "reason": "string",  # of the last event that had one: why it ended, was returned or buried
    "state": "string",  # ready, delayed, leased, buried; ended
    "door_out": "string",  # of its last delivery; of what ended it if it was never delivered
    "owner_out": "bigint",  # who got its last delivery: the worker; null if never delivered
    "deliveries": "int",  # as the broker counts
    "failures": "int",
    "releases": "int",
    "timeouts": "int",
    "waited_us": "bigint",  # first_delivered - first_available
    "worked_us": "bigint",  # under a lease, over all deliveries that ended
    "leased_since": "timestamp",  # null unless leased
    "origin_queue_uid": "bigint",  # where it was before, if it was moved or dead-lettered here
    "origin_id": "bigint",
    "target_queue_uid": "bigint",  # where it is now, if it was moved or dead-lettered
    "target_id": "bigint",
    "last_index": "bigint",  # the last event that touched it
    "last_n": "int",
    "last_item": "int",
    "failure": "string",  # what failed and why, by its last failure; null where none was said
    "worker": "string",  # the name of the connection that got its last delivery; null if it has none
}

TASKS: Final[Columns] = {
    "id": "string",
    "spec": "string",
    "creator": "string",
    "pid": "string",  # of the task that it was made for; null for a first one
    "depth": "int",  # 0 for a first one, else one more than its parent's
    "encoding": "string",
    "created_at": "timestamp",  # by its creator's clock
    "started": "timestamp",  # when the broker took it, log time
    "started_index": "bigint",
    "done": "timestamp",  # the first result or error with its id as pid; null while it is open
    "done_index": "bigint",
    "outcome": "string",  # result or error; null while it is open
    "worker": "string",  # who answered: the creator of the answer
    "error_code": "int",
    "error_message": "string",
    "duration_us": "bigint",  # done - started
}

QUEUE_MINUTES: Final[Columns] = {
    "queue_uid": "bigint",
    "queue": "string",
    "minute": "timestamp",  # its beginning; a queue has a row for each minute in which something happened to it
    "arrivals": "bigint",  # messages published: put or moved in
    "completions": "bigint",  # messages that ended, however
    "acked": "bigint",
    "expired": "bigint",
    "dead_lettered": "bigint",
    "deleted": "bigint",  # by hand, by purge or with their queue
    "moved": "bigint",
    "deliveries": "bigint",  # takes
    "redeliveries": "bigint",  # of these, not the first of their message
    "redelivery_rate": "double",  # redeliveries / deliveries, 0 where there was none
    "failures": "bigint",  # returned by nack or by the end of a lease
    "depth": "bigint",  # open messages at the end of the minute, or at the watermark in the last one
    "oldest_age_us": "bigint",  # of the open message published first, at that moment; null where none was open
    "wait_p50_us": "bigint",  # of messages first delivered in this minute
    "wait_p95_us": "bigint",
    "wait_p99_us": "bigint",
    "work_p50_us": "bigint",  # of messages acked in this minute
    "work_p95_us": "bigint",
    "work_p99_us": "bigint",
}

DEAD_LETTERS: Final[Columns] = {
    "queue_uid": "bigint",  # where they came from
    "queue": "string",
    "minute": "timestamp",
    "reason": "string",
    "count": "bigint",
}

KEY_BANDS: Final[Columns] = {
    "queue_uid": "bigint",
    "queue": "string",
    "minute": "timestamp",
    "band": "string",  # see pipeline.bands: "< 0", "0 to 9", "10 to 99", ...
    "arrivals": "bigint",
}

WAIT_BUCKETS: Final[Columns] = {
    "queue_uid": "bigint",
    "queue": "string",
    "minute": "timestamp",  # of the first delivery
    "band": "string",
    "below_us": "bigint",  # upper edge of the bucket: a power of two microseconds, at least 1,024
    "count": "bigint",
}

WORKER_MINUTES: Final[Columns] = {
    "door": "string",
    "owner": "bigint",  # a connection: a producer or a worker
    "minute": "timestamp",
    "arrivals": "bigint",
    "deliveries": "bigint",
    "acked": "bigint",
    "returned": "bigint",
}

SPEC_MINUTES: Final[Columns] = {
    "spec": "string",
    "minute": "timestamp",
    "started": "bigint",
    "results": "bigint",  # of tasks that ended in this minute
    "errors": "bigint",
    "success_rate": "double",  # results / (results + errors); null where none ended
    "duration_p50_us": "bigint",
    "duration_p95_us": "bigint",
    "duration_p99_us": "bigint",
}

SOURCE_TABLES: Final[dict[str, Columns]] = {"events": EVENTS, "records": RECORDS, "queues": QUEUES, "topics": TOPICS}
"""What the data source offers, by the option `table`."""

PIPELINE_TABLES: Final[dict[str, Columns]] = {
    "bronze.events": EVENTS,
    "silver.messages": MESSAGES,
    "silver.tasks": TASKS,
    "gold.queue_minutes": QUEUE_MINUTES,
    "gold.dead_letters": DEAD_LETTERS,
    "gold.key_bands": KEY_BANDS,
    "gold.wait_buckets": WAIT_BUCKETS,
    "gold.worker_minutes": WORKER_MINUTES,
    "gold.spec_minutes": SPEC_MINUTES,
}
"""What the pipeline keeps."""


def ddl(columns: Columns, never_null: Collection[str] = ()) -> str:
    """The schema as Spark's SQL writes it."""
    return ", ".join(f"`{name}` {kind}{' NOT NULL' if name in never_null else ''}" for name, kind in columns.items())


def arrow_schema(columns: Columns, never_null: Collection[str] = ()) -> pa.Schema:
    """The schema as Arrow has it, equal to what Spark makes of the DDL."""
    import pyarrow as pa

    types = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(name, types[kind], name not in never_null) for name, kind in columns.items()])

"""The tables another way: computed in DuckDB from the events, by what the schemas say the columns mean.

Each query is written from the definitions, as plainly as SQL allows, and looks at the whole history at once. Only the
tasks are not computed here, since their bodies are no text: they come from the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema

_STEPS = """
CREATE TABLE steps AS
WITH own AS (
    SELECT *, CASE
        WHEN kind IN ('put', 'returned', 'edited') THEN CASE WHEN until IS NULL THEN 'ready' ELSE 'delayed' END
        WHEN kind IN ('moved in', 'available', 'kicked') THEN 'ready'
        WHEN kind IN ('taken', 'extended') THEN 'leased'
        WHEN kind = 'buried' THEN 'buried'
        ELSE 'ended' END AS state
    FROM ordered
    WHERE kind IN ('put', 'moved in', 'available', 'taken', 'acked', 'returned', 'extended', 'buried', 'kicked',
                   'edited', 'expired', 'dead-lettered', 'deleted', 'moved out')
), stand AS (
    SELECT queue_uid, id, max(position) AS position, arg_max(state, position) AS state, arg_max(key, position) AS key,
        arg_max(queue, position) AS queue, arg_max(deliveries, position) AS deliveries
    FROM own GROUP BY queue_uid, id
), closed AS (
    SELECT stand.queue_uid, stand.id, stand.key, stand.queue, stand.deliveries, min(ordered.position) AS position
    FROM stand JOIN ordered ON ordered.queue_uid = stand.queue_uid AND ordered.position > stand.position
    WHERE (ordered.kind = 'queue deleted' AND stand.state <> 'ended')
       OR (ordered.kind = 'queue purged' AND stand.state IN ('ready', 'delayed'))
    GROUP BY ALL
)
SELECT * FROM own
UNION ALL BY NAME
SELECT closed.*, ordered.* EXCLUDE (queue_uid, id, key, queue, deliveries, position), 'ended' AS state
FROM closed JOIN ordered USING (position)
"""

_LEASES = """
CREATE TABLE leases AS
SELECT queue_uid, id, sum(ended - time) AS worked_us FROM (
    SELECT queue_uid, id, kind, epoch_us(time) AS time,
        lead(epoch_us(time)) OVER (PARTITION BY queue_uid, id ORDER BY position) AS ended
    FROM steps WHERE kind <> 'extended')
WHERE kind = 'taken' AND ended IS NOT NULL GROUP BY ALL
"""

_MESSAGES = """
CREATE TABLE messages AS
WITH names AS (
    SELECT owner AS named, position AS since, text AS name FROM ordered WHERE kind IN ('owner named', 'owner gone')
), first AS (
    SELECT * FROM steps WHERE kind IN ('put', 'moved in')
), summed AS (
    SELECT queue_uid, id,
        min(time) FILTER (kind IN ('available', 'kicked', 'taken') OR kind = 'edited' AND until IS NULL) AS made_ready,
        min(time) FILTER (kind = 'taken') AS first_delivered,
        max(time) FILTER (kind = 'taken') AS last_delivered,
        arg_max(door, position) FILTER (kind = 'taken') AS taken_by_door,
        arg_max(owner, position) FILTER (kind = 'taken') AS owner_out,
        max(position) FILTER (kind = 'taken') AS taken_at,
        arg_max(term, position) FILTER (kind = 'taken') AS taken_term,
        arg_max_null(text, position) FILTER (text IS NOT NULL OR (kind = 'returned' AND reason = 'nack')) AS failure,
        arg_max(reason, position) FILTER (reason IS NOT NULL) AS reason,
        count(*) FILTER (kind = 'returned' AND reason = 'nack') AS failures,
        count(*) FILTER (kind = 'returned' AND reason = 'lease timeout') AS timeouts,
        count(*) FILTER (kind = 'returned' AND reason NOT IN ('nack', 'lease timeout', 'unsent')) AS releases,
        max(position) AS position
    FROM steps GROUP BY ALL
), told AS (
    SELECT first.*, summed.* EXCLUDE (queue_uid, id, position, reason), summed.reason AS last_reason,
        worked_us, last.index AS last_index, last.n AS last_n, last.item AS last_item, last.state AS last_state,
        last.key AS last_key, last.kind AS last_kind, last.time AS last_time, last.door AS last_door,
        last.deliveries AS last_deliveries, last.other_queue_uid AS to_uid, last.other_id AS to_id,
        CASE WHEN first.until IS NULL THEN first.time ELSE made_ready END AS first_available
    FROM first JOIN summed USING (queue_uid, id)
    JOIN steps last ON last.queue_uid = first.queue_uid AND last.id = first.id AND last.position = summed.position
    LEFT JOIN leases ON leases.queue_uid = first.queue_uid AND leases.id = first.id
)
SELECT queue_uid, id, queue, last_key AS key, time AS published, index AS published_index,
    CASE WHEN kind = 'put' THEN payload_bytes END AS payload_bytes, door AS door_in, owner AS owner_in,
    first_available, first_delivered, last_delivered,
    CASE WHEN last_state = 'ended' THEN last_time END AS done,
    CASE WHEN last_state = 'ended' THEN last_index END AS done_index,
    CASE WHEN last_state = 'ended' THEN CASE last_kind WHEN 'moved out' THEN 'moved' WHEN 'queue purged' THEN 'purged'
        WHEN 'queue deleted' THEN 'queue-deleted' ELSE last_kind END END AS outcome,
    last_reason AS reason, last_state AS state,
    coalesce(taken_by_door, CASE WHEN last_state = 'ended' THEN last_door END) AS door_out, owner_out,
    last_deliveries AS deliveries, failures, releases, timeouts,
    epoch_us(first_delivered) - epoch_us(first_available) AS waited_us, coalesce(worked_us, 0) AS worked_us,
    CASE WHEN last_state = 'leased' THEN last_delivered END AS leased_since,
    CASE WHEN kind = 'moved in' THEN other_queue_uid END AS origin_queue_uid,
    CASE WHEN kind = 'moved in' THEN other_id END AS origin_id,
    CASE WHEN last_kind IN ('moved out', 'dead-lettered') THEN to_uid END AS target_queue_uid,
    CASE WHEN last_kind IN ('moved out', 'dead-lettered') THEN to_id END AS target_id,
    last_index, last_n, last_item, failure, CASE WHEN owner_out >> 32 >= taken_term THEN name END AS worker
FROM told ASOF LEFT JOIN names ON named = owner_out AND taken_at >= since
"""

_BANDS = """
CREATE MACRO band(key) AS CASE
    WHEN key < 0 THEN '< 0' WHEN key < 10 THEN '0 to 9' WHEN key < 100 THEN '10 to 99'
    WHEN key < 1000 THEN '100 to 999' WHEN key < 10000 THEN '1,000 to 9,999' WHEN key < 100000 THEN '10,000 to 99,999'
    WHEN key < 1000000 THEN '100,000 to 999,999' ELSE '1,000,000 and more' END
"""

# The smallest value that at least so many percent of the values do not exceed.
_NTH = "CREATE MACRO nth(list, percent) AS list_sort(list)[(len(list) * percent + 99) // 100]"

_QUEUE_MINUTES = """
WITH happened AS (
    SELECT queue_uid, date_trunc('minute', published) AS minute, 'arrival' AS what, NULL AS us FROM messages
    UNION ALL SELECT queue_uid, date_trunc('minute', done), outcome, NULL FROM messages WHERE done IS NOT NULL
    UNION ALL SELECT queue_uid, date_trunc('minute', first_delivered), 'first', waited_us
        FROM messages WHERE first_delivered IS NOT NULL
    UNION ALL SELECT queue_uid, date_trunc('minute', done), 'worked', worked_us FROM messages WHERE outcome = 'acked'
    UNION ALL SELECT queue_uid, date_trunc('minute', time), 'taken', NULL FROM ordered WHERE kind = 'taken'
    UNION ALL SELECT queue_uid, date_trunc('minute', time),
        CASE WHEN reason IN ('nack', 'lease timeout') THEN 'failure' ELSE 'return' END, NULL
        FROM ordered WHERE kind = 'returned'
), counted AS (
    SELECT queue_uid, minute,
        count(*) FILTER (what = 'arrival') AS arrivals,
        count(*) FILTER (what IN ('acked', 'expired', 'dead-lettered', 'deleted', 'purged', 'queue-deleted', 'moved'))
            AS completions,
        count(*) FILTER (what = 'acked') AS acked,
        count(*) FILTER (what = 'expired') AS expired,
        count(*) FILTER (what = 'dead-lettered') AS dead_lettered,
        count(*) FILTER (what IN ('deleted', 'purged', 'queue-deleted')) AS deleted,
        count(*) FILTER (what = 'moved') AS moved,
        count(*) FILTER (what = 'taken') AS deliveries,
        count(*) FILTER (what = 'taken') - count(*) FILTER (what = 'first') AS redeliveries,
        count(*) FILTER (what = 'failure') AS failures,
        list(us) FILTER (what = 'first') AS waits,
        list(us) FILTER (what = 'worked') AS works,
        minute + INTERVAL 1 MINUTE AS over
    FROM happened GROUP BY ALL
), stood AS (
    SELECT counted.queue_uid, counted.minute, count(*) AS depth, min(published) AS oldest
    FROM counted JOIN messages ON messages.queue_uid = counted.queue_uid
        AND messages.published < counted.over AND coalesce(messages.done, 'infinity') >= counted.over
    GROUP BY ALL
), names AS (
    SELECT queue_uid, any_value(queue) AS queue FROM messages GROUP BY ALL
)
SELECT queue_uid, queue, minute, arrivals, completions, acked, expired, dead_lettered, deleted, moved, deliveries,
    redeliveries, CASE WHEN deliveries = 0 THEN 0.0 ELSE redeliveries / deliveries END AS redelivery_rate, failures,
    coalesce(depth, 0) AS depth, epoch_us(least(over, $watermark)) - epoch_us(oldest) AS oldest_age_us,
    nth(waits, 50) AS wait_p50_us, nth(waits, 95) AS wait_p95_us, nth(waits, 99) AS wait_p99_us,
    nth(works, 50) AS work_p50_us, nth(works, 95) AS work_p95_us, nth(works, 99) AS work_p99_us
FROM counted LEFT JOIN stood USING (queue_uid, minute) JOIN names USING (queue_uid)
"""

_DEAD_LETTERS = """
SELECT queue_uid, queue, date_trunc('minute', time) AS minute, reason, count(*) AS count
FROM ordered WHERE kind = 'dead-lettered' GROUP BY ALL
"""

_KEY_BANDS = """
SELECT queue_uid, queue, date_trunc('minute', time) AS minute, band(key) AS band, count(*) AS arrivals
FROM ordered WHERE kind IN ('put', 'moved in') GROUP BY ALL
"""

_WAIT_BUCKETS = """
WITH firsts AS (
    SELECT queue_uid, id, arg_min(key, position) AS key_then FROM ordered WHERE kind = 'taken' GROUP BY ALL
)
SELECT queue_uid, queue, date_trunc('minute', first_delivered) AS minute, band(key_then) AS band,
    (SELECT min(edge) FROM (SELECT 1::BIGINT << unnest(range(10, 62)) AS edge) WHERE edge > waited_us) AS below_us,
    count(*) AS count
FROM messages JOIN firsts USING (queue_uid, id) WHERE first_delivered IS NOT NULL GROUP BY ALL
"""

_WORKER_MINUTES = """
SELECT door, owner, date_trunc('minute', time) AS minute, count(*) FILTER (kind = 'put') AS arrivals,
    count(*) FILTER (kind = 'taken') AS deliveries, count(*) FILTER (kind = 'acked') AS acked,
    count(*) FILTER (kind = 'returned') AS returned
FROM ordered WHERE kind IN ('put', 'taken', 'acked', 'returned') GROUP BY ALL
"""

_SPEC_MINUTES = """
WITH happened AS (
    SELECT spec, date_trunc('minute', started) AS minute, 'started' AS what, NULL AS duration_us FROM tasks
    UNION ALL SELECT spec, date_trunc('minute', done), outcome, duration_us FROM tasks WHERE done IS NOT NULL
)
SELECT spec, minute, count(*) FILTER (what = 'started') AS started, count(*) FILTER (what = 'result') AS results,
    count(*) FILTER (what = 'error') AS errors,
    count(*) FILTER (what = 'result') / nullif(count(*) FILTER (what <> 'started'), 0) AS success_rate,
    nth(list(duration_us) FILTER (what <> 'started'), 50) AS duration_p50_us,
    nth(list(duration_us) FILTER (what <> 'started'), 95) AS duration_p95_us,
    nth(list(duration_us) FILTER (what <> 'started'), 99) AS duration_p99_us
FROM happened GROUP BY ALL
"""

_QUERIES = {
    "silver.messages": "SELECT * FROM messages",
    "gold.queue_minutes": _QUEUE_MINUTES,
    "gold.dead_letters": _DEAD_LETTERS,
    "gold.key_bands": _KEY_BANDS,
    "gold.wait_buckets": _WAIT_BUCKETS,
    "gold.worker_minutes": _WORKER_MINUTES,
    "gold.spec_minutes": _SPEC_MINUTES,
}


class Reference:
    """The tables that follow from events and tasks."""

    def __init__(self, tasks: pa.Table, *, events: pa.Table | None = None, files: Sequence[str] = ()) -> None:
        self._connection = duckdb.connect(config={"threads": 2})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.register("tasks", tasks)
        if events is not None:
            self._connection.register("bronze", events)
            source = "bronze"
        else:
            source = f"read_parquet({[str(file) for file in files]}, hive_partitioning = false)"
        # One number for the order of all events says less than three, and is easier to compare.
        self._connection.execute(
            "CREATE TABLE ordered AS SELECT * EXCLUDE (payload, headers, tag), "
            f"row_number() OVER (ORDER BY index, n, item) AS position FROM {source}"
        )
        for statement in (_STEPS, _LEASES, _MESSAGES, _BANDS, _NTH):
            self._connection.execute(statement)

    def table(self, name: str) -> pa.Table:
        """A table as it must be, in its schema."""
        watermark = "(SELECT max(time) FROM ordered)"
        found = self._connection.sql(_QUERIES[name].replace("$watermark", watermark)).to_arrow_table()
        return found.cast(arrow_schema(PIPELINE_TABLES[name]))

    def close(self) -> None:
        """Let go of the memory."""
        self._connection.close()

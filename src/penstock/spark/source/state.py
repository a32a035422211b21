"""The tables `records` and `queues`: what is in the queues now, as it was at one index.

Both come from a snapshot of the engine (``engine.snapshot``), which holds together however the service goes on. It is
read by one task, block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.engine.commands import H4, QueueSettings
from penstock.engine.journal import REASONS
from penstock.engine.records import BURIED, DELAYED, LEASED, NO_EXTRAS, NO_TRIES, READY, Extras, Lease, Record, Tries
from penstock.engine.snapshot import BODY, HEAD, QUEUE, RECORDS, Bodies, decode_block, give_body, wall_offset_us
from penstock.engine.views import STATE_NAMES
from penstock.spark.schemas import Columns, arrow_schema
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.reading import merge, open_source

_NOT_HELD: Final = Lease(0, 0, 0, 0, False)


class StateReader(DataSourceReader):
    """Reads the state of a cluster, or of files."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One: the state is read as a whole."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the table."""
        return merge(_records(self._options) if self._options.table == "records" else _queues(self._options))


class _Queue:
    """A queue as its block has it, and its records by state as they come."""

    def __init__(self, uid: int, name: str, settings: QueueSettings, paused: bool) -> None:
        self.uid = uid
        self.name = name
        self.settings = settings
        self.paused = paused
        self.counts: Counter[int] = Counter()


def _records(options: SourceOptions) -> Iterator[pa.RecordBatch]:
    names: dict[int, str] = {}
    bodies: Bodies = {}
    offset_us = 0
    with open_source(options) as history:
        index, blocks = history.state()
        for number, block in enumerate(blocks):
            kind, values = decode_block(number, block)
            if kind == HEAD:
                offset_us = wall_offset_us(values)
            elif kind == QUEUE:
                names[values[1]] = values[2]
            elif kind == BODY:
                bodies[values[1]] = values[2:]
            elif kind == RECORDS and _is_wanted(options, names[values[1]]):
                uid, records = values[1], values[2]
                for record in records:
                    give_body(record, bodies)
                yield _records_batch(index, uid, names[uid], records, options, offset_us)


def _queues(options: SourceOptions) -> Iterator[pa.RecordBatch]:
    queues: dict[int, _Queue] = {}
    with open_source(options) as history:
        index, blocks = history.state()
        for number, block in enumerate(blocks):
            kind, values = decode_block(number, block)
            if kind == QUEUE:
                _, uid, name, settings, paused, *_ = values
                queues[uid] = _Queue(uid, name, settings, paused)
            elif kind == RECORDS:
                queues[values[1]].counts.update(record.state for record in values[2])
    wanted = [queue for queue in queues.values() if _is_wanted(options, queue.name)]
    yield _batch(options.schema, {**_QUEUE_COLUMNS, "index": lambda _: index}, wanted)


def _is_wanted(options: SourceOptions, queue: str) -> bool:
    return options.queues is None or queue in options.queues


def _records_batch(
    index: int, uid: int, queue: str, records: list[Record], options: SourceOptions, offset_us: int
) -> pa.RecordBatch:
    same: dict[str, Any] = {"index": index, "queue": queue, "queue_uid": uid}
    if not options.payload:
        same["payload"] = None
    columns = {**_RECORD_COLUMNS, **{name: _always(value) for name, value in same.items()}}
    if offset_us:
        columns |= {name: _by_wall_clock(columns[name], offset_us) for name in _RECORD_TIMES}
    return _batch(options.schema, columns, records)


def _by_wall_clock(log_time_of: Callable[[Any], Any], offset_us: int) -> Callable[[Any], Any]:
    def wall_time_of(thing: Any) -> int | None:
        log_us = log_time_of(thing)
        return None if log_us is None else max(1, log_us - offset_us)

    return wall_time_of


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _batch(schema: Columns, columns: dict[str, Callable[[Any], Any]], things: list[Any]) -> pa.RecordBatch:
    wanted = arrow_schema(schema)
    arrays = [pa.array([columns[field.name](thing) for thing in things], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _extras(record: Record) -> Extras:
    return record.extras or NO_EXTRAS


def _tries(record: Record) -> Tries:
    return record.tries or NO_TRIES


def _headers(record: Record) -> list[tuple[str, str]] | None:
    packed = _extras(record).headers
    try:
        return list(msgspec.msgpack.decode(packed, type=dict[str, str]).items()) if packed else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _origin(record: Record, name: str) -> Any:
    origin = _extras(record).origin
    return None if origin is None else getattr(origin, name)


_RECORD_COLUMNS: Final[dict[str, Callable[[Record], Any]]] = {
    "id": lambda record: record.id,
    "key": lambda record: record.key,
    "place": lambda record: record.place,
    "state": lambda record: STATE_NAMES[record.state],
    "payload": lambda record: record.payload,
    "headers": _headers,
    "published": lambda record: record.published_us,
    "available_at": lambda record: _extras(record).available_at_us or None,
    "expires_at": lambda record: _extras(record).expires_at_us or None,
    "leased_until": lambda record: (record.lease or _NOT_HELD).until_us or None,
    "deliveries": lambda record: _tries(record).deliveries,
    "failures": lambda record: _tries(record).failures,
    "releases": lambda record: _tries(record).releases,
    "timeouts": lambda record: _tries(record).timeouts,
    "dedup_key": lambda record: _extras(record).dedup_key,
    "failure": lambda record: _extras(record).failure or None,
    "reason": lambda record: REASONS.get(_extras(record).reason, str(_extras(record).reason)) or None,
    "origin_queue": lambda record: _origin(record, "queue"),
    "origin_id": lambda record: _origin(record, "id"),
}

_RECORD_TIMES: Final = ("published", "available_at", "expires_at", "leased_until")

_QUEUE_COLUMNS: Final[dict[str, Callable[[_Queue], Any]]] = {
    "queue": lambda queue: queue.name,
    "queue_uid": lambda queue: queue.uid,
    "implementation": lambda queue: "h4" if queue.settings.implementation == H4 else "qa",
    "paused": lambda queue: queue.paused,
    "ready": lambda queue: queue.counts[READY],
    "delayed": lambda queue: queue.counts[DELAYED],
    "leased": lambda queue: queue.counts[LEASED],
    "buried": lambda queue: queue.counts[BURIED],
    "size_max": lambda queue: queue.settings.size_max,
    "lease_ms": lambda queue: queue.settings.lease_ms,
    "deliveries_max": lambda queue: queue.settings.deliveries_max or None,
    "dead_letter": lambda queue: queue.settings.dead_letter,
    "expires_ms": lambda queue: queue.settings.expires_ms or None,
}

"""Histories for the transforms: rows of EVENTS from real engines, and rows written by hand.

What comes from an engine is all that a random life of it leaves: every kind of event, in every order that can happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine import commands as c
from penstock.engine import journal as j
from penstock.spark.schemas import EVENTS, Columns, arrow_schema
from tests.engine.busy import BusyMoment
from tests.engine.comparing import EngineMachine
from tests.engine.driving import Event, events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DOORS = (j.DOOR_TASKFLUX, j.DOOR_NATIVE, j.DOOR_ETZEL, j.DOOR_MONIQUE)
_HAS_TEXT = {*j.TEXT_KINDS, j.OWNER_NAMED}
_HAS_UNTIL = {j.PUT, j.RETURNED, j.EDITED, j.TAKEN, j.EXTENDED}


def moment(time_us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return EPOCH + timedelta(microseconds=time_us)


def busy_history(seed: int, moments: int) -> list[Row]:
    """What a real engine did in so many busy moments, some of them minutes apart."""
    machine, random = _ManyDoors(), Random(seed)
    machine.furnish(3, False, 1500, 0, [c.Item(key, b"x" * key) for key in range(5)], seed)
    for number in range(moments):
        if number % 3 == 0:
            connection = random.choice((1, 2))
            machine.ask(c.NameOwner(machine.term << 32 | connection, f"worker {number}"), connection=connection)
        machine.now_us += random.choice((0, 0, 7_000_000, 25_000_000, 60_000_000 - machine.now_us % 60_000_000))
        BusyMoment(machine, random.randrange(2**32)).run()
    machine.teardown()
    events = events_of(machine.rows)
    names = {queue.uid: name for name, queue in machine.engine.state.by_name.items()}
    return [_row(event, {**machine.engine.state.former_names, **names}) for event in events]


class _ManyDoors(EngineMachine):
    """Commands come by a door that their connection and their number choose."""

    def commit(self) -> None:
        self.pending = [
            asked._replace(door=DOORS[(self.index + n) % len(DOORS)]) for n, asked in enumerate(self.pending)
        ]
        super().commit()


def _row(event: Event, names: dict[int, str]) -> Row:
    until_us = event.value if event.kind in _HAS_UNTIL else 0
    return {
        "index": event.index,
        "n": event.n,
        "item": event.item,
        "term": 1,
        "time": moment(event.time_us),
        "kind": event.name,
        "queue": names.get(event.queue),
        "queue_uid": event.queue,
        "id": event.record,
        "key": event.key,
        "payload_bytes": event.payload_bytes,
        "door": j.DOORS[event.door],
        "owner": event.owner,
        "deliveries": event.deliveries,
        "reason": j.REASONS[event.reason] or None,
        "until": moment(until_us) if until_us else None,
        "value": event.value,
        "other_queue_uid": event.other_queue,
        "other_id": event.other_record,
        # Where the text lies stands for the text: what matters is which event had one.
        "text": f"text at {event.payload_index}, {event.payload_offset}"
        if event.payload_bytes and event.kind in _HAS_TEXT
        else None,
    }


def told(*events: Sequence[Any], start: datetime = datetime(2024, 5, 1, 12, tzinfo=UTC)) -> list[Row]:
    """Events by hand, one entry each: seconds since the start, kind, id, and a dictionary of what else differs."""
    plain = {"n": 0, "item": 0, "term": 1, "queue": "jobs", "queue_uid": 7, "key": 5, "payload_bytes": 3, "value": 0}
    plain |= {"door": "native", "owner": 1, "deliveries": 0, "other_queue_uid": 0, "other_id": 0}
    plain |= {"reason": None, "until": None, "text": None}
    rows = []
    for index, (seconds, kind, record, *more) in enumerate(events):
        row = {**plain, "index": index, "time": start + timedelta(seconds=seconds), "kind": kind, "id": record}
        rows.append({**row, **(more[0] if more else {})})
    return rows


def frame(spark: SparkSession, rows: Iterable[Row], columns: Columns = EVENTS) -> DataFrame:
    """Rows as Spark has them; what a row does not say is null."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow_schema(columns)))


def rows_of(result: DataFrame, columns: Columns, *keys: str) -> list[Row]:
    """What a transform gave, in the order of these keys, after a look at its schema."""
    table = result.toArrow()
    assert table.schema.names == list(columns)
    assert table.schema.types == arrow_schema(columns).types
    return sorted(table.to_pylist(), key=lambda row: tuple((row[key] is not None, row[key]) for key in keys))


def assert_same(got: list[Row], expected: list[Row]) -> None:
    """Equal tables; else what differs in the first rows that do."""
    differing = [
        ({name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]}, wanted)
        for found, wanted in zip(got, expected, strict=False)
        if found != wanted
    ]
    assert not differing, f"{len(differing)} rows differ, column by column (found, wanted): {differing[:3]}"
    assert len(got) == len(expected)

"""What is known of each message while its history is made, and the table that it amounts to.

A life changes by calls that say what happened to it; when, by which door and for whom is the moment's. Nothing here
looks at the engine or the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.commands import QueueSettings
from penstock.engine.journal import DOORS, REASONS
from penstock.spark.schemas import MESSAGES, Columns, arrow_schema

READY, DELAYED, LEASED, BURIED, ENDED = "ready", "delayed", "leased", "buried", "ended"


@dataclass(slots=True)
class Moment:
    """Which event comes next: of which command of which entry, when, by which door and for whom."""

    index: int
    time_us: int
    n: int = 0
    item: int = 0
    door: int = 0
    owner: int = 0
    worker: str | None = None


@dataclass(slots=True, eq=False)
class Line:
    """A queue, from its making to its deletion."""

    uid: int
    name: str
    settings: QueueSettings
    next_id: int = 1
    open: dict[int, Life] = field(default_factory=dict, repr=False)
    held: dict[int, Life] = field(default_factory=dict, repr=False)
    """Those of the open ones that are leased."""
    totals: Counter[str] = field(default_factory=Counter)
    """Arrivals, deliveries, redeliveries, and what ended by outcome."""


@dataclass(slots=True, eq=False)
class Life:
    """A message in one queue, from its beginning there to its end."""

    line: Line
    id: int
    key: int
    payload: bytes
    headers: bytes
    published_us: int
    published_index: int
    door_in: int
    owner_in: int
    is_moved: bool = False
    state: str = READY
    first_available_us: int | None = None
    first_delivered_us: int | None = None
    last_delivered_us: int | None = None
    done_us: int | None = None
    done_index: int | None = None
    outcome: str | None = None
    reason: int = 0
    door_out: int | None = None
    owner_out: int | None = None
    worker: str | None = None
    failure: str | None = None
    deliveries: int = 0
    failures: int = 0
    releases: int = 0
    timeouts: int = 0
    worked_us: int = 0
    leased_since_us: int | None = None
    origin: tuple[int | None, int | None] = (None, None)
    target: tuple[int | None, int | None] = (None, None)
    last: tuple[int, int, int] = (0, 0, 0)
    # What the engine goes by.
    available_us: int = 0
    expires_us: int = 0
    aside_for: int = 0
    """Why it was buried or moved here, which a redrive can ask for."""
    token: int = 0
    serial: int = 0
    until_us: int = 0

    def touch(self, at: Moment, reason: int = 0) -> None:
        """One event of this message."""
        self.last = (at.index, at.n, at.item)
        at.item += 1
        if reason:
            self.reason = reason

    def become_ready(self, at: Moment) -> None:
        """It can be taken from now on."""
        self.state, self.available_us = READY, 0
        if self.first_available_us is None:
            self.first_available_us = at.time_us

    def wait_until(self, at: Moment, available_us: int) -> None:
        """It can be taken from then on, or at once."""
        if available_us:
            self.state, self.available_us = DELAYED, available_us
        else:
            self.become_ready(at)

    def deliver(self, at: Moment) -> None:
        """It was taken; the event is one of its own."""
        self.touch(at)
        self.deliveries += 1
        totals = self.line.totals
        totals["deliveries"] += 1
        if self.first_delivered_us is None:
            self.first_delivered_us = at.time_us
        else:
            totals["redeliveries"] += 1
        self.last_delivered_us = at.time_us
        self.door_out, self.owner_out, self.worker = at.door, at.owner, at.worker

    def hold(self, at: Moment, token: int, until_us: int) -> None:
        """It is leased from now on."""
        self.state, self.leased_since_us = LEASED, at.time_us
        self.token = self.serial = token
        self.until_us = until_us
        self.line.held[self.id] = self

    def let_go(self, at: Moment) -> None:
        """Whoever holds it does so no longer."""
        if self.leased_since_us is not None:
            self.worked_us += at.time_us - self.leased_since_us
            self.leased_since_us = None
            del self.line.held[self.id]

    def end(self, at: Moment, outcome: str) -> None:
        """It is over in this queue, held by nobody any more."""
        self.state, self.outcome = ENDED, outcome
        self.done_us, self.done_index = at.time_us, at.index
        if self.last_delivered_us is None:
            self.door_out = at.door
        self.line.totals[outcome] += 1
        del self.line.open[self.id]

    def row(self) -> tuple[object, ...]:
        """What the table of messages must say, in the order of its columns."""
        waited_us = None
        if self.first_delivered_us is not None and self.first_available_us is not None:
            waited_us = self.first_delivered_us - self.first_available_us
        return (
            *(self.line.uid, self.id, self.line.name, self.key, self.published_us, self.published_index),
            *(None if self.is_moved else len(self.payload), DOORS[self.door_in], self.owner_in),
            *(self.first_available_us, self.first_delivered_us, self.last_delivered_us),
            *(self.done_us, self.done_index, self.outcome, REASONS[self.reason] or None, self.state),
            *(None if self.door_out is None else DOORS[self.door_out], self.owner_out),
            *(self.deliveries, self.failures, self.releases, self.timeouts, waited_us, self.worked_us),
            *(self.leased_since_us, *self.origin, *self.target, *self.last, self.failure, self.worker),
        )


def table_of(columns: Columns, rows: list[tuple[object, ...]]) -> pa.Table:
    """Rows as an Arrow table; times are given in microseconds."""
    schema = arrow_schema(columns)
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(values, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def messages_table(lives: Iterable[Life]) -> pa.Table:
    """The table of messages as it must be, in the order of (queue_uid, id)."""
    return table_of(MESSAGES, sorted((life.row() for life in lives), key=lambda row: row[:2]))

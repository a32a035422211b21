"""One attempt at one partition of a batch: its rows are checked, made items, and staged in parts.

What cannot become a message is found before its Arrow batch is sent where the columns show it, and told by the node
where only the queue can know; either way the error names the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.errors import DedupFull, KeyOutOfRange, NoSuchQueue, PayloadTooLarge, Refused, RequestTooLarge
from penstock.client.stager import Puts, Stager
from penstock.engine.commands import DURATION_MS_MAX
from penstock.spark.errors import BadOption, BadRow
from penstock.spark.source.outgoing import Columns, Order, by_queue, cut, delay_ms, header_maps, to_items

DEDUP_KEY_LENGTH_MAX: Final = 255


class Partition:
    """Stages the Arrow batches of a partition: for ``queue``, or for the queue that each row names."""

    def __init__(
        self, stager: Stager, number: int, attempt: int, *, queue: str | None = None, create_queues: bool = False
    ) -> None:
        self.records = 0
        """How many were sent so far."""
        self._stager = stager
        self._number = number
        self._attempt = attempt
        self._queue = queue
        self._create_queues = create_queues
        self._known_queues: set[str] = set()
        self._parts = 0

    def stage(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage all rows; when this returns, the node has them."""
        for batch in batches:
            if batch.num_rows:
                self._stage_batch(batch)
        self._stager.flush()

    def _stage_batch(self, batch: pa.RecordBatch) -> None:
        columns: Columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._check(columns)
        order: Order | None = None
        if self._queue is not None:
            names, ends = [self._queue], [batch.num_rows]
        else:
            names, ends, order = by_queue(columns["queue"])
            if order is not None:
                columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
        for name in names:
            self._find_queue(name)
        for start, puts in cut(columns, to_items(columns), names, ends):
            self._send(start, puts, order)
        self.records += batch.num_rows

    def _find_queue(self, name: str) -> None:
        if name in self._known_queues:
            return
        try:
            if not self._stager.has_queue(name):
                if not self._create_queues:
                    raise BadOption("queue", f"there is no queue {name!r}; create it first, or set createQueues=true")
                self._stager.create_queue(name)
        except Refused as error:
            raise BadOption("queue", f"{name!r}: {error}") from None
        self._known_queues.add(name)

    def _send(self, start: int, puts: Puts, order: Order | None) -> None:
        first = self.records

        def bad_row(position: int, reason: str) -> BadRow:
            place = start + position
            return self._bad_row(first + (place if order is None else int(order[place])), reason)

        def explain(refusal: Refused) -> Exception:
            if isinstance(refusal, NoSuchQueue):
                return BadOption("queue", f"{refusal.detail} any more; it was there when its first rows came")
            if isinstance(refusal, KeyOutOfRange | PayloadTooLarge | DedupFull) and refusal.position is not None:
                return bad_row(refusal.position, refusal.detail)
            return refusal

        try:
            self._stager.stage(self._number, self._attempt, self._parts, puts, explain)
        except RequestTooLarge as error:
            # A part of several rows is far below this, so it has only one.
            raise bad_row(0, str(error)) from None
        self._parts += 1

    def _check(self, columns: Columns) -> None:
        for name in ("queue", "payload"):
            if name in columns and columns[name].null_count:
                self._refuse_where(columns[name].is_null(), f"{name} is null, and every message has one")
        if "delay" in columns:
            delays = delay_ms(columns["delay"])
            outside = pc.or_(pc.less(delays, 0), pc.greater(delays, DURATION_MS_MAX))
            self._refuse_where(outside, f"a delay lies between 0 and {DURATION_MS_MAX} ms")
        if "dedup_key" in columns:
            too_long = pc.greater(pc.utf8_length(columns["dedup_key"]), DEDUP_KEY_LENGTH_MAX)
            self._refuse_where(too_long, f"a dedup_key has at most {DEDUP_KEY_LENGTH_MAX} characters")
        if "headers" in columns and columns["headers"].items.null_count:
            without = [None in headers.values() for headers in header_maps(columns["headers"])]
            self._refuse_where(pa.array(without), "a header is null")

    def _refuse_where(self, bad: pa.Array, reason: str) -> None:
        row = pc.index(bad, True).as_py()
        if row >= 0:
            raise self._bad_row(self.records + row, reason)

    def _bad_row(self, row: int, reason: str) -> BadRow:
        return BadRow(f"row {row} of partition {self._number}, both counted from 0: {reason}")

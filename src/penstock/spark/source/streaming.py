"""Reading events and topics as a stream: offsets, limits and parts of micro-batches, all on the driver.

What a task does is the same as in a batch query. A poll that finds nothing new waits on the node, since Spark asks
again at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.source.history import History
from penstock.spark.source.offsets import Offset, check_cluster, first_kept, read_offset
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.planning import Range, choose_range, choose_start
from penstock.spark.source.reading import open_source, past_what_is_gone, plan_entries, read_partition
from penstock.wire.native.messages import Reach

WAIT_SECONDS: Final = 1.0
"""So long a poll waits for something new. Stopping a query waits as long."""


class EntriesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the history."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: History | None = None
        self._latest: Offset | None = None
        self._target: int | None = None
        """The last entry to read, for a query that ends with what is there."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint begins."""
        history = self._history()
        return Offset(history.reach().cluster, choose_start(history, self._options)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say. Where they limit rows and bytes, `latestOffset` looks after the bytes."""
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on there is nothing beyond what is there now."""
        self._target = self._history().reach().applied_index

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; where it begins if there is nothing new after a while."""
        at = read_offset(start)
        reach = self._poll(at)
        last = self._last(reach)
        if last < at.index:
            return start
        first = first_kept(at.index, reach.first_index, fail_on_data_loss=self._options.fail_on_data_loss)
        rows_max, bytes_max = self._limits(limit)
        if rows_max or bytes_max:
            last = past_what_is_gone(lambda first: self._cut(first, last, rows_max, bytes_max), first, self._options)
        return Offset(reach.cluster, last + 1).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the history reached when it was last asked: the lag in the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The parts of a batch."""
        at, until = read_offset(start), read_offset(end)
        history = self._history()
        reach = history.reach()
        check_cluster(at.cluster, reach)
        first = first_kept(at.index, reach.first_index, fail_on_data_loss=self._options.fail_on_data_loss)
        return list(plan_entries(history, Range(reach.cluster, first, until.index - 1), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
        """Let go of the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _history(self) -> History:
        # Opened late: the reader itself travels to the tasks.
        if self._opened is None:
            self._opened = open_source(self._options)
        return self._opened

    def _poll(self, at: Offset) -> Reach:
        reach = self._history().reach(at.index - 1, WAIT_SECONDS if self._target is None else 0.0)
        check_cluster(at.cluster, reach)
        self._latest = Offset(reach.cluster, reach.applied_index + 1)
        return reach

    def _last(self, reach: Reach) -> int:
        """The last entry that may be read now."""
        history, options = self._history(), self._options
        last = reach.applied_index if self._target is None else min(reach.applied_index, self._target)
        if options.ending_index is not None or options.ending_us is not None:
            last = min(last, choose_range(history, options).last_index)
        return last

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._options.bytes_max
        if isinstance(limit, ReadMaxBytes):
            return 0, limit.max_bytes
        return 0, 0

    def _cut(self, first_index: int, last_index: int, rows_max: int, bytes_max: int) -> int:
        (cut,) = self._history().cuts(first_index, last_index, rows_max=rows_max, bytes_max=bytes_max, count_max=1)
        return cut.last_index

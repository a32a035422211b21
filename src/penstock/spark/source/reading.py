"""Reading events and topics: what the driver plans for a batch query, and what each task does.

A task opens the history on its own and reads its entries piece by piece; nothing but the bounds comes from the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.client.errors import HistoryGone
from penstock.engine.journal import BROADCAST
from penstock.spark.schemas import TOPICS, arrow_schema
from penstock.spark.source.decode import Filter, decode_batches, needs_log
from penstock.spark.source.history import History, open_history
from penstock.spark.source.names import GONE, QueueNames
from penstock.spark.source.offsets import check_cluster, first_kept
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.planning import EntriesPartition, Range, choose_range, plan
from penstock.spark.source.rows import read_rows
from penstock.spark.source.topics import EVENT_COLUMNS, parse_batch
from penstock.storage.errors import EntriesGone
from penstock.wire.native.messages import JournalPiece

T = TypeVar("T")

BATCH_ROWS_MIN: Final = 16_384
"""Smaller batches are put together: each costs Spark some time of its own."""
JOINED_BYTES_MIN: Final = 32 * 1024 * 1024
"""A batch with this many bytes is not put together with others, however few rows it has: long payloads would take all
memory, and the offsets of an Arrow column end at 2 GiB."""


class EntriesReader(DataSourceReader):
    """Reads a range of entries as a batch query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The parts of the range; chosen from figures, no block is read here."""
        with open_source(self._options) as history:
            return list(plan_entries(history, choose_range(history, self._options), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_partition(self._options, partition)


def open_source(options: SourceOptions) -> History:
    """The history that the options name."""
    return open_history(options.endpoint, options.path, retry_timeout=options.timeout_seconds)


def plan_entries(history: History, entries: Range, options: SourceOptions) -> list[EntriesPartition]:
    """The parts of a range, whose first entries may go while it is planned."""

    def attempt(first_index: int) -> list[EntriesPartition]:
        return plan(history, Range(entries.cluster, first_index, entries.last_index), options.partitions_min)

    return past_what_is_gone(attempt, entries.first_index, options)


def past_what_is_gone(attempt: Callable[[int], T], first_index: int, options: SourceOptions) -> T:
    """Do something with the history from an entry on, or, where that is allowed, from the first that is kept."""
    while True:
        try:
            return attempt(first_index)
        except GONE as gone:
            first_index = _behind(gone, first_index, options)


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one part, in batches that Spark likes."""
    if not isinstance(partition, EntriesPartition):
        return iter(())  # Spark makes a partition of nothing out of no partition
    batches = _topics(options, partition) if options.table == "topics" else _events(options, partition)
    return merge(batches)


def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches where they are small, and no empty one."""
    waiting: list[pa.RecordBatch] = []
    count = size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
            size_bytes += batch.nbytes
        if count >= BATCH_ROWS_MIN or size_bytes >= JOINED_BYTES_MIN:
            yield _joined(waiting)
            waiting, count, size_bytes = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _events(options: SourceOptions, partition: EntriesPartition) -> Iterator[pa.RecordBatch]:
    left_out = () if options.payload else ("payload",)
    built = tuple(name for name in options.columns if name not in left_out)
    for batch in _decode(options, partition, built, Filter(options.queues, options.kinds)):
        yield fill(batch, options)


def _topics(options: SourceOptions, partition: EntriesPartition) -> Iterator[pa.RecordBatch]:
    kept = [name for name in TOPICS if name in options.columns and (options.payload or name != "data")]
    for batch in _decode(options, partition, EVENT_COLUMNS, Filter(kinds=frozenset((BROADCAST,)))):
        yield fill(parse_batch(batch).select(kept), options)


def fill(batch: pa.RecordBatch, options: SourceOptions) -> pa.RecordBatch:
    """A batch with all columns that are asked for, in their order; those that it lacks are null."""
    schema = arrow_schema(options.schema, options.never_null)
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decode(
    options: SourceOptions, partition: EntriesPartition, columns: tuple[str, ...], only: Filter
) -> Iterator[pa.RecordBatch]:
    with open_source(options) as history:
        if options.endpoint is not None:
            check_cluster(partition.cluster, history.reach())
        names = QueueNames(history, is_remote=options.endpoint is not None)
        wants_names = "queue" in columns or only.queues is not None
        for piece in _pieces(history, partition, needs_log(columns), options):
            rows, gaps = read_rows(piece)
            for gap in gaps:
                first_kept(gap.first_index, gap.last_index + 1, fail_on_data_loss=options.fail_on_data_loss)
            known = names.of(rows) if wants_names else {}
            yield from decode_batches(piece, rows, known, columns, history.entries, only)


def _pieces(
    history: History, partition: EntriesPartition, with_log: bool, options: SourceOptions
) -> Iterator[JournalPiece]:
    first = partition.first_index
    while first <= partition.last_index:
        try:
            for piece in history.pieces(first, partition.last_index, with_log=with_log):
                yield piece
                first = piece.last_index + 1
        except GONE as gone:
            first = _behind(gone, first, options)


def _behind(gone: HistoryGone | EntriesGone, first_index: int, options: SourceOptions) -> int:
    if gone.first_index is None or gone.first_index <= first_index:
        raise gone
    return first_kept(first_index, gone.first_index, fail_on_data_loss=options.fail_on_data_loss)

"""The sink: DataFrames into queues, exactly once, as batch or stream.

Each task stages its rows under (query, batch, partition, attempt), where nobody sees them; when all tasks are done, one
command publishes one attempt of each partition, and the node does that once for each batch of a query. So a retried
task, a speculative twin, a batch that is replayed after a crash and a repeated commit all add nothing.

    who                 query                          batch
    a stream            the streaming query's id       that of the micro-batch
    a batch write       a fresh name                   0
    with option query   what it says                   the micro-batch, or what the option batch says

A batch write inside `foreachBatch` gets a fresh name like any other. It could learn the stream's name and batch, but
two writes in one function would then take each other for a replay: whoever wants exactly once there says both options.

A fresh name is never used again, so its batch is published as its last one, and the node does not remember it.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.endpoints import SCHEME
from penstock.client.errors import BatchIncomplete, BatchNotStaged, PenstockError
from penstock.client.stager import Stager
from penstock.engine.commands import INT64_MAX, RECORDS_PER_COMMAND_MAX
from penstock.spark.errors import BadOption, NotWritten
from penstock.spark.source.options import check_known, read_flag, read_place
from penstock.spark.source.outgoing import check_columns
from penstock.spark.source.staging import Partition

TIMEOUT_S: Final = 60.0
TIMEOUT_S_MAX: Final = 86_400.0

OPTIONS: Final[dict[str, str]] = {
    "endpoint": "host:port of a node, or several with commas between; required",
    "queue": "where all rows go; without it each row has a column queue",
    "query": "names the writer instead of the streaming query's id; for a new checkpoint, take a new name",
    "batch": "batch writes, with query: the number of this write, above that of the last one; a repeat adds nothing",
    "createQueues": "true: make queues that are missing, with default settings; default false",
    "timeoutSeconds": f"so long nodes that cannot be reached are tried again; {TIMEOUT_S:g} by default",
}
"""What the sink can be told, and what it means. Names are not case-sensitive."""

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of a stream that Spark hands on."""
QUERY_LENGTH_MAX: Final = 255
PARTITIONS_MAX: Final = RECORDS_PER_COMMAND_MAX
_ATTEMPT_BITS: Final = 62
_ABORT_WITHIN_S: Final = 5.0
_log: Final = logging.getLogger(__name__)


class Sink(Struct, frozen=True):
    """What the options say."""

    url: str
    queue: str | None
    query: str | None
    batch: int | None
    create_queues: bool
    timeout_s: float

    def stager(self, query: str, batch: int, is_last: bool) -> Stager:
        """A way to the node for one batch."""
        return Stager(self.url, query, batch, is_last=is_last, retry_timeout=self.timeout_s)


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged. The commit happens in another process, which knows only this."""

    query: str
    batch: int
    partition: int
    attempt: int
    records: int


def make_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceArrowWriter:
    """A writer for one batch write."""
    sink = _prepare(schema, options, overwrite)
    if (sink.query is None) != (sink.batch is None):
        missing = "query" if sink.query is None else "batch"
        raise BadOption(missing, "is missing: a write that can be repeated has both, query and batch")
    if sink.query is None or sink.batch is None:
        return BatchWriter(sink, str(uuid.uuid4()), 0, is_last=True)
    return BatchWriter(sink, sink.query, sink.batch)


def make_stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceStreamArrowWriter:
    """A writer for the micro-batches of a stream."""
    sink = _prepare(schema, options, overwrite)
    if sink.batch is not None:
        raise BadOption("batch", "is for batch writes; the batches of a stream are numbered by Spark")
    return StreamWriter(sink)


def _prepare(schema: StructType, options: Mapping[str, str], overwrite: bool) -> Sink:
    if overwrite:
        raise BadOption("mode", "a queue can only be added to, since others put and take there too; use append")
    sink = read_options(options)
    check_columns(schema, sink.queue)
    return sink


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame. Made once on the driver, and copied from there to the tasks and to the commit."""

    def __init__(self, sink: Sink, query: str, batch: int, *, is_last: bool = False) -> None:
        self._sink = sink
        self._query = query
        self._batch = batch
        self._is_last = is_last

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        return _stage(self._sink, self._query, self._batch, iterator, is_last=self._is_last)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        _publish(self._sink, self._query, self._batch, messages, is_last=self._is_last)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have staged."""
        _abort(self._sink, self._query, self._batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition."""
        context = _task()
        query = self._sink.query or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise NotWritten("this task belongs to no streaming query that Spark would name")
        return _stage(self._sink, query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what the tasks have staged."""
        if (query := self._find_query(messages)) is not None:
            _publish(self._sink, query, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what the tasks have staged, if any of them could tell its query; else the replay's publication does."""
        if (query := self._find_query(messages)) is not None:
            _abort(self._sink, query, batchId)

    def _find_query(self, messages: list[WriterCommitMessage | None]) -> str | None:
        named = (message.query for message in messages if isinstance(message, Staged))
        return next(named, None)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _stage(sink: Sink, query: str, batch: int, batches: Iterator[pa.RecordBatch], *, is_last: bool = False) -> Staged:
    number = _task().partitionId()
    if number >= PARTITIONS_MAX:
        raise NotWritten(f"one batch has at most {PARTITIONS_MAX:,} partitions; use coalesce before the write")
    # Spark counts attempts from 0 again when a batch is replayed, while parts of the driver that died may still be
    # there, or even on their way, cut at other rows. A number drawn at random is nobody else's: no part of one attempt
    # is ever taken for a part of another, be it a retry, a speculative twin or a ghost.
    attempt = secrets.randbits(_ATTEMPT_BITS)
    with sink.stager(query, batch, is_last) as stager:
        partition = Partition(stager, number, attempt, queue=sink.queue, create_queues=sink.create_queues)
        partition.stage(batches)
    return Staged(query, batch, number, attempt, partition.records)


def _publish(
    sink: Sink, query: str, batch: int, messages: list[WriterCommitMessage | None], *, is_last: bool = False
) -> None:
    staged = [message for message in messages if isinstance(message, Staged) and message.records]
    if not staged:
        return
    attempts = [(message.partition, message.attempt) for message in staged]
    records = sum(message.records for message in staged)
    try:
        with sink.stager(query, batch, is_last) as stager:
            published = stager.publish(attempts, records)
    except PenstockError as error:
        reason = f"batch {batch} of {query} with {records:,} records: {error}"
        if isinstance(error, BatchNotStaged | BatchIncomplete):
            reason += "; it was aborted or a day old, so nothing of it is visible: write it again"
        # Spark tells its user no more than that the job failed.
        _log.error("not published: %s", reason)
        raise NotWritten(reason) from error
    if not published.fresh:
        _log.info("batch %d of %s was published before; nothing was added", batch, query)


def _abort(sink: Sink, query: str, batch: int) -> None:
    try:
        with Stager(sink.url, query, batch, retry_timeout=min(sink.timeout_s, _ABORT_WITHIN_S)) as stager:
            stager.abort()
    except PenstockError as error:
        # Its user wants to read why the write failed, and not that nobody could be told of it.
        _log.warning("batch %d of %s stays staged until the node drops it: %s", batch, query, error)


# The options.


def read_options(options: Mapping[str, str]) -> Sink:
    """What the options say; raises ``BadOption`` for one that is unknown or cannot be read."""
    said = {name.lower(): value.strip() for name, value in options.items() if name.lower() not in _SPARKS_OWN}
    check_known(said, OPTIONS)
    if "endpoint" not in said:
        raise BadOption("endpoint", "is missing: say host:port of a node")
    endpoint, _ = read_place(said)
    query = said.get("query")
    if query is not None and not 0 < len(query) <= QUERY_LENGTH_MAX:
        raise BadOption("query", f"a name has 1 to {QUERY_LENGTH_MAX} characters")
    return Sink(
        url=str(endpoint) if "://" in str(endpoint) else f"{SCHEME}://{endpoint}",
        queue=said.get("queue"),
        query=query,
        batch=_read_batch(said.get("batch")),
        create_queues=read_flag(said, "createQueues", False),
        timeout_s=_read_timeout(said.get("timeoutseconds")),
    )


def _read_batch(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        raise BadOption("batch", f"{text!r} is no number from 0 on")
    return int(text)


def _read_timeout(text: str | None) -> float:
    if text is None:
        return TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= TIMEOUT_S_MAX:
        raise BadOption("timeoutSeconds", f"is a number of seconds from 0 to {TIMEOUT_S_MAX:g}, not {text!r}")
    return seconds

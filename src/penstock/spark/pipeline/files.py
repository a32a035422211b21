"""Writing the files of a table: Arrow batches into Parquet, one file for each part, wherever a task of Spark runs.

Tasks write their files themselves, straight under their last names, and tell the driver what they wrote. A name is
drawn at random, so an attempt that was repeated, or that outlived its driver, leaves a file that nobody asks for and
harms nothing. What the driver was told goes into the manifest; the rest is swept up by the next run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.journal import KINDS, NEW_TERM, OWNER_GONE, OWNER_NAMED
from penstock.spark.pipeline.manifest import File
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from penstock.storage.modes import create_file, make_directories

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART: Final = "part"
"""The column, last of a frame that is to be written, that says which part a row belongs to."""

FILES_DDL: Final = ", ".join(
    f"`{name}` {'string' if name in ('path', 'part') else 'bigint'}" for name in File.__struct_fields__
)
_FILES_SCHEMA: Final = pa.schema(
    [(name, pa.string() if name in ("path", "part") else pa.int64()) for name in File.__struct_fields__]
)
_COMPRESSION: Final = "zstd"
_COMPRESSION_LEVEL: Final = 1
_ROW_GROUP_ROWS: Final = 128 * 1024
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_BUFFERED_BYTES_MAX: Final = 128 * 1024 * 1024

INDEX_COLUMNS: Final = {"bronze.events": "index", "silver.messages": "done_index", "silver.tasks": "done_index"}
"""The column, by table, whose bounds are a file's first and last entry."""
_TIME_COLUMNS: Final = {"bronze.events": "time", "silver.messages": "done", "silver.tasks": "done"}
_OWNER_KINDS: Final = pa.array([KINDS[kind][0] for kind in (OWNER_NAMED, OWNER_GONE, NEW_TERM)])
_WATERMARK_KEY: Final = b"penstock.watermark"
_UNIQUE_TEXTS: Final = frozenset({"id", "pid", "error_message", "failure", "text"})
"""Texts that hardly repeat. Other columns of text get a dictionary; numbers and payloads cost twice as much with one.
"""


def time_column(table: str) -> str:
    """The column whose bounds are a file's first and last time."""
    return _TIME_COLUMNS.get(table, "minute")


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: a table below a directory, and the watermark that their files carry."""

    directory: Path
    table: str
    watermark: int

    @property
    def root(self) -> Path:
        """The folder of the table."""
        return self.directory.joinpath(*self.table.split("."))


class PartWriter:
    """Writes rows of one table into one file for each part. Close it to get the files; what fails leaves leftovers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._schema = arrow_schema(PIPELINE_TABLES[target.table])
        self._files: dict[str, _OpenFile] = {}
        self._buffered_bytes = 0

    def write(self, batch: pa.RecordBatch, part: str) -> None:
        """Add rows to a part."""
        if not batch.num_rows:
            return
        file = self._files.get(part)
        if file is None:
            file = self._files[part] = _OpenFile(self._target, part, self._schema)
        self._buffered_bytes += file.add(batch)
        if self._buffered_bytes > _BUFFERED_BYTES_MAX:
            for each in self._files.values():
                each.flush()
            self._buffered_bytes = 0

    def write_split(self, batch: pa.RecordBatch) -> None:
        """Add rows to the parts that their last column names."""
        rows = batch.select(range(batch.num_columns - 1))
        parts = batch.column(batch.num_columns - 1).dictionary_encode()
        codes = parts.indices.to_numpy(zero_copy_only=False)
        if len(parts.dictionary) == 1:
            self.write(rows, parts.dictionary[0].as_py())
            return
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(parts.dictionary)))
        sorted_rows = rows.take(pa.array(order))
        start = 0
        for part, end in zip(parts.dictionary.to_pylist(), ends.tolist(), strict=True):
            self.write(sorted_rows.slice(start, end - start), part)
            start = end

    def write_days(self, batch: pa.RecordBatch) -> None:
        """Add rows whose times never fall to the parts of their days."""
        days = pc.floor_temporal(batch.column("time"), unit="day").cast(pa.int64()).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(starts):
            if end > start:
                day = np.datetime64(int(days[start]), "us").astype("datetime64[D]")
                self.write(batch.slice(start, end - start), str(day))

    def close(self) -> list[File]:
        """Finish and sync all files; what they are."""
        return [file.close() for file in self._files.values()]


@dataclass(slots=True)
class _Range:
    """The smallest and largest of some numbers."""

    first: int | None = None
    last: int | None = None

    def add(self, column: pa.Array) -> None:
        bounds = pc.min_max(column)
        low, high = bounds["min"], bounds["max"]
        if low.is_valid:
            low, high = low.cast(pa.int64()).as_py(), high.cast(pa.int64()).as_py()
            self.first = low if self.first is None else min(self.first, low)
            self.last = high if self.last is None else max(self.last, high)


@dataclass(slots=True)
class _OpenFile:
    target: Target
    part: str
    schema: pa.Schema
    path: Path = field(init=False)
    writer: Any = field(init=False)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows_waiting: int = 0
    bytes_waiting: int = 0
    rows: int = 0
    broadcasts: int = 0
    owner_events: int = 0
    indexes: _Range = field(default_factory=_Range)
    times: _Range = field(default_factory=_Range)

    def __post_init__(self) -> None:
        folder = self.target.root / self.part
        make_directories(folder)
        # The watermark first, so that a listing shows the files in their order.
        self.path = folder / f"{self.target.watermark:015d}-{secrets.token_hex(6)}.parquet"
        create_file(self.path)
        self.writer = pq.ParquetWriter(
            self.path,
            self.schema.with_metadata({_WATERMARK_KEY: str(self.target.watermark).encode()}),
            compression=_COMPRESSION,
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=[
                each.name for each in self.schema if each.type == pa.string() and each.name not in _UNIQUE_TEXTS
            ],
        )

    def add(self, batch: pa.RecordBatch) -> int:
        """Take rows; returns by how much what waits in memory has grown."""
        before = self.bytes_waiting
        if batch.schema != self.schema:
            batch = _conformed(batch, self.schema)
        self.batches.append(batch)
        self.rows_waiting += batch.num_rows
        self.bytes_waiting += batch.nbytes
        if self.rows_waiting >= _ROW_GROUP_ROWS or self.bytes_waiting >= _ROW_GROUP_BYTES:
            self.flush()
        return self.bytes_waiting - before

    def flush(self) -> None:
        if not self.batches:
            return
        rows = pa.Table.from_batches(self.batches)
        self._count(rows)
        self.writer.write_table(rows, row_group_size=self.rows_waiting)
        self.batches, self.rows_waiting, self.bytes_waiting = [], 0, 0

    def _count(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        name = self.target.table
        self.times.add(rows.column(time_column(name)))
        if name in INDEX_COLUMNS:
            self.indexes.add(rows.column(INDEX_COLUMNS[name]))
        if name == "bronze.events":
            kinds = rows.column("kind")
            self.broadcasts += pc.sum(pc.equal(kinds, "broadcast")).as_py() or 0
            self.owner_events += pc.sum(pc.is_in(kinds, _OWNER_KINDS)).as_py() or 0

    def close(self) -> File:
        self.flush()
        self.writer.close()
        _sync(self.path)
        _sync(self.path.parent)
        indexes, times = self.indexes, self.times
        return File(
            path=self.path.relative_to(self.target.directory).as_posix(),
            part=self.part,
            rows=self.rows,
            bytes=self.path.stat().st_size,
            first_index=-1 if indexes.first is None else indexes.first,
            last_index=-1 if indexes.last is None else indexes.last,
            first_us=times.first or 0,
            last_us=times.last or 0,
            broadcasts=self.broadcasts,
            owner_events=self.owner_events,
        )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# In Spark.


def write_frame(frame: DataFrame, target: Target) -> list[File]:
    """Write the rows of a frame, whose last column is `PART`: one job, a file for each part that a task has."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = PartWriter(target)
        for batch in batches:
            if batch.num_rows:
                writer.write_split(batch)
        yield files_batch(writer.close())

    return collect_files(frame.mapInArrow(write, FILES_DDL))


def files_batch(files: list[File]) -> pa.RecordBatch:
    """What a task tells the driver."""
    columns = [[getattr(file, name) for file in files] for name in _FILES_SCHEMA.names]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, _FILES_SCHEMA.types, strict=True)],
        schema=_FILES_SCHEMA,
    )


def collect_files(told: DataFrame) -> list[File]:
    """What tasks told the driver, by part and then in the order of their entries."""
    files = [File(**row.asDict()) for row in told.collect()]
    return sorted(files, key=lambda file: (file.part, file.first_index, file.path))


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with these columns; those that files of an earlier version lack are null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

"""Reading gold for the report: with Arrow alone, summed while it is read, so that memory is that of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.pipeline.manifest import load_manifest
from penstock.spark.pipeline.tables import moment
from penstock.spark.report.series import MINUTE_US, Bins
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Rows = dict[str, list[Any]]
"""A table by column."""


@dataclass(frozen=True, slots=True)
class Gold:
    """Which files are the gold tables, and how much of the history they contain."""

    files: Mapping[str, Sequence[Path]]
    """By the table's name in ``PIPELINE_TABLES``; one that is missing has no rows."""
    index: int | None = None
    """The last log entry that they contain; None where nothing was read yet."""
    time: datetime | None = None
    """Its log time."""

    @staticmethod
    def of(directory: Path) -> Gold:
        """What the last run of a pipeline published, all tables of the same run."""
        manifest = load_manifest(directory)
        tables = {name: table for name, table in manifest.tables.items() if name.startswith("gold.")}
        first = min(tables.values(), key=lambda table: table.watermark)
        return Gold(
            {name: [directory / file.path for file in table.files] for name, table in tables.items()},
            first.watermark if first.watermark >= 0 else None,
            moment(first.time_us),
        )

    def sums(self, table: str, keys: Sequence[str], values: Sequence[str], bins: Bins, *, by_bin: bool = False) -> Rows:
        """Sums of columns by keys over the time of these bins, in no order; with `by_bin`, `bin` is one more key."""
        import pyarrow.acero as ac
        import pyarrow.compute as pc

        minute = pc.field("minute")
        columns = {name: pc.field(name) for name in (*keys, *values)}
        if by_bin:
            columns["bin"] = pc.divide(minute.cast("int64") - bins.origin * MINUTE_US, bins.step * MINUTE_US)
            keys = [*keys, "bin"]
        # The scan leaves out what statistics rule out, the filter the rest.
        chosen = (minute >= _timestamp(bins.first_minute)) & (minute <= _timestamp(bins.last_minute))
        added = [(value, "hash_sum", None, value) for value in values]
        nodes = [
            ac.Declaration("scan", ac.ScanNodeOptions(self._dataset(table), columns=columns, filter=chosen)),
            ac.Declaration("filter", ac.FilterNodeOptions(chosen)),
            ac.Declaration("project", ac.ProjectNodeOptions(list(columns.values()), list(columns))),
            ac.Declaration("aggregate", ac.AggregateNodeOptions(added, keys=keys)),
        ]
        result = ac.Declaration.from_sequence(nodes).to_table()
        return {name: result[name].to_pylist() for name in (*keys, *values)}

    def rows(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Columns of all rows; `minute` becomes a number: minutes since the epoch."""
        import pyarrow as pa

        read = self._dataset(table).to_table(columns=list(columns))
        if "minute" in columns:
            numbers = minute_numbers(read["minute"])
            read = read.set_column(read.schema.get_field_index("minute"), "minute", pa.array(numbers))
        return read

    def minutes(self) -> tuple[int, int] | None:
        """The first and the last minute in which anything happened; None where gold is empty."""
        found: list[int] = []
        for table in ("gold.queue_minutes", "gold.worker_minutes", "gold.spec_minutes"):
            found += self._ends(table)
        return (min(found), max(found)) if found else None

    def _ends(self, table: str) -> list[int]:
        """The first and the last minute of a table, or nothing."""
        import pyarrow.acero as ac

        nodes = [
            ac.Declaration("scan", ac.ScanNodeOptions(self._dataset(table), columns=["minute"])),
            ac.Declaration("aggregate", ac.AggregateNodeOptions([("minute", "min_max", None, "ends")])),
        ]
        (ends,) = ac.Declaration.from_sequence(nodes).to_table()["ends"].to_pylist()
        return [int(end.timestamp()) // 60 for end in ends.values() if end is not None]

    def _dataset(self, table: str) -> Any:
        import pyarrow.dataset as ds

        schema = arrow_schema(PIPELINE_TABLES[table])
        files = [str(path) for path in self.files.get(table, ())]
        if not files:
            return ds.dataset(schema.empty_table())
        return ds.dataset(files, schema=schema, format="parquet")


def minute_numbers(minutes: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Timestamps of minutes as minutes since the epoch."""
    import pyarrow as pa

    numbers: np.ndarray[Any, np.dtype[np.int64]] = minutes.cast(pa.int64()).to_numpy() // MINUTE_US
    return numbers


def _timestamp(minute: int) -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar(minute * MINUTE_US, pa.timestamp("us", "UTC"))

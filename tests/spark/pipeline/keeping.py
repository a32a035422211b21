"""Tables of a pipeline in tests: read without Spark, as any other program would, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipeline.files import PartWriter, Target
from penstock.spark.pipeline.manifest import File, Manifest
from penstock.spark.pipeline.tables import table_files
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from tests.spark.generated.comparing import differences

DAY = "2026-01-01"
DAY_US = 1_767_225_600_000_000


def table_of(directory: Path, manifest: Manifest, name: str) -> pa.Table:
    """A table as a manifest has it."""
    schema = arrow_schema(PIPELINE_TABLES[name])
    files = [pq.read_table(directory / file.path, schema=schema) for file in manifest.tables[name].files]
    return pa.concat_tables([schema.empty_table(), *files])


def all_tables(directory: Path) -> dict[str, pa.Table]:
    """All tables as they are now."""
    found = {}
    for name, columns in PIPELINE_TABLES.items():
        schema = arrow_schema(columns)
        files = [pq.read_table(path, schema=schema) for path in table_files(directory, name)]
        found[name] = pa.concat_tables([schema.empty_table(), *files])
    return found


def assert_same_tables(expected: dict[str, pa.Table], found: dict[str, pa.Table]) -> None:
    """Every table has the same rows."""
    said = [line for name in PIPELINE_TABLES for line in differences(name, expected[name], found[name])]
    assert not said, "\n".join(said)


def files_on_disk(directory: Path) -> set[str]:
    """All Parquet files below a directory, whoever names them."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*.parquet")}


def write_events(directory: Path, first_index: int, rows: int, *, step_us: int = 1000) -> list[File]:
    """A file of bronze with some events, one an entry."""
    events: list[dict[str, Any]] = [
        {
            "index": index,
            "n": 0,
            "item": 0,
            "time": DAY_US + index * step_us,
            "kind": "broadcast" if index % 10 == 0 else "put",
            "id": index + 1,
            "queue_uid": 1,
            "payload": b"payload %d" % index,
            "headers": [("a", "b")] if index % 3 == 0 else None,
        }
        for index in range(first_index, first_index + rows)
    ]
    writer = PartWriter(Target(directory, "bronze.events", first_index + rows - 1))
    writer.write_days(pa.RecordBatch.from_pylist(events, schema=arrow_schema(PIPELINE_TABLES["bronze.events"])))
    return writer.close()

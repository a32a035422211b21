"""The tables of a pipeline held against what must come of a generated history; and the pipeline run in chosen turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipeline.run import Pipeline
from penstock.spark.pipeline.tables import table_files
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from penstock.spark.source.reading import open_source
from tests.spark.generated.comparing import differences
from tests.spark.generated.history import Generated
from tests.spark.generated.lives import messages_table
from tests.spark.generated.plain import events_table
from tests.spark.generated.reference import Reference
from tests.spark.generated.tasks import tasks_table

GOLD = [name for name in PIPELINE_TABLES if name.startswith("gold.")]


@dataclass
class Told:
    """A history, the tables that must come of it, and the directory of those that one whole run made."""

    made: Generated
    expected: dict[str, pa.Table]
    directory: Path


def expect(made: Generated, directory: Path) -> dict[str, pa.Table]:
    """Every table as it must be: gold as DuckDB makes it from the bronze files of this directory."""
    tasks = tasks_table(made.truth.tasks.all)
    reference = Reference(tasks, files=[str(file) for file in table_files(directory, "bronze.events")])
    tables = {
        "bronze.events": events_table(made.directory, made.cluster_id, made.truth.queue_names()),
        "silver.messages": messages_table(made.truth.lives),
        "silver.tasks": tasks,
        **{name: reference.table(name) for name in GOLD},
    }
    reference.close()
    return tables


def found(directory: Path, name: str) -> pa.Table:
    """A table as its files say, read without Spark."""
    schema = arrow_schema(PIPELINE_TABLES[name])
    files = table_files(directory, name)
    return pa.concat_tables([schema.empty_table(), *(pq.read_table(file, schema=schema) for file in files)])


def wrong(expected: Mapping[str, pa.Table], directory: Path) -> list[str]:
    """All that is wrong with the tables of a directory."""
    return [said for name, table in expected.items() for said in differences(name, table, found(directory, name))]


def run_to(pipeline: Pipeline, cuts: Sequence[int]) -> None:
    """Run a pipeline in turns that end with these entries."""
    with open_source(pipeline.options) as history:
        pipeline.begin(history)
        for last_index in cuts:
            while pipeline.append(history, last_index) < last_index:
                pass
            while pipeline.derive():
                pass

"""Reading the tables of a pipeline: as a Spark frame, or as a list of Parquet files for any other program.

Both say what the manifest says at that moment, so a reader sees whole runs only. The files stay for ten minutes after
a later run has replaced them; who reads longer than that should read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.manifest import File, Manifest, load_manifest
from penstock.spark.schemas import PIPELINE_TABLES, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to where a table is complete: the last log entry, and the time of the last event up to there."""

    index: int
    time: datetime | None


def read_table(spark: SparkSession, directory: str | Path, name: str) -> DataFrame:
    """A table as the last run published it; `name` is one of ``schemas.PIPELINE_TABLES``."""
    directory = Path(directory)
    table = _known(load_manifest(directory), name).tables[name]
    return read_files(spark, directory, name, table.files)


def table_files(directory: str | Path, name: str) -> list[Path]:
    """The Parquet files of a table as the last run published it; none where it is empty."""
    directory = Path(directory)
    return [directory / file.path for file in _known(load_manifest(directory), name).tables[name].files]


def watermark(directory: str | Path, name: str | None = None) -> Watermark:
    """Up to where a table is complete; without a name, up to where all of them are."""
    manifest = load_manifest(Path(directory))
    names = PIPELINE_TABLES if name is None else [name]
    table = min((_known(manifest, each).tables[each] for each in names), key=lambda table: table.watermark)
    return Watermark(table.watermark, moment(table.time_us))


def moment(time_us: int) -> datetime | None:
    """A time of the log; None for 0, which stands for no event."""
    return (
        datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000) if time_us else None
    )


def read_files(spark: SparkSession, directory: Path, name: str, files: Iterable[File]) -> DataFrame:
    """Some files of a table as a frame."""
    columns = ddl(PIPELINE_TABLES[name])
    paths = [_literal(directory.absolute() / file.path) for file in files]
    if not paths:
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(*paths)


def _literal(path: Path) -> str:
    """A path as Spark takes it, which would otherwise read patterns into it."""
    return "file:" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def _known(manifest: Manifest, name: str) -> Manifest:
    if name not in PIPELINE_TABLES:
        raise PipelineError(f"there is no table {name}; there are {', '.join(PIPELINE_TABLES)}")
    return manifest

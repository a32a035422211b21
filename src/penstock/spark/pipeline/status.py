"""How a pipeline is doing: of each table up to where it is complete, how large it is, how far it is behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.spark.pipeline.manifest import Gap, load_manifest
from penstock.spark.pipeline.tables import moment
from penstock.spark.schemas import PIPELINE_TABLES
from penstock.wire.native.messages import Reach


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table."""

    name: str
    watermark: int
    """The last log entry that it contains, -1 for none."""
    time: datetime | None
    """The time of the last event up to there."""
    rows: int
    files: int
    bytes: int
    behind_entries: int | None = None
    """How many entries the history has beyond that; None where it was not asked."""
    behind_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """All tables of a directory."""

    cluster: str
    generation: int
    format: str
    gaps: tuple[Gap, ...]
    tables: tuple[TableStatus, ...]


def read_status(directory: Path, reach: Reach | None = None) -> Status:
    """How the tables stand; with the reach of the history, also how far they are behind it."""
    manifest = load_manifest(directory)
    found = []
    for name in PIPELINE_TABLES:
        table = manifest.tables[name]
        behind_entries = behind_seconds = None
        if reach is not None:
            behind_entries = max(0, reach.applied_index - table.watermark)
            behind_seconds = max(0, reach.log_time_us - table.time_us) / 1e6 if behind_entries else 0.0
        found.append(
            TableStatus(
                name=name,
                watermark=table.watermark,
                time=moment(table.time_us),
                rows=sum(file.rows for file in table.files),
                files=len(table.files),
                bytes=sum(file.bytes for file in table.files),
                behind_entries=behind_entries,
                behind_seconds=behind_seconds,
            )
        )
    return Status(manifest.cluster, manifest.generation, manifest.format, manifest.gaps, tuple(found))


def status_shape(status: Status) -> dict[str, Any]:
    """The status as JSON has it."""
    tables = [
        {
            "name": table.name,
            "watermark": table.watermark,
            "time": table.time.isoformat() if table.time else None,
            "rows": table.rows,
            "files": table.files,
            "bytes": table.bytes,
            "behind_entries": table.behind_entries,
            "behind_seconds": table.behind_seconds,
        }
        for table in status.tables
    ]
    return {
        "cluster": status.cluster,
        "generation": status.generation,
        "format": status.format,
        "gaps": [[gap.first_index, gap.last_index] for gap in status.gaps],
        "tables": tables,
    }

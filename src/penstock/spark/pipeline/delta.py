"""The tables as Delta tables too: the same Parquet files, named in a Delta log beside them, through delta-rs.

The manifest stays the truth. After each publication a table's Delta log is brought to say the same, in one transaction
for each table: files that came are added, files that went are removed. What was not done because of a crash is done at
the next publication, and what was done is not done again, since only the difference is written. Each transaction
carries the table's watermark as an application transaction (`penstock.<cluster>`), so a reader of the Delta table can
tell it.

Files that a table no longer has are deleted from disk when the manifest lets them go, ten minutes later at the
earliest. Older versions of the Delta table can be looked at for that long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.spark.errors import ExtraMissing, PipelineError
from penstock.spark.pipeline.files import INDEX_COLUMNS, time_column
from penstock.spark.pipeline.manifest import File, Manifest
from penstock.spark.schemas import PIPELINE_TABLES, arrow_schema
from penstock.storage.modes import make_directories


def check_delta() -> None:
    """Raise ``ExtraMissing`` unless delta-rs is installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise ExtraMissing("deltalake", "delta") from None


def publish_delta(directory: Path, manifest: Manifest, names: Iterable[str] = tuple(PIPELINE_TABLES)) -> None:
    """Bring the Delta logs of these tables to what the manifest says."""
    from deltalake.exceptions import DeltaError

    for name in names:
        try:
            _publish(directory.joinpath(*name.split(".")), name, manifest)
        except (DeltaError, OSError) as error:
            raise PipelineError(
                f"the Delta log of {name} could not be written ({error}); the Parquet tables are up to date, "
                "and the next run brings the Delta log after them"
            ) from error


def _publish(root: Path, name: str, manifest: Manifest) -> None:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import create_table_with_add_actions

    table = manifest.tables[name]
    wanted = {_path_in(file, name): file for file in table.files}
    schema = Schema.from_arrow(arrow_schema(PIPELINE_TABLES[name]))
    application = f"penstock.{manifest.cluster}"
    properties = CommitProperties(
        custom_metadata={"watermark": table.watermark},
        app_transactions=[Transaction(application, max(0, table.watermark))],
    )
    if not DeltaTable.is_deltatable(str(root)):
        make_directories(root)
        actions = [_add(path, file, name) for path, file in wanted.items()]
        create_table_with_add_actions(str(root), schema, actions, mode="error", name=name, commit_properties=properties)
        return
    delta = DeltaTable(str(root))
    _add_columns(delta, schema)
    known = _known(delta)
    changes = [_add(path, file, name) for path, file in wanted.items() if path not in known]
    changes += [_remove(path, size_bytes) for path, size_bytes in known.items() if path not in wanted]
    if changes or delta.transaction_version(application) != max(0, table.watermark):
        delta.create_write_transaction(changes, mode="append", schema=schema, commit_properties=properties)


def _add_columns(delta: Any, schema: Any) -> None:
    """Give a Delta table of an earlier version the columns that were added since; its older rows have null there."""
    there = {field.name for field in delta.schema().fields}
    missing = [field for field in schema.fields if field.name not in there]
    if missing:
        delta.alter.add_columns(missing)


def _known(delta: Any) -> dict[str, int]:
    """The files that a Delta table has, with their sizes."""
    import pyarrow as pa

    actions = pa.table(delta.get_add_actions(flatten=True))
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _path_in(file: File, name: str) -> str:
    """The path of a file below the folder of its table."""
    return file.path.removeprefix(name.replace(".", "/") + "/")


def _add(path: str, file: File, name: str) -> Any:
    from deltalake.transaction import AddAction

    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return AddAction(path, file.bytes, {}, now_ms, data_change=True, stats=_statistics(file, name))


def _remove(path: str, size_bytes: int) -> Any:
    from deltalake.transaction import RemoveAction

    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return RemoveAction(path, data_change=True, deletion_timestamp=now_ms, size=size_bytes)


def _statistics(file: File, name: str) -> str:
    """What lets a reader leave a file out. Delta has times to the millisecond, so the last one is rounded up."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    if file.first_index >= 0 and name in INDEX_COLUMNS:
        low[INDEX_COLUMNS[name]], high[INDEX_COLUMNS[name]] = file.first_index, file.last_index
    if file.last_us:
        column = time_column(name)
        low[column], high[column] = _time(file.first_us // 1000), _time(-(-file.last_us // 1000))
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {}})


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"

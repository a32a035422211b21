"""`penstock storage import` and `penstock storage export`: files of the original system, version 1, in and out."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.errors import Failure
from penstock.cli.output import progress, write_json

_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)
_NAMES: Final = click.Choice(["string", "queuename"])
_AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")


@click.command("import")
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--data-dir",
    type=_DIRECTORY,
    default=Path("penstock-data"),
    show_default=True,
    help="The new node's data, made here.",
)
@click.option("--names", type=_NAMES, help="The form of queue names in the log; by default the one that fits.")
@click.option("--log-from-start", is_flag=True, help="The log begins at index 0, and not after the snapshot.")
@click.option("--node-id", type=click.IntRange(0, 255), default=0, show_default=True, help="The new node's number.")
@_AS_JSON
def import_command(source: Path, data_dir: Path, names: Any, log_from_start: bool, node_id: int, as_json: bool) -> None:
    """Make a new node from the files of version 1.

    SOURCE is a directory with raft.log, raft.snapshot and raft.metadata, or one with these in its consensus/. The files
    stay as they are. Says what it had to assume.
    """
    from penstock.storage.import_version1 import build_engine, check_unused, read_version1, write_version2
    from penstock.storage.metadata import CLUSTER_ID_BYTES

    check_unused(data_dir)
    files = read_version1(source, names)
    with progress("importing", files.steps) as bar:
        now_us = time.time_ns() // 1000
        imported = build_engine(files, now_us=now_us, log_from_start=log_from_start, progress=bar.update)
    write_version2(imported.engine, data_dir, new_cluster_id=secrets.token_bytes(CLUSTER_ID_BYTES), node_id=node_id)
    figures = {
        "queues": imported.queues,
        "records": imported.records,
        "records_from_snapshot": imported.records_from_snapshot,
        "entries_applied": imported.entries_applied,
        "term": imported.engine.state.term,
    }
    if as_json:
        write_json({"data_dir": str(data_dir), **figures, "assumptions": imported.assumptions})
        return
    for sentence in imported.assumptions:
        click.echo(f"assumed: {sentence}")
    click.echo(
        f"imported {_count(imported.records, 'record')} in {_count(imported.queues, 'queue')} into {data_dir} "
        f"({_count(imported.records_from_snapshot, 'record')} from the snapshot, "
        f"{_count(imported.entries_applied, 'entry', 'entries')} of the log applied)"
    )
    click.echo(f"start it with: penstock serve --data-dir {data_dir}")


@click.command("export")
@click.argument("target", type=_DIRECTORY)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("penstock-data"),
    show_default=True,
    help="The data of a node that does not run.",
)
@click.option("--as-log", is_flag=True, help="Write a log of commands that build the state, and no snapshot.")
@click.option(
    "--names", type=_NAMES, default="string", show_default=True, help="With --as-log: the form of queue names in it."
)
@click.option("--strict", is_flag=True, help="Write nothing if anything but ids and times would be lost.")
@_AS_JSON
def export_command(target: Path, data_dir: Path, as_log: bool, names: Any, strict: bool, as_json: bool) -> None:
    """Write the state of a stopped node as files of version 1, into TARGET/consensus.

    The node's own files stay as they are. Says what version 1 cannot hold.
    """
    from penstock.storage.export_version1 import read_state, write_version1
    from penstock.storage.losses import losses

    with progress("reading the log") as bar:
        state = read_state(data_dir, bar.update)
    lost = losses(state.engine, as_log=as_log)
    if strict and any(not loss.always for loss in lost):
        reasons = "; ".join(str(loss) for loss in lost if not loss.always)
        raise Failure(f"version 1 cannot hold all of it, so nothing was written: {reasons}")
    files = write_version1(state.engine, target, as_log=as_log, names=names)
    queues = state.engine.state.by_uid.values()
    records = sum(sum(queue.counts) for queue in queues)
    if as_json:
        written = [str(path) for path in files]
        not_held = [{"what": loss.what, "count": loss.count, "always": loss.always} for loss in lost]
        document = {"files": written, "queues": len(queues), "records": records, "lost": not_held, "notes": state.notes}
        write_json(document)
        return
    for note in state.notes:
        click.echo(f"note: {note}")
    for loss in lost:
        click.echo(f"not held by version 1: {loss}")
    click.echo(f"exported {_count(records, 'record')} in {_count(len(queues), 'queue')}:")
    for path in files:
        click.echo(f"  {path}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"

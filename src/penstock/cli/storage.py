"""The files of a node: `storage inspect`, `verify` and `repair`; `import` and `export` stand in `storage_v1`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.errors import FAILED
from penstock.cli.lazy import Lazy, LazyGroup
from penstock.cli.output import console, shown_size, write_json

if TYPE_CHECKING:
    from penstock.storage.inspect import Line
    from penstock.storage.verify import Report

COMMANDS: Final = {
    "Commands": {
        "inspect": Lazy("penstock.cli.storage:inspect", "Print the files of a node readably."),
        "verify": Lazy("penstock.cli.storage:verify", "Check every checksum of a data directory or a file."),
        "repair": Lazy("penstock.cli.storage:repair", "Make a damaged data directory startable again."),
        "import": Lazy("penstock.cli.storage_v1:import_command", "Make a new node from the files of version 1."),
        "export": Lazy(
            "penstock.cli.storage_v1:export_command", "Write the state of a stopped node as files of version 1."
        ),
    }
}


@click.group(cls=LazyGroup, sections=COMMANDS)
def storage() -> None:
    """Look into the files of a node."""


def _path_argument(function: Any) -> Any:
    kind = click.Path(exists=True, path_type=Path)
    return click.argument("path", type=kind, default=Path("penstock-data"), metavar="[PATH]")(function)


@click.command()
@_path_argument
@click.option("--limit", type=click.IntRange(1), help="At most so many items of each file.  [default: all]")
@click.option("--bytes", "as_bytes", is_flag=True, help="Show what records hold as bytes, and do not read it.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, one line for each item.")
def inspect(path: Path, limit: int | None, as_bytes: bool, as_json: bool) -> None:
    """Print the files of a node readably.

    PATH is a data directory or one file of it; without it penstock-data, the default data directory, is read. Nothing
    is changed and nothing is locked: the files of a running node can be looked at, too. A file that cannot be read to
    its end is told, and the exit code is 1.
    """
    from penstock.cli.explaining import EXPLAINERS
    from penstock.storage.inspect import describe

    bad = 0
    for file in _files(path):
        if not as_json:
            click.secho(str(file), bold=True)
        for line in islice(describe(file, None if as_bytes else EXPLAINERS), limit):
            bad += line.kind == "bad"
            if as_json:
                write_json(_line_shape(file, line))
            else:
                click.echo(str(line))
    if bad:
        raise click.exceptions.Exit(FAILED)


def _files(path: Path) -> Iterator[Path]:
    """The file, or those of a data directory, in the order in which a node reads them."""
    if not path.is_dir():
        yield path
        return
    from penstock.storage.errors import NotADataDirectory
    from penstock.storage.layout import Layout

    layout = Layout(path)
    if not layout.consensus.is_dir():
        raise NotADataDirectory(path, "has no directory consensus/")
    sealed = layout.sealed_first_indexes()
    candidates = [layout.metadata, layout.snapshot, layout.older_snapshot]
    candidates += [file for first in sealed for file in (layout.sealed_log(first), layout.sealed_events(first))]
    candidates += [layout.log, layout.live_events, layout.tail]
    yield from (file for file in candidates if file.exists())


def _line_shape(file: Path, line: Line) -> dict[str, object]:
    fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in line.fields.items()}
    return {"path": str(file), "offset": line.offset, "item": line.kind, "fields": fields}


@click.command()
@_path_argument
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def verify(path: Path, as_json: bool) -> None:
    """Check every checksum of a data directory or a file.

    PATH is as for inspect. It is checked, too, that the files of a directory fit together. Nothing is changed and
    nothing is locked. For damage and for gaps the exit code is 1; a torn tail is no loss, the next start cuts it off.
    """
    from penstock.storage.verify import verify as verify_files

    if sys.stderr.isatty():
        with console(stdout=False).status("checking"):
            report = verify_files(path)
    else:
        report = verify_files(path)
    if as_json:
        write_json(_report_shape(report))
    else:
        for problem in report.problems:
            click.echo(str(problem))
        checked = f"{len(report.files)} files, {report.entries} entries, {report.rows} events"
        click.echo(f"checked {checked}, {shown_size(report.bytes)}: " + ("in order" if report.ok else "not in order"))
    if not report.ok:
        raise click.exceptions.Exit(FAILED)


def _report_shape(report: Report) -> dict[str, object]:
    problems = [
        {"severity": each.severity, "path": str(each.file), "offset": each.offset, "reason": each.reason}
        for each in report.problems
    ]
    return {
        "ok": report.ok,
        "files": [str(file) for file in report.files],
        "entries": report.entries,
        "events": report.rows,
        "bytes": report.bytes,
        "problems": problems,
    }


@click.command()
@_path_argument
@click.option("--to", "copy", type=click.Path(path_type=Path), help="Repair a copy in this new directory instead.")
@click.option("--accept-loss", is_flag=True, help="Continue a log whose end is gone; the lost messages are reported.")
@click.option("--yes", is_flag=True, help="Do not ask before files are changed in place.")
def repair(path: Path, copy: Path | None, accept_loss: bool, yes: bool) -> None:
    """Make a damaged data directory startable again.

    PATH is a data directory that no node uses; without it, penstock-data. A damaged snapshot is replaced by the one
    before it, and damaged log segments that a snapshot covers are set aside: neither loses a message. With
    --accept-loss a log whose end is gone is continued from where it ends. Nothing is deleted: what cannot be used is
    moved to consensus/damaged/. Run `penstock storage verify` first to see what is wrong.
    """
    import shutil

    from penstock.engine.journal import ROW_BYTES
    from penstock.storage.repair import repair as repair_files

    if copy is not None:
        if copy.exists():
            raise click.UsageError(f"--to: {copy} exists already.")
        click.echo(f"copying {path} to {copy} ...")
        shutil.copytree(path, copy)
        path = copy
    elif not yes:
        click.confirm(f"Files in {path} will be changed. Continue?", abort=True)
    for line in repair_files(path, ROW_BYTES, accept_loss=accept_loss) or ["nothing had to be repaired"]:
        click.echo(line)
    click.echo(f"{path} can be started from")

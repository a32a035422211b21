"""The data pipeline: `pipeline run`, `status`, `files`, `report`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.connecting import DEFAULT_URL, URL_VARIABLE
from penstock.cli.errors import INTERRUPTED
from penstock.cli.lazy import Lazy, LazyGroup
from penstock.cli.output import shown_duration, shown_size, shown_time, write_json, write_pairs, write_table
from penstock.cli.parameters import DURATION, MOMENT

if TYPE_CHECKING:
    from penstock.spark.pipeline.run import Pipeline
    from penstock.spark.pipeline.status import Status
    from penstock.wire.native.messages import Reach

COMMANDS: Final = {
    "Commands": {
        "run": Lazy("penstock.cli.pipeline:run", "Bring the tables to where the history is: once, or on and on."),
        "status": Lazy("penstock.cli.pipeline:status", "Show how far the tables are, and how large."),
        "files": Lazy("penstock.cli.pipeline:files", "List the Parquet files of a table."),
        "report": Lazy("penstock.cli.pipeline:report", "Write a page about the tables, to be read in a browser."),
    }
}
DEFAULT_DIRECTORY: Final = Path("penstock-data/pipeline")
"""Where `penstock up` keeps the tables with its default data directory."""
EVERY_SECONDS_MIN: Final = 1.0
_RETRY_SECONDS: Final = 10.0


@click.group(cls=LazyGroup, sections=COMMANDS)
def pipeline() -> None:
    """Turn the history of a cluster into tables.

    Bronze has all events, silver the life of each message and task, gold the figures of each minute.
    """


def _directory_option(name: str, text: str) -> Callable[[Any], Any]:
    kind = click.Path(file_okay=False, path_type=Path)
    default = f"  [default: {DEFAULT_DIRECTORY}]"
    return click.option(name, "directory", type=kind, default=DEFAULT_DIRECTORY, metavar="DIR", help=text + default)


def _source_options(function: Any) -> Any:
    endpoint = click.option(
        "--endpoint", envvar=URL_VARIABLE, metavar="HOST:PORT", help="The nodes to read from; several with commas."
    )
    path = click.option("--path", type=click.Path(exists=True), help="Files to read instead: a data directory.")
    return endpoint(path(function))


def _named_source(endpoint: str | None, path: str | None) -> Path | str | None:
    """The place to read from, if one was given; a path on the command line goes before the variable."""
    source = click.get_current_context().get_parameter_source("endpoint")
    if path is None:
        return endpoint
    if endpoint is not None and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--endpoint and --path both say what to read; give one of them.")
    return Path(path)


@click.command()
@click.option("--once", is_flag=True, help="To where the history is now, and end.  [default]")
@click.option("--every", "every_seconds", type=DURATION, help="Again and again, so often.")
@click.option("--continuous", is_flag=True, help="New events within a second; silver and gold every 30 s, or --every.")
@_source_options
@_directory_option("--to", "Where the tables are kept.")
@click.option("--format", type=click.Choice(["parquet", "delta"]), help="delta: each table is a Delta table as well.")
@click.option("--allow-gap", is_flag=True, help="Go on where entries are gone before they were read; it is recorded.")
@click.option("--rows-per-run", type=click.IntRange(1000), help="Events that are taken at a time.  [default: 2000000]")
@click.option("--report", "report_path", type=click.Path(dir_okay=False, path_type=Path), help="Write it after a run.")
@click.option("--master", metavar="URL", help="A Spark cluster, spark://…  [default: embedded, local[*]]")
@click.option("--remote", metavar="URL", help="A Spark Connect server, sc://…")
def run(
    once: bool,
    every_seconds: float | None,
    continuous: bool,
    endpoint: str | None,
    path: str | None,
    directory: Path,
    format: str | None,
    allow_gap: bool,
    rows_per_run: int | None,
    report_path: Path | None,
    master: str | None,
    remote: str | None,
) -> None:
    """Bring the tables to where the history is: once, or on and on.

    A run changes nothing that can be seen until all of it is done; one that failed or was killed is simply run again.
    Ctrl-C and SIGTERM end it after its current step, a second one at once. On a cluster the directory has to be the
    same for the driver and the workers, and penstock has to be installed there.
    """
    if once and (every_seconds is not None or continuous):
        raise click.UsageError("--once runs once; leave it out with --every and --continuous.")
    if every_seconds is not None and every_seconds < EVERY_SECONDS_MIN:
        raise click.UsageError(f"--every is at least {EVERY_SECONDS_MIN:g} s.")
    if master is not None and remote is not None:
        raise click.UsageError("--master and --remote both say where to run; give one of them.")
    source = _named_source(endpoint, path) or DEFAULT_URL
    from penstock.cli.pipeline_running import Told, stopped_by_signals
    from penstock.spark.session import check_spark, open_session

    check_spark()
    from penstock.spark.pipeline.run import ROWS_PER_RUN, SETTINGS, Pipeline

    spark = open_session("penstock pipeline", master=master, remote=remote, settings=SETTINGS)
    try:
        with (
            Told() as told,
            Pipeline(
                spark,
                source,
                directory,
                format=format,
                allow_gap=allow_gap,
                rows_per_run=rows_per_run or ROWS_PER_RUN,
                on_progress=told.progress,
            ) as running,
        ):
            stopped_by_signals(running.stop)
            told.published = lambda: _write_report(directory, report_path)
            _run(running, told, every_seconds, continuous)
    finally:
        spark.stop()
    if running.stop.is_set() and every_seconds is None and not continuous:
        raise click.exceptions.Exit(INTERRUPTED)


def _run(running: Pipeline, told: Any, every_seconds: float | None, continuous: bool) -> None:
    from penstock.spark.pipeline.loops import EVERY_SECONDS, run_continuously, run_every

    if continuous:
        seconds = EVERY_SECONDS if every_seconds is None else every_seconds
        run_continuously(running, seconds, on_failure=told.failure, on_published=told.done)
    elif every_seconds is not None:
        run_every(running, every_seconds, on_failure=told.failure, on_published=told.done)
    else:
        running.run_once()
        told.done()


def _write_report(directory: Path, target: Path | None) -> None:
    if target is not None:
        from penstock.spark.report.page import write_report

        write_report(directory, target)


@click.command()
@_directory_option("--to", "Where the tables are kept.")
@_source_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document.")
def status(directory: Path, endpoint: str | None, path: str | None, as_json: bool) -> None:
    """Show how far the tables are, and how large.

    A table contains all that follows from the log up to its watermark. With --endpoint or --path it is also told how
    far that is behind the history.
    """
    from penstock.spark.pipeline.status import read_status, status_shape

    reach = _reach(_named_source(endpoint, path))
    found = read_status(directory, reach)
    if as_json:
        write_json(status_shape(found))
    else:
        _write_status(found)


def _reach(source: Path | str | None) -> Reach | None:
    if source is None:
        return None
    from penstock.spark.source.history import open_history

    place = {"path": str(source)} if isinstance(source, Path) else {"endpoint": source}
    with open_history(**place, retry_timeout=_RETRY_SECONDS) as history:
        return history.reach()


def _write_status(found: Status) -> None:
    pairs = [("cluster", found.cluster), ("format", found.format), ("published", f"{found.generation} times")]
    pairs += [("gap", f"entries {gap.first_index} to {gap.last_index} were gone") for gap in found.gaps]
    write_pairs(pairs)
    click.echo()
    columns = ["ROWS", "FILES", "SIZE", "WATERMARK", "LOG TIME", "BEHIND", "TABLE"]
    rows = [
        (
            f"{table.rows:,}",
            f"{table.files:,}",
            shown_size(table.bytes),
            table.watermark if table.watermark >= 0 else "-",
            shown_time(table.time),
            _shown_behind(table.behind_entries, table.behind_seconds),
            table.name,
        )
        for table in found.tables
    ]
    write_table(columns, rows)


def _shown_behind(entries: int | None, seconds: float | None) -> str:
    if entries is None or seconds is None:
        return "-"
    return f"{entries:,} entries, {shown_duration(seconds)}" if entries else "nothing"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("table", metavar="TABLE")
def files(directory: Path, table: str) -> None:
    """List the Parquet files of a table, one a line.

    For DuckDB, Polars and whatever else reads Parquet. TABLE is bronze.events, silver.messages, silver.tasks, or one of
    gold, such as gold.queue_minutes. The files stay for ten minutes after a later run has replaced them.
    """
    from penstock.spark.pipeline.tables import table_files

    for path in table_files(directory, table):
        click.echo(path)


@click.command()
@click.option("--to", "target", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="The page.")
@_directory_option("--from", "Where the tables are kept.")
@click.option("--since", type=MOMENT, help="Only what happened from this time on.")
@click.option("--json", "as_json", is_flag=True, help="Write the figures as one JSON document instead.")
def report(target: Path | None, directory: Path, since: datetime | None, as_json: bool) -> None:
    """Write a page about the tables, to be read in a browser: report.html, unless --to says otherwise.

    It is one file that needs no network, and it needs no Spark to be made. With --json the figures are written to FILE,
    or to the terminal.
    """
    from penstock.spark.pipeline.manifest import load_manifest

    load_manifest(directory)
    from penstock.spark.report.page import report_json, write_report

    if not as_json:
        write_report(directory, target or Path("report.html"), since=since)
    elif target is None:
        write_json(report_json(directory, since=since))
    else:
        import json

        from penstock.storage.modes import create_file

        create_file(target)
        target.write_text(json.dumps(report_json(directory, since=since)), encoding="utf-8")

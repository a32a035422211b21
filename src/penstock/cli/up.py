"""`penstock up`: a node with, beside it, the data pipeline on embedded Spark."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.leashed import leashed
from penstock.cli.parameters import DURATION
from penstock.cli.pipeline_running import WARNING
from penstock.cli.serve import native_listener, own_endpoint, run_node, skip_option
from penstock.cli.setting_options import SettingsCommand, config_option, load_settings
from penstock.doors.server import Server
from penstock.settings import Settings
from penstock.spark.errors import SparkSideError
from penstock.spark.session import check_java, check_spark

log = logging.getLogger(__name__)

DIRECTORY: Final = "pipeline"
REPORT: Final = "report.html"
EVERY_SECONDS_MIN: Final = 1.0
_GRACE_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 30.0
_PAUSE_SECONDS_MIN: Final = 2.0
_PAUSE_SECONDS_MAX: Final = 300.0
_STEADY_SECONDS: Final = 600.0
_LINES_TOLD: Final = 5
_SETTING_UP: Final = "setting up Spark"
_PREFIX_COLUMNS: Final = len(f"* {_SETTING_UP}: ")
_OWN_LINE: Final = "penstock: "
_OF_MAKE: Final = re.compile(r"g?make(\[\d+\])?: ")
"""How make begins the line in which it says where it failed, when the reason has been told by the command itself."""


@click.command(cls=SettingsCommand)
@click.option("--every", "every_seconds", type=DURATION, default=30, help="How often it runs.  [default: 30s]")
@click.option("--prepare", metavar="COMMAND", help="What sets Spark up; run by the shell once the doors are open.")
@config_option
@skip_option
def up(
    every_seconds: float, prepare: str | None, config_path: str | None, skip_entries: tuple[int, ...], **options: Any
) -> None:
    """Run a node and, beside it, the data pipeline.

    The node is what `penstock serve` runs, with the same settings, and is ready whether or not Spark is there. But a
    WebSocket or ZeroMQ door whose default port is taken stays closed, with a warning that names the setting; a port
    that you set must be free.

    The pipeline keeps its tables and report.html in the folder pipeline of the data directory. It needs the extra
    `spark` and Java 17 or newer. If one is missing, a warning names the command that installs it, and the pipeline
    starts once it is there.
    """
    if every_seconds < EVERY_SECONDS_MIN:
        raise click.UsageError(f"--every is at least {EVERY_SECONDS_MIN:g} s.")
    settings = load_settings(config_path, options)
    beside = PipelineBeside(settings, every_seconds, prepare)
    run_node(settings, beside, may_close_doors=True, skip_entries=skip_entries)


class PipelineBeside:
    """Keeps the pipeline running beside a node, which never suffers from it."""

    def __init__(self, settings: Settings, every_seconds: float, prepare: str | None) -> None:
        self.directory = Path(settings.data_dir).resolve() / DIRECTORY
        self._every_seconds = every_seconds
        self._prepare = prepare
        # How wide a line the display of the set-up has; none for programs, and away from a terminal.
        has_display = settings.log_format == "text" and sys.stderr.isatty()
        self._columns = max(shutil.get_terminal_size().columns - _PREFIX_COLUMNS, 1) if has_display else 0

    def announce(self, server: Server) -> Iterator[str]:
        """Where the tables and the report are."""
        if native_listener(server) is None:
            yield "pipeline  none: it reads by the taskflux door, which is closed"
        else:
            yield f"pipeline  {self.directory}  every {self._every_seconds:g} s: tables, and {REPORT}"

    async def run(self, server: Server) -> None:
        """Set Spark up, wait until it is there, and run the pipeline again and again."""
        listener = native_listener(server)
        if listener is None:
            return
        try:
            was_told = self._prepare is not None and not await self._set_up(self._prepare)
            await wait_for_spark(was_told)
            await keep_running(self.command(own_endpoint(listener)))
        except Exception:
            log.exception("the data pipeline is given up; the node serves on")

    def command(self, endpoint: str) -> list[str]:
        """What runs the pipeline against this node."""
        own = [sys.executable, "-m", "penstock", "pipeline", "run", "--every", f"{self._every_seconds:g}s"]
        place = ["--endpoint", endpoint, "--to", str(self.directory), "--report", str(self.directory / REPORT)]
        # Nobody is there to decide what to do about entries that went before Spark came: the gap is recorded.
        return [*own, *place, "--allow-gap"]

    async def _set_up(self, command: str) -> bool:
        """Run the command, its lines shown; False if it failed, which is told with the way to try again."""
        last: deque[str] = deque(maxlen=1)
        with _display(self._columns) as show:

            def on_line(line: str) -> None:
                if not _OF_MAKE.match(line):
                    last.append(line)
                show(line)

            shell = ["/bin/sh", "-c", command]
            async with leashed(shell, on_line, grace_seconds=_GRACE_SECONDS, columns=self._columns) as process:
                code = await process.wait()
        if code:
            reason = "".join(f" ({line})" for line in last)
            log.warning("Spark could not be set up%s, the node serves on; to try again: %s", reason, command)
        return code == 0


async def wait_for_spark(was_told: bool) -> None:
    """Return when all that Spark needs is there. What is missing is told, unless it was, and again when it changes."""
    told = None
    while (missing := await asyncio.to_thread(_what_is_missing)) is not None:
        if missing != told and not was_told:
            log.warning("the node serves without the data pipeline: %s", missing)
        told, was_told = missing, False
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def _what_is_missing() -> str | None:
    importlib.invalidate_caches()
    try:
        check_spark()
        check_java()
    except SparkSideError as error:
        return str(error)
    return None


async def keep_running(command: list[str]) -> None:
    """Run a command for ever: when it ends, its last words are told and it is started again after a growing pause."""
    loop = asyncio.get_running_loop()
    pause_seconds = _PAUSE_SECONDS_MIN
    while True:
        last: deque[str] = deque(maxlen=_LINES_TOLD)

        def on_line(line: str, last: deque[str] = last) -> None:
            last.append(line)
            # Its own lines begin with its name; the rest is what Spark and Java have to say.
            text = line.removeprefix(_OWN_LINE)
            if text == line:
                log.debug("pipeline: %s", line)
            elif text.startswith(WARNING):
                log.warning("pipeline: %s", text.removeprefix(WARNING))
            else:
                log.info("pipeline: %s", text)

        started = loop.time()
        log.info("the data pipeline starts")
        async with leashed(command, on_line, grace_seconds=_GRACE_SECONDS) as process:
            code = await process.wait()
        if loop.time() - started >= _STEADY_SECONDS:
            pause_seconds = _PAUSE_SECONDS_MIN
        log.warning("the data pipeline ended with %d and starts again in %g s; its last words:", code, pause_seconds)
        for line in last:
            log.warning("  %s", line)
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, _PAUSE_SECONDS_MAX)


@contextmanager
def _display(columns: int) -> Iterator[Callable[[str], None]]:
    """Where the lines of the set-up go: into a status line below the log's, or into the log itself."""
    if not columns:
        yield lambda line: log.info("%s: %s", _SETTING_UP, line)
        return
    from rich.console import Console
    from rich.text import Text

    handlers = [each for each in logging.getLogger().handlers if isinstance(each, logging.StreamHandler)]
    streams = [each.stream for each in handlers]
    with Console(stderr=True).status(_SETTING_UP) as status:
        # While the status line is shown, what is written to the error stream is put above it.
        for handler in handlers:
            handler.setStream(sys.stderr)
        try:
            yield lambda line: status.update(Text(f"{_SETTING_UP}: {line[:columns]}"))
        finally:
            for handler, stream in zip(handlers, streams, strict=True):
                handler.setStream(stream)

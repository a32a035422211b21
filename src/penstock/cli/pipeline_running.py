"""What is seen of a pipeline that runs: a bar at a terminal, lines elsewhere; and how it is told to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.errors import explain
from penstock.cli.output import console, shown_duration

if TYPE_CHECKING:
    from penstock.spark.pipeline.run import Progress

_LINE_EVERY_SECONDS: Final = 10.0
_FAILURE_EVERY_SECONDS: Final = 60.0
WARNING: Final = "warning: "
"""How a line begins that reports a failure."""


def stopped_by_signals(stop: Event) -> None:
    """Have SIGINT and SIGTERM set an event. A second one is not waited for: it kills."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        # Not here: the handler interrupts the thread that waits for the event, and that may hold the event's lock.
        Thread(target=stop.set, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


class Told:
    """Tells on the error stream how a run goes on. Use it in a ``with`` block."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.published: Callable[[], None] = lambda: None
        """What else is to be done when a run has ended well."""
        self._clock = clock
        self._bar: Any = None
        self._task: Any = None
        self._last: Progress | None = None
        self._last_line = clock()
        self._failure = ""
        self._failing_since_s = self._reported_s = 0.0

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        self._hide()

    def progress(self, now: Progress) -> None:
        """A step begins."""
        self._last = now
        if sys.stderr.isatty():
            self._show(now)
        elif now.step != "done" and min(now.seconds, self._clock() - self._last_line) >= _LINE_EVERY_SECONDS:
            self._line(f"{now.step}: entry {now.index:,} of {now.last_index:,}, {now.rows:,} events so far")

    def failure(self, error: Exception) -> None:
        """A run failed and will be retried; the same failure is reported again once a minute."""
        self._hide()
        text, now_s = explain(error).format_message(), self._clock()
        if text != self._failure:
            self._failure, self._failing_since_s, self._reported_s = text, now_s, now_s
            self._line(f"{WARNING}{text}; trying again")
        elif now_s - self._reported_s >= _FAILURE_EVERY_SECONDS:
            self._reported_s = now_s
            failing = shown_duration(now_s - self._failing_since_s)
            self._line(f"{WARNING}{text}; failing for {failing}, trying again")

    def done(self) -> None:
        """A run ended well."""
        self._hide()
        self.published()
        last, self._last = self._last, None
        if self._failure:
            self._line("going on")
            self._failure = ""
        if last is not None and last.rows:
            rate = last.rows / last.seconds if last.seconds else 0
            self._line(
                f"{last.rows:,} events up to entry {last.last_index:,} in {shown_duration(last.seconds)}"
                f" ({rate:,.0f} a second)"
            )

    def _line(self, text: str) -> None:
        self._last_line = self._clock()
        click.echo(f"penstock: {text}", err=True)

    def _show(self, now: Progress) -> None:
        from rich import progress

        if self._bar is None:
            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TextColumn("{task.fields[figures]}"),
                progress.TimeElapsedColumn(),
                console=console(stdout=False),
                transient=True,
            )
            self._task = self._bar.add_task(now.step, total=None, figures="")
            self._bar.start()
        rate = f", {now.rows / now.seconds:,.0f} a second" if now.rows and now.seconds else ""
        self._bar.update(
            self._task,
            description=now.step,
            total=now.last_index - now.first_index,
            completed=now.index - now.first_index,
            figures=f"{now.rows:,} events{rate}" if now.rows else "",
            refresh=True,  # a step shorter than the time between two pictures is seen as well
        )

    def _hide(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

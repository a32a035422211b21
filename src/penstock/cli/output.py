"""Writing results: tables and texts for people, JSON for programs, progress where it takes long.

Nothing that came from outside reaches a terminal as it is: what is not printable is escaped or described. For a
program there is `--json`, one document per line, and `--raw`, the bytes of a payload alone.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import TaskID
    from rich.table import Table

PROGRESS_AFTER_SECONDS: Final = 1.0
_HEX_BYTES_SHOWN: Final = 16
_WIDTH_UNBOUNDED: Final = 100_000
_FIGURE: Final = re.compile(r"-|-?[0-9][0-9,.]*( ?(ms|[smhd]|B|[KMGT]iB))?")
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "m"))


def write_json(value: Mapping[str, Any]) -> None:
    """One JSON document on one line."""
    click.echo(json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON document on one line, in which characters that a terminal or an editor would act on are escaped.

    These are control characters, marks of writing direction, separators of lines and halves of surrogate pairs. They
    can only be inside texts, where an escape means the same character.
    """
    return _replaced(json.dumps(value, ensure_ascii=False, separators=(",", ":")), _json_escape)


def write_raw(payload: bytes, *, newline: bool) -> None:
    """A payload as it is; with a newline where several follow each other."""
    stream = sys.stdout.buffer
    stream.write(payload + b"\n" if newline else payload)
    stream.flush()


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under headings; numbers to the right. The last column is cut where the terminal ends.

    Not drawn by rich, which needs seconds for ten thousand rows.
    """
    from rich.cells import cell_len, chop_cells

    listed = [[printable(str(cell)) for cell in row] for row in rows]
    last = len(columns) - 1
    widths = [max(map(cell_len, (name, *(row[at] for row in listed)))) for at, name in enumerate(columns)]
    to_right = [at != last and all(_is_figure(row[at]) for row in listed) for at in range(len(columns))]
    width_max = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_UNBOUNDED

    def line(row: Sequence[str]) -> str:
        cells = []
        for text, width, is_right in zip(row, widths, to_right, strict=True):
            padding = " " * (width - cell_len(text))
            cells.append(padding + text if is_right else text + padding)
        joined = "  ".join(cells).rstrip()
        return joined if cell_len(joined) <= width_max else chop_cells(joined, width_max - 1)[0] + "…"

    heading = line(columns)
    lines = [click.style(heading, bold=True) if sys.stdout.isatty() else heading, *map(line, listed)]
    click.echo("\n".join(lines))


def write_drawing(drawing: RenderableType) -> None:
    """Anything that rich draws; away from a terminal without the spaces that it fills lines with."""
    screen = console(stdout=True)
    if sys.stdout.isatty():
        screen.print(drawing)
        return
    with screen.capture() as captured:
        screen.print(drawing)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def write_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    listed = [(printable(name), printable(str(value))) for name, value in pairs]
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        click.echo(f"{name.ljust(width)}  {value}".rstrip())


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without lines, for a person or for `column`-like tools."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    listed = list(rows)
    for number, name in enumerate(columns):
        is_last = number == len(columns) - 1
        is_number = all(_is_figure(row[number]) for row in listed) and not is_last
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if is_last else max([len(name), *(len(row[number]) for row in listed)]),
        )
    for row in listed:
        table.add_row(*row)
    return table


def _is_figure(text: str) -> bool:
    return _FIGURE.fullmatch(text) is not None


def console(*, stdout: bool) -> Console:
    """A rich console that adds nothing of its own: no markup, no highlighting, no wrapping away from a terminal."""
    from rich.console import Console

    file = sys.stdout if stdout else sys.stderr
    width = None if file.isatty() else _WIDTH_UNBOUNDED
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


# How values are shown to people.


def printable(text: str) -> str:
    """The text on one line, with escapes for what a terminal would act on."""
    return _replaced(text, lambda character: character.encode("unicode_escape").decode())


def _replaced(text: str, escape: Callable[[str], str]) -> str:
    """The text with an escape for each character that is not printable."""
    if text.isprintable():
        return text
    return text.translate({ord(each): escape(each) for each in set(text) if not each.isprintable()})


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def preview(payload: bytes) -> str:
    """A payload on one line: its text, or what kind of bytes it has."""
    text = decoded(payload)
    return printable(text) if text is not None else describe_bytes(payload)


def full_text(payload: bytes) -> str:
    """A payload as a person reads it, on as many lines as it has."""
    text = decoded(payload)
    return lines_printable(text) if text is not None else describe_bytes(payload)


def lines_printable(text: str) -> str:
    """The text with its lines, and escapes for what else a terminal would act on."""
    return "\n".join(map(printable, text.split("\n")))


def decoded(payload: bytes) -> str | None:
    """The payload as text; None where it is none."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def describe_bytes(payload: bytes) -> str:
    """What is said of bytes that are no text."""
    dots = " ..." if len(payload) > _HEX_BYTES_SHOWN else ""
    return f"<{len(payload)} bytes, no text: {payload[:_HEX_BYTES_SHOWN].hex(' ')}{dots}>"


def shown_queue(name: str) -> str:
    """A queue's name as it is typed on the command line: the default queue is ''."""
    return name or "''"


def shown_time(moment: datetime | None) -> str:
    """A moment in local time, to the millisecond."""
    if moment is None:
        return "-"
    return moment.astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]


def shown_duration(seconds: float) -> str:
    """A length of time in one figure, rough enough to be read at a glance."""
    for unit_seconds, unit in _AGES:
        if seconds >= 2 * unit_seconds:
            return f"{seconds / unit_seconds:.0f} {unit}"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if 1 <= seconds < 10 else f"{seconds:.0f} s"


def shown_size(size_bytes: int) -> str:
    """A number of bytes in one figure."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


# Progress.


class Progress:
    """How far a long task is, on the terminal's error stream, once it has taken longer than a second."""

    def __init__(
        self,
        title: str,
        total: int | None,
        *,
        is_shown: bool,
        is_bytes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._total = total
        self._is_bytes = is_bytes
        self._clock = clock
        self._is_shown = is_shown
        self._began = clock()
        self._bar: Any = None
        self._task: TaskID | None = None

    def update(self, done: int) -> None:
        """So much is done."""
        if not self._is_shown or self._clock() - self._began < PROGRESS_AFTER_SECONDS:
            return
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=done)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich import progress

        if self._is_bytes:
            figures: progress.ProgressColumn = progress.DownloadColumn(binary_units=True)
        else:
            figures = progress.MofNCompleteColumn() if self._total else progress.TextColumn("{task.completed:,.0f}")
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            figures,
            progress.TimeElapsedColumn(),
            console=console(stdout=False),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()


@contextmanager
def progress(title: str, total: int | None = None, *, is_bytes: bool = False) -> Iterator[Progress]:
    """A bar for the duration of a `with`, where somebody sits at the terminal; it counts items, or bytes."""
    bar = Progress(title, total, is_bytes=is_bytes, is_shown=sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.close()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; without a terminal to ask at, --yes has to be said."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask at: say --yes.")
    click.confirm(question, abort=True)

"""`penstock top`: the queues of a node, live."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from penstock.cli.connecting import client_options, connected
from penstock.cli.output import console, make_table, shown_duration, shown_queue, shown_size, write_drawing, write_json
from penstock.cli.parameters import DURATION
from penstock.engine.views import QueueView
from penstock.wire.native.messages import NodeStatus

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.client.sync import Client

INTERVAL_SECONDS_MIN: Final = 0.1
COLUMNS: Final = ("READY", "DELAYED", "LEASED", "BURIED", "PUT/S", "TAKEN/S", "ACKED/S", "OLDEST", "STATE", "QUEUE")
_LINES_BESIDES_QUEUES: Final = 5


class Rates(NamedTuple):
    """What happens in a queue in a second."""

    put: float
    taken: float
    acked: float


class Sample(NamedTuple):
    """The figures of a node at one moment of its own time."""

    status: NodeStatus
    queues: list[QueueView]


@click.command()
@click.option("--interval", type=DURATION, default=1, help="How often to look.  [default: 1s]")
@click.option("--once", is_flag=True, help="Show one frame and end; without rates, which need two.")
@client_options
def top(interval: float, once: bool, url: str | None, as_json: bool) -> None:
    """Watch the queues live.

    The deepest queue stands first. q or Ctrl-C ends it. Away from a terminal one frame is written, as with --once.
    """
    if interval < INTERVAL_SECONDS_MIN:
        raise click.UsageError(f"--interval is at least {INTERVAL_SECONDS_MIN:g} s.")
    with connected(url) as client:
        sample = take_sample(client)
        if as_json:
            _write_json(sample)
        elif once or not sys.stdout.isatty():
            write_drawing(frame(sample, {}, lines_max=None))
        else:
            _watch(client, sample, interval)


def take_sample(client: Client) -> Sample:
    """Ask the node."""
    return Sample(client.status(), client.queues())


def rates(before: Sample, now: Sample) -> dict[int, Rates]:
    """What happened between two samples, by queue uid and second of the node's time."""
    seconds = (now.status.log_time_us - before.status.log_time_us) / 1e6
    if seconds <= 0:
        return {}
    old = {view.uid: view for view in before.queues}
    return {
        view.uid: Rates(
            (view.put - old[view.uid].put) / seconds,
            (view.delivered - old[view.uid].delivered) / seconds,
            (view.acked - old[view.uid].acked) / seconds,
        )
        for view in now.queues
        if view.uid in old
    }


def depth(view: QueueView) -> int:
    """All messages of a queue."""
    return view.ready + view.delayed + view.leased + view.buried


def frame(sample: Sample, rate_of: dict[int, Rates], lines_max: int | None) -> Group:
    """What one look shows: the node in two lines, then the queues, deepest first, as many as there is room for."""
    from rich.console import Group
    from rich.text import Text

    status = sample.status
    state = "disk full: puts are refused" if status.disk_full else status.mode
    head = Text(
        f"Penstock {status.version}  node {status.node}  term {status.term}  index {status.applied_index}  {state}\n"
        f"up {shown_duration(status.uptime_ms / 1000)}  connections {status.connections}  messages {status.records}  "
        f"memory {shown_size(status.memory_bytes)} of {shown_size(status.memory_bytes_max)}\n",
    )
    queues = sorted(sample.queues, key=lambda view: (-depth(view), view.name))
    shown = queues if lines_max is None else queues[: max(1, lines_max)]
    table = make_table(COLUMNS, [_row(view, rate_of.get(view.uid), status.log_time_us) for view in shown])
    hidden = len(queues) - len(shown)
    return Group(head, table, *([Text(f"and {hidden} more queues")] if hidden else []))


def _row(view: QueueView, rate: Rates | None, now_us: int) -> list[str]:
    speeds = ["-"] * 3 if rate is None else [f"{value:.0f}" for value in rate]
    oldest = shown_duration(max(0.0, (now_us - view.oldest_us) / 1e6)) if view.oldest_us else "-"
    counts = [str(count) for count in (view.ready, view.delayed, view.leased, view.buried)]
    return [*counts, *speeds, oldest, "paused" if view.paused else "open", shown_queue(view.name)]


def _watch(client: Client, sample: Sample, interval: float) -> None:
    from rich.live import Live

    screen = console(stdout=True)

    def room() -> int:
        return screen.size.height - _LINES_BESIDES_QUEUES

    with Live(frame(sample, {}, room()), console=screen, screen=True, auto_refresh=False) as live, _keys() as keys:
        before = sample
        due = time.monotonic() + interval
        while not keys.quits_within(max(0.0, due - time.monotonic())):
            due = max(due + interval, time.monotonic())
            now = take_sample(client)
            live.update(frame(now, rates(before, now), room()), refresh=True)
            before = now


class _Keys:
    """The keyboard, read key by key where there is one."""

    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def quits_within(self, seconds: float) -> bool:
        """Wait so long; true as soon as q was pressed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._is_terminal:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0] and self._quits(os.read(sys.stdin.fileno(), 1024)):
                return True
        return False

    @staticmethod
    def _quits(typed: bytes) -> bool:
        """Whether q is among the keys, or the keyboard is gone. Past Python's own buffer, which select cannot see."""
        return not typed or b"q" in typed.lower()


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Let keys come one by one, and set the terminal back afterwards."""
    if not sys.stdin.isatty():
        yield _Keys(False)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _Keys(True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _write_json(sample: Sample) -> None:
    from penstock.cli.shapes import queue_shape

    for view in sorted(sample.queues, key=lambda view: (-depth(view), view.name)):
        write_json(queue_shape(view))

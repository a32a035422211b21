"""What a run prints: progress, one table and its verdicts per row, the machine; and the same as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.judge import Reading, Verdict, judge, medians
from bench.machine import Machine, SyncLatency
from bench.model import FIGURES, Goal, Outcome, Sample
from bench.quantiles import median

_WIDTH_WITHOUT_TERMINAL = 150
CLIENT_CORES_MAX = 0.9
"""A client busier than this may be what was measured."""
QUIET_CORES_MAX = 0.3
"""Where others use more than this, rates and worst cases say little; ratios and CPU times still do."""
_STYLES = {True: "green", False: "red", None: "yellow"}


def make_console() -> Console:
    """The console; wide where there is no terminal to fit in."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL)


class Progress:
    """Tells what is being measured: one line that is rewritten on a terminal, one line per step elsewhere.

    It prints between measurements only: a display with a thread of its own would take its time from the client.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._rewrite = sys.stderr.isatty()

    def step(self, text: str) -> None:
        """The next step begins."""
        self._done += 1
        line = f"[{self._done}/{self._steps}] {text}"
        if self._rewrite:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for a table."""
        if self._rewrite:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def print_machine(console: Console, machine: Machine) -> None:
    """The facts, before the first table."""
    console.print(
        f"{machine.cores} cores of {machine.cpu}, {machine.memory_gib:g} GiB, {machine.kernel}, "
        f"Python {machine.python}; data on {machine.file_system}"
    )
    if machine.doubtful_disk:
        console.print("The data may lie in memory: a sync proves nothing there.", style="yellow")


def print_sync(console: Console, latencies: list[SyncLatency]) -> None:
    """How fast the disk was during the run."""
    if latencies:
        console.print(
            f"a sync of 4 KiB on a preallocated file, {len(latencies)} probes over the run: "
            f"p50 {median([each.p50_us for each in latencies]):.0f} µs, "
            f"p99 {median([each.p99_us for each in latencies]):.0f} µs, "
            f"worst {max(each.max_us for each in latencies) / 1e3:.1f} ms"
        )


def print_row(console: Console, outcome: Outcome) -> None:
    """One row: its table, then its verdicts."""
    row = outcome.row
    summary = {entry.label: medians(outcome.samples.get(entry.label, [])) for entry in row.entries}
    columns = [name for name in FIGURES if any(name in sample for sample in summary.values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(FIGURES[name].heading, justify="right")
    ratios_of = _references(row.goals)
    for other, figure in ratios_of:
        table.add_column(
            f"× {other}" if figure == "rate_per_s" else f"{FIGURES[figure].heading} × {other}", justify="right"
        )
    for label, sample in summary.items():
        if sample:
            cells = [_cell(name, sample) for name in columns]
            ratios = [_ratio_cell(sample, summary.get(other, {}), figure) for other, figure in ratios_of]
            table.add_row(label, *cells, *ratios)
    console.print(Text(f"\n{row.name}: {row.title}", style="bold"))
    if table.rows:
        console.print(table)
    for label, reason in {**outcome.skipped, **outcome.failures}.items():
        console.print(f"  {label}: {reason}", style="red" if label in outcome.failures else "yellow", markup=False)
    for verdict in judge(outcome):
        console.print(_verdict_line(verdict))
    if row.known:
        console.print(f"  elsewhere, {row.known_where}: {row.known}", style="dim")


def _references(goals: tuple[Goal, ...]) -> list[tuple[str, str]]:
    """Whose figures the goals refer to, each once."""
    bounds = [(bound, goal.figure) for goal in goals for bound in (goal.reach, goal.aim) if bound is not None]
    return [*dict.fromkeys((bound.times, figure) for bound, figure in bounds if bound.times is not None)]


def _cell(name: str, sample: Sample) -> Text:
    if name not in sample:
        return Text("")
    doubtful = name == "client_cores" and sample[name] > CLIENT_CORES_MAX
    return Text(FIGURES[name].show(sample[name]) + ("!" if doubtful else ""), style="yellow" if doubtful else "")


def _ratio_cell(sample: Sample, other: Sample, figure: str) -> str:
    return f"{sample[figure] / other[figure]:.2f}" if figure in sample and other.get(figure) else ""


def _verdict_line(verdict: Verdict) -> Text:
    goal = verdict.goal
    words = {True: "reached", False: "NOT reached", None: "not judged"}
    line = Text("  ")
    line.append(f"{words[verdict.reach.met]}: ", style=_STYLES[verdict.reach.met])
    line.append(f"{goal.entry}, {FIGURES[goal.figure].heading}: {_compare(goal, verdict.reach)}")
    if verdict.aim is not None:
        line.append("; aim ")
        met = verdict.aim.met
        line.append({True: "met", False: "missed", None: "not judged"}[met], style=_STYLES[met])
        line.append(f": {_compare(goal, verdict.aim)}")
    return line


def _compare(goal: Goal, reading: Reading) -> str:
    """What was measured, and what was asked for."""
    sign = "≤" if goal.most else "≥"
    bound = reading.bound
    if bound.times is not None:
        measured = "?" if reading.measured is None else f"{reading.measured:.2f}"
        return f"{measured} × {bound.times} ({sign} {bound.value:g})"
    figure = FIGURES[goal.figure]
    measured = "?" if reading.measured is None else figure.show(reading.measured)
    return f"{measured}{figure.unit} ({sign} {bound.value:,g})"


def print_summary(console: Console, outcomes: list[Outcome]) -> None:
    """How many goals were reached, and the names of the others."""
    verdicts = [(outcome.row.name, verdict) for outcome in outcomes for verdict in judge(outcome)]
    reached = sum(1 for _, verdict in verdicts if verdict.reach.met)
    aims = [verdict.aim for _, verdict in verdicts if verdict.aim is not None]
    met = sum(1 for aim in aims if aim.met)
    console.print(f"\n{reached} of {len(verdicts)} goals reached, {met} of {len(aims)} aims met.", style="bold")
    for name, verdict in verdicts:
        if not verdict.reach.met:
            console.print(Text(f"  {name}").append_text(_verdict_line(verdict)))
    others = [
        sample["other_cores"]
        for outcome in outcomes
        for samples in outcome.samples.values()
        for sample in samples
        if "other_cores" in sample
    ]
    if others and median(others) > QUIET_CORES_MAX:
        console.print(
            f"The machine was not quiet: others used {median(others):.2f} cores (median), {max(others):.2f} at most. "
            "Trust ratios and CPU times more than rates and worst cases.",
            style="yellow",
        )
    console.print(
        "Medians over the rounds; worst cases are the worst of all. The ratio of a verdict is the median of the ratios "
        "within each round. Server CPU is summed over its processes; a client over "
        f"{CLIENT_CORES_MAX:g} cores is marked ! and may have been the limit.",
        style="dim",
    )


def write_json(
    path: Path, machine: Machine, syncs: list[SyncLatency], plan: dict[str, Any], outcomes: list[Outcome]
) -> None:
    """All samples, medians and verdicts, for programs."""
    document = {
        "machine": dataclasses.asdict(machine),
        "sync": [dataclasses.asdict(sync) for sync in syncs],
        "plan": plan,
        "rows": [
            {
                "name": outcome.row.name,
                "title": outcome.row.title,
                "medians": {label: medians(samples) for label, samples in outcome.samples.items()},
                "samples": outcome.samples,
                "failures": outcome.failures,
                "skipped": outcome.skipped,
                "verdicts": [dataclasses.asdict(verdict) for verdict in judge(outcome)],
            }
            for outcome in outcomes
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

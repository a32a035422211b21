"""The order of a run: row by row, and within a row round by round, every entry in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError, ServerMissing
from bench.model import Bench, Outcome, Row

HOME = Path(".bench")
"""Data and fetched programs, in the working directory: the figures are those of its disk."""


def rounds_of(row: Row, bench: Bench) -> int:
    """How often each entry of a row is measured."""
    return min(bench.plan.rounds, row.rounds_max or bench.plan.rounds)


def run_row(row: Row, bench: Bench, begin: Callable[[str], None]) -> Outcome:
    """Measure a row: A B C A B C, so that what disturbs the machine disturbs all alike. `begin` is told each step.

    An entry that fails is left out of later rounds; the others go on.
    """
    outcome = Outcome(row)
    rounds = rounds_of(row, bench)
    for number in range(1, rounds + 1):
        for entry in row.entries:
            begin(f"{row.name}, round {number} of {rounds}: {entry.label}")
            if entry.label in outcome.failures or entry.label in outcome.skipped:
                continue
            try:
                sample = entry.measure(bench)
            except ServerMissing as missing:
                outcome.skipped[entry.label] = str(missing)
            except (BenchError, OSError) as error:
                outcome.failures[entry.label] = str(error) or type(error).__name__
            else:
                outcome.samples.setdefault(entry.label, []).append(sample)
    return outcome


@contextmanager
def data_folder(home: Path = HOME) -> Iterator[Path]:
    """A folder for the data of one run, removed at its end. What lies in it is nobody's business but ours."""
    home.mkdir(exist_ok=True)
    (home / ".gitignore").write_text("*\n", encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="data-", dir=home.resolve()) as folder:
        yield Path(folder)

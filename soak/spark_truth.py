"""The tables of the pipeline over one generated history after the other: `python -m soak --spark-events 1000000`.

Each history has another seed. Its log is cut at random, a little here and a lot there, and after the last turn every
table must be what the history's own truth and DuckDB say. The tests (tests/spark/test_truth.py) use the same parts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from penstock.spark.pipeline.run import Pipeline, Progress
from penstock.spark.session import open_session
from tests.spark.generated.checking import expect, run_to, wrong
from tests.spark.generated.history import Generated, generate

EVENTS_PER_HISTORY: Final = 300_000
CUTS_MAX: Final = 12
_NEAR_ENTRIES: Final = 40

Say = Callable[[str], None]


def check_tables(directory: Path, seed: int, events: int, say: Say) -> list[str]:
    """Make histories of so many events together and run the pipeline over each; what was wrong with the first bad one.

    The files of a history that was told wrongly stay in the directory.
    """
    random = Random(seed)
    spark = open_session("penstock-soak", master="local[2]")
    checked = 0
    try:
        while checked < events:
            own_seed = random.getrandbits(32)
            folder = directory / str(own_seed)
            made = generate(folder / "data", min(EVENTS_PER_HISTORY, events - checked), own_seed)
            cuts = choose_cuts(made, random)
            say(f"seed {own_seed}: {made.truth.events:,} events, {len(cuts)} turns, to entries {cuts}")
            with Pipeline(spark, folder / "data", folder / "tables", on_progress=_Teller(say)) as pipeline:
                run_to(pipeline, cuts)
            said = wrong(expect(made, folder / "tables"), folder / "tables")
            if said:
                return [f"seed {own_seed}, turns to {cuts}: {each}" for each in said]
            checked += made.truth.events
            say(f"{checked:,} of {events:,} events: every table is true")
            shutil.rmtree(folder)
    finally:
        spark.stop()
    return []


def choose_cuts(made: Generated, random: Random) -> list[int]:
    """The last entries of some turns, some of them near each other; the last is that of the history."""
    cuts = {made.last_index}
    for _ in range(random.randrange(1, CUTS_MAX)):
        near = random.choice(sorted(cuts)) - random.randrange(1, _NEAR_ENTRIES)
        cuts.add(max(0, random.choice((near, random.randrange(made.last_index)))))
    return sorted(cuts)


class _Teller:
    """Tells of a run's progress, not too often."""

    def __init__(self, say: Say, every_s: float = 10.0) -> None:
        self._say, self._every_s = say, every_s
        self._next = time.monotonic() + every_s

    def __call__(self, progress: Progress) -> None:
        """Say it if it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            self._say(f"  {progress.step}, at entry {progress.index} of {progress.last_index}")

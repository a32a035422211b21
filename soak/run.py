"""A whole run: life after life until the time is over, then everything is drained and the sum is drawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from soak.lives import Lives
from soak.memory import Memory
from soak.process import ServedFailed

SAMPLE_S: Final = 0.1
KILLS_MAX: Final = 100_000

LOADED_SITES: Final = """
    log.create log.allocate log.write log.sync log.truncate log.seal log.sync_directory log.publish
    journal.write journal.sync journal.seal journal.create journal.rename journal.sync_directory
    snapshot.create snapshot.write snapshot.sync snapshot.sync_directory snapshot.rename
    tail.create tail.write tail.sync tail.rename tail.sync_directory retention.unlink retention.sync_directory
""".split()
"""Where a node under load is killed on purpose."""
START_SITES: Final = """
    log.open log.sync log.write journal.open temp.unlink
    metadata.create metadata.write metadata.sync metadata.rename metadata.sync_directory
""".split()
"""Where a node that starts is killed on purpose."""


@dataclass(slots=True)
class Run:
    """What a run has come to."""

    seed: int
    seconds: float
    lives: Lives
    memory: Memory = field(default_factory=Memory)
    took_s: float = 0.0

    @property
    def violations(self) -> list[str]:
        """All that must not be."""
        return [*self.lives.judge.violations, *self.memory.complaints()]


Watcher = Callable[[Run, str], None]
"""Called often with the run so far and what it is doing."""


def soak(directory: Path, seed: int, seconds: float, watch: Watcher, fault: dict[str, Any] | None = None) -> Run:
    """Run in `directory` for so many seconds. Ends early at the first violation: what follows would only repeat it."""
    random = Random(seed)
    with Lives(directory, random.getrandbits(32), putters=3, takers=3, backlog_max=3000, fault=fault) as lives:
        run = Run(seed, seconds, lives)
        began = time.monotonic()
        end = began + seconds
        try:
            while time.monotonic() < end and lives.kills < KILLS_MAX and not lives.judge.violations:
                run.took_s = time.monotonic() - began
                _live(run, random, end, watch, began)
            if not lives.judge.violations:
                watch(run, "draining")
                lives.start()
                lives.drain()
                if lives.served.stop() != 0:
                    lives.judge.complain("the node did not stop in good order")
        except ServedFailed as error:
            lives.judge.complain(str(error))
        run.took_s = time.monotonic() - began
        watch(run, "done")
        return run


def _live(run: Run, random: Random, end: float, watch: Watcher, began: float) -> None:
    lives = run.lives
    watch(run, "starting")
    if lives.kills and random.random() < 0.1:
        if not lives.start(arm=random.choice(START_SITES)):
            return
    else:
        lives.start()
    lives.load()
    born = time.monotonic()
    # Most lives are short; some are long enough to see whether their memory grows.
    long_s = min(20, max(6, run.seconds / 10))
    age_s = long_s if random.random() < 0.1 else random.uniform(0.1, 3)
    while (now := time.monotonic()) < min(born + age_s, end) and not lives.judge.violations:
        run.took_s = now - began
        run.memory.sample(now - born, lives.served.memory_bytes())
        lives.read_notes()
        watch(run, "under load")
        lives.traffic.over.wait(SAMPLE_S)
    run.memory.end_life()
    lives.kill(at=random.choice(LOADED_SITES) if random.random() < 0.5 else "")

"""The vocabulary of a run: a row of the table has entries, each measured once per round, and goals to judge them by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.servers import Workshop

Sample = dict[str, float]
"""What one measurement found: figures by name. `FIGURES` says what each means."""


@dataclass(frozen=True)
class Figure:
    """How a figure is shown."""

    heading: str
    unit: str
    digits: int = 0

    def show(self, value: float) -> str:
        """The value, without its unit."""
        return f"{value:,.{self.digits}f}"


FIGURES: dict[str, Figure] = {
    "rate_per_s": Figure("messages/s", "/s"),
    "rows_per_s": Figure("rows/s", "/s"),
    "cpu_us": Figure("server µs/msg", " µs", 2),
    "p50_ms": Figure("p50 ms", " ms", 3),
    "p99_ms": Figure("p99 ms", " ms", 3),
    "max_ms": Figure("max ms", " ms", 1),
    "read_mb_per_s": Figure("read MB/s", " MB/s"),
    "written_mb_per_s": Figure("written MB/s", " MB/s"),
    "start_s": Figure("start s", " s", 2),
    "run_s": Figure("run s", " s", 1),
    "memory_mb": Figure("memory MB", " MB"),
    "growth_mb": Figure("growth MB", " MB", 1),
    "bytes_per_record": Figure("B/record", " B"),
    "snapshots": Figure("snapshots", ""),
    "server_cores": Figure("server cores", " cores", 2),
    "client_cores": Figure("client cores", " cores", 2),
    "other_cores": Figure("other cores", " cores", 2),
}
"""All figures, in the order of the columns."""


@dataclass(frozen=True)
class Plan:
    """How long and how large a run is."""

    rounds: int = 3
    seconds: float = 1.0
    backlog_records: int = 1_000_000
    full_records: int = 0
    """Records of the largest backlog; 0 leaves it out."""
    fill_records_max: int = 100_000
    """What is put at most before a take is measured; repeated until the time is up."""
    sleepers: int = 1_000
    """Workers that sleep at the same time."""
    burst_messages: int = 200_000
    """Messages published without a look at the answers."""
    full_burst_messages: int = 0
    """The same for the largest burst; 0 leaves it out."""
    spark_events: int = 8_000_000
    """Events of the history that Spark reads."""
    single_events: int = 800_000
    """Events of a history with one event in each entry."""
    sink_records: int = 300_000
    """Records that Spark writes."""
    increment_events: int = 1_000_000
    """Events that are new in a run of the pipeline, after `short_events` and after `long_events`."""
    short_events: int = 1_000_000
    long_events: int = 4_000_000


@dataclass(frozen=True)
class Bench:
    """What a measurement needs: how much is planned, and what servers are made from."""

    plan: Plan
    workshop: Workshop


@dataclass(frozen=True)
class Entry:
    """One line of a row: a server under a load."""

    label: str
    measure: Callable[[Bench], Sample]


@dataclass(frozen=True)
class Bound:
    """A limit: a plain value, or so many times the same figure of another entry in the same round."""

    value: float
    times: str | None = None


@dataclass(frozen=True)
class Goal:
    """What an entry should reach (that is acceptance) and what it aims at; `most` bounds from above."""

    entry: str
    figure: str
    reach: Bound
    aim: Bound | None = None
    most: bool = False


@dataclass(frozen=True)
class Row:
    """One row of the table: the same work done by several servers."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    goals: tuple[Goal, ...] = ()
    rounds_max: int | None = None
    """Where one round tells as much as three."""
    known: str = ""
    """Figures read elsewhere, for orientation."""
    known_where: str = "on a quiet machine of 2 cores"


@dataclass
class Outcome:
    """What became of a row: the samples of each entry, or why there are none."""

    row: Row
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

"""What the report tells, as one plain structure: the page is drawn from it, and `--json` gives it as it is.

Keys are stable: a new one may come, none changes its meaning while `version` stays. Times are UTC; names that end in
`_us` are microseconds. A series has one value for each bin of `bins`, null where there is none to tell.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

VERSION: Final = 1


class Totals(Struct, kw_only=True):
    """Sums over the range, of one queue or of all."""

    arrivals: int = 0
    completions: int = 0
    """Messages that ended; the five that follow say how."""
    acked: int = 0
    expired: int = 0
    dead_lettered: int = 0
    deleted: int = 0
    moved: int = 0
    deliveries: int = 0
    redeliveries: int = 0
    redelivery_rate: float = 0.0
    """Redeliveries over deliveries."""
    failures: int = 0
    depth: int = 0
    """Open messages now, at the watermark."""
    oldest_age_us: int | None = None
    """Of the open message published first, at the watermark; null where none is open."""


class QueueTotals(Totals, kw_only=True):
    """The sums of a queue; queues of one name that followed each other are one."""

    name: str
    queue_uids: list[int]


class Watermark(Struct):
    """How much of the history the figures contain."""

    index: int | None
    """The last log entry, null before the first run."""
    time: datetime | None
    """Its log time."""


class Range(Struct):
    """The time that the figures are about; both null where nothing has happened."""

    begin: datetime | None
    end: datetime | None


class BinTimes(Struct):
    """The parts into which series cut the range."""

    minutes: int
    """How long each is."""
    times: list[datetime]
    """When each begins."""


class Series(Struct):
    """Values over time."""

    name: str | None
    """A queue's name or a reason; null for all queues that have no series of their own, together."""
    values: list[float | None]


class Level(Series):
    """What stands at some height all the time."""

    now: int | None
    """At the watermark; null where there is none."""


class SeriesSet(Struct, kw_only=True):
    """All that is shown over time. By queue: the ten busiest, then the others together."""

    depth: list[Level]
    """Open messages by queue: the peak of each bin, taken at the ends of minutes."""
    oldest_age_us: list[Level]
    """Age of the open message published first, by queue; likewise."""
    arrivals_per_minute: list[Series]
    completions_per_minute: list[Series]
    redelivery_rate: list[float | None]
    """Of all queues; null where nothing was delivered."""
    dead_letters: list[Series]
    """How many, by reason."""


class Bucket(Struct):
    """Part of a distribution."""

    below_us: int
    """Its upper edge; the lower one is half of it, or 0 for the first."""
    count: int


class BandWaits(Struct, kw_only=True):
    """How long the messages of a band of keys waited to be delivered first, of all queues."""

    band: str
    arrivals: int
    delivered: int
    """First deliveries: the sum of the buckets."""
    p50_below_us: int | None
    """Half waited less than this: the upper edge of the bucket; so for 95 and 99 of a hundred."""
    p95_below_us: int | None
    p99_below_us: int | None
    buckets: list[Bucket]


class DeadLetters(Struct):
    """Messages of a queue that were dead-lettered for a reason."""

    queue: str
    reason: str
    count: int


class Door(Struct):
    """What went through a door."""

    door: str
    arrivals: int
    deliveries: int
    acked: int
    returned: int


class Worker(Door):
    """What a connection did: a producer, a worker, or both."""

    owner: int


class Spec(Struct, kw_only=True):
    """The tasks of a MoniQue spec."""

    spec: str
    started: int
    results: int
    errors: int
    success_rate: float | None
    """Results over all that ended; null where none did."""
    p50_us: int | None
    """Of durations: the value of the minutes' p50 below which half of the tasks ended; so for p95."""
    p95_us: int | None
    p95_worst_us: int | None
    """The p95 of the worst minute."""


class Figures(Struct, kw_only=True):
    """The whole report."""

    version: int
    watermark: Watermark
    range: Range
    bins: BinTimes
    totals: Totals
    queues: list[QueueTotals]
    """All queues, the busiest first: those with most arrivals and deliveries."""
    series: SeriesSet
    waits: list[BandWaits]
    """In the order of keys, the most urgent first."""
    dead_letters: list[DeadLetters]
    """The most frequent first."""
    doors: list[Door]
    workers: list[Worker]
    """The hundred busiest: those with most arrivals and deliveries."""
    specs: list[Spec]
    """The slowest first, by p95."""

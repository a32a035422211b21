"""What version 1 of the files cannot hold of a state, with counts: told before an export, or a reason to refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.engine.commands import H4, QueueSettings
from penstock.engine.machine import Engine
from penstock.engine.queue import Queue
from penstock.engine.records import BURIED, DELAYED, LEASED, NO_EXTRAS, NO_TRIES, Record
from penstock.engine.state import State


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that an export leaves behind."""

    what: str
    """The thing, and what becomes of it."""
    count: int
    always: bool = False
    """Whether no state that has records can do without: such a loss is told, but is no reason to refuse."""

    def __str__(self) -> str:
        return f"{self.count} × {self.what}"


_DEFAULTS: Final = QueueSettings()

_OF_A_RECORD: Final[list[tuple[str, Callable[[Record], bool]]]] = [
    ("delayed record: written as waiting, can be taken at once", lambda r: r.state == DELAYED),
    ("leased record: written as waiting, its holder loses it", lambda r: r.state == LEASED),
    ("buried record: written as waiting", lambda r: r.state == BURIED),
    ("record with headers: they are left out", lambda r: bool((r.extras or NO_EXTRAS).headers)),
    ("record with an expiry: it never expires", lambda r: bool((r.extras or NO_EXTRAS).expires_at_us)),
    ("record with a lease length of its own: left out", lambda r: bool((r.extras or NO_EXTRAS).lease_ms)),
    ("record with a deduplication key: left out", lambda r: (r.extras or NO_EXTRAS).dedup_key is not None),
    ("record with an origin (dead letter, or moved): left out", lambda r: (r.extras or NO_EXTRAS).origin is not None),
    ("record with counters of deliveries and failures: they begin at 0", lambda r: (r.tries or NO_TRIES) != NO_TRIES),
]

_OF_A_QUEUE: Final[list[tuple[str, Callable[[Queue], bool]]]] = [
    ("queue with QA: becomes a plain queue", lambda q: q.settings.implementation != H4),
    ("queue with a key range: takes every key", lambda q: q.settings.key_range is not None),
    ("queue with a payload limit: takes every payload", lambda q: q.settings.payload_bytes_max is not None),
    ("queue with a size limit of 0: 0 means no limit there", lambda q: q.settings.size_max == 0),
    ("queue with descending order: the smallest key comes first", lambda q: q.settings.descending),
    ("queue with a lease length: left out", lambda q: q.settings.lease_ms != _DEFAULTS.lease_ms),
    ("queue with a largest number of deliveries: left out", lambda q: bool(q.settings.deliveries_max)),
    (
        "queue with a dead-letter setting: left out",
        lambda q: q.settings.dead_letter is not None or q.settings.dead_letter_expired,
    ),
    ("queue with a default expiry: left out", lambda q: bool(q.settings.expires_ms)),
    (
        "queue with deduplication settings: left out",
        lambda q: (
            (q.settings.dedup_window_ms, q.settings.dedup_keys_max)
            != (_DEFAULTS.dedup_window_ms, _DEFAULTS.dedup_keys_max)
        ),
    ),
    ("paused queue: takes go on", lambda q: q.paused),
]


def losses(engine: Engine, *, as_log: bool = False) -> list[Loss]:
    """Everything that the version-1 files of this state would lack, with counts; nothing where a count is 0."""
    st = engine.state
    found = [*_of_records(st), *_of_queues(st), *_of_the_rest(st)]
    if as_log:
        found += _of_a_log(st)
    return [loss for loss in found if loss.count]


def _records(st: State) -> Iterator[Record]:
    for _, queue in sorted(st.by_uid.items()):
        yield from queue.scan(0)


def _of_records(st: State) -> Iterator[Loss]:
    counts = [0] * len(_OF_A_RECORD)
    total = 0
    for record in _records(st):
        total += 1
        if record.state or record.extras is not None or record.tries is not None:
            for position, (_, applies) in enumerate(_OF_A_RECORD):
                counts[position] += applies(record)
    yield Loss("record with its id and publish time: an import gives new ones", total, always=True)
    for (what, _), count in zip(_OF_A_RECORD, counts, strict=True):
        yield Loss(what, count)


def _of_queues(st: State) -> Iterator[Loss]:
    for what, applies in _OF_A_QUEUE:
        yield Loss(what, sum(applies(queue) for queue in st.by_uid.values()))


def _of_the_rest(st: State) -> Iterator[Loss]:
    remembered = sum(len(queue.dedup.ids) for queue in st.by_uid.values())
    yield Loss("deduplication key that is remembered: a repeat is not recognised", remembered)
    yield Loss("producer whose answers are remembered: a repeat is not recognised", len(st.producers))
    yield Loss("staged part of a batch: left out", len(st.staged))
    yield Loss("writer whose last published batch is known: a repeat is not recognised", len(st.published))
    yield Loss("binding of topic messages to a queue: left out", len(st.bindings))
    yield Loss("redrive under way: ends", sum(not job.done for job in st.jobs.values()))


def _of_a_log(st: State) -> Iterator[Loss]:
    default = st.by_uid[0].settings.size_max
    yield Loss("size limit of the default queue: no command of the log can set it", int(bool(default)))
    yield Loss(
        "queue with more records than its size limit: the limit is raised to their number",
        sum(bool(q.name) and 0 < (q.settings.size_max or 0) < sum(q.counts) for q in st.by_uid.values()),
    )

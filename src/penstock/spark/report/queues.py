"""The figures of queues: their totals, and what they had open over time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from penstock.spark.report.figures import Level, QueueTotals, Series, SeriesSet, Totals
from penstock.spark.report.gold import Gold
from penstock.spark.report.series import Bins, Floats, Ints, levels, plain

QUEUES_SHOWN_MAX: Final = 10
_COUNTED: Final = (
    *("arrivals", "completions", "acked", "expired", "dead_lettered", "deleted", "moved"),
    *("deliveries", "redeliveries", "failures"),
)


@dataclass
class _Open:
    """What a queue had open, at the ends of the minutes in which something happened to it."""

    queue_uid: int
    minutes: Ints
    depths: Ints
    ages_us: Floats


@dataclass
class _Queue:
    """All queues of one name."""

    opens: list[_Open] = field(default_factory=list)
    counted: dict[str, Ints] = field(default_factory=dict)
    """Sums by bin."""


@dataclass(frozen=True)
class _Group:
    """What is shown as one: a queue, or without a name all that are not shown by theirs."""

    name: str | None
    totals: list[QueueTotals]


class QueueFigures:
    """The figures of queues, from gold.queue_minutes."""

    def __init__(self, gold: Gold, bins: Bins) -> None:
        self._bins = bins
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self.names = self._read_open(gold)
        """The name of each queue by its uid, or what stands for one that is not known."""
        self._read_counted(gold)
        self.listed = sorted(
            (self._totals_of(name, queue) for name, queue in self._queues.items()),
            key=lambda each: (-(each.arrivals + each.deliveries), each.name),
        )

    def totals(self) -> Totals:
        """The sums over all queues."""
        total = Totals(
            **{name: sum(getattr(each, name) for each in self.listed) for name in _COUNTED},
            depth=sum(each.depth for each in self.listed),
            oldest_age_us=_oldest(self.listed),
        )
        total.redelivery_rate = _rate(total.redeliveries, total.deliveries)
        return total

    def series(self, dead_letters: list[Series]) -> SeriesSet:
        """What is shown over time."""
        groups = self._groups()
        deliveries, redeliveries = (
            sum((queue.counted[name] for queue in self._queues.values()), np.zeros(self._bins.count, np.int64))
            for name in ("deliveries", "redeliveries")
        )
        with np.errstate(invalid="ignore"):
            rate = redeliveries / deliveries
        return SeriesSet(
            depth=[self._depth(group) for group in groups],
            oldest_age_us=[self._age_us(group) for group in groups],
            arrivals_per_minute=[self._per_minute(group, "arrivals") for group in groups],
            completions_per_minute=[self._per_minute(group, "completions") for group in groups],
            redelivery_rate=plain(rate),
            dead_letters=dead_letters,
        )

    def _groups(self) -> list[_Group]:
        groups = [_Group(each.name, [each]) for each in self.listed]
        # One queue alone is shown by its name.
        if len(groups) > QUEUES_SHOWN_MAX + 1:
            groups[QUEUES_SHOWN_MAX:] = [_Group(None, self.listed[QUEUES_SHOWN_MAX:])]
        return groups

    def _depth(self, group: _Group) -> Level:
        opens = self._opens(group)
        uids = np.repeat([each.queue_uid for each in opens], [len(each.minutes) for each in opens])
        minutes = np.concatenate([each.minutes for each in opens])
        depths = np.concatenate([each.depths for each in opens])
        peaks = self._bins.peaks(*levels(uids, minutes, depths), grows=False)
        return Level(group.name, plain(peaks), sum(each.depth for each in group.totals))

    def _age_us(self, group: _Group) -> Level:
        peaks = np.full(self._bins.count, np.nan)
        for each in self._opens(group):
            peaks = np.fmax(peaks, self._bins.peaks(each.minutes, each.ages_us, grows=True))
        return Level(group.name, plain(peaks), _oldest(group.totals))

    def _per_minute(self, group: _Group, counted: str) -> Series:
        total = np.zeros(self._bins.count, np.int64)
        for each in group.totals:
            total += self._queues[each.name].counted[counted]
        return Series(group.name, plain(total / self._bins.minutes()))

    def _opens(self, group: _Group) -> list[_Open]:
        return [each for totals in group.totals for each in self._queues[totals.name].opens]

    def _totals_of(self, name: str, queue: _Queue) -> QueueTotals:
        now = np.array([self._bins.last_minute])
        ages_us = [float(self._bins.values_at(now, each.minutes, each.ages_us, grows=True)[0]) for each in queue.opens]
        totals = QueueTotals(
            name=name,
            queue_uids=[each.queue_uid for each in queue.opens],
            **{counted: int(sums.sum()) for counted, sums in queue.counted.items()},
            depth=sum(int(each.depths[-1]) for each in queue.opens),
            oldest_age_us=max((round(age_us) for age_us in ages_us if age_us == age_us), default=None),
        )
        totals.redelivery_rate = _rate(totals.redeliveries, totals.deliveries)
        return totals

    def _read_open(self, gold: Gold) -> dict[int, str]:
        """Take in depths and ages, which count from before the range on; the names of queues by uid."""
        rows = gold.rows("gold.queue_minutes", ["queue_uid", "queue", "minute", "depth", "oldest_age_us"])
        rows = rows.sort_by([("queue_uid", "ascending"), ("minute", "ascending")])
        uids, minutes = rows["queue_uid"].to_numpy(), rows["minute"].to_numpy()
        depths = rows["depth"].fill_null(0).to_numpy()
        ages_us = rows["oldest_age_us"].cast("float64").to_numpy()
        names = rows["queue"].dictionary_encode().combine_chunks()
        starts = np.flatnonzero(np.diff(uids, prepend=uids[:1] - 1))
        named: dict[int, str] = {}
        for start, end in pairwise([*starts.tolist(), len(uids)]):
            uid = int(uids[start])
            known = names[start:end].drop_null()
            # A name may be lost in later rows, but it never changes.
            named[uid] = known[0].as_py() if len(known) else unnamed(uid)
            part = slice(start, end)
            self._queues[named[uid]].opens.append(_Open(uid, minutes[part], depths[part], ages_us[part]))
        return named

    def _read_counted(self, gold: Gold) -> None:
        for queue in self._queues.values():
            queue.counted = {name: np.zeros(self._bins.count, np.int64) for name in _COUNTED}
        rows = gold.sums("gold.queue_minutes", ["queue_uid"], _COUNTED, self._bins, by_bin=True)
        bins = np.asarray(rows["bin"], np.int64)
        positions: dict[str, list[int]] = defaultdict(list)
        for position, uid in enumerate(rows["queue_uid"]):
            positions[self.names[uid]].append(position)
        for name, chosen in positions.items():
            for counted in _COUNTED:
                values = np.asarray(rows[counted], np.int64)[chosen]
                self._queues[name].counted[counted] += self._bins.sums(bins[chosen], values)


def unnamed(queue_uid: int) -> str:
    """What stands for a queue whose name is not known."""
    return f"(queue {queue_uid})"


def _oldest(queues: list[QueueTotals]) -> int | None:
    return max((each.oldest_age_us for each in queues if each.oldest_age_us is not None), default=None)


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

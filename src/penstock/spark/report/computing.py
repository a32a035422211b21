"""From gold to the figures of the report."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from penstock.spark.pipeline.bands import BANDS
from penstock.spark.report.figures import (
    VERSION,
    BandWaits,
    BinTimes,
    Bucket,
    DeadLetters,
    Door,
    Figures,
    Range,
    Series,
    SeriesSet,
    Spec,
    Totals,
    Watermark,
    Worker,
)
from penstock.spark.report.gold import Gold, Rows
from penstock.spark.report.queues import QueueFigures, unnamed
from penstock.spark.report.series import MINUTE_US, Bins, plain

WORKERS_MAX: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def compute(gold: Gold, since: datetime | None = None) -> Figures:
    """The figures of all that gold has, or of what happened since a moment's minute."""
    minutes = gold.minutes()
    if minutes is None:
        return _nothing(gold)
    first, last = minutes
    if since is not None:
        first = max(first, int(since.timestamp()) // 60)
    last_end_us = (max(last, first) + 1) * MINUTE_US
    known_us = None if gold.time is None else _microseconds(gold.time)
    # Normally the watermark lies in the last minute, or later if nothing has happened since.
    end_us = last_end_us if known_us is None or known_us <= last_end_us - MINUTE_US else known_us
    bins = Bins.over(first, max(end_us, first * MINUTE_US + 1))
    queues = QueueFigures(gold, bins)
    return Figures(
        version=VERSION,
        watermark=Watermark(gold.index, gold.time),
        range=Range(_EPOCH + timedelta(minutes=first), _EPOCH + timedelta(microseconds=bins.end_us)),
        bins=BinTimes(bins.step, bins.times()),
        totals=queues.totals(),
        queues=queues.listed,
        series=queues.series(_dead_letter_series(gold, bins)),
        waits=_waits(gold, bins),
        dead_letters=_dead_letters(gold, bins, queues.names),
        doors=_doors(gold, bins),
        workers=_workers(gold, bins),
        specs=_specs(gold, bins),
    )


def _nothing(gold: Gold) -> Figures:
    series = SeriesSet(
        depth=[],
        oldest_age_us=[],
        arrivals_per_minute=[],
        completions_per_minute=[],
        redelivery_rate=[],
        dead_letters=[],
    )
    return Figures(
        version=VERSION,
        watermark=Watermark(gold.index, gold.time),
        range=Range(None, None),
        bins=BinTimes(1, []),
        totals=Totals(),
        queues=[],
        series=series,
        waits=[],
        dead_letters=[],
        doors=[],
        workers=[],
        specs=[],
    )


def _records(rows: Rows) -> list[dict[str, Any]]:
    """Rows as dictionaries."""
    return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]


def _dead_letter_series(gold: Gold, bins: Bins) -> list[Series]:
    by_reason: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row in _records(gold.sums("gold.dead_letters", ["reason"], ["count"], bins, by_bin=True)):
        at, values = by_reason[row["reason"] or ""]
        at.append(row["bin"])
        values.append(row["count"])
    sums = {reason: bins.sums(at, values) for reason, (at, values) in by_reason.items()}
    order = sorted(sums, key=lambda reason: (-int(sums[reason].sum()), reason))
    return [Series(reason, plain(sums[reason].astype(np.float64))) for reason in order]


def _dead_letters(gold: Gold, bins: Bins, names: dict[int, str]) -> list[DeadLetters]:
    added: dict[tuple[str, str], int] = defaultdict(int)
    for row in _records(gold.sums("gold.dead_letters", ["queue_uid", "reason"], ["count"], bins)):
        uid = row["queue_uid"]
        added[names.get(uid, unnamed(uid)), row["reason"] or ""] += row["count"]
    found = [DeadLetters(queue, reason, count) for (queue, reason), count in added.items()]
    return sorted(found, key=lambda each: (-each.count, each.queue, each.reason))


def _doors(gold: Gold, bins: Bins) -> list[Door]:
    rows = gold.sums("gold.worker_minutes", ["door"], Door.__struct_fields__[1:], bins)
    found = [Door(**{**row, "door": row["door"] or ""}) for row in _records(rows)]
    return sorted(found, key=lambda each: (-(each.arrivals + each.deliveries), each.door))


def _workers(gold: Gold, bins: Bins) -> list[Worker]:
    rows = gold.sums("gold.worker_minutes", ["door", "owner"], Door.__struct_fields__[1:], bins)
    found = [Worker(**{**row, "door": row["door"] or ""}) for row in _records(rows)]
    found.sort(key=lambda each: (-(each.arrivals + each.deliveries), each.door, each.owner))
    return found[:WORKERS_MAX]


def _waits(gold: Gold, bins: Bins) -> list[BandWaits]:
    arrivals = gold.sums("gold.key_bands", ["band"], ["arrivals"], bins)
    arrived = dict(zip(arrivals["band"], arrivals["arrivals"], strict=True))
    buckets: dict[str, list[Bucket]] = defaultdict(list)
    for row in _records(gold.sums("gold.wait_buckets", ["band", "below_us"], ["count"], bins)):
        buckets[row["band"]].append(Bucket(row["below_us"], row["count"]))
    return [
        _waits_of(band, arrived.get(band, 0), sorted(buckets[band], key=lambda each: each.below_us))
        for band in BANDS
        if band in arrived or band in buckets
    ]


def _waits_of(band: str, arrivals: int, buckets: list[Bucket]) -> BandWaits:
    p50_us, p95_us, p99_us = (_below_us(buckets, percent) for percent in (50, 95, 99))
    return BandWaits(
        band=band,
        arrivals=arrivals,
        delivered=sum(each.count for each in buckets),
        p50_below_us=p50_us,
        p95_below_us=p95_us,
        p99_below_us=p99_us,
        buckets=buckets,
    )


def _below_us(buckets: list[Bucket], percent: int) -> int | None:
    """The edge below which so many of a hundred lie."""
    wanted = percent * sum(each.count for each in buckets)
    counted = 0
    for each in buckets:
        counted += each.count * 100
        if counted >= wanted:
            return each.below_us
    return None


def _specs(gold: Gold, bins: Bins) -> list[Spec]:
    sums = gold.sums("gold.spec_minutes", ["spec"], ["started", "results", "errors"], bins)
    columns = ["spec", "minute", "results", "errors", "duration_p50_us", "duration_p95_us"]
    minutes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in gold.rows("gold.spec_minutes", columns).to_pylist():
        if row["minute"] >= bins.first_minute and row["duration_p95_us"] is not None:
            minutes[row["spec"]].append(row)
    found = [_spec(row, minutes[row["spec"]]) for row in _records(sums)]
    return sorted(found, key=lambda each: (-(each.p95_us or -1), each.spec))


def _spec(sums: dict[str, Any], minutes: list[dict[str, Any]]) -> Spec:
    ended = sums["results"] + sums["errors"]
    return Spec(
        spec=sums["spec"],
        started=sums["started"],
        results=sums["results"],
        errors=sums["errors"],
        success_rate=sums["results"] / ended if ended else None,
        p50_us=_typical(minutes, "duration_p50_us"),
        p95_us=_typical(minutes, "duration_p95_us"),
        p95_worst_us=max((row["duration_p95_us"] for row in minutes), default=None),
    )


def _typical(minutes: list[dict[str, Any]], column: str) -> int | None:
    """The value in whose minute, or one with less, half of the tasks ended: percentiles of minutes cannot be merged."""
    ended = sum(row["results"] + row["errors"] for row in minutes)
    counted = 0
    for row in sorted(minutes, key=lambda row: row[column]):
        counted += row["results"] + row["errors"]
        if 2 * counted >= ended:
            return int(row[column])
    return None


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)

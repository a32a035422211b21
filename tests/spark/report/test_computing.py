"""The figures say what gold says: compared with plain sums over its rows."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.spark.report.computing import compute
from penstock.spark.report.figures import Figures, Totals
from penstock.spark.report.gold import Gold
from tests.spark.report.sample import BANDS, BEGIN, END, NAMES, Tables, write_gold

MINUTE_US = 60_000_000
COUNTED = ("arrivals", "completions", "acked", "dead_lettered", "deliveries", "redeliveries", "failures")


def summed(rows: list[dict[str, Any]], key: str, value: str) -> dict[Any, int]:
    sums: dict[Any, int] = defaultdict(int)
    for row in rows:
        sums[row[key]] += row[value]
    return dict(sums)


def small(folder: Path, rows: list[dict[str, Any]], time: datetime | None) -> Figures:
    """The figures of a few rows of queue_minutes; what they leave out is 0."""
    zeros = dict.fromkeys(name for name in Totals.__struct_fields__ if name not in ("oldest_age_us", "redelivery_rate"))
    filled = [{**dict.fromkeys(zeros, 0), "oldest_age_us": None, **row} for row in rows]
    gold = write_gold(folder, {"gold.queue_minutes": filled}, files=2)
    return compute(Gold(gold.files, 99, time))


def test_totals_are_the_sums_of_gold(figures: Figures, tables: Tables) -> None:
    rows = tables["gold.queue_minutes"]
    for counted in COUNTED:
        by_queue = summed(rows, "queue", counted)
        assert {queue.name: getattr(queue, counted) for queue in figures.queues} == by_queue
        assert getattr(figures.totals, counted) == sum(by_queue.values())
    assert figures.totals.redelivery_rate == figures.totals.redeliveries / figures.totals.deliveries
    last = {row["queue"]: row["depth"] for row in rows}
    assert {queue.name: queue.depth for queue in figures.queues} == last


def test_the_range_ends_at_the_watermark(figures: Figures) -> None:
    assert (figures.range.begin, figures.range.end) == (BEGIN, END)
    assert (figures.watermark.index, figures.watermark.time) == (123_456, END)


def test_series_by_queue_add_up_to_the_totals(figures: Figures) -> None:
    """Ten queues and the others together; what is per minute, times the minutes, is what arrived."""
    series = figures.series.arrivals_per_minute
    assert [each.name for each in series] == [*(queue.name for queue in figures.queues[:10]), None]
    begin, step = BEGIN.timestamp(), figures.bins.minutes * 60
    for each, queues in zip(series, [*([queue] for queue in figures.queues[:10]), figures.queues[10:]], strict=True):
        counted = 0.0
        for time, value in zip(figures.bins.times, each.values, strict=True):
            start, end = max(time.timestamp(), begin), min(time.timestamp() + step, END.timestamp())
            counted += (value or 0) * (end - start) / 60
        assert counted == pytest.approx(sum(queue.arrivals for queue in queues), rel=1e-3)
    assert len(NAMES) == len(figures.queues) == 14


def test_dead_letters_are_counted_by_reason_queue_and_time(figures: Figures, tables: Tables) -> None:
    by_reason = summed(tables["gold.dead_letters"], "reason", "count")
    assert {each.name: sum(value or 0 for value in each.values) for each in figures.series.dead_letters} == by_reason
    assert sum(each.count for each in figures.dead_letters) == sum(by_reason.values()) == figures.totals.dead_lettered
    counts = [each.count for each in figures.dead_letters]
    assert counts == sorted(counts, reverse=True)


def test_dead_letters_have_the_names_of_their_queues(tmp_path: Path) -> None:
    """Also the default queue, whose name is empty and whose uid is 0, and where a name is lost in some rows."""
    zeros = dict.fromkeys(Totals.__struct_fields__, 0)
    known, dead = (
        [{"queue_uid": uid, "queue": name, "minute": BEGIN} for uid, name in named]
        for named in (((0, ""), (1, "a"), (2, None)), ((0, ""), (1, None), (1, "a"), (2, None)))
    )
    filled = {
        "gold.queue_minutes": [{**zeros, **each} for each in known],
        "gold.dead_letters": [
            {**each, "reason": "nack", "count": count} for each, count in zip(dead, (4, 1, 2, 1), strict=True)
        ],
    }
    figures = compute(write_gold(tmp_path, filled))
    assert {each.name for each in figures.queues} == {"", "a", "(queue 2)"}
    assert [(each.queue, each.count) for each in figures.dead_letters] == [("", 4), ("a", 3), ("(queue 2)", 1)]


def test_waits_are_told_by_band_in_the_order_of_keys(figures: Figures, tables: Tables) -> None:
    assert [band.band for band in figures.waits] == list(BANDS)
    arrived, delivered = summed(tables["gold.key_bands"], "band", "arrivals"), defaultdict[str, list[int]](list)
    for row in tables["gold.wait_buckets"]:
        delivered[row["band"]] += [row["below_us"]] * row["count"]
    for band in figures.waits:
        below_us = sorted(delivered[band.band])
        assert (band.arrivals, band.delivered) == (arrived[band.band], len(below_us))
        assert band.p95_below_us == below_us[-(-len(below_us) * 95 // 100) - 1]


def test_doors_and_workers_are_summed(figures: Figures, tables: Tables) -> None:
    taken = summed(tables["gold.worker_minutes"], "door", "deliveries")
    assert {door.door: door.deliveries for door in figures.doors} == taken
    assert sum(worker.deliveries for worker in figures.workers) == sum(taken.values())
    busy = [worker.arrivals + worker.deliveries for worker in figures.workers]
    assert busy == sorted(busy, reverse=True)


def test_specs_tell_success_and_percentiles_of_minutes(tmp_path: Path) -> None:
    def minute(number: int, results: int, errors: int, p95_us: int | None) -> dict[str, Any]:
        durations = {"duration_p50_us": p95_us and p95_us // 2, "duration_p95_us": p95_us}
        place = {"spec": "a", "minute": BEGIN + timedelta(minutes=number)}
        return {**place, "started": 1, "results": results, "errors": errors, **durations}

    rows = [minute(0, 1, 0, 900), minute(1, 2, 2, 100), minute(2, 0, 0, None), minute(3, 3, 1, 300)]
    (spec,) = compute(write_gold(tmp_path, {"gold.spec_minutes": rows})).specs
    assert (spec.started, spec.results, spec.errors, spec.success_rate) == (4, 6, 3, 6 / 9)
    # Four of nine tasks ended in a minute with 100, eight in one with at most 300.
    assert (spec.p50_us, spec.p95_us, spec.p95_worst_us) == (150, 300, 900)


def test_depth_stays_and_age_grows_between_rows(tmp_path: Path) -> None:
    row = {"queue_uid": 1, "queue": "a"}
    rows = [
        {**row, "minute": BEGIN, "arrivals": 5, "depth": 5, "oldest_age_us": 1_000_000},
        {**row, "minute": BEGIN + timedelta(minutes=3), "completions": 5, "depth": 0, "oldest_age_us": None},
        {**row, "minute": BEGIN + timedelta(minutes=4), "arrivals": 1, "depth": 1, "oldest_age_us": 7_000_000},
    ]
    figures = small(tmp_path, rows, BEGIN + timedelta(minutes=6, seconds=30))
    assert figures.series.depth[0].values == [5, 5, 5, 0, 1, 1, 1]
    second = 1_000_000
    ages = [1 * second, 61 * second, 121 * second, None, 7 * second, 67 * second, 97 * second]
    assert figures.series.oldest_age_us[0].values == ages
    assert (figures.queues[0].oldest_age_us, figures.series.oldest_age_us[0].now) == (97 * second, 97 * second)
    assert figures.series.redelivery_rate == [None] * 7


def test_queues_that_followed_each_other_under_a_name_are_one(tmp_path: Path) -> None:
    rows = [
        {"queue_uid": 1, "queue": "a", "minute": BEGIN, "arrivals": 3, "depth": 3, "oldest_age_us": 5},
        {"queue_uid": 1, "queue": None, "minute": BEGIN + timedelta(minutes=1), "completions": 3},
        {"queue_uid": 2, "queue": "a", "minute": BEGIN + timedelta(minutes=1), "arrivals": 4, "depth": 4},
        {"queue_uid": 3, "queue": None, "minute": BEGIN, "arrivals": 1, "depth": 1},
    ]
    figures = small(tmp_path, rows, None)
    assert [(queue.name, queue.queue_uids, queue.arrivals, queue.depth) for queue in figures.queues] == [
        ("a", [1, 2], 7, 4),
        ("(queue 3)", [3], 1, 1),
    ]
    assert figures.series.depth[0].values == [3, 4]
    assert figures.range.end == BEGIN + timedelta(minutes=2)


def test_eleven_queues_have_a_series_each_and_twelve_have_others(tmp_path: Path) -> None:
    for count, last in ((11, "q10"), (12, None)):
        rows = [
            {"queue_uid": n + 1, "queue": f"q{n:02}", "minute": BEGIN, "arrivals": 1, "depth": n} for n in range(count)
        ]
        folder = tmp_path / str(count)
        folder.mkdir()
        depth = small(folder, rows, None).series.depth
        assert (len(depth), depth[-1].name) == (11, last)
    assert (depth[-1].values, depth[-1].now) == ([21], 21)


def test_a_part_of_the_time_is_told_alone(gold: Gold, tables: Tables) -> None:
    """Sums since a moment; depth and age come from before it if nothing has happened since."""
    since = END - timedelta(hours=2)
    figures = compute(gold, since)
    minute = since.replace(second=0, microsecond=0)
    rows = tables["gold.queue_minutes"]
    assert figures.range.begin == minute
    assert figures.totals.arrivals == sum(row["arrivals"] for row in rows if row["minute"] >= minute)
    assert figures.totals.depth == compute(gold).totals.depth
    later = compute(gold, END + timedelta(hours=1))
    assert later.totals.arrivals == 0
    assert later.totals.depth == figures.totals.depth


def test_nothing_gives_an_empty_report() -> None:
    figures = compute(Gold({}))
    assert figures.range.begin is None
    assert figures.totals == Totals()
    assert figures.queues == figures.series.depth == figures.waits == figures.workers == figures.specs == []


def test_the_structure_is_plain_json_with_stable_keys(figures: Figures) -> None:
    told = json.loads(json.dumps(msgspec.to_builtins(figures)))
    assert set(told) == {
        *("version", "watermark", "range", "bins", "totals", "queues", "series", "waits", "dead_letters"),
        *("doors", "workers", "specs"),
    }
    assert told["version"] == 1
    assert told["range"] == {"begin": "2025-03-14T21:07:00Z", "end": "2025-03-16T09:46:24Z"}
    assert set(told["series"]) == {
        *("depth", "oldest_age_us", "arrivals_per_minute", "completions_per_minute", "redelivery_rate", "dead_letters"),
    }
    series = [*told["series"]["depth"], *told["series"]["dead_letters"]]
    assert all(len(each["values"]) == len(told["bins"]["times"]) for each in series)
    assert set(told["queues"][0]) == {*Totals.__struct_fields__, "name", "queue_uids"}
    assert set(told["specs"][0]) == {
        *("spec", "started", "results", "errors", "success_rate", "p50_us", "p95_us", "p95_worst_us"),
    }


@pytest.mark.parametrize("time", [None, datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_watermark_that_says_nothing_is_not_needed(tmp_path: Path, time: datetime | None) -> None:
    rows = [{"queue_uid": 1, "queue": "a", "minute": BEGIN, "arrivals": 1, "depth": 1, "oldest_age_us": 4}]
    assert small(tmp_path, rows, time).range.end == BEGIN + timedelta(minutes=1)

"""`gold`: figures per minute, as a plain program counts them, and the same wherever the log is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.schemas import (
    MESSAGES,
    PIPELINE_TABLES,
    QUEUE_MINUTES,
    SPEC_MINUTES,
    TASKS,
)
from tests.spark.pipeline import reference
from tests.spark.pipeline.histories import Row, assert_same, busy_history, frame, rows_of, told
from tests.spark.pipeline.reference import fold_messages, minute_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY = busy_history(27, 120)
Whole = Callable[[str], list[Row]]
KEYS = {
    "gold.queue_minutes": ("queue_uid", "minute"),
    "gold.dead_letters": ("queue_uid", "minute", "reason"),
    "gold.key_bands": ("queue_uid", "minute", "band"),
    "gold.wait_buckets": ("queue_uid", "minute", "band", "below_us"),
    "gold.worker_minutes": ("door", "owner", "minute"),
}


def table(spark: SparkSession, name: str, events: list[Row], from_minute: datetime | None = None) -> list[Row]:
    """A table as it is made after these events, given no more than the pipeline gives."""
    from penstock.spark.pipeline import gold

    since = from_minute or minute_of(events[0]["time"])
    messages = [row for row in fold_messages(events) if row["done"] is None or row["done"] >= since]
    recent = [event for event in events if event["time"] >= since]
    result = gold.TABLES[name](frame(spark, recent), frame(spark, messages, MESSAGES), events[-1]["time"], since)
    return rows_of(result, PIPELINE_TABLES[name], *KEYS[name])


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> Whole:
    """A table of all of the history; each is made once."""
    return cache(lambda name: table(spark, name, HISTORY))


def counted(rows: list[Row], names: tuple[str, ...], column: str, keys: list[tuple[Any, ...]]) -> None:
    """The rows count how often each of these keys is there."""
    assert {tuple(row[name] for name in names): row[column] for row in rows} == Counter(keys)


def test_the_minutes_of_queues_are_those_of_a_plain_program(whole: Whole) -> None:
    expected = reference.queue_minutes(HISTORY, fold_messages(HISTORY), HISTORY[-1]["time"])
    assert max(row["depth"] for row in expected) > 1
    assert any(row["oldest_age_us"] is None for row in expected)
    assert_same(whole("gold.queue_minutes"), expected)


@pytest.mark.parametrize("name", KEYS)
def test_minutes_that_are_made_anew_fit_those_that_are_kept(spark: SparkSession, whole: Whole, name: str) -> None:
    """A run over the first part, then one over the rest, give the table of one run over all.

    The cut lies within a minute, which the second run makes anew as a whole.
    """
    cut = next(
        place for place in range(len(HISTORY) // 2, len(HISTORY)) if in_one_minute(*HISTORY[place - 1 : place + 1])
    )
    again_from = minute_of(HISTORY[cut]["time"])
    kept = [row for row in table(spark, name, HISTORY[:cut]) if row["minute"] < again_from]
    made = table(spark, name, HISTORY, again_from)
    assert kept
    assert all(row["minute"] >= again_from for row in made)
    keys = KEYS[name]
    assert_same(
        sorted(kept + made, key=lambda row: tuple((row[key] is not None, row[key]) for key in keys)), whole(name)
    )


def in_one_minute(first: Row, second: Row) -> bool:
    """Two events at different times of one minute."""
    return first["time"] < second["time"] and minute_of(first["time"]) == minute_of(second["time"])


def test_counts_of_dead_letters_bands_waits_and_workers(whole: Whole) -> None:
    messages = fold_messages(HISTORY)
    dead = [row for row in messages if row["outcome"] == "dead-lettered"]
    counted(
        whole("gold.dead_letters"),
        ("queue_uid", "queue", "minute", "reason"),
        "count",
        [(row["queue_uid"], row["queue"], minute_of(row["done"]), row["reason"]) for row in dead],
    )
    arrived = [event for event in HISTORY if event["kind"] in ("put", "moved in")]
    counted(
        whole("gold.key_bands"),
        ("queue_uid", "queue", "minute", "band"),
        "arrivals",
        [(row["queue_uid"], row["queue"], minute_of(row["time"]), band(row["key"])) for row in arrived],
    )
    first_keys = {(row["queue_uid"], row["id"]): row["key"] for row in reversed(HISTORY) if row["kind"] == "taken"}
    waited = [
        (
            *(row["queue_uid"], row["queue"], minute_of(row["first_delivered"])),
            *(band(first_keys[row["queue_uid"], row["id"]]), below(row["waited_us"])),
        )
        for row in messages
        if row["waited_us"] is not None
    ]
    names = ("queue_uid", "queue", "minute", "band", "below_us")
    counted(whole("gold.wait_buckets"), names, "count", waited)
    workers = whole("gold.worker_minutes")
    for column, kind in {"arrivals": "put", "deliveries": "taken", "acked": "acked", "returned": "returned"}.items():
        did = [(row["door"], row["owner"], minute_of(row["time"])) for row in HISTORY if row["kind"] == kind]
        counted([row for row in workers if row[column]], ("door", "owner", "minute"), column, did)


def band(key: int) -> str:
    """The band of a key, told by its digits."""
    if key < 0:
        return "< 0"
    digits = len(str(key))
    if digits > 6:
        return "1,000,000 and more"
    low = 0 if digits == 1 else 10 ** (digits - 1)
    return f"{low:,} to {10**digits - 1:,}"


def below(waited_us: int) -> int:
    """The first power of two, from 1,024 on, that is greater."""
    edge = 1024
    while edge <= waited_us:
        edge *= 2
    return edge


def test_bands_and_buckets_at_their_edges(spark: SparkSession) -> None:
    from penstock.spark.pipeline.bands import BANDS

    keys = [-(2**63), -1, 0, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 99_999, 100_000, 999_999, 1_000_000, 2**63 - 1]
    waits = [0, 1023, 1024, 1025, 2047, 2048, 4095, 4096, 2**20 - 1, 2**20, 2**40, 2**40 + 1, 3, 5, 2**33, 2**33 - 1]
    assert {band(key) for key in keys} == set(BANDS)
    assert list(BANDS) == list(dict.fromkeys(map(band, keys)))
    start = told((0, "put", 1))[0]["time"]
    events = [event for n, key in enumerate(keys, 1) for event in told((0, "put", n, {"key": key, "index": n}))]
    taken = [
        event
        for n, (key, wait) in enumerate(zip(keys, waits, strict=True), 1)
        for event in told((0, "taken", n, {"key": key, "deliveries": 1, "time": start + timedelta(microseconds=wait)}))
    ]
    rows = table(spark, "gold.wait_buckets", events + sorted(taken, key=lambda event: event["time"]))
    found = Counter({(row["band"], row["below_us"]): row["count"] for row in rows for _ in range(row["count"])})
    assert set(found) == {(band(key), below(wait)) for key, wait in zip(keys, waits, strict=True)}
    assert sum(row["count"] for row in rows) == len(keys)


def test_the_key_of_a_wait_is_the_one_it_was_delivered_with(spark: SparkSession) -> None:
    """A later change of the key must not move what is counted already to another band."""
    again = {"deliveries": 1, "reason": "release"}
    events = told(
        (0, "put", 1, {"key": 5}),
        (1, "edited", 1, {"key": 50}),
        (2, "taken", 1, {"key": 50, "deliveries": 1}),
        (3, "returned", 1, {"key": 50, **again}),
        (4, "edited", 1, {"key": 500, "deliveries": 1}),
        (5, "taken", 1, {"key": 500, "deliveries": 2}),
    )
    (row,) = table(spark, "gold.wait_buckets", events)
    assert (row["band"], row["below_us"], row["count"]) == ("10 to 99", 2**21, 1)
    (row,) = table(spark, "gold.key_bands", events)
    assert (row["band"], row["arrivals"]) == ("0 to 9", 1)


def test_what_stands_at_the_very_end_of_a_minute(spark: SparkSession) -> None:
    """A message that comes on the stroke of a minute belongs to the new one; one that ends then was there before."""
    events = told(
        (0, "put", 1),
        (30, "put", 2),
        (60, "deleted", 1),
        (60, "put", 3),
        (120, "deleted", 2),
        (120, "deleted", 3),
        (130, "put", 4),
        (131, "put", 5),
        (140, "deleted", 5),
    )
    rows = table(spark, "gold.queue_minutes", events)
    assert_same(rows, reference.queue_minutes(events, fold_messages(events), events[-1]["time"]))
    assert [row["depth"] for row in rows] == [2, 2, 1]
    assert [row["oldest_age_us"] for row in rows] == [60_000_000, 90_000_000, 10_000_000]


def test_what_ends_on_the_stroke_of_the_first_minute_is_counted_in_it(spark: SparkSession) -> None:
    ends = {"deliveries": 1, "reason": "nack", "other_queue_uid": 9, "other_id": 40}
    events = told((0, "put", 1), (1, "taken", 1, {"deliveries": 1}), (60, "dead-lettered", 1, ends))
    stroke = events[-1]["time"]
    (row,) = table(spark, "gold.dead_letters", events, stroke)
    assert (row["minute"], row["count"]) == (stroke, 1)


def test_messages_from_before_the_history_count_for_depth_but_not_for_age(spark: SparkSession) -> None:
    from penstock.spark.pipeline import gold, messages

    events = frame(spark, told((0, "available", 1), (1, "available", 2), (70, "deleted", 1), (80, "extended", 3)))
    start = told((0, "put", 1))[0]["time"]
    folded = messages.fold(events, frame(spark, [], MESSAGES))
    result = gold.queue_minutes(events, folded, start + timedelta(seconds=80), start)
    rows = rows_of(result, QUEUE_MINUTES, "minute")
    figures = [(row["minute"], row["arrivals"], row["completions"], row["depth"], row["oldest_age_us"]) for row in rows]
    assert figures == [(start + timedelta(minutes=1), 0, 1, 2, None)]


def test_percentiles_are_values_of_the_group(spark: SparkSession) -> None:
    """Exact at the places where a hundredth more or less makes a difference."""
    from penstock.spark.pipeline import gold

    start = told((0, "put", 1))[0]["time"]
    durations = {f"{count:03}": [3 * n + 1 for n in range(count)] for count in (1, 2, 19, 20, 21, 99, 100, 101, 200)}
    tasks = [
        {"id": f"{spec}-{us}", "spec": spec, "started": start, "done": start, "outcome": "result", "duration_us": us}
        for spec, of_spec in durations.items()
        for us in of_spec
    ]
    rows = rows_of(gold.spec_minutes(frame(spark, tasks, TASKS), start), SPEC_MINUTES, "spec")
    assert [row["spec"] for row in rows] == list(durations)
    for row in rows:
        for percent in (50, 95, 99):
            assert row[f"duration_p{percent}_us"] == reference.percentile(durations[row["spec"]], percent)


def test_the_minutes_of_specs(spark: SparkSession) -> None:
    """A task counts where it began and where it ended; what happened before the first minute is left out."""
    from penstock.spark.pipeline import gold

    start = told((0, "put", 1))[0]["time"]

    def task(spec: str, began_s: int, ended_s: int | None = None, outcome: str | None = None) -> Row:
        began = start + timedelta(seconds=began_s)
        row: Row = {"id": f"{spec}{began_s}", "spec": spec, "started": began}
        if ended_s is not None:
            row |= {"done": start + timedelta(seconds=ended_s), "outcome": outcome}
            row["duration_us"] = (ended_s - began_s) * 1_000_000
        return row

    tasks = [task("a", -10, 20, "result"), task("a", 5, 130, "error"), task("a", 6, 125, "result"), task("b", 70)]
    rows = rows_of(gold.spec_minutes(frame(spark, tasks, TASKS), start), SPEC_MINUTES, "spec", "minute")
    minutes = [start + timedelta(minutes=n) for n in range(3)]
    names = ("spec", "minute", "started", "results", "errors", "success_rate", "duration_p50_us", "duration_p99_us")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("a", minutes[0], 2, 1, 0, 1.0, 30_000_000, 30_000_000),
        ("a", minutes[2], 0, 1, 1, 0.5, 119_000_000, 125_000_000),
        ("b", minutes[1], 1, 0, 0, None, None, None),
    ]


def test_nothing_gives_nothing(spark: SparkSession) -> None:
    from penstock.spark.pipeline import gold

    start = told((0, "put", 1))[0]["time"]
    for name, make in gold.TABLES.items():
        result = make(frame(spark, []), frame(spark, [], MESSAGES), start, start)
        assert rows_of(result, PIPELINE_TABLES[name]) == []

"""The report of the generated history, opened in a browser: every plot has its data, and all it says is what gold says.

What it should say is added up by DuckDB (``sums``), and held against the page as it is shown and against the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import journal as j
from penstock.spark.report.page import report_json, write_report
from tests.spark.generated.checking import Told
from tests.spark.report.looking import BOXES, PHONE, PLOTTED, SECTIONS, WIDE, assert_all_can_be_seen
from tests.spark.report.sums import COUNTED, MINUTE_US, Sums

WIDE_PLOT = 860
SHOWN_MAX = 10
REASONS_MAX = 5
WORKERS_MAX = 100
# By part of the page: the tables that are unfolded on demand, and the marks of each plot with what is said of them.
TABLES = """
() => Object.fromEntries([...document.querySelectorAll('section')].map(section => [section.id,
  [...section.querySelectorAll('details table')].map(table => ({
    heads: [...table.tHead.rows[0].cells].map(each => each.title),
    rows: [...table.tBodies[0].rows].map(row => [...row.cells].map(each => each.textContent)),
  }))]))
"""
MARKS = """
() => Object.fromEntries([...document.querySelectorAll('section')].map(section => [section.id,
  [...section.querySelectorAll('svg.wide')].map(svg => [...svg.querySelectorAll('.mark')].map(mark => ({
    said: mark.querySelector('title')?.textContent, width: mark.getBBox().width, height: mark.getBBox().height,
  })))]))
"""
Cells = list[list[str]]


@pytest.fixture(scope="module")
def sums(told: Told) -> Iterator[Sums]:
    sums = Sums(told.directory)
    yield sums
    sums.close()


@pytest.fixture(scope="module")
def report(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(told.directory, path)
    return path


@pytest.fixture(scope="module")
def figures(told: Told) -> dict[str, Any]:
    """What `penstock pipeline report --json` gives, as who reads it gets it."""
    said: dict[str, Any] = json.loads(json.dumps(report_json(told.directory)))
    return said


@pytest.fixture
def page(open_page: Any, report: Path) -> Any:
    return open_page(report, WIDE)


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def numbers(cells: list[str]) -> list[float]:
    return [number(cell) for cell in cells]


def percent(cell: str) -> float:
    return number(cell.removesuffix("\u00a0%"))


def minute(cell: str) -> int:
    """The beginning of a bin, as a table has it."""
    return int(datetime.strptime(cell, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()) // 60


def bin_minutes(sums: Sums, begin: int, step: int) -> float:
    """How much of a bin the history covers; the report says less than a quarter of a minute of none."""
    return max(min(begin + step, sums.end_us / MINUTE_US) - max(begin, sums.begin), 0.25)


def queue_shown(name: str) -> str:
    """A queue as the page names it: the default one as on the command line."""
    return name or "''"


def groups(sums: Sums) -> dict[str | None, list[str]]:
    """What has a line of its own: the busiest queues; the others are together."""
    names = list(sums.queues())
    assert len(names) > SHOWN_MAX + 1, "else nothing is shown together"
    return {**{name: [name] for name in names[:SHOWN_MAX]}, None: names[SHOWN_MAX:]}


@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_every_plot_shows_the_history(open_page: Any, report: Path, viewport: Any) -> None:
    page = open_page(report, viewport)
    assert page.locator("section").evaluate_all("all => all.map(each => each.id)") == SECTIONS
    assert page.locator("section .empty").count() == 0
    assert_all_can_be_seen(page.evaluate(BOXES))
    for section in PLOTTED:
        assert page.locator(f"#{section} details tbody tr").count() > 0


def test_the_totals_are_those_of_gold(page: Any, sums: Sums, figures: dict[str, Any], told: Told) -> None:
    """On the page and as JSON; and gold's are what was counted while the history was made."""
    totals = sums.totals()
    counted = told.made.truth.totals().values()
    assert {name: totals[name] for name in next(iter(counted))} == {
        name: sum(each[name] for each in counted) for name in next(iter(counted))
    }
    rate = totals["redeliveries"] / totals["deliveries"]
    assert figures["totals"] == {**totals, "redelivery_rate": rate}
    specs = sums.specs().values()
    results, errors = sum(each["results"] for each in specs), sum(each["errors"] for each in specs)
    tiles = page.locator(".tiles > div").evaluate_all(
        "all => all.map(each => [each.id, each.querySelector('data').value])"
    )
    assert {name.removeprefix("total-"): float(value) for name, value in tiles} == {
        "arrivals": totals["arrivals"],
        "completions": totals["completions"],
        "depth": totals["depth"],
        "oldest": totals["oldest_age_us"],
        "redelivered": rate,
        "dead-lettered": totals["dead_lettered"],
        "success": results / (results + errors),
    }
    assert all(totals.values())
    lead = page.locator("#redeliveries .lead").text_content()
    assert lead.startswith(f"{totals['redeliveries']:,} of {totals['deliveries']:,} deliveries ")
    assert page.locator("#dead-letters .lead").text_content().startswith(f"{totals['dead_lettered']:,} messages ")


def test_the_range_is_that_of_the_history(sums: Sums, figures: dict[str, Any], told: Told, page: Any) -> None:
    begin, end = (datetime.fromisoformat(figures["range"][name]) for name in ("begin", "end"))
    assert begin.timestamp() == sums.begin * 60
    assert (end - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == sums.end_us
    assert figures["watermark"] == {"index": told.made.last_index, "time": figures["range"]["end"]}
    assert f"Complete up to log entry {told.made.last_index:,}, " in page.locator("footer").text_content()


def test_each_queue_has_its_row(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    queues = sums.queues()
    assert [each["name"] for each in figures["queues"]] == list(queues)
    for each in figures["queues"]:
        wanted = queues[each["name"]]
        assert {name: each[name] for name in wanted} == wanted
    (table,) = page.evaluate(TABLES)["queues"]
    columns = ("arrivals", "completions", "dead_lettered", None, "depth", None)
    columns += ("acked", "expired", "deleted", "moved", "deliveries", "failures")
    assert len(table["rows"]) == len(queues)
    for (name, *cells), (wanted_name, wanted) in zip(table["rows"], queues.items(), strict=True):
        assert name == queue_shown(wanted_name)
        shown = {column: number(cell) for column, cell in zip(columns, cells, strict=True) if column}
        assert shown == {column: wanted[column] for column in shown}
        rate = wanted["redeliveries"] / wanted["deliveries"] if wanted["deliveries"] else 0.0
        assert percent(cells[3]) == pytest.approx(100 * rate, abs=0.05)
    short = page.locator("#queues table.cards tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(each => each.textContent))"
    )
    assert short == [row[:7] for row in table["rows"][:SHOWN_MAX]]
    for column in ("arrivals", "completions", "dead_lettered", "acked", "deliveries"):
        at = columns.index(column) + 1
        assert sum(number(row[at]) for row in table["rows"]) == sums.totals()[column]


def test_depth_and_age_have_their_peaks_and_what_is_now(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    series, queues = figures["series"], sums.queues()
    tables, marks = page.evaluate(TABLES), page.evaluate(MARKS)
    for place, (name, members) in enumerate(groups(sums).items()):
        depth, age_us = sums.peaks(members)
        assert (series["depth"][place]["name"], series["oldest_age_us"][place]["name"]) == (name, name)
        assert max(value or 0 for value in series["depth"][place]["values"]) == depth
        ages_us = [value for value in series["oldest_age_us"][place]["values"] if value is not None]
        assert max(ages_us, default=None) == age_us
        assert series["depth"][place]["now"] == sum(queues[each]["depth"] for each in members)
        oldest_us = [queues[each]["oldest_age_us"] for each in members if queues[each]["oldest_age_us"] is not None]
        assert series["oldest_age_us"][place]["now"] == max(oldest_us, default=None)
        heading = "all others" if name is None else queue_shown(name)
        assert tables["depth"][0]["heads"][place + 1] == heading
        assert max(number(row[place + 1].replace("–", "0")) for row in tables["depth"][0]["rows"]) == depth
        assert marks["depth"][0][place]["said"].startswith(f"{heading}: at most ")
    assert sum(each["now"] for each in series["depth"]) == sums.totals()["depth"]
    aged = [each for each in series["oldest_age_us"] if any(value is not None for value in each["values"])]
    assert len(marks["age"][0]) == len(aged) == len(tables["age"][0]["heads"]) - 1


def test_throughput_adds_up_bin_by_bin(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    """What it tells per minute, times the minutes, is what gold counts."""
    step, queues = figures["bins"]["minutes"], sums.queues()
    together, completed = page.evaluate(TABLES)["throughput"]
    assert together["heads"][1:] == ["arrived", "completed"]
    wanted = {begin: counts[:2] for begin, counts in sums.by_bin(step).items() if any(counts[:2])}
    found = {
        (begin := minute(row[0])): tuple(round(each * bin_minutes(sums, begin, step)) for each in numbers(row[1:]))
        for row in together["rows"]
    }
    assert found == wanted
    for place, (name, members) in enumerate(groups(sums).items()):
        assert completed["heads"][place + 1] == ("all others" if name is None else queue_shown(name))
        column = [(minute(row[0]), number(row[place + 1])) for row in completed["rows"]]
        total = sum(round(each * bin_minutes(sums, begin, step)) for begin, each in column)
        assert total == sum(queues[each]["completions"] for each in members)
    times = [int(datetime.fromisoformat(time).timestamp()) // 60 for time in figures["bins"]["times"]]
    for counted in ("arrivals", "completions"):
        series = figures["series"][f"{counted}_per_minute"]
        values = [sum(column) for column in zip(*(each["values"] for each in series), strict=True)]
        total = sum(round(value * bin_minutes(sums, begin, step)) for begin, value in zip(times, values, strict=True))
        assert total == sums.totals()[counted]


def test_the_share_of_redeliveries_is_golds_in_each_bin(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    step = figures["bins"]["minutes"]
    wanted = {
        begin: redeliveries / deliveries
        for begin, (*_, deliveries, redeliveries) in sums.by_bin(step).items()
        if deliveries
    }
    times = [int(datetime.fromisoformat(time).timestamp()) // 60 for time in figures["bins"]["times"]]
    told = dict(zip(times, figures["series"]["redelivery_rate"], strict=True))
    assert {begin: rate for begin, rate in told.items() if rate is not None} == pytest.approx(wanted, abs=1e-6)
    (table,) = page.evaluate(TABLES)["redeliveries"]
    shown = {minute(begin): percent(cell) for begin, cell in table["rows"]}
    assert shown == pytest.approx(
        {begin: 100 * rate for begin, rate in wanted.items() if rate}, abs=0.05 + 1e-9
    )  # shown with one digit


def test_waits_are_golds_by_band_and_bucket(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    arrivals, waits = sums.arrivals_by_band(), sums.waits()
    assert {each["band"]: each["arrivals"] for each in figures["waits"]} == arrivals
    assert {
        each["band"]: {bucket["below_us"]: bucket["count"] for bucket in each["buckets"]} for each in figures["waits"]
    } == {band: waits.get(band, {}) for band in arrivals}
    (table,) = page.evaluate(TABLES)["waits"]
    edges_us = sorted({edge for buckets in waits.values() for edge in buckets})
    found = {band: numbers([arrived, delivered, *counts]) for band, arrived, delivered, *_, counts in spread(table)}
    assert found == {
        band: [arrivals[band], sum(waits[band].values()), *(waits[band].get(edge, 0) for edge in edges_us)]
        for band in arrivals
    }
    (marks,) = page.evaluate(MARKS)["waits"]
    assert len(marks) == sum(map(len, waits.values()))
    assert sum(number(mark["said"].split(": ")[1].split(" (")[0]) for mark in marks) == sum(
        count for buckets in waits.values() for count in buckets.values()
    )


def spread(table: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Rows of the table of waits, with the counts of their buckets together."""
    for row in table["rows"]:
        yield (*row[:6], row[6:])


def test_dead_letters_are_golds_by_reason_and_queue(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    step, wanted = figures["bins"]["minutes"], sums.dead_letters()
    told = {(each["queue"], each["reason"]): each["count"] for each in figures["dead_letters"]}
    assert list(told.items()) == list(wanted.items())
    assert sum(wanted.values()) == sums.totals()["dead_lettered"]
    over_time, by_queue = page.evaluate(TABLES)["dead-letters"]
    assert [(queue, reason, number(count)) for queue, reason, count in by_queue["rows"]] == [
        (queue_shown(queue), reason, count) for (queue, reason), count in wanted.items()
    ]
    reasons = sums.dead_letters_by_bin(step)
    assert 1 < len(reasons) <= REASONS_MAX
    assert over_time["heads"][1:] == list(reasons)
    for place, counts in enumerate(reasons.values()):
        column = {minute(row[0]): number(row[place + 1]) for row in over_time["rows"]}
        assert {begin: count for begin, count in column.items() if count} == counts
    layers, bars = page.evaluate(MARKS)["dead-letters"]
    assert [mark["said"] for mark in layers] == [f"{name}: {sum(c.values()):,}" for name, c in reasons.items()]
    assert_bars(bars, [(count, f"{count:,}") for count in list(wanted.values())[:SHOWN_MAX]])


def test_doors_and_connections_are_golds(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    names = ("arrivals", "deliveries", "acked", "returned")
    doors, workers = sums.doors(), sums.doors("owner")
    assert [(each["door"], *(each[name] for name in names)) for each in figures["doors"]] == doors
    assert [(each["door"], each["owner"], *(each[name] for name in names)) for each in figures["workers"]] == workers[
        :WORKERS_MAX
    ]
    by_door, by_connection = page.evaluate(TABLES)["workers"]
    assert [(row[0], *numbers(row[1:])) for row in by_door["rows"]] == doors
    assert [(row[0], *numbers(row[1:])) for row in by_connection["rows"]] == [
        (f"{door} {owner}", *counts) for door, owner, *counts in workers[:WORKERS_MAX]
    ]
    assert sum(row[2] for row in doors) == sums.totals()["deliveries"]
    for bars, rows in zip(page.evaluate(MARKS)["workers"], (doors, workers[:SHOWN_MAX]), strict=True):
        lengths = [(put, taken) for *_, put, taken, _, _ in rows]
        said = [[(put, f"{put:,} put"), (taken, f"{taken:,} taken")] for put, taken in lengths]
        assert_bars(bars, [each for pair in said for each in pair if each[0]], longest=max(map(sum, lengths)))


def assert_bars(marks: list[dict[str, Any]], wanted: list[tuple[int, str]], longest: int | None = None) -> None:
    """Bars say what they stand for, and are as long, where the longest fills the width."""
    longest = longest or max(value for value, _ in wanted)
    assert [mark["said"] for mark in marks] == [said for _, said in wanted]
    for mark, (value, _) in zip(marks, wanted, strict=True):
        assert mark["width"] == pytest.approx(max(1.5, value / longest * WIDE_PLOT), abs=0.1)


def test_specs_are_golds(page: Any, sums: Sums, figures: dict[str, Any]) -> None:
    specs = sums.specs()
    assert {each["spec"]: {name: each[name] for name in specs[each["spec"]]} for each in figures["specs"]} == specs
    for each in figures["specs"]:
        assert each["success_rate"] == each["results"] / (each["results"] + each["errors"])
    slowest = sorted(specs, key=lambda spec: (-specs[spec]["p95_us"], spec))
    (table,) = page.evaluate(TABLES)["specs"]
    assert [(row[0], *numbers(row[1:4])) for row in table["rows"]] == [
        (spec, *(specs[spec][name] for name in ("started", "results", "errors"))) for spec in slowest
    ]
    (marks,) = page.evaluate(MARKS)["specs"]
    assert len(marks) == 2 * len(specs), "a bar and a point for each"


def test_nothing_that_is_counted_is_missing_from_the_history(sums: Sums) -> None:
    """Else the sums above would compare nothing with nothing."""
    assert all(sums.totals()[name] > 100 for name in COUNTED)
    assert len(sums.specs()) > 1
    assert {door for door, *_ in sums.doors()} == set(j.DOORS.values())

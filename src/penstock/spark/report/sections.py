"""The parts of the page: for each subject a heading, a sentence, a plot and the numbers that it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.spark.report import formats
from penstock.spark.report.bars import Bar, Part, Range, bars, hills, ranges
from penstock.spark.report.figures import BandWaits, Door, Figures, Level, Series, Spec, Worker
from penstock.spark.report.markup import Child, Markup, joined, tag
from penstock.spark.report.scales import linear_scale, share_scale
from penstock.spark.report.svg import Line, ScaleMaker, Span, Strip, both, columns, lines, strips
from penstock.spark.report.tables import folded, key, table

_SHOWN_MAX: Final = 10
_COLOURS: Final = 5
_NO_REASON: Final = "no reason"
_NO_QUEUE: Final = "No queue has had a message yet."
_PUT, _TAKEN = "c0", "c1"


def sections(figures: Figures) -> Markup:
    """All of them, in order."""
    return joined(
        _queues(figures),
        _depth(figures),
        _age(figures),
        _throughput(figures),
        _waits(figures),
        _redeliveries(figures),
        _dead_letters(figures),
        _workers(figures),
        _specs(figures),
    )


def _section(name: str, heading: str, lead: str, *children: Child) -> Markup:
    return tag("section", tag("h2", heading), tag("p", lead, class_="lead"), *children, id=name)


def _nothing(name: str, heading: str, why: str) -> Markup:
    """A part that has nothing to show, and says so in place of its plot."""
    return tag("section", tag("h2", heading), tag("p", why, class_="empty"), id=name)


# Over time.


def _depth(figures: Figures) -> Markup:
    if not figures.series.depth:
        return _nothing("depth", "Depth", _NO_QUEUE)
    shown = _levels(figures.series.depth, "c0", formats.count)
    return _section(
        "depth",
        "Depth",
        "Open messages: waiting, delayed, being worked on or buried. Each queue has a scale of its own.",
        _strips(figures, "Depth by queue", shown),
        _numbers(figures, [strip.lines[0] for strip in shown], formats.exact),
    )


def _age(figures: Figures) -> Markup:
    series = [each for each in figures.series.oldest_age_us if any(value is not None for value in each.values)]
    if not series:
        why = "No message has been open at the end of a minute." if figures.queues else _NO_QUEUE
        return _nothing("age", "Age of the oldest", why)
    shown = _levels(series, "c3", formats.duration)
    return _section(
        "age",
        "Age of the oldest",
        "How long the oldest open message of each queue has been there; where there is no line, none was open. "
        "Each queue has a scale of its own.",
        _strips(figures, "Age of the oldest open message by queue", shown),
        _numbers(figures, [strip.lines[0] for strip in shown], formats.duration),
    )


def _throughput(figures: Figures) -> Markup:
    series = figures.series
    if not series.arrivals_per_minute:
        return _nothing("throughput", "Throughput", _NO_QUEUE)
    both_ways = _both_ways(_sum(series.arrivals_per_minute), _sum(series.completions_per_minute))
    make_scale = partial(linear_scale, max(_peak(line.values) for line in both_ways))
    by_queue = [
        (_name(arrived), _both_ways(arrived.values, completed.values))
        for arrived, completed in zip(series.arrivals_per_minute, series.completions_per_minute, strict=True)
    ]
    strips = [
        Strip(name, f"peak {formats.count(max(_peak(line.values) for line in two))} per minute", two)
        for name, two in by_queue
    ]
    completed = [Line(name, "", two[1].values, "") for name, two in by_queue]
    title = "Messages that arrived and that were completed per minute, all queues"
    return _section(
        "throughput",
        "Throughput",
        "Messages per minute that arrived and that were completed, of all queues.",
        _over_time(figures, title, "Two lines over time.", both_ways, make_scale, formats.count),
        _numbers(figures, both_ways, formats.exact),
        tag("h3", "By queue"),
        key([(line.style, line.name) for line in both_ways]),
        _strips(figures, "Messages that arrived and that were completed per minute, by queue", strips),
        _numbers(figures, completed, formats.exact, "Completed per minute"),
    )


def _both_ways(arrived: Sequence[float | None], completed: Sequence[float | None]) -> list[Line]:
    return [_line("arrived", "c0", arrived, formats.count), _line("completed", "c1", completed, formats.count)]


def _redeliveries(figures: Figures) -> Markup:
    values = figures.series.redelivery_rate
    if not any(value is not None for value in values):
        return _nothing("redeliveries", "Redeliveries", "Nothing has been delivered yet.")
    shown = [_line("redelivered", "c4", values, formats.share)]
    totals = figures.totals
    return _section(
        "redeliveries",
        "Redeliveries",
        f"{formats.exact(totals.redeliveries)} of {formats.exact(totals.deliveries)} deliveries were not the first of "
        f"their message: {formats.share(totals.redelivery_rate)}.",
        _over_time(
            figures,
            "Share of redeliveries",
            "Redeliveries over all deliveries, over time.",
            shown,
            partial(share_scale, _peak(values)),
            formats.round_share,
        ),
        _numbers(figures, shown, formats.share),
    )


def _dead_letters(figures: Figures) -> Markup:
    heading = "Dead letters"
    if not figures.dead_letters:
        return _nothing("dead-letters", heading, "No message has been dead-lettered: nothing failed too often.")
    layers = _reasons(figures.series.dead_letters)
    make_scale = partial(linear_scale, _peak(_sum(figures.series.dead_letters)), whole=True)
    span = _span(figures)
    rows = [[formats.queue(each.queue), each.reason, formats.exact(each.count)] for each in figures.dead_letters]
    by_queue = [
        Bar(
            f"{formats.queue(each.queue)} · {each.reason or _NO_REASON}",
            formats.exact(each.count),
            [Part("c4", each.count, formats.exact(each.count))],
        )
        for each in figures.dead_letters[:_SHOWN_MAX]
    ]
    return _section(
        "dead-letters",
        heading,
        f"{formats.exact(figures.totals.dead_lettered)} messages failed too often or expired, and were set aside. "
        f"The plot counts them by reason, in steps of {_step(figures)}.",
        both(
            "Dead letters by reason",
            "Columns over time, in layers by reason.",
            lambda size: columns(size, span, layers, make_scale, formats.count),
        ),
        _numbers(figures, layers, formats.exact),
        tag("h3", "Where they came from"),
        both("Dead letters by queue and reason", "Bars, the longest first.", lambda size: bars(size, by_queue)),
        folded("The numbers", table(["queue", "reason", "dead letters"], rows)),
    )


def _reasons(series: Sequence[Series]) -> list[Line]:
    """A layer for each reason, as far as there are colours; the others are added up."""
    named = [(each.name or _NO_REASON, each.values) for each in series]
    if len(named) > _COLOURS:
        named[_COLOURS - 1 :] = [("other reasons", _sum(series[_COLOURS - 1 :]))]
    return [
        Line(name, f"c{number}", values, f"{name}: {formats.exact(_total(values))}")
        for number, (name, values) in enumerate(named)
    ]


def _over_time(
    figures: Figures,
    title: str,
    desc: str,
    shown: Sequence[Line],
    make_scale: ScaleMaker,
    write: Callable[[float], str],
) -> Markup:
    span = _span(figures)
    return both(title, desc, lambda size: lines(size, span, shown, make_scale, write))


def _strips(figures: Figures, title: str, shown: Sequence[Strip]) -> Markup:
    span = _span(figures)
    return both(title, "A strip over time for each queue.", lambda size: strips(size, span, shown))


def _levels(series: Sequence[Level], style: str, write: Callable[[float], str]) -> list[Strip]:
    """A strip for each queue, which tells its peak and what is now."""
    shown = []
    for each in series:
        line = _line(_name(each), style, each.values, write)
        told = f"peak {write(_peak(each.values))}" + ("" if each.now is None else f" · now {write(each.now)}")
        shown.append(Strip(line.name, told, [line]))
    return shown


def _numbers(
    figures: Figures, shown: Sequence[Line], write: Callable[[float | None], str], what: str = "The numbers"
) -> Markup:
    """What a plot over time shows, as a table; steps of which there is nothing to tell are left out."""
    rows = [
        [formats.stamp(time), *map(write, values)]
        for time, *values in zip(figures.bins.times, *(line.values for line in shown), strict=True)
        if any(values)
    ]
    headings = ["from (UTC)", *(line.name for line in shown)]
    return folded(f"{what}, in steps of {_step(figures)}", table(headings, rows))


def _span(figures: Figures) -> Span:
    assert figures.range.begin is not None
    assert figures.range.end is not None
    return Span(figures.range.begin, figures.range.end, figures.bins.times, figures.bins.minutes)


def _step(figures: Figures) -> str:
    return formats.duration(figures.bins.minutes * 60_000_000)


def _name(series: Series) -> str:
    return "all others" if series.name is None else formats.queue(series.name)


def _line(name: str, style: str, values: Sequence[float | None], write: Callable[[float], str]) -> Line:
    return Line(name, style, values, f"{name}: at most {write(_peak(values))}")


def _peak(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _total(values: Sequence[float | None]) -> float:
    return sum(value for value in values if value is not None)


def _sum(series: Sequence[Series]) -> list[float | None]:
    return [_total(values) for values in zip(*(each.values for each in series), strict=True)]


# Side by side.


def _queues(figures: Figures) -> Markup:
    if not figures.queues:
        return _nothing("queues", "Queues", _NO_QUEUE)
    headings = [
        *("queue", "arrived", "completed", "dead letters", "redelivered", "open now", "oldest open"),
        *("acked", "expired", "deleted", "moved", "deliveries", "failures"),
    ]
    rows = [
        [
            formats.queue(each.name),
            *map(formats.exact, (each.arrivals, each.completions, each.dead_lettered)),
            *(formats.share(each.redelivery_rate), formats.exact(each.depth), formats.duration(each.oldest_age_us)),
            *map(formats.exact, (each.acked, each.expired, each.deleted, each.moved, each.deliveries, each.failures)),
        ]
        for each in figures.queues
    ]
    short = [row[:7] for row in rows[:_SHOWN_MAX]]
    return _section(
        "queues",
        "Queues",
        "What came in, what was completed and what is open, the busiest queues first.",
        table(headings[:7], short, as_cards=True),
        folded(f"All numbers of all queues ({len(rows):,})", table(headings, rows)),
    )


def _waits(figures: Figures) -> Markup:
    heading = "Waiting by priority"
    shown = [band for band in figures.waits if band.buckets]
    if not shown:
        return _nothing("waits", heading, "No message has been delivered yet.")
    return _section(
        "waits",
        heading,
        "How long messages waited from when they could be taken to their first delivery, by the band of their key; "
        "smallest keys go first. The scale of time is logarithmic, heights are shares of a band.",
        both("Waiting times by band of keys", "A histogram for each band.", lambda size: hills(size, shown)),
        folded("The numbers", table(*_wait_rows(figures.waits))),
    )


def _wait_rows(waits: Sequence[BandWaits]) -> tuple[list[str], list[list[str]]]:
    edges_us = sorted({bucket.below_us for band in waits for bucket in band.buckets})
    headings = ["keys", "arrived", "delivered", "half below", "95 % below", "99 % below"]
    rows = []
    for band in waits:
        counts = {bucket.below_us: bucket.count for bucket in band.buckets}
        below = map(formats.duration, (band.p50_below_us, band.p95_below_us, band.p99_below_us))
        told = [formats.exact(counts.get(edge_us, 0)) for edge_us in edges_us]
        rows.append([band.band, formats.exact(band.arrivals), formats.exact(band.delivered), *below, *told])
    return [*headings, *(f"< {formats.duration(edge_us)}" for edge_us in edges_us)], rows


def _workers(figures: Figures) -> Markup:
    heading = "Doors and workers"
    if not figures.doors:
        return _nothing("workers", heading, "Nobody has put or taken a message yet.")
    doors = [_door_bar(each.door, each) for each in figures.doors]
    workers = [_door_bar(_worker_name(each), each) for each in figures.workers[:_SHOWN_MAX]]
    rows = [[_worker_name(each), *_door_cells(each)] for each in figures.workers]
    headings = ["connection", "put", "taken", "acked", "returned"]
    return _section(
        "workers",
        heading,
        "What came and went by which protocol, and through which connections most.",
        key([(_PUT, "put"), (_TAKEN, "taken")]),
        both("Messages by door", "Bars, the longest first.", lambda size: bars(size, doors)),
        tag("h3", "The busiest connections"),
        both("Messages by connection", "Bars, the longest first.", lambda size: bars(size, workers)),
        folded(
            "The numbers by door",
            table(["door", *headings[1:]], [[each.door, *_door_cells(each)] for each in figures.doors]),
        ),
        folded("The numbers by connection", table(headings, rows)),
    )


def _worker_name(worker: Worker) -> str:
    return f"{worker.door} {worker.owner}"


def _door_bar(name: str, door: Door) -> Bar:
    parts = [
        Part(_PUT, door.arrivals, f"{formats.exact(door.arrivals)} put"),
        Part(_TAKEN, door.deliveries, f"{formats.exact(door.deliveries)} taken"),
    ]
    return Bar(name, f"{formats.count(door.arrivals)} put · {formats.count(door.deliveries)} taken", parts)


def _door_cells(door: Door) -> list[str]:
    return [formats.exact(count) for count in (door.arrivals, door.deliveries, door.acked, door.returned)]


def _specs(figures: Figures) -> Markup:
    heading = "Slowest specs"
    if not figures.specs:
        return _nothing("specs", heading, "No task of a MoniQue spec has been seen yet.")
    shown = [each for spec in figures.specs if (each := _spec_range(spec)) is not None][:_SHOWN_MAX]
    rows = [
        [
            spec.spec,
            *map(formats.exact, (spec.started, spec.results, spec.errors)),
            formats.share(spec.success_rate),
            *map(formats.duration, (spec.p50_us, spec.p95_us, spec.p95_worst_us)),
        ]
        for spec in figures.specs
    ]
    headings = ["spec", "started", "results", "errors", "success", "p50", "p95", "worst p95"]
    if not shown:
        return _section("specs", heading, "No task has ended yet.", folded("The numbers", table(headings, rows)))
    return _section(
        "specs",
        heading,
        "Durations of MoniQue tasks by spec, those with the longest p95 first. Percentiles are taken by minute: a bar "
        "goes from p50 to p95 in the typical minute, its point is the p95 of the worst. The scale is logarithmic.",
        both("Durations by spec", "A range for each spec, the slowest first.", lambda size: ranges(size, shown)),
        folded("The numbers", table(headings, rows)),
    )


def _spec_range(spec: Spec) -> Range | None:
    if spec.p50_us is None or spec.p95_us is None or spec.p95_worst_us is None:
        return None
    told = f"p95 {formats.duration(spec.p95_us)} · {formats.share(spec.success_rate)} succeed"
    label = f"p50 {formats.duration(spec.p50_us)}, p95 {formats.duration(spec.p95_us)}"
    return Range(spec.spec, told, label, spec.p50_us, spec.p95_us, spec.p95_worst_us)

"""Plots are drawn where their values are."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from penstock.spark.report.bars import Bar, Part, Range, bars, hills, ranges
from penstock.spark.report.figures import BandWaits, Bucket
from penstock.spark.report.scales import linear_scale
from penstock.spark.report.svg import SIZES, Line, Span, Strip, columns, lines, strips

BEGIN = datetime(2025, 3, 14, 21, 0, tzinfo=UTC)
SPAN = Span(
    BEGIN + timedelta(minutes=5),
    BEGIN + timedelta(minutes=35),
    [BEGIN + timedelta(minutes=10 * number) for number in range(4)],
    10,
)
"""Four bins of ten minutes, of which half of the first and half of the last are shown."""
WIDE = SIZES[0]
TOP, BOTTOM = 12, WIDE.height - 26


def paths(drawn: str, kind: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="{kind}', drawn)


def rects(drawn: str) -> list[tuple[float, ...]]:
    """x, y, width and height of each mark."""
    found = re.findall(r'<rect class="mark[^"]*" x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', drawn)
    return [tuple(map(float, each)) for each in found]


def places(right: int) -> list[float]:
    """Where the bins of ``SPAN`` begin and end."""
    width = WIDE.width - WIDE.left - right
    return [round(WIDE.left + width * part / 30, 1) for part in (0, 5, 15, 25, 30)]


def told(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def test_a_line_goes_in_steps_and_has_gaps() -> None:
    """10 is at the top and 0 at the bottom; where there is no value there is no line."""
    shown = [Line("a", "c0", [10, 10, None, 0], ""), Line("b", "c1", [0, 5, 5, 5], "")]
    drawn, _ = lines(WIDE, SPAN, shown, partial(linear_scale, 10), str)
    x = [told(place) for place in places(WIDE.right)]
    middle = told((TOP + BOTTOM) / 2)
    assert paths(drawn, "mark line") == [
        f"M{x[0]} {TOP}H{x[2]}M{x[3]} {BOTTOM}H{x[4]}",
        f"M{x[0]} {BOTTOM}H{x[1]}V{middle}H{x[4]}",
    ]
    assert paths(drawn, "area") == []


def test_a_line_alone_is_filled_and_has_no_name() -> None:
    drawn, _ = lines(WIDE, SPAN, [Line("a", "c0", [10, None, None, None], "")], partial(linear_scale, 10), str)
    x = [told(place) for place in places(12)]
    assert paths(drawn, "area") == [f"M{x[0]} {TOP}H{x[1]}V{BOTTOM}H{x[0]}z"]
    assert 'class="names"' not in drawn


def test_layers_stand_on_each_other() -> None:
    layers = [Line("a", "c0", [4, 0, None, 1], ""), Line("b", "c1", [6, 2, 0, 9], "")]
    drawn, _ = columns(WIDE, SPAN, layers, partial(linear_scale, 10), str)

    def y(value: float) -> str:
        return told(BOTTOM - (BOTTOM - TOP) * value / 10)

    lows_and_tops = [re.findall(r"M\S+ (\S+)V([\d.]+)h", path) for path in paths(drawn, "mark fill")]
    assert lows_and_tops == [
        [(y(0), y(4)), (y(0), y(1))],
        [(y(4), y(10)), (y(0), y(2)), (y(1), y(10))],
    ]


def test_each_strip_has_a_scale_of_its_own() -> None:
    shown = [Strip(name, "", [Line(name, "c0", [peak, 0, 0, 0], "")]) for name, peak in (("a", 7), ("b", 7000))]
    drawn, height = strips(WIDE, SPAN, shown)
    tops = [re.match(r"M0 ([\d.]+)", path) for path in paths(drawn, "mark line")]
    first, second = (float(top[1]) for top in tops if top is not None)
    assert second - first == (height - 26) / 2


def test_labels_of_time_do_not_stand_out() -> None:
    """A tick at either end of the time has its label inside."""
    begin = datetime(2025, 3, 14, 21, 0, tzinfo=UTC)
    span = Span(begin, begin + timedelta(hours=2), [begin + timedelta(minutes=10 * n) for n in range(12)], 10)
    drawn, _ = strips(WIDE, span, [Strip("a", "", [Line("a", "c0", [1] * 12, "")])])
    middles = [float(x) for x in re.findall(r'<text class="tick" x="([^"]*)"', drawn)]
    assert (min(middles), max(middles)) == (20, 840)


def test_bars_are_as_long_as_their_parts() -> None:
    shown = [
        Bar("a", "", [Part("c0", 30, ""), Part("c1", 10, "")]),
        Bar("b", "", [Part("c0", 0, ""), Part("c1", 20, "")]),
    ]
    drawn, _ = bars(WIDE, shown)
    assert [(x, width) for x, _, width, _ in rects(drawn)] == [(0, 645), (645, 215), (0, 430)]


def test_what_is_little_is_still_seen_at_the_end_of_a_bar() -> None:
    drawn, _ = bars(WIDE, [Bar("a", "", [Part("c0", 1_000_000, ""), Part("c1", 1, "")])])
    assert [(x, width) for x, _, width, _ in rects(drawn)] == [(0, 860), (858.5, 1.5)]


def test_a_distribution_is_drawn_on_a_log_scale() -> None:
    """Equal factors are equal widths, and the highest bucket of each band is as high as that of another."""
    buckets = [Bucket(1024 * 2**number, count) for number, count in enumerate((1, 4, 2))]
    shown = [
        BandWaits(
            band=band,
            arrivals=7,
            delivered=7 * times,
            p50_below_us=2048,
            p95_below_us=4096,
            p99_below_us=4096,
            buckets=[Bucket(each.below_us, each.count * times) for each in buckets],
        )
        for band, times in (("0 to 9", 1), ("10 to 99", 100))
    ]
    drawn, _ = hills(WIDE, shown)
    marks = rects(drawn)
    assert len({round(width) for _, _, width, _ in marks}) == 1
    heights = [height for *_, height in marks]
    assert heights[:3] == heights[3:]
    assert heights[0] * 4 == heights[1] == heights[2] * 2


def test_a_range_goes_from_its_least_to_its_most() -> None:
    shown = [Range("a", "", "", 1_000, 10_000, 100_000)]
    drawn, _ = ranges(WIDE, shown)
    ((left, _, width, _),) = rects(drawn)
    point = re.search(r'cx="([\d.]+)"', drawn)
    assert point is not None
    assert (left, left + width, float(point[1])) == pytest.approx((0, 430, 860), abs=0.1)

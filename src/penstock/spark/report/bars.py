"""Plots that compare: bars side by side, and distributions below each other on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.spark.report import formats
from penstock.spark.report.figures import BandWaits, Bucket
from penstock.spark.report.markup import Markup, joined, tag
from penstock.spark.report.scales import Scale, duration_scale
from penstock.spark.report.svg import Size, heading

_ROW: Final = 40
_BAR: Final = 9
_BAR_TOP: Final = 21
_HILL_ROW: Final = 66
_HILL: Final = 38
_BOTTOM: Final = 26
_BUCKET_LEAST_US: Final = 512
"""Where the first bucket is drawn from: its edge is 1,024, and a log scale has no 0."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar; `style` is a class of the style sheet."""

    style: str
    value: float
    label: str
    """What is said of it where it is pointed at."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in parts, with its name and what is written about it."""

    name: str
    told: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Range:
    """What mostly lies between two times, and the worst."""

    name: str
    told: str
    label: str
    low_us: float
    high_us: float
    worst_us: float


def bars(size: Size, shown: Sequence[Bar]) -> tuple[Markup, int]:
    """Bars from left to right, each under its name; the longest fills the width."""
    longest = max((sum(part.value for part in bar.parts) for bar in shown), default=0.0) or 1.0
    drawn: list[Markup] = []
    for position, bar in enumerate(shown):
        top = position * _ROW
        drawn.append(heading(size, bar.name, bar.told, top))
        drawn.append(tag("rect", class_="groove", x=0, y=top + _BAR_TOP, width=size.width, height=_BAR))
        start = 0.0
        for part in bar.parts:
            length = part.value / longest * size.width
            if part.value:
                drawn.append(_bar(part, top, start, length, size.width))
            start += length
    return joined(*drawn), len(shown) * _ROW


def ranges(size: Size, shown: Sequence[Range]) -> tuple[Markup, int]:
    """Ranges of time below each other, each under its name, on one log scale."""
    least, most = min(each.low_us for each in shown), max(each.worst_us for each in shown)
    x = duration_scale(least, most, 0, size.width, ticks_max=_time_ticks_max(size))
    height = len(shown) * _ROW + _BOTTOM
    drawn = [_time_axis(x, height)]
    for position, each in enumerate(shown):
        top = position * _ROW
        middle = top + _BAR_TOP + _BAR / 2
        left, right, worst = x(each.low_us), x(each.high_us), x(each.worst_us)
        drawn.append(heading(size, each.name, each.told, top))
        drawn.append(tag("line", class_="whisker", x1=right, x2=worst, y1=middle, y2=middle))
        drawn.append(_bar(Part("c0", 1, each.label), top, left, right - left, size.width))
        drawn.append(tag("circle", class_="mark fill c4", cx=worst, cy=middle, r=4))
    return joined(*drawn), height


def _bar(part: Part, top: int, left: float, length: float, width: int) -> Markup:
    # What is little is still seen, also at the end.
    length = max(length, 1.5)
    return tag(
        "rect",
        tag("title", part.label),
        class_=f"mark fill {part.style}",
        x=min(left, width - length),
        y=top + _BAR_TOP,
        width=length,
        height=_BAR,
    )


def _time_ticks_max(size: Size) -> int:
    return 6 if size.name == "narrow" else 12


def hills(size: Size, bands: Sequence[BandWaits]) -> tuple[Markup, int]:
    """A histogram for each band below the other, on one log scale of time; heights are shares of their band."""
    edges = [bucket.below_us for band in bands for bucket in band.buckets]
    x = duration_scale(
        max(_BUCKET_LEAST_US, min(edges) / 2), max(edges), 0, size.width, ticks_max=_time_ticks_max(size)
    )
    height = len(bands) * _HILL_ROW + _BOTTOM
    drawn = [_time_axis(x, height)]
    for position, band in enumerate(bands):
        drawn.append(_hill(size, x, band, position * _HILL_ROW))
    return joined(*drawn), height


def _time_axis(x: Scale, height: int) -> Markup:
    drawn: list[Markup] = []
    bottom = height - _BOTTOM
    for tick in x.ticks:
        anchor = "start" if tick == x.low else "end" if tick == x.high else "middle"
        drawn.append(tag("line", class_="grid", x1=x(tick), x2=x(tick), y1=0, y2=bottom + 4))
        drawn.append(tag("text", formats.duration(tick), class_="tick", x=x(tick), y=bottom + 18, text_anchor=anchor))
    return tag("g", *drawn, aria_hidden="true")


def _hill(size: Size, x: Scale, band: BandWaits, top: int) -> Markup:
    floor = top + _HILL_ROW
    highest = max((bucket.count for bucket in band.buckets), default=1)
    drawn = [heading(size, band.band, _told(size, band), top + 4)]
    for bucket in band.buckets:
        left, right = x(max(bucket.below_us / 2, _BUCKET_LEAST_US)), x(bucket.below_us)
        high = max(_HILL * bucket.count / highest, 1)
        drawn.append(
            tag(
                "rect",
                tag("title", _bucket_told(bucket, band.delivered)),
                class_="mark fill c0",
                x=left + 0.5,
                y=floor - high,
                width=max(right - left - 1, 0.5),
                height=high,
            )
        )
    drawn.append(tag("line", class_="axis", x1=x.start, x2=x.end, y1=floor, y2=floor))
    return tag("g", *drawn)


def _told(size: Size, band: BandWaits) -> str:
    if band.p50_below_us is None:
        return "none delivered yet"
    half, most = formats.duration(band.p50_below_us), formats.duration(band.p95_below_us)
    if size.name == "narrow":
        return f"95 % < {most}"
    return f"{formats.count(band.delivered)} delivered · half in less than {half} · 95 % in less than {most}"


def _bucket_told(bucket: Bucket, delivered: int) -> str:
    least = formats.duration(bucket.below_us / 2) if bucket.below_us // 2 > _BUCKET_LEAST_US else "0"
    part = formats.share(bucket.count / delivered)
    return f"{least} to {formats.duration(bucket.below_us)}: {formats.exact(bucket.count)} ({part})"

"""Plots over time as SVG: lines, stacked columns, and strips below each other, with names beside what they name.

Each plot is drawn once for wide screens and paper and once for phones, in units that are about a pixel there, so that
text keeps its size; the page's style shows one of the two. Colours are classes of that style, `c0` to `c4`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.spark.report.markup import Markup, cut, joined, number, tag
from penstock.spark.report.scales import Scale, spread, time_labels, time_scale

_TOP: Final = 12
_BOTTOM: Final = 26
_EDGE: Final = 12
_LABEL_GAP: Final = 16
_LABEL_HALF: Final = 20
_STRIP: Final = 66
_STRIP_HEIGHT: Final = 36
_COLUMN: Final = 7.2
"""How wide a character is, about."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a plot is drawn, and what fits into it."""

    name: str
    width: int
    height: int
    left: int
    """Room for the labels of the vertical axis."""
    right: int
    """Room for names at the ends of lines."""
    name_columns: int
    """Characters of a name that fit into it."""
    ticks_max: int
    """Ticks of the time axis."""


SIZES: Final = (
    Size("wide", 860, 270, left=52, right=124, name_columns=15, ticks_max=10),
    Size("narrow", 340, 220, left=46, right=96, name_columns=11, ticks_max=5),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot or one layer of columns; `style` is a class of the style sheet."""

    name: str
    style: str
    values: Sequence[float | None]
    label: str
    """What is said of it where it is pointed at."""


@dataclass(frozen=True, slots=True)
class Strip:
    """A row of its own: its name, what is written about it, and its lines, of which the first is filled."""

    name: str
    told: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a plot shows, in equal bins."""

    begin: datetime
    end: datetime
    times: Sequence[datetime]
    minutes: int
    """Of a bin."""

    def edges(self) -> list[float]:
        """Where bins begin and the last one ends, as seconds of the epoch, within the time shown."""
        begins = [each.timestamp() for each in self.times]
        last = (self.times[-1] + timedelta(minutes=self.minutes)).timestamp()
        return [max(begins[0], self.begin.timestamp()), *begins[1:], min(last, self.end.timestamp())]


ScaleMaker = Callable[[float, float], Scale]
"""Makes the vertical scale between two places: the bottom's and the top's."""


def both(title: str, desc: str, draw: Callable[[Size], tuple[Markup, int]]) -> Markup:
    """A plot in both sizes. `draw` gives what is inside, and its height."""
    drawn = []
    for size in SIZES:
        inside, height = draw(size)
        drawn.append(
            tag(
                "svg",
                tag("title", title),
                tag("desc", desc),
                inside,
                class_=f"plot {size.name}",
                viewBox=f"0 0 {size.width} {height}",
                role="img",
                aria_label=f"{title}. {desc}",
            )
        )
    return joined(*drawn)


def lines(
    size: Size, span: Span, shown: Sequence[Line], make_scale: ScaleMaker, write: Callable[[float], str]
) -> tuple[Markup, int]:
    """Lines in steps, one level a bin; several are named at their ends, one alone is filled below."""
    is_alone = len(shown) == 1
    x, y = _scales(size, span, make_scale, _EDGE if is_alone else size.right)
    edges = [x(edge) for edge in span.edges()]
    drawn = [_line(line, edges, y, is_filled=is_alone) for line in shown]
    if not is_alone:
        drawn.append(_names(size, shown, [y(_last(line.values)) for line in shown], leads=True))
    return joined(_axes(size, x, y, write), *drawn), size.height


def columns(
    size: Size, span: Span, layers: Sequence[Line], make_scale: ScaleMaker, write: Callable[[float], str]
) -> tuple[Markup, int]:
    """Layers on top of each other, a column for each bin that has something, named in their order."""
    x, y = _scales(size, span, make_scale, size.right)
    edges = [x(edge) for edge in span.edges()]
    floors = [0.0] * len(span.times)
    drawn: list[Markup] = []
    for layer in layers:
        parts = []
        for position, value in enumerate(layer.values):
            if value:
                # A column may be thinner than a pixel otherwise, and what is rare must be seen, too.
                width = max(edges[position + 1] - edges[position] - 0.4, 1.4)
                low, high = y(floors[position]), y(floors[position] + value)
                floors[position] += value
                corner = f"M{number(edges[position])} {number(low)}"
                parts.append(f"{corner}V{number(high)}h{number(width)}V{number(low)}z")
        drawn.append(tag("path", tag("title", layer.label), d="".join(parts), class_=f"mark fill {layer.style}"))
    spots = [_TOP + _LABEL_GAP * position for position in range(len(layers))]
    drawn.append(_names(size, layers, spots[::-1], leads=False))
    return joined(_axes(size, x, y, write), *drawn), size.height


def strips(size: Size, span: Span, shown: Sequence[Strip]) -> tuple[Markup, int]:
    """A strip for each row below the other, each on a scale of its own from 0 to its peak, over one axis of time."""
    height = len(shown) * _STRIP + _BOTTOM
    x = time_scale(span.begin, span.end, 0, size.width, ticks_max=size.ticks_max)
    edges = [x(edge) for edge in span.edges()]
    drawn = [_time_axis(x, height - _BOTTOM, size.width)]
    for position, strip in enumerate(shown):
        floor = (position + 1) * _STRIP - 4
        peak = max((value for line in strip.lines for value in line.values if value is not None), default=0.0)
        y = Scale(0.0, peak or 1.0, floor, floor - _STRIP_HEIGHT, ())
        parts = [_line(line, edges, y, is_filled=number == 0) for number, line in enumerate(strip.lines)]
        base = tag("line", class_="grid", x1=0, x2=size.width, y1=floor, y2=floor)
        drawn.append(tag("g", base, *parts, heading(size, strip.name, strip.told, position * _STRIP)))
    return joined(*drawn), height


def heading(size: Size, name: str, told: str, top: float) -> Markup:
    """A name to the left and what is told of it to the right, in one line."""
    name_columns = int(size.width / _COLUMN) - len(told) - 2
    return joined(
        tag("text", cut(name, name_columns), class_="name", x=0, y=top + 15),
        tag("text", told, class_="told", x=size.width, y=top + 15, text_anchor="end"),
    )


def _scales(size: Size, span: Span, make_scale: ScaleMaker, right: int) -> tuple[Scale, Scale]:
    x = time_scale(span.begin, span.end, size.left, size.width - right, ticks_max=size.ticks_max)
    return x, make_scale(size.height - _BOTTOM, _TOP)


def _axes(size: Size, x: Scale, y: Scale, write: Callable[[float], str]) -> Markup:
    drawn = [_time_axis(x, size.height - _BOTTOM, size.width)]
    for tick in y.ticks:
        place = y(tick)
        drawn.append(tag("line", class_="grid", x1=x.start, x2=x.end, y1=place, y2=place))
        drawn.append(tag("text", write(tick), class_="tick", x=x.start - 6, y=place + 4, text_anchor="end"))
    return tag("g", *drawn, aria_hidden="true")


def _time_axis(x: Scale, bottom: float, width: float) -> Markup:
    drawn = [tag("line", class_="axis", x1=x.start, x2=x.end, y1=bottom, y2=bottom)]
    for tick, label in zip(x.ticks, time_labels(x.ticks), strict=True):
        place = x(tick)
        drawn.append(tag("line", class_="axis", x1=place, x2=place, y1=bottom, y2=bottom + 4))
        # No half of a label stands out at either side.
        middle = min(max(place, _LABEL_HALF), width - _LABEL_HALF)
        drawn.append(tag("text", label, class_="tick", x=middle, y=bottom + 18, text_anchor="middle"))
    return tag("g", *drawn, aria_hidden="true")


def _line(line: Line, edges: Sequence[float], y: Scale, *, is_filled: bool) -> Markup:
    """A path in steps, with a gap where there is no value."""
    runs = _runs(line.values)
    strokes = [_steps(run, edges, y) for run in runs]
    drawn = [tag("path", tag("title", line.label), d="".join(strokes), class_=f"mark line {line.style}")]
    if is_filled:
        floor = number(y.start)
        areas = (f"{stroke}V{floor}H{number(edges[run[0][0]])}z" for stroke, run in zip(strokes, runs, strict=True))
        drawn.insert(0, tag("path", d="".join(areas), class_=f"area {line.style}"))
    return joined(*drawn)


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Positions and values, cut where there is none."""
    runs: list[list[tuple[int, float]]] = []
    for position, value in enumerate(values):
        if value is not None:
            if position == 0 or values[position - 1] is None:
                runs.append([])
            runs[-1].append((position, value))
    return runs


def _steps(run: Sequence[tuple[int, float]], edges: Sequence[float], y: Scale) -> str:
    """The path of values without a gap; where nothing changes it only goes on."""
    before = ""
    path = ""
    for position, value in run:
        place = number(y(value))
        if not before:
            path = f"M{number(edges[position])} {place}"
        elif place != before:
            path += f"H{number(edges[position])}V{place}"
        before = place
    return f"{path}H{number(edges[run[-1][0] + 1])}"


def _last(values: Sequence[float | None]) -> float:
    return next((value for value in reversed(values) if value is not None), 0.0)


def _names(size: Size, shown: Sequence[Line], places: Sequence[float], *, leads: bool) -> Markup:
    """Names to the right, each at its place as far as there is room, with a lead to it."""
    spots = spread(places, _LABEL_GAP, _TOP, size.height - _BOTTOM)
    end = size.width - size.right
    drawn: list[Markup] = []
    for line, place, spot in zip(shown, places, spots, strict=True):
        if leads:
            lead = f"M{number(end + 2)} {number(place)}L{number(end + 10)} {number(spot)}h6"
            drawn.append(tag("path", d=lead, class_=f"lead {line.style}"))
        else:
            drawn.append(tag("rect", class_=f"fill {line.style}", x=end + 6, y=spot - 5, width=10, height=10))
        drawn.append(tag("text", cut(line.name, size.name_columns), class_="name", x=end + 21, y=spot + 4))
    return tag("g", *drawn, class_="names")

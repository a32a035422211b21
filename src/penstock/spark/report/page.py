"""The page: one file with everything in it, that needs no network, no script and no Spark to be read."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.spark.errors import ExtraMissing
from penstock.spark.report import formats
from penstock.spark.report.figures import Figures
from penstock.spark.report.markup import Markup, tag
from penstock.spark.report.sections import sections
from penstock.storage.atomic import replace_file
from penstock.storage.disk import Disk

# Should a name ever get through as markup, it still can load and run nothing.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(directory: Path, target: Path, *, since: datetime | None = None) -> None:
    """Make the page from a pipeline's tables, of all or of what happened since a moment, and put it in its place.

    Whoever reads the file finds the old page or the new one, whole.
    """
    page = draw(_figures(directory, since))
    replace_file(Disk(), target.with_name(f"{target.name}.new"), target, page.encode(), "report")


def report_json(directory: Path, *, since: datetime | None = None) -> dict[str, Any]:
    """What the page tells, as plain values for JSON; see ``figures`` for what they mean."""
    told: dict[str, Any] = msgspec.to_builtins(_figures(directory, since))
    return told


def _figures(directory: Path, since: datetime | None) -> Figures:
    for package in ("pyarrow", "numpy"):
        if find_spec(package) is None:
            raise ExtraMissing(package)
    from penstock.spark.report.computing import compute
    from penstock.spark.report.gold import Gold

    return compute(Gold.of(directory), since)


def draw(figures: Figures) -> str:
    """The whole page as HTML."""
    style = files("penstock.spark.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", "Penstock report"),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("main", _header(figures), _tiles(figures), sections(figures)), _footer(figures))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _header(figures: Figures) -> Markup:
    begin, end = figures.range.begin, figures.range.end
    if begin is None or end is None:
        told = "Nothing has happened yet."
    else:
        length = formats.duration((end - begin).total_seconds() * 1_000_000)
        told = f"{formats.moment(begin)} to {formats.moment(end)} ({length})"
    return tag("header", tag("h1", "Penstock report"), tag("p", told, class_="range"))


def _tiles(figures: Figures) -> Markup:
    totals = figures.totals
    results, errors = (sum(getattr(spec, name) for spec in figures.specs) for name in ("results", "errors"))
    tiles = [
        _tile("arrivals", "arrived", formats.count(totals.arrivals), totals.arrivals),
        _tile("completions", "completed", formats.count(totals.completions), totals.completions),
        _tile("depth", "open now", formats.count(totals.depth), totals.depth),
        _tile("oldest", "oldest open", formats.duration(totals.oldest_age_us), totals.oldest_age_us),
        _tile("redelivered", "redelivered", formats.share(totals.redelivery_rate), totals.redelivery_rate),
        _tile("dead-lettered", "dead letters", formats.count(totals.dead_lettered), totals.dead_lettered),
    ]
    if results + errors:
        success = results / (results + errors)
        tiles.append(_tile("success", "tasks succeeded", formats.share(success), success))
    return tag("dl", *tiles, class_="tiles")


def _tile(name: str, told: str, shown: str, value: float | None) -> Markup:
    exact = "" if value is None else repr(value)
    return tag("div", tag("dt", told), tag("dd", tag("data", shown, value=exact)), id=f"total-{name}")


def _footer(figures: Figures) -> Markup:
    index, time = figures.watermark.index, figures.watermark.time
    if index is None:
        complete = "The pipeline has not run yet."
    else:
        complete = f"Complete up to log entry {formats.exact(index)}" + (f", {formats.moment(time)}." if time else ".")
    return tag(
        "footer",
        tag("p", complete),
        tag(
            "p",
            "Lines over time show the peak of each step for depth and age, and the mean of each step for what is per "
            "minute. Where there are many queues, the ten busiest have a line of their own and the others are added "
            "up, or for age the oldest of them is shown. All times are UTC.",
        ),
    )

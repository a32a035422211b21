"""The page in a real browser: on a phone, on a wide screen, on paper, and with names that mean harm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ViewportSize

from penstock.spark.errors import ExtraMissing, NoTables
from penstock.spark.pipeline.manifest import File, Table, new_manifest, store_manifest
from penstock.spark.report.computing import compute
from penstock.spark.report.figures import Figures
from penstock.spark.report.gold import Gold
from penstock.spark.report.markup import shown
from penstock.spark.report.page import draw, report_json, write_report
from tests.spark.report.looking import BOXES, PHONE, PLOTTED, SECTIONS, WIDE, assert_all_can_be_seen
from tests.spark.report.sample import BANDS, END, HOSTILE, Tables, write_gold


@pytest.fixture(scope="module")
def folder(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline's directory, as far as the report reads it."""
    folder = tmp_path_factory.mktemp("pipeline")
    publish(folder, write_gold(folder, tables))
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    write_report(folder, folder / "report.html")
    return folder / "report.html"


def publish(folder: Path, gold: Gold) -> None:
    manifest = new_manifest("a-cluster", 0, format="parquet", buckets=1)
    time_us = round(END.timestamp() * 1_000_000)
    for name, paths in gold.files.items():
        files = tuple(File(path.name, "2025-03-14", rows=1, bytes=1) for path in paths)
        manifest.tables[name] = Table(123_456, time_us, files)
    store_manifest(folder, manifest)


@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_every_plot_has_marks_and_all_of_it_can_be_seen(open_page: Any, report: Path, viewport: ViewportSize) -> None:
    assert_all_can_be_seen(open_page(report, viewport).evaluate(BOXES))


def test_marks_are_as_many_as_there_is_data(open_page: Any, report: Path, figures: Figures) -> None:
    plots: dict[str, list[int]] = {}
    for plot in open_page(report, WIDE).evaluate(BOXES):
        plots.setdefault(plot["section"], []).append(len(plot["marks"]))
    assert plots == {
        "depth": [11],
        "age": [11],
        "throughput": [2, 22],
        "waits": [sum(len(band.buckets) for band in figures.waits)],
        "redeliveries": [1],
        "dead-letters": [3, 10],
        "workers": [8, 20],
        "specs": [12],
    }


def test_a_line_reaches_its_peak_where_it_was(open_page: Any, report: Path, figures: Figures) -> None:
    """The strip of the queue that had a backlog: its highest point is at the bin of the peak."""
    emails = next(each for each in figures.series.depth if each.name == "emails")
    values = [value or 0 for value in emails.values]
    peak = values.index(max(values))
    page = open_page(report, WIDE)
    highest = page.evaluate(
        """() => {
          const line = [...document.querySelectorAll('#depth .wide .line')]
            .find(each => each.querySelector('title').textContent.startsWith('emails:'));
          const length = line.getTotalLength();
          const points = Array.from({length: 4000}, (_, n) => line.getPointAtLength(length * n / 3999));
          return points.reduce((a, b) => b.y < a.y ? b : a).x;
        }"""
    )
    begin, end = figures.range.begin, figures.range.end
    assert begin is not None
    assert end is not None
    wanted = (figures.bins.times[peak] - begin) / (end - begin) * 860
    assert wanted - 1 <= highest <= wanted + 860 / len(values) + 1


def test_its_totals_are_those_of_gold(open_page: Any, report: Path, tables: Tables) -> None:
    page = open_page(report, WIDE)
    rows = tables["gold.queue_minutes"]
    for name, column in (("arrivals", "arrivals"), ("completions", "completions"), ("dead-lettered", "dead_lettered")):
        value = page.locator(f"#total-{name} data").get_attribute("value")
        assert int(value) == sum(row[column] for row in rows)
    cells = page.locator("#queues details tbody tr td:nth-child(2)").all_text_contents()
    assert sum(int(cell.replace(",", "")) for cell in cells) == sum(row["arrivals"] for row in rows)
    counts = page.locator("#dead-letters details >> nth=1").locator("tbody td:nth-child(3)").all_text_contents()
    assert sum(int(cell.replace(",", "")) for cell in counts) == sum(r["count"] for r in tables["gold.dead_letters"])
    waits = page.locator("#waits details tbody td:nth-child(3)").all_text_contents()
    assert sum(int(cell.replace(",", "")) for cell in waits) == sum(r["count"] for r in tables["gold.wait_buckets"])


def test_names_are_text_and_nothing_else(open_page: Any, report: Path) -> None:
    page = open_page(report, WIDE)
    names = page.locator("#queues details tbody th").all_text_contents()
    assert {shown(name) for name in HOSTILE} <= set(names)
    assert page.title() == "Penstock report"
    assert page.locator("script, img, iframe, object, [onload], [href]:not(link)").count() == 0
    assert page.locator("#waits .wide .name").all_text_contents() == list(BANDS)


@pytest.mark.parametrize("unfold", [False, True])
def test_it_fits_on_a_phone(open_page: Any, report: Path, unfold: bool) -> None:
    page = open_page(report, PHONE)
    if unfold:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_it_is_dark_where_the_screen_is(open_page: Any, report: Path) -> None:
    light, dark = (
        open_page(report, WIDE, color_scheme=scheme).evaluate(
            """() => ['html', 'section', 'h1', '#depth .line'].map(each => {
              const style = getComputedStyle(document.querySelector(each));
              return each.endsWith('.line') ? style.stroke : each === 'h1' ? style.color : style.backgroundColor;
            })"""
        )
        for scheme in ("light", "dark")
    )
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_it_is_printed_whole_on_white_paper(open_page: Any, report: Path) -> None:
    page = open_page(report, WIDE, color_scheme="dark")
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 4 <= pages <= 14
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(ViewportSize(width=688, height=1016))  # A4 within its margins
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    plots = page.evaluate(BOXES)
    assert {plot["size"][0] for plot in plots} == {860}
    # None is higher than a page, so none is cut.
    assert all(plot["height"] < 1016 for plot in plots)


def test_plots_are_told_to_those_who_cannot_see_them(open_page: Any, report: Path) -> None:
    page = open_page(report, WIDE)
    plots = page.locator("svg.plot")
    count = plots.count()
    assert page.locator("svg.plot[role=img] > title").count() == count
    assert page.locator("svg.plot > desc").count() == count
    assert page.locator("svg.plot[aria-label]").count() == count
    for section in PLOTTED:
        assert page.locator(f"#{section} details table").count() >= 1


def test_where_nothing_has_happened_it_says_so(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(draw(compute(Gold({}))), encoding="utf-8")
    page = open_page(path, PHONE)
    assert page.locator("section").count() == len(SECTIONS)
    assert page.locator("section .empty").count() == len(SECTIONS)
    assert page.locator("svg").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_single_minute_is_drawn(open_page: Any, tables: Tables, tmp_path: Path) -> None:
    """The first run of a new pipeline may see no more than that."""
    first = min(row["minute"] for row in tables["gold.queue_minutes"])
    some = {name: [row for row in rows if row["minute"] <= first] for name, rows in tables.items()}
    path = tmp_path / "first.html"
    path.write_text(draw(compute(Gold(write_gold(tmp_path, some).files))), encoding="utf-8")
    plots = open_page(path, PHONE).evaluate(BOXES)
    assert {"depth", "throughput", "waits", "workers"} <= {plot["section"] for plot in plots}
    assert all(plot["marks"] for plot in plots)


def test_the_file_is_replaced_whole_and_json_tells_the_same(folder: Path, report: Path) -> None:
    assert [path.name for path in folder.glob("report*")] == ["report.html"]
    told = json.loads(json.dumps(report_json(folder)))
    assert f'value="{told["totals"]["arrivals"]}"' in report.read_text(encoding="utf-8")
    assert told["watermark"] == {"index": 123_456, "time": "2025-03-16T09:46:24Z"}


def test_no_spark_is_needed() -> None:
    told = "import sys, penstock.spark.report.computing, penstock.spark.report.page; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], timeout=60).returncode == 0


def test_a_missing_package_is_told_with_the_command_that_helps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"pyarrow is not installed.*penstock\[spark\]"):
        report_json(folder)


def test_a_directory_without_tables_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(NoTables):
        write_report(tmp_path, target)
    assert target.read_text() == "old"

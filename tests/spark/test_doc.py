"""docs/spark.md says what the source says: every option, every column with its type, every table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.spark.schemas import EVENTS, NEVER_NULL, PIPELINE_TABLES, SOURCE_TABLES, Columns
from penstock.spark.source.options import OPTIONS as SOURCE_OPTIONS
from penstock.spark.source.outgoing import COLUMNS as SINK_COLUMNS
from penstock.spark.source.writing import OPTIONS as SINK_OPTIONS

DOC = (Path(__file__).resolve().parent.parent.parent / "docs" / "spark.md").read_text(encoding="utf-8")


def rows_under(heading: str) -> list[list[str]]:
    """The cells of all tables under a heading, without their first two lines."""
    section = re.split(r"^#+ ", DOC.partition(f"# {heading}")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [row for row in cells if row[0] not in ("column", "option") and not row[0].startswith("---")]


@pytest.mark.parametrize(
    ("heading", "meanings"),
    [("The data source", [SOURCE_OPTIONS]), ("The sink", [SINK_COLUMNS, SINK_OPTIONS])],
)
def test_options_and_rows_are_told_as_they_are(heading: str, meanings: list[dict[str, str]]) -> None:
    assert rows_under(heading) == [[name, meaning] for each in meanings for name, meaning in each.items()]


def test_what_may_be_null_is_told() -> None:
    told = re.search(r"^Only (.*) may be null;", DOC, re.MULTILINE)
    assert told is not None
    assert set(re.split(", | and ", told[1])) == set(EVENTS) - NEVER_NULL


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        *((f"Columns of {name}", columns) for name, columns in SOURCE_TABLES.items()),
        *((f"{name}:", columns) for name, columns in PIPELINE_TABLES.items() if name != "bronze.events"),
    ],
)
def test_every_column_is_told_with_its_type(heading: str, columns: Columns) -> None:
    assert {row[0]: row[1] for row in rows_under(heading)} == columns

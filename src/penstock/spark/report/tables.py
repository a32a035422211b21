"""The page's tables: exact numbers, and the words around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.spark.report.markup import Child, Markup, cut, shown, tag

ROWS_MAX: Final = 500
_HEADING_COLUMNS: Final = 20


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, as_cards: bool = False) -> Markup:
    """A table; its first column names the rows. What is beyond ``ROWS_MAX`` is left to `--json`, and said so.

    On a phone it is wider than the screen and scrolls, or shows each row `as_cards`.
    """
    head = tag("tr", *(tag("th", cut(each, _HEADING_COLUMNS), scope="col", title=shown(each)) for each in headings))
    body = [_row(headings, row, as_cards) for row in rows[:ROWS_MAX]]
    drawn = tag("table", tag("thead", head), tag("tbody", *body), class_="cards" if as_cards else None)
    if len(rows) <= ROWS_MAX:
        return drawn
    note = f"{len(rows) - ROWS_MAX:,} more are not shown here; penstock pipeline report --json has them all."
    return tag("div", drawn, tag("p", note, class_="note"))


def folded(summary: str, *children: Child) -> Markup:
    """What is unfolded on demand."""
    return tag("details", tag("summary", summary), tag("div", *children, class_="scroll"))


def key(entries: Iterable[tuple[str, str]]) -> Markup:
    """What colours mean, as pairs of a style and a word."""
    return tag("p", *(tag("span", word, class_=f"key {style}") for style, word in entries), class_="keys")


def _row(headings: Sequence[str], row: Sequence[str], as_card: bool) -> Markup:
    # In a card each cell stands by itself and needs its heading.
    labels = headings[1:] if as_card else [None] * (len(row) - 1)
    cells = (tag("td", shown(cell), data_label=label) for label, cell in zip(labels, row[1:], strict=True))
    return tag("tr", tag("th", shown(row[0]), scope="row"), *cells)

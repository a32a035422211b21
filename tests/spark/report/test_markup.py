"""Whatever a name holds, it comes out as text and as nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.report.markup import Markup, cut, joined, number, shown, tag


class Reader(HTMLParser):
    """Notes what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


NASTY = st.text() | st.text(alphabet="<>&;\"'=/! -abscript#x0\u202e\x00\n")


@given(NASTY)
def test_text_and_attributes_come_back_as_they_were(text: str) -> None:
    reader = Reader()
    reader.feed(tag("p", shown(text), title=shown(text)))
    reader.close()
    assert reader.tags == [("p", {"title": shown(text)})]
    assert reader.text == shown(text)


def test_markup_is_left_as_it_is_and_text_is_not() -> None:
    assert joined(Markup("<b>"), "<b>") == "<b>&lt;b&gt;"
    assert tag("p", tag("b", "a & b"), class_="x", text_anchor="end", x=1.25, hidden=None) == (
        '<p class="x" text-anchor="end" x="1.2"><b>a &amp; b</b></p>'
    )
    assert tag("meta", name="viewport") == '<meta name="viewport">'


def test_what_cannot_be_seen_is_written_out() -> None:
    assert shown("a\u202eb\n\x00\u200bc\u2028") == r"a\u202eb\x0a\x00\u200bc\u2028"
    assert shown("Grüße 队列 😀") == "Grüße 队列 😀"


@given(st.text(), st.integers(2, 30))
def test_a_name_is_cut_to_its_room(text: str, columns_max: int) -> None:
    told = cut(text, columns_max)
    assert len(told) <= columns_max or told == shown(text)
    assert told == shown(text) or told.endswith("…")


def test_wide_characters_need_twice_the_room() -> None:
    assert cut("队列队列", 8) == "队列队列"
    assert cut("队列队列", 7) == "队列队…"
    assert cut("队列队列", 6) == "队列…"


@pytest.mark.parametrize(("value", "told"), [(0, "0"), (-0.01, "0"), (3.0, "3"), (3.14, "3.1"), (-2.56, "-2.6")])
def test_coordinates_are_short(value: float, told: str) -> None:
    assert number(value) == told

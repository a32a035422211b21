"""What is written: nothing from outside acts on a terminal, figures are readable, progress comes after a second."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import output
from penstock.cli.errors import Failure
from penstock.cli.output import Progress, full_text, preview, printable, shown_duration, shown_size, shown_time

ANY = st.characters(codec=None)


@given(st.text())
def test_printable_text_has_nothing_that_a_terminal_acts_on(text: str) -> None:
    assert printable(text).isprintable()


@given(st.binary())
def test_no_payload_gets_control_characters_through(payload: bytes) -> None:
    assert preview(payload).isprintable()
    assert full_text(payload).replace("\n", "").isprintable()


@given(st.dictionaries(st.text(ANY), st.text(ANY) | st.lists(st.text(ANY))))
def test_json_has_nothing_that_a_terminal_acts_on_and_means_the_same(value: dict[str, Any]) -> None:
    text = output.json_text(value)
    assert text.isprintable()
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "odd", ["\x00", "\x1b[2J", "\x7f", "\x9b2J", "\u202e", "\u2066", "\u2028", "\ud800", "\U000e0041"]
)
def test_control_and_direction_characters_are_escaped_everywhere(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.write_json({odd: [odd]})
    output.write_table(("A", "B"), [(odd, odd)])
    output.write_pairs([(odd, odd)])
    Failure(odd, hint="try again").show()
    Failure(f"two lines:\n{odd}").show(sys.stdout)
    written = capsys.readouterr()
    assert all(line.isprintable() for line in (written.out + written.err).split("\n"))
    assert json.loads(written.out.splitlines()[0]) == {odd: [odd]}


def test_json_keeps_texts_that_people_read() -> None:
    assert output.json_text({"text": 'Grüße 漢字 🎉 "quoted" \\'}) == '{"text":"Grüße 漢字 🎉 \\"quoted\\" \\\\"}'


def test_payloads_as_people_see_them() -> None:
    assert preview("Grüße".encode()) == "Grüße"
    assert preview(b"a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert full_text(b"a\nb") == "a\nb"
    assert preview(b"\xff\x00") == "<2 bytes, no text: ff 00>"
    assert preview(b"\xff" * 100).endswith("ff ...>")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0042, "4 ms"), (9.87, "9.9 s"), (59, "59 s"), (300, "5 m"), (7200, "2 h"), (864000, "10 d")],
)
def test_durations_are_one_figure(seconds: float, text: str) -> None:
    assert shown_duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")])
def test_sizes_are_one_figure(size: int, text: str) -> None:
    assert shown_size(size) == text


def test_a_moment_is_shown_to_the_millisecond() -> None:
    assert shown_time(None) == "-"
    assert len(shown_time(datetime(2030, 1, 2, 3, 4, 5, 6000, tzinfo=UTC))) == len("2030-01-02 03:04:05.006")


def test_a_table_aligns_figures_to_the_right_and_texts_to_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_table(("N", "WHEN", "TEXT"), [(1, "5 m", "a"), (100, "10 s", "[bold]b[/bold]")])
    assert capsys.readouterr().out.splitlines() == [
        "  N  WHEN  TEXT",
        "  1   5 m  a",
        "100  10 s  [bold]b[/bold]",
    ]


def test_a_table_without_rows_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_table(("ID", "PAYLOAD"), [])
    assert capsys.readouterr().out == "ID  PAYLOAD\n"


def test_a_long_cell_is_not_cut_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_table(("ID", "PAYLOAD"), [(1, "x" * 500)])
    assert "x" * 500 in capsys.readouterr().out


def test_a_line_that_is_longer_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(output.sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "10")
    output.write_table(("ID", "PAYLOAD"), [(1, "x" * 500), (12, "東京" * 9)])
    lines = click.unstyle(screen.getvalue()).splitlines()
    assert lines == ["ID  PAYLOAD", " 1  " + "x" * 15 + "…", "12  " + "東京" * 3 + "東…"]


def test_many_rows_are_written_without_rich_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("rich needs seconds for ten thousand rows")

    monkeypatch.setattr(output, "make_table", never)
    output.write_table(("N", "NAME"), [(n, f"queue-{n}") for n in range(10_000)])


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """What stands for a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_begins_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    clock = Clock()
    bar = Progress("putting", 10, clock=clock, is_shown=True)
    clock.now = 0.9
    bar.update(1)
    bar.close()
    assert screen.getvalue() == ""
    clock.now = 1.1
    bar.update(5)
    bar.close()
    assert "putting" in screen.getvalue()
    assert "5/10" in screen.getvalue()


def test_progress_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    clock = Clock()
    bar = Progress("putting", 4096, is_bytes=True, clock=clock, is_shown=True)
    clock.now = 2
    bar.update(2048)
    bar.close()
    assert "2.0/4.0 KiB" in screen.getvalue()


def test_progress_is_not_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    clock = Clock()
    bar = Progress("putting", None, clock=clock, is_shown=False)
    clock.now = 5
    bar.update(5)
    bar.close()
    assert screen.getvalue() == ""

"""The matrix as people see it: in a terminal, and as the page docs/conformance.md."""

from __future__ import annotations

from typing import Final

from tests.conformance.hosting import ROOT
from tests.conformance.matrix import DOORS, Matrix, Outcome, rules_in_order
from tests.conformance.rules import CHAPTERS, Rule

DOCUMENT: Final = ROOT / "docs" / "conformance.md"
_TITLES: Final = [door.title for door in DOORS.values()]

_INTRODUCTION: Final = """\
# Conformance

One suite of what a queue does runs through every door, with real sockets against a served node
(`tests/conformance`). Each cell is passed, or names why the protocol cannot say it. After a colon stands how the
protocol says what was seen. What a protocol has no word for an operator can set, so expiry, dead letters and restarts
are cells of every door.

`make test` prints this matrix; `python -m tests.conformance --write` finds it anew and writes this page.
"""


class _Notes:
    """Reasons, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def text(self, outcome: Outcome | None) -> str:
        """What stands in a cell."""
        if outcome is None:
            return ""
        if outcome.failed:
            return "FAILED"
        if outcome.passed:
            return f"passed: {outcome.word}" if outcome.word else "passed"
        return f"cannot [{self.numbers.setdefault(outcome.why, len(self.numbers) + 1)}]"


def _row(matrix: Matrix, rule: Rule, label: str, notes: _Notes) -> list[str]:
    return [label, *(notes.text(matrix.cells.get((rule.name, door))) for door in DOORS)]


def _crossings(matrix: Matrix, notes: _Notes) -> list[list[str]]:
    return [
        [DOORS[source].title, *(notes.text(matrix.crossings.get((source, target))) for target in DOORS)]
        for source in DOORS
    ]


def as_text(matrix: Matrix) -> str:
    """The matrix for a terminal."""
    notes = _Notes()
    head = ["", *_TITLES]
    tables = [
        (chapter, [_row(matrix, rule, rule.name.replace("_", " "), notes) for rule in _rules_of(chapter)])
        for chapter in CHAPTERS
    ]
    tables.append(("Put by (down), taken by (across)", _crossings(matrix, notes)))
    rows = [head, *(row for _, rows in tables for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_aligned(head, widths)]
    for chapter, rows in tables:
        lines += [chapter, *(_aligned(row, widths) for row in rows)]
    return "\n".join([*lines, "", *(f"[{number}] {why}" for why, number in notes.numbers.items())])


def _aligned(row: list[str], widths: list[int]) -> str:
    return ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


def _rules_of(chapter: str) -> list[Rule]:
    return [rule for rule in rules_in_order() if rule.chapter == chapter]


def as_document(matrix: Matrix) -> str:
    """The page docs/conformance.md."""
    notes = _Notes()
    parts = [_INTRODUCTION]
    for chapter in CHAPTERS:
        rows = [_row(matrix, rule, rule.text, notes) for rule in _rules_of(chapter)]
        parts.append(f"## {chapter}\n\n" + _markdown(["rule", *_TITLES], rows))
    crossings = _markdown(["put by ↓, taken by →", *_TITLES], _crossings(matrix, notes))
    parts.append("## From door to door\n\n" + crossings)
    reasons = "".join(f"{number}. {why}\n" for why, number in notes.numbers.items())
    parts.append("## Why a protocol cannot say it\n\n" + reasons)
    return "\n".join(parts)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)

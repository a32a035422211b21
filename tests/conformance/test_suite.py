"""The suite itself: every rule can fail, and no cell is left out or declared without need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from tests.conformance.cannot import ALWAYS_SAID, CANNOT
from tests.conformance.door_native import NativeDoor
from tests.conformance.driving import Door, Refused, Taken, Unsaid, Worker, unsaid_unless
from tests.conformance.faults import FAULTS, SpoiltCell
from tests.conformance.hosting import Hosted
from tests.conformance.matrix import DOORS, Matrix, Outcome, judge, rules_in_order
from tests.conformance.rules import CHAPTERS, RULES, Cell, Rule, opened
from tests.conformance.showing import as_document, as_text

NOWHERE = cast(Hosted, None)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """A node of its own: faults leave things behind."""
    with Hosted(tmp_path_factory.mktemp("faults")) as node:
        yield node


def test_every_rule_has_a_fault_to_find() -> None:
    assert list(FAULTS) == [rule.name for rule in rules_in_order()]


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_found(hosted: Hosted, rule: str) -> None:
    with opened(NativeDoor, hosted) as door:
        cell = SpoiltCell(door, rule)
        FAULTS[rule](cell)
        with pytest.raises((AssertionError, Refused)):
            RULES[rule].body(cell)


def passes(_: Cell) -> str:
    return "a word"


def cannot_be_said(_: Cell) -> None:
    unsaid_unless(False, "anything")


def fails(_: Cell) -> None:
    raise AssertionError("it is not so")


def judged(body: Any, why: str | None) -> Outcome:
    return judge(NOWHERE, Rule("rule", "Order", "a text", body), Door, why)


@pytest.fixture(autouse=True)
def nameless_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "name", "door", raising=False)


def test_a_cell_that_passes_keeps_its_word() -> None:
    assert judged(passes, None) == Outcome(True, "a word")


def test_a_declared_cell_keeps_its_reason() -> None:
    assert judged(cannot_be_said, "why") == Outcome(False, why="why")


def test_a_declared_cell_that_passes_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="is declared"):
        judged(passes, "why")


def test_a_cell_that_cannot_be_said_and_is_not_declared_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="neither passed nor declared"):
        judged(cannot_be_said, None)


@pytest.mark.parametrize("why", [None, "why"])
def test_a_failure_is_a_failure_declared_or_not(why: str | None) -> None:
    with pytest.raises(AssertionError, match="it is not so"):
        judged(fails, why)


def test_only_cells_that_exist_are_declared() -> None:
    assert {door for door, _ in CANNOT} <= set(DOORS)
    assert {rule for _, rule in CANNOT} <= set(RULES)


def test_expiry_dead_letter_and_restart_are_cells_of_every_door() -> None:
    assert set(CHAPTERS) >= ALWAYS_SAID
    assert not [(door, rule) for door, rule in CANNOT if RULES[rule].chapter in ALWAYS_SAID]


def test_our_own_protocol_can_say_everything() -> None:
    assert not [rule for door, rule in CANNOT if door == NativeDoor.name]


def filled(outcome: Outcome) -> Matrix:
    matrix = Matrix()
    matrix.cells = {(rule, door): outcome for rule in RULES for door in DOORS}
    matrix.crossings = {(source, target): Outcome(True) for source in DOORS for target in DOORS}
    return matrix


def test_a_matrix_is_sound_when_every_cell_was_found() -> None:
    assert filled(Outcome(True)).sound
    assert filled(Outcome(False, why="there is no word")).sound


def test_a_matrix_with_a_failure_is_not_sound_and_shows_it() -> None:
    matrix = filled(Outcome(True))
    matrix.cells["expiry", "native"] = Outcome(False)
    assert matrix.whole
    assert not matrix.sound
    assert as_text(matrix).count("FAILED") == as_document(matrix).count("FAILED") == 1


def test_a_matrix_that_lacks_a_cell_is_neither_whole_nor_sound() -> None:
    matrix = filled(Outcome(True))
    del matrix.cells["expiry", "native"]
    assert not matrix.whole
    assert not matrix.sound


@pytest.mark.parametrize("show", [as_text, as_document])
def test_a_reason_is_told_once_and_named_by_number(show: Callable[[Matrix], str]) -> None:
    shown = show(filled(Outcome(False, why="there is no word")))
    assert shown.count("there is no word") == 1
    assert shown.count("cannot [1]") == len(RULES) * len(DOORS)


def test_what_a_driver_leaves_out_is_unsaid() -> None:
    with ExitStack() as stack, pytest.raises(Unsaid):
        Door(NOWHERE, stack).ack_elsewhere("", Taken(b""))
    with pytest.raises(Unsaid):
        Worker().give_back(Taken(b""))

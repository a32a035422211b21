"""The matrix rule × door: which cells there are, and how each is found."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.conformance import rules_ending, rules_lasting, rules_taking
from tests.conformance.cannot import CANNOT
from tests.conformance.crossing import cross, crossing_name
from tests.conformance.door_etzel import EtzelDoor
from tests.conformance.door_monique import MoniqueDoor, spec_of
from tests.conformance.door_native import NativeDoor
from tests.conformance.door_taskflux import TaskFluxDoor
from tests.conformance.driving import Door, Unsaid
from tests.conformance.hosting import Hosted
from tests.conformance.rules import CHAPTERS, RULES, Cell, Rule, opened
from tests.conformance.rules_ending import DEAD_LETTERS

DOORS: Final[dict[str, type[Door]]] = {door.name: door for door in (NativeDoor, TaskFluxDoor, EtzelDoor, MoniqueDoor)}
"""The columns."""
RULE_MODULES: Final = (rules_taking, rules_ending, rules_lasting)
"""Importing these has filled RULES."""


class Outcome(Struct, frozen=True):
    """What was found in a cell."""

    passed: bool
    word: str = ""
    """The protocol's own word for what was seen, if the rule asks for it."""
    why: str = ""
    """Why the protocol cannot say it."""

    @property
    def failed(self) -> bool:
        """Neither passed nor declared."""
        return not self.passed and not self.why


FAILED: Final = Outcome(False)


class Matrix:
    """What was found so far."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Outcome] = {}
        """By rule and door."""
        self.crossings: dict[tuple[str, str], Outcome] = {}
        """By the door of the put and that of the take."""

    @property
    def whole(self) -> bool:
        """Whether every cell was looked at."""
        return len(self.cells) == len(RULES) * len(DOORS) and len(self.crossings) == len(DOORS) ** 2

    @property
    def sound(self) -> bool:
        """Whether every cell was looked at, and none failed."""
        return self.whole and not any(each.failed for each in (*self.cells.values(), *self.crossings.values()))

    def look(self, hosted: Hosted, rule: str, door: str) -> None:
        """Find one cell; fails as its rule does."""
        self.cells[rule, door] = FAILED
        self.cells[rule, door] = judge(hosted, RULES[rule], DOORS[door], CANNOT.get((door, rule)))

    def look_across(self, hosted: Hosted, source: str, target: str) -> None:
        """Find whether what one door put another takes."""
        self.crossings[source, target] = FAILED
        with opened(DOORS[source], hosted) as one, opened(DOORS[target], hosted) as other:
            cross(one, other)
        self.crossings[source, target] = Outcome(True)


def judge(hosted: Hosted, rule: Rule, door: type[Door], why: str | None) -> Outcome:
    """Try a rule at a door, where it is declared as unsaid for this reason or (None) is not."""
    try:
        with opened(door, hosted) as opened_door:
            word = rule.body(Cell(opened_door, rule.name))
    except Unsaid as unsaid:
        if why is None:
            raise AssertionError(f"{rule.name} at {door.name} is neither passed nor declared: {unsaid}") from unsaid
        return Outcome(False, why=why)
    assert why is None, f"{rule.name} at {door.name} is declared as what cannot be said, and passes"
    return Outcome(True, word or "")


def rules_in_order() -> list[Rule]:
    """The rows: chapter by chapter."""
    return [rule for chapter in CHAPTERS for rule in RULES.values() if rule.chapter == chapter]


def host(folder: Path) -> Hosted:
    """A node for all cells, with its data in a folder; to be started."""
    names = [*RULES, DEAD_LETTERS, *map(crossing_name, DOORS.values())]
    return Hosted(folder, specs=[spec_of(name) for name in names])

"""A producer's request number names one command: a repeat is answered as before, another command is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine.answers import AckTaken, Done, PutAnswer, Taken
from penstock.engine.entries import Command, Entry
from penstock.engine.errors import Refusal
from penstock.engine.snapshot import begin, restore

PRODUCER = 7


class Machine:
    """An engine that is given one command of a producer at a time."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()

    def ask(self, request: int, args: Any, producer: int = PRODUCER) -> Any:
        op = c.OPS[type(args)]
        command = Command(op, 2, 1, producer, request, c.encode(args), args)
        (answer,) = self.engine.apply(self.engine.state.index + 1, 1, Entry(1_000_000, [command]))
        return answer


def filled() -> Machine:
    """A queue with three messages."""
    machine = Machine()
    machine.ask(0, c.Put("", [c.Item(0, b"x")] * 3), producer=0)
    return machine


COMMANDS = [
    c.Put("", [c.Item(0, b"a")]),
    c.Put("", [c.Item(0, b"b")]),
    c.PutMany([("", [c.Item(0, b"a")])]),
    c.Take("", 1),
    c.AckTake("", [], 1),
    c.Ack("", [(1, 5)]),
    c.Unbind("x"),
    c.CreateQueue("q", c.QueueSettings()),
    c.Purge(""),
]


@pytest.mark.parametrize("second", COMMANDS, ids=repr)
@pytest.mark.parametrize("first", COMMANDS, ids=repr)
def test_a_number_with_another_command_is_refused_and_changes_nothing(first: Any, second: Any) -> None:
    machine = filled()
    before = machine.ask(1, first)
    counts = list(machine.engine.state.by_name[""].counts)
    again = machine.ask(1, second)
    if second is first:
        assert type(again) is type(before)
    else:
        assert isinstance(again, Refusal)
        assert again.code == e.REQUEST_REUSED
    assert machine.engine.state.by_name[""].counts == counts
    assert type(machine.ask(1, first)) is type(before), "the first command is still answered"


def test_a_repeated_take_may_wait_for_another_time() -> None:
    machine = filled()
    first = machine.ask(1, c.Take("", 2, wait_ms=5000))
    assert machine.ask(1, c.Take("", 2, wait_ms=10)) == first
    half = machine.ask(2, c.AckTake("", [(1, first.token)], 1, wait_ms=5000))
    assert isinstance(half, AckTaken)
    assert machine.ask(2, c.AckTake("", [(1, first.token)], 1, wait_ms=10)) == half


def test_the_marks_of_commands_survive_a_snapshot() -> None:
    machine = filled()
    machine.ask(1, c.Put("", [c.Item(0, b"a")]))
    restored = Machine(restore(begin(machine.engine)))
    assert restored.ask(1, c.Put("", [c.Item(0, b"a")])) == PutAnswer(4, 1)
    assert restored.ask(1, c.Put("", [c.Item(0, b"b")])).code == e.REQUEST_REUSED


def test_answers_of_earlier_releases_have_no_mark_and_are_checked_by_their_type() -> None:
    machine = filled()
    taken = machine.ask(1, c.Take("", 1))
    machine.ask(2, c.Put("", [c.Item(0, b"a")]))
    answers = machine.engine.state.producers[PRODUCER].answers
    for request, (number, encoded) in list(answers.items()):
        answers[request] = (number & 0xFF, encoded)
    assert machine.ask(1, c.Take("", 1)) == taken
    assert machine.ask(1, c.Unbind("x")).code == e.REQUEST_REUSED
    assert machine.ask(1, c.AckTake("", [], 1)).code == e.REQUEST_REUSED
    assert machine.ask(2, c.Put("", [c.Item(0, b"other")])) == PutAnswer(4, 1), "as it was then"
    assert machine.ask(2, c.Take("", 1)).code == e.REQUEST_REUSED
    assert isinstance(machine.ask(3, c.Take("", 1)), Taken)
    assert isinstance(machine.ask(4, c.Purge("")), Done)

"""Topic messages and bindings: a message costs the bindings that match it, and these have a limit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.engine import answers as a
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import topics
from penstock.engine.bindings import Bindings
from penstock.engine.errors import Refusal
from penstock.engine.views import BindingView
from tests.engine.driving import Drive, expect
from tests.engine.steps import count_steps

SPECS = TYPES = ("", "a", "b", "c")


def bound(count: int, spec: str = "s", **drive: Any) -> Drive:
    made = Drive(**drive)
    for number in range(count):
        assert made.do(c.Bind(f"b{number}", spec, "", f"q{number}")) == a.Done(1)
    return made


def test_a_message_costs_what_matches_it_and_no_other_binding() -> None:
    steps = []
    for others in (0, 500):
        drive = bound(10)
        for number in range(others):
            drive.do(c.Bind(f"other{number}", f"s{number}", "", "q0"))
        steps.append(count_steps(lambda: drive.do(c.Broadcast(0, b"t", b"x", "s"))))  # noqa: B023
    assert steps[0] == steps[1]


@pytest.mark.parametrize("one_queue", [False, True])
def test_the_cost_grows_with_the_bindings_that_match(one_queue: bool) -> None:
    steps = []
    for count in (100, 200, 400):
        drive = Drive()
        for number in range(count):
            drive.do(c.Bind(f"b{number}", "", "", "q" if one_queue else f"q{number}"))
        steps.append(count_steps(lambda: drive.do(c.Broadcast(0, b"t", b"x", "s"))))  # noqa: B023
    assert steps[2] - steps[1] <= 2.1 * (steps[1] - steps[0])


def test_copies_of_one_message_count_together_against_the_size_of_their_queue() -> None:
    drive = Drive()
    drive.create("small", size_max=2)
    for number in range(3):
        drive.do(c.Bind(f"b{number}", "", "", "small"))
    assert expect(Refusal, drive.do(c.Broadcast(0, b"t", b"x"))).code == e.QUEUE_FULL
    drive.do(c.Unbind("b0"))
    assert drive.do(c.Broadcast(0, b"t", b"x")) == a.Done(2)


def test_bindings_are_found_by_what_they_match() -> None:
    random = Random(5)
    bindings, plain = Bindings(), dict[str, BindingView]()
    for _ in range(2000):
        name = f"n{random.randrange(40)}"
        if random.random() < 0.3:
            assert bindings.pop(name, None) == plain.pop(name, None)
        else:
            view = BindingView(name, random.choice(SPECS), random.choice(TYPES), "q", 1, False)
            bindings[name] = plain[name] = view
        spec, type_ = random.choice(SPECS), random.choice(TYPES)
        matching = [view for _, view in sorted(plain.items()) if view.spec in ("", spec) and view.type in ("", type_)]
        assert list(bindings.matching(spec, type_)) == matching
        if spec and type_:
            assert bindings.matched_with_max(spec, type_) == len(matching)
        assert dict(bindings) == plain


def test_no_message_matches_more_bindings_than_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is bound, changed and unbound, and in whatever order."""
    monkeypatch.setattr(topics, "MATCHES_MAX", 5)
    random, drive = Random(11), Drive()
    refused = most = 0
    for _ in range(1500):
        name = f"n{random.randrange(40)}"
        if random.random() < 0.2:
            drive.do(c.Unbind(name))
        else:
            answer = drive.do(c.Bind(name, random.choice(SPECS), random.choice(TYPES), "q"))
            refused += isinstance(answer, Refusal)
        matches = [len(list(drive.engine.state.bindings.matching(s, t))) for s in (*SPECS, "x") for t in (*TYPES, "x")]
        most = max(most, *matches)
    assert most == 5
    assert refused > 100


def test_a_binding_for_all_is_possible_beside_many_for_a_spec_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MATCHES_MAX", 3)
    drive = Drive()
    for number in range(20):
        assert drive.do(c.Bind(f"b{number}", f"s{number}", "", "q")) == a.Done(1)
    assert drive.do(c.Bind("audit", "", "", "q")) == a.Done(1)
    assert drive.do(c.Bind("audit", "", "", "q", 5)) == a.Done(1), "a change is no further binding"
    assert drive.do(c.Bind("more", "", "", "q")) == a.Done(1)
    refusal = expect(Refusal, drive.do(c.Bind("yet more", "", "", "q")))
    assert (refusal.code, "3 bindings" in refusal.detail) == (e.BAD_COMMAND, False)
    refusal = expect(Refusal, drive.do(c.Bind("third", "", "", "q")))
    assert (refusal.code, "3 bindings" in refusal.detail) == (e.BAD_COMMAND, True)


def test_by_the_first_rules_any_number_of_bindings_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MATCHES_MAX", 3)
    drive = bound(5, "", rules=0)
    assert drive.do(c.Broadcast(0, b"t" * (topics.TAG_BYTES_MAX + 1), b"x")) == a.Done(5)


@pytest.mark.parametrize(
    "message",
    [
        c.Broadcast(0, b"t" * (topics.TAG_BYTES_MAX + 1), b""),
        c.Broadcast(0, b"", b"", "s" * (topics.TOPIC_CHARACTERS_MAX + 1)),
        c.Broadcast(0, b"", b"", "", "t" * (topics.TOPIC_CHARACTERS_MAX + 1)),
    ],
)
def test_the_texts_of_a_message_have_a_maximum(message: c.Broadcast) -> None:
    assert expect(Refusal, Drive().do(message)).code == e.BAD_COMMAND

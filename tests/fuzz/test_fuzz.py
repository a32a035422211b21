"""Every fuzz target for a while, and the proof that the fuzzer bites."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest

from fuzz.mutate import INPUT_BYTES_MAX, mutate
from fuzz.runner import Finding, Target, discover, fuzz_target, targets_of

TARGETS = discover()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_documented_errors_come_out(target: Target) -> None:
    figures = fuzz_target(target, cases=2_000, seed=1)
    assert figures.cases == 2_000
    assert figures.accepted, "no input was accepted: the corpus or the target is of no use"
    # A target that allows no error is total: whatever comes is taken.
    assert figures.errors or not target.allowed, "no input was refused: the mutations or the target are of no use"


def test_all_parsers_of_this_package_are_found() -> None:
    names = {target.name for target in TARGETS}
    assert names >= {
        "taskflux-server",
        "taskflux-client",
        "version1-log",
        "version1-metadata",
        "version1-snapshot",
    }


def test_a_module_with_the_names_of_a_target_is_one() -> None:
    module = ModuleType("one")
    assert targets_of(module) == []
    vars(module).update(NAME="one", corpus=lambda: [b"x"], run=lambda data: None, ALLOWED=(ValueError,))
    assert [target.name for target in targets_of(module)] == ["one"]


def test_an_undocumented_error_is_a_finding_with_its_input() -> None:
    def run(data: bytes) -> None:
        if len(data) != 4:
            raise ValueError("refused")
        if data != b"good":
            raise KeyError("planted")

    target = Target("planted", lambda: [b"good"], run, (ValueError,))
    with pytest.raises(Finding) as raised:
        fuzz_target(target, cases=1_000, seed=0)
    assert isinstance(raised.value.error, KeyError)
    assert raised.value.data.hex() in str(raised.value)
    with pytest.raises(KeyError):
        run(raised.value.data)


def test_a_corpus_that_is_refused_is_a_finding() -> None:
    def run(data: bytes) -> None:
        raise ValueError("refused")

    with pytest.raises(Finding, match="corpus"):
        fuzz_target(Target("wrong", lambda: [b"x"], run, (ValueError,)), cases=1, seed=0)


def test_equal_seeds_make_equal_inputs_and_others_do_not() -> None:
    corpus = [b"one", b"two" * 50]

    def inputs(seed: int) -> list[bytes]:
        random = Random(seed)
        return [mutate(random, corpus) for _ in range(200)]

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)
    assert len(set(inputs(1))) > 150


def test_inputs_stay_bounded() -> None:
    random = Random(0)
    corpus = [b"x" * INPUT_BYTES_MAX]
    assert all(len(mutate(random, corpus)) <= INPUT_BYTES_MAX for _ in range(200))

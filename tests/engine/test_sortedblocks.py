"""A sorted set in blocks agrees with a plain set, whatever is added and taken out."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import sortedblocks
from penstock.engine.sortedblocks import SortedBlocks

changes = s.lists(s.tuples(s.sampled_from(("add", "add", "add", "discard", "pop")), s.integers(0, 60)), max_size=150)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sortedblocks, "BLOCK_VALUES", 4)


def check(kept: SortedBlocks[int], plain: set[int]) -> None:
    assert list(kept.from_value(-1)) == sorted(plain)
    assert (bool(kept), len(kept)) == (bool(plain), len(plain))
    if plain:
        assert kept.first() == min(plain)


@given(changes, s.sets(s.integers(0, 60)))
def test_it_agrees_with_a_plain_set(history: list[tuple[str, int]], before: set[int]) -> None:
    kept, plain = SortedBlocks[int](sorted(before)), before.copy()
    for what, value in history:
        if what == "add":
            kept.add(value)
            plain.add(value)
        elif what == "discard":
            kept.discard(value)
            plain.discard(value)
        elif plain:
            assert kept.pop_first() == min(plain)
            plain.remove(min(plain))
        check(kept, plain)
        assert list(kept.from_value(value)) == sorted(each for each in plain if each >= value)


def test_no_block_becomes_long_or_stays_empty() -> None:
    random = Random(7)
    kept = SortedBlocks[int]()
    values = list(range(2000))
    random.shuffle(values)
    for value in values:
        kept.add(value)
    assert max(map(len, kept._blocks)) <= 2 * sortedblocks.BLOCK_VALUES
    random.shuffle(values)
    for value in values[:1990]:
        kept.discard(value)
    assert min(map(len, kept._blocks)) > 0
    check(kept, set(values[1990:]))

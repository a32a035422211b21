"""The order of ready records against a sorted list, through all its forms: one record, a list, blocks, shards."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as s
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.engine import order as order_module
from penstock.engine.order import KeyOrder
from penstock.engine.records import Record


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Let a list become blocks, and one dictionary become shards, while the examples are still small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "BLOCK_RECORDS", 4)
        if hasattr(order_module, "SHARD_FROM_KEYS"):
            patch.setattr(order_module, "SHARD_FROM_KEYS", 6)
        yield


class OrderMachine(RuleBasedStateMachine):
    """Appends, inserts, removals and pops on a ``KeyOrder`` and on a list that is sorted each time."""

    def __init__(self) -> None:
        super().__init__()
        self.order = KeyOrder()
        self.there: list[Record] = []
        self.out: list[Record] = []
        self.places = 0

    def sorted(self) -> list[Record]:
        return sorted(self.there, key=lambda record: (record.key, record.place))

    @rule(key=s.integers(-4, 4), count=s.integers(1, 6))
    def append(self, key: int, count: int) -> None:
        for _ in range(count):
            self.places += 1
            record = Record(self.places, key, b"", self.places, 0)
            self.order.append(record)
            self.there.append(record)

    @precondition(lambda self: self.out)
    @rule(data=s.data())
    def insert(self, data: s.DataObject) -> None:
        record = self.out.pop(data.draw(s.integers(0, len(self.out) - 1)))
        self.order.insert(record)
        self.there.append(record)

    @precondition(lambda self: self.there)
    @rule(data=s.data())
    def remove(self, data: s.DataObject) -> None:
        record = self.there.pop(data.draw(s.integers(0, len(self.there) - 1)))
        self.order.remove(record)
        self.out.append(record)

    @rule(count=s.integers(0, 12))
    def pop(self, count: int) -> None:
        expected = self.sorted()[:count]
        assert self.order.pop(count) == expected
        self.there = self.sorted()[count:]
        self.out += expected

    @invariant()
    def the_walk_shows_all_in_order(self) -> None:
        assert list(self.order.walk()) == self.sorted()


TestOrder = OrderMachine.TestCase


@given(s.lists(s.integers(-(2**63), 2**63 - 1)))
def test_descending_order_negates_every_key(keys: list[int]) -> None:
    order = KeyOrder(descending=True)
    records = [Record(n, key, b"", n, 0) for n, key in enumerate(keys)]
    for record in records:
        order.append(record)
    assert order.pop(len(keys)) == sorted(records, key=lambda record: (-record.key, record.place))


def test_a_long_random_history_agrees_with_a_sorted_list() -> None:
    """Long enough for blocks to be split and merged away, and for stale names to be shed from the heap."""
    random = Random(3)
    order, there, out = KeyOrder(), dict[int, Record](), dict[int, Record]()
    for place in range(6000):
        record = Record(place, random.choice((0, 0, 1, random.randint(-300, 300))), b"", place, 0)
        order.append(record)
        there[place] = record
        for _ in range(random.randint(0, 2)):
            chosen = random.choice((there, out))
            if not chosen:
                continue
            moved = chosen.pop(random.choice(list(chosen)) if len(chosen) < 50 else next(iter(chosen)))
            if chosen is there:
                order.remove(moved)
                out[moved.place] = moved
            else:
                order.insert(moved)
                there[moved.place] = moved
        if place % 500 == 0:
            assert list(order.walk()) == sorted(there.values(), key=lambda r: (r.key, r.place))
    assert order.pop(10_000) == sorted(there.values(), key=lambda r: (r.key, r.place))
    assert order.pop(1) == []


def test_names_of_keys_that_come_and_go_do_not_pile_up() -> None:
    order = KeyOrder()
    order.append(Record(1, -1, b"", 1, 0))
    for place in range(2, 20_000):
        record = Record(place, place, b"", place, 0)
        order.append(record)
        order.remove(record)
    assert len(order._heap) < 2000

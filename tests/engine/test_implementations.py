"""One contract for H4 and QA: what a queue promises does not depend on how it is built."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import commands as c
from tests.engine.driving import Drive, handles

FULL_RANGE = (c.INT64_MIN, c.INT64_MAX)
both = pytest.mark.parametrize("implementation", [c.H4, c.QA], ids=["H4", "QA"])
int64s = s.integers(c.INT64_MIN, c.INT64_MAX)


def queue(implementation: int, **settings: object) -> Drive:
    drive = Drive()
    drive.create("jobs", implementation=implementation, key_range=FULL_RANGE, **settings)
    return drive


@both
@given(keys=s.lists(int64s | s.integers(-3, 3), max_size=40), descending=s.booleans())
def test_records_are_served_by_key_then_place(implementation: int, keys: list[int], descending: bool) -> None:
    drive = queue(implementation, descending=descending)
    drive.put_keys("jobs", keys)
    expected = sorted(range(len(keys)), key=lambda n: (-keys[n] if descending else keys[n], n))
    assert drive.ready_ids("jobs") == [n + 1 for n in expected]
    assert drive.take_ids("jobs") == [n + 1 for n in expected]


@both
@given(keys=s.lists(s.integers(-2, 2), min_size=1, max_size=30), data=s.data())
def test_what_comes_back_stands_where_it_stood(implementation: int, keys: list[int], data: s.DataObject) -> None:
    drive = queue(implementation)
    drive.put_keys("jobs", keys)
    order = drive.ready_ids("jobs")
    taken = handles(drive.take("jobs", 1000))
    for held in data.draw(s.permutations(taken)):
        drive.give_back("jobs", [held])
    assert drive.ready_ids("jobs") == order


@both
@given(keys=s.lists(s.integers(-2, 2), min_size=1, max_size=30), data=s.data())
def test_records_can_be_taken_out_of_the_middle(implementation: int, keys: list[int], data: s.DataObject) -> None:
    drive = queue(implementation)
    drive.put_keys("jobs", keys)
    gone = data.draw(s.lists(s.sampled_from(range(1, len(keys) + 1)), unique=True))
    order = [record_id for record_id in drive.ready_ids("jobs") if record_id not in gone]
    drive.do(c.Delete("jobs", gone))
    assert drive.ready_ids("jobs") == drive.take_ids("jobs") == order


@both
@given(keys=s.lists(int64s, min_size=1, max_size=20), new_keys=s.lists(int64s, min_size=1, max_size=20))
def test_an_edited_key_moves_the_record(implementation: int, keys: list[int], new_keys: list[int]) -> None:
    drive = queue(implementation)
    drive.put_keys("jobs", keys)
    for record_id, key in zip(range(1, len(keys) + 1), new_keys, strict=False):
        drive.do(c.Edit("jobs", record_id, key))
        keys[record_id - 1] = key
    assert drive.take_ids("jobs") == [n + 1 for n in sorted(range(len(keys)), key=lambda n: (keys[n], n))]


@both
def test_the_range_is_enforced(implementation: int) -> None:
    drive = Drive()
    drive.create("jobs", implementation=implementation, key_range=(-1, 1))
    answer = drive.put_keys("jobs", range(-3, 4))
    assert (answer.count, [position for position, _, _ in answer.exceptions]) == (3, [0, 1, 5, 6])


@both
def test_it_is_the_same_after_a_restart(implementation: int) -> None:
    drive = queue(implementation)
    random = Random(1)
    drive.put_keys("jobs", (random.choice((random.getrandbits(63), 5)) for _ in range(200)))
    order = drive.ready_ids("jobs")
    drive.restart()
    assert drive.ready_ids("jobs") == drive.take_ids("jobs") == order


def memory_of(implementation: int, key_range: tuple[int, int] | None, keys: list[int]) -> int:
    """Bytes that a queue with these records allocates."""
    drive = Drive()
    drive.create("jobs", implementation=implementation, key_range=key_range)
    gc.collect()
    tracemalloc.start()
    try:
        drive.put_keys("jobs", keys)
        drive.rows.clear()
        drive.log.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_qa_queue_over_the_full_range_costs_no_more_than_its_records() -> None:
    random = Random(2)
    keys = [random.getrandbits(64) - 2**63 for _ in range(5000)]
    unbounded = memory_of(c.H4, None, keys)
    full = memory_of(c.QA, FULL_RANGE, keys)
    assert full <= unbounded * 1.02
    assert full / len(keys) < 450


def test_an_empty_qa_queue_over_the_full_range_costs_next_to_nothing() -> None:
    assert memory_of(c.QA, FULL_RANGE, [0]) < 20_000

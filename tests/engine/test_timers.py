"""Timers against a plain dictionary: never early, at most a bucket late, in the order of (due time, name)."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import timers as timers_module
from penstock.engine.commands import RECORDS_PER_COMMAND_MAX
from penstock.engine.timers import BUCKET_BITS, SORTED_FROM_TIMERS, Timer, TimerName, Timers
from tests.engine.steps import count_steps

BUCKET_US = 1 << BUCKET_BITS

moments = s.integers(0, 40 * BUCKET_US)
timer_names = s.tuples(s.integers(0, 3), s.integers(0, 20))
steps = s.lists(
    s.one_of(
        s.tuples(s.just("add"), moments, timer_names),
        s.tuples(s.just("cancel"), s.integers(0, 1000), s.just((0,))),
        s.tuples(s.just("pop"), s.integers(0, 5 * BUCKET_US), s.integers(1, 5).map(lambda count: (count,))),
        s.tuples(s.just("soon"), s.just(0), timer_names),
    ),
    max_size=60,
)


def pop_due(timers: Timers, now_us: int, count: int) -> list[Timer]:
    """Up to ``count`` timers that are due, in order."""
    return list(islice(iter(lambda: timers.pop_due(now_us), None), count))


@given(steps)
@pytest.mark.parametrize("sorted_from_timers", [2, SORTED_FROM_TIMERS])
def test_timers_agree_with_a_dictionary(sorted_from_timers: int, history: list[tuple[str, int, TimerName]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers_module, "SORTED_FROM_TIMERS", sorted_from_timers)
        agree_with_a_dictionary(history)


def agree_with_a_dictionary(history: list[tuple[str, int, TimerName]]) -> None:
    timers, now_us = Timers(), 10 * BUCKET_US
    set_: dict[TimerName, int] = {}
    soon: set[TimerName] = set()
    for what, number, name in history:
        if what == "add" and name not in set_ and name not in soon:
            timers.add(number, name)
            set_[name] = number
        elif what == "cancel" and set_:
            cancelled = sorted(set_)[number % len(set_)]
            timers.cancel(set_.pop(cancelled), cancelled)
        elif what == "soon" and name not in set_ and name not in soon:
            timers.add_soon(name)
            soon.add(name)
        elif what == "pop":
            now_us += number
            timers.admit_soon()
            set_ |= dict.fromkeys(soon, 0)
            soon.clear()
            over = sorted((due_us, each) for each, due_us in set_.items() if due_us // BUCKET_US < now_us // BUCKET_US)
            assert pop_due(timers, now_us, name[0]) == over[: name[0]]
            for _, fired in over[: name[0]]:
                del set_[fired]
        buckets = [due_us // BUCKET_US for due_us in set_.values()]
        next_due_us = 0 if soon else (min(buckets) + 1) * BUCKET_US if buckets else None
        assert timers.next_due_us() == next_due_us


@given(moments, moments)
def test_a_timer_is_never_early_and_at_most_a_bucket_late(due_us: int, now_us: int) -> None:
    timers = Timers()
    timers.add(due_us, (1,))
    fired = bool(timers.pop_due(now_us))
    if now_us < due_us:
        assert not fired
    if now_us >= due_us + BUCKET_US:
        assert fired
    next_due_us = timers.next_due_us()
    assert fired == (next_due_us is None)
    if next_due_us is not None:
        assert timers.pop_due(next_due_us)


def test_cancelling_what_is_not_set_is_no_mistake() -> None:
    timers = Timers()
    timers.cancel(5, (1,))
    timers.add(5, (1,))
    timers.cancel(5, (2,))
    timers.cancel(99 * BUCKET_US, (1,))
    assert pop_due(timers, 10 * BUCKET_US, 10) == [(5, (1,))]


def test_what_waits_for_the_next_entry_does_not_fire_with_this_one() -> None:
    timers = Timers()
    timers.add_soon((1,))
    assert pop_due(timers, 10 * BUCKET_US, 10) == []
    timers.admit_soon()
    assert pop_due(timers, 10 * BUCKET_US, 10) == [(0, (1,))]


def buckets(timers: Timers) -> int:
    made = sum(map(len, timers._shards))
    assert made == len(timers._numbers)
    assert timers.buckets <= made <= timers.buckets + 1
    return made


def test_a_bucket_goes_with_its_last_timer() -> None:
    """A message with a day's expiry that is acknowledged at once must not leave a bucket behind for a day."""
    timers = Timers()
    timers.add(0, (0,))
    for number in range(1, 5000):
        timers.add(number * BUCKET_US, (1, number))
        timers.cancel(number * BUCKET_US, (1, number))
    assert buckets(timers) <= 2
    for number in range(1, 5000):
        timers.add(number * BUCKET_US, (1, number))
    for number in range(4999, 0, -1):
        timers.cancel(number * BUCKET_US, (1, number))
    assert buckets(timers) <= 2
    assert timers.next_due_us() == BUCKET_US


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_full_bucket_costs_no_more_per_timer_than_a_small_one(
    shuffled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is due at once lies in one bucket: setting, cancelling and firing there must not depend on the rest."""
    monkeypatch.setattr(timers_module, "SORTED_FROM_TIMERS", 4000)  # so that fewer steps have to be counted
    steps = []
    for count in (8000, 16000, 32000):
        timers, names = Timers(), [(1, 0, number) for number in range(count)]
        if shuffled:
            Random(3).shuffle(names)

        def work() -> None:
            for name in names:  # noqa: B023
                timers.add(5, name)  # noqa: B023
            for name in names[::10]:  # noqa: B023
                timers.cancel(5, name)  # noqa: B023
            for _ in range(10):
                assert len(pop_due(timers, 2 * BUCKET_US, 100)) == 100  # noqa: B023

        steps.append(count_steps(work))
    assert steps[2] - steps[1] <= 2.3 * (steps[1] - steps[0])


def test_the_largest_command_sets_its_timers_in_a_dictionary() -> None:
    """Setting and cancelling a timer in order costs several times as much, so only larger buckets pay for it."""
    assert SORTED_FROM_TIMERS > RECORDS_PER_COMMAND_MAX

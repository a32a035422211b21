"""Timers against a plain dictionary: never early, at most a bucket late, in the order of (due time, name)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as s

from penstock.engine.timers import BUCKET_BITS, TimerName, Timers

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


@given(steps)
def test_timers_agree_with_a_dictionary(history: list[tuple[str, int, TimerName]]) -> None:
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
            assert timers.pop_due(now_us, name[0]) == over[: name[0]]
            for _, fired in over[: name[0]]:
                del set_[fired]
        buckets = [due_us // BUCKET_US for due_us in set_.values()]
        next_due_us = 0 if soon else (min(buckets) + 1) * BUCKET_US if buckets else None
        assert timers.next_due_us() == next_due_us


@given(moments, moments)
def test_a_timer_is_never_early_and_at_most_a_bucket_late(due_us: int, now_us: int) -> None:
    timers = Timers()
    timers.add(due_us, (1,))
    fired = bool(timers.pop_due(now_us, 10))
    if now_us < due_us:
        assert not fired
    if now_us >= due_us + BUCKET_US:
        assert fired
    next_due_us = timers.next_due_us()
    assert fired == (next_due_us is None)
    if next_due_us is not None:
        assert timers.pop_due(next_due_us, 10)


def test_cancelling_what_is_not_set_is_no_mistake() -> None:
    timers = Timers()
    timers.cancel(5, (1,))
    timers.add(5, (1,))
    timers.cancel(5, (2,))
    timers.cancel(99 * BUCKET_US, (1,))
    assert timers.pop_due(10 * BUCKET_US, 10) == [(5, (1,))]


def test_what_waits_for_the_next_entry_does_not_fire_with_this_one() -> None:
    timers = Timers()
    timers.add_soon((1,))
    assert timers.pop_due(10 * BUCKET_US, 10) == []
    timers.admit_soon()
    assert timers.pop_due(10 * BUCKET_US, 10) == [(0, (1,))]

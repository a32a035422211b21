"""Log time: never falls, goes on where the log ended, follows jumps of the wall clock slowly, and records them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.node.clock import LogClock


class Clocks:
    def __init__(self) -> None:
        self.mono_ns = 5_000_000_000
        self.wall_ns = 1_700_000_000_000_000_000

    def make(self, last_us: int = 0) -> LogClock:
        return LogClock(lambda: self.mono_ns, lambda: self.wall_ns, last_us)

    def advance(self, us: int) -> None:
        self.mono_ns += us * 1000
        self.wall_ns += us * 1000


def test_begins_at_the_wall_clock_or_the_last_stamp_where_that_is_later() -> None:
    clocks = Clocks()
    assert clocks.make().now_us() == clocks.wall_ns // 1000
    ahead_us = clocks.wall_ns // 1000 + 60_000_000
    assert clocks.make(ahead_us).now_us() == ahead_us


def test_the_time_between_two_runs_counts_by_the_wall_clock_though_the_log_is_ahead_of_it() -> None:
    clocks = Clocks()
    clock = clocks.make()
    hour_us = 3600 * 10**6
    last_us = clocks.wall_ns // 1000 + hour_us
    clocks.advance(600 * 10**6)
    assert clock.restart(last_us, hour_us) == 600 * 10**6
    assert clock.now_us() == last_us + 600 * 10**6


def test_a_wall_clock_that_went_back_between_two_runs_stops_no_time_and_is_reported() -> None:
    clocks = Clocks()
    clock = clocks.make()
    hour_us = 3600 * 10**6
    last_us = clocks.wall_ns // 1000 + hour_us
    assert clock.restart(last_us, 0) == -hour_us
    assert clock.now_us() == last_us
    clocks.advance(10**6)
    assert last_us < clock.now_us() < last_us + 10**6


def test_a_log_that_is_days_behind_the_wall_clock_is_moved_to_it_by_a_new_term() -> None:
    clocks = Clocks()
    clock = clocks.make()
    wall_us = clocks.wall_ns // 1000
    month_us = 30 * 24 * 3600 * 10**6
    assert clock.restart(wall_us - month_us, -month_us) == month_us
    assert clock.now_us() == wall_us


def test_the_wall_clock_is_recorded_when_it_moves_against_the_log_and_not_again_until_it_does() -> None:
    clocks = Clocks()
    clock = clocks.make()
    assert clock.wall_to_record(clock.now_us()) == 0
    clocks.advance(10**6)
    assert clock.wall_to_record(clock.now_us()) == 0
    clocks.wall_ns -= 3600 * 10**9
    assert clock.wall_to_record(clock.now_us()) == clocks.wall_ns // 1000
    clocks.advance(1000)
    assert clock.wall_to_record(clock.now_us()) == 0
    clocks.advance(10**6)  # by now log time has been slewed by a tenth of that
    assert clock.wall_to_record(clock.now_us()) == clocks.wall_ns // 1000


def test_runs_with_the_monotonic_clock() -> None:
    clocks = Clocks()
    clock = clocks.make()
    before = clock.now_us()
    clocks.advance(1_000_000)
    assert clock.now_us() == before + 1_000_000


def test_a_jump_of_the_wall_clock_is_followed_at_a_tenth_of_the_speed() -> None:
    for jump_ns in (3600 * 10**9, -3600 * 10**9):
        clocks = Clocks()
        clock = clocks.make()
        before = clock.now_us()
        clocks.wall_ns += jump_ns
        clocks.advance(1_000_000)
        assert clock.now_us() == before + (1_100_000 if jump_ns > 0 else 900_000)


@given(st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(-(10**12), 10**12)), max_size=30))
def test_never_falls_and_never_strays_by_more_than_a_tenth(steps: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    clock = clocks.make()
    last = clock.now_us()
    for step_us, jump_us in steps:
        clocks.advance(step_us)
        clocks.wall_ns = max(0, clocks.wall_ns + jump_us * 1000)
        now = clock.now_us()
        assert step_us * 9 // 10 - 1 <= now - last <= step_us * 11 // 10 + 1
        last = now

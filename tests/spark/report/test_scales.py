"""Scales, ticks, and places for labels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.report.scales import (
    duration_scale,
    linear_scale,
    minute_step,
    share_scale,
    spread,
    time_labels,
    time_scale,
)

BEGIN = datetime(2025, 3, 14, 21, 7, tzinfo=UTC)


@given(st.floats(1e-6, 1e15))
def test_a_linear_scale_reaches_over_all_with_few_round_ticks(greatest: float) -> None:
    scale = linear_scale(greatest, 100, 0)
    assert scale.high >= greatest * (1 - 1e-9)
    assert 2 <= len(scale.ticks) <= 6
    assert scale(0) == 100
    assert scale(scale.high) == pytest.approx(0, abs=1e-9)
    assert f"{scale.ticks[1]:.0e}"[0] in "125"


def test_a_scale_of_whole_numbers_has_no_other_ticks() -> None:
    assert linear_scale(2, 0, 1, whole=True).ticks == (0, 1, 2)
    assert linear_scale(0, 0, 1, whole=True).ticks == (0, 1)


def test_values_beyond_a_scale_are_held_at_its_ends() -> None:
    scale = linear_scale(10, 0, 100)
    assert (scale(-5), scale(5), scale(50)) == (0, 50, 100)


@given(st.floats(0, 1))
def test_a_scale_of_shares_ends_at_all(greatest: float) -> None:
    scale = share_scale(greatest, 0, 1)
    assert greatest <= scale.high <= 1


@given(st.floats(1, 1e14), st.floats(1, 1e14), st.integers(3, 12))
def test_a_scale_of_durations_reaches_over_all_with_few_ticks(one: float, other: float, ticks_max: int) -> None:
    least, greatest = sorted((one, other))
    scale = duration_scale(least, greatest, 0, 100, ticks_max=ticks_max)
    assert scale.low <= least
    assert scale.high >= greatest
    assert 1 <= len(scale.ticks) <= ticks_max
    assert 0 <= scale(least) <= scale(greatest) <= 100


@given(st.integers(1, 10**8), st.integers(2, 400))
def test_a_time_is_cut_into_few_parts_wherever_it_begins(minutes: int, count_max: int) -> None:
    step = minute_step(minutes, count_max)
    assert (minutes - 2) // step + 2 <= count_max or minutes == 1


@given(st.integers(1, 10**7))
def test_ticks_of_time_lie_in_it_at_round_moments(minutes: int) -> None:
    end = BEGIN + timedelta(minutes=minutes)
    ticks = time_scale(BEGIN, end, 0, 1, ticks_max=6).ticks
    assert len(ticks) <= 6
    assert all(BEGIN.timestamp() <= tick <= end.timestamp() and tick % 60 == 0 for tick in ticks)


def test_a_day_is_told_where_it_begins() -> None:
    ticks = time_scale(BEGIN, BEGIN + timedelta(hours=20), 0, 1, ticks_max=6).ticks
    assert time_labels(ticks) == ["15 Mar", "06:00", "12:00"]


@given(st.lists(st.floats(0, 200), max_size=15), st.floats(1, 30))
def test_labels_keep_their_order_and_distance(places: list[float], gap: float) -> None:
    spots = spread(places, gap, 0, 200)
    assert all(-1e-6 <= spot <= 200 + 1e-6 for spot in spots)
    order = sorted(range(len(places)), key=places.__getitem__)
    room = min(gap, 200 / max(1, len(places) - 1))
    for one, other in pairwise(order):
        assert spots[other] - spots[one] >= room - 1e-6


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([50.0, 10.0, 100.0], 14, 0, 200) == [50.0, 10.0, 100.0]

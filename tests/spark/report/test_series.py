"""From sparse minutes to bins: compared with going through every minute."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.report.series import BINS_MAX, MINUTE_US, Bins, levels, plain

FIRST = 29_000_000
ROWS = st.dictionaries(st.integers(-50, 400), st.none() | st.integers(0, 10**9), max_size=12)


def by_the_minute(bins: Bins, rows: dict[int, float], *, grows: bool) -> list[float]:
    """The peaks as the definition says: the value at the end of each minute, carried on from the last row."""
    peaks = [math.nan] * bins.count
    for minute in range(bins.first_minute, bins.last_minute + 1):
        before = [each for each in rows if each <= minute]
        if not before:
            continue
        last = max(before)
        end, then = (min((each + 1) * MINUTE_US, bins.end_us) for each in (minute, last))
        value = rows[last] + (end - then if grows else 0)
        number = (minute - bins.origin) // bins.step
        if not math.isnan(value):
            peaks[number] = value if math.isnan(peaks[number]) else max(peaks[number], value)
    return peaks


@given(ROWS, st.integers(1, 300 * MINUTE_US), st.sampled_from([1, 2, 15, 60]), st.booleans())
def test_peaks_are_those_of_every_minute(drawn: dict[int, int | None], length_us: int, step: int, grows: bool) -> None:
    bins = Bins(FIRST, FIRST * MINUTE_US + length_us, step)
    rows = {FIRST + minute: math.nan if value is None else float(value) for minute, value in sorted(drawn.items())}
    found = bins.peaks(np.array(list(rows), np.int64), np.array(list(rows.values()), np.float64), grows=grows)
    np.testing.assert_allclose(found, by_the_minute(bins, rows, grows=grows))


@given(st.dictionaries(st.tuples(st.integers(1, 4), st.integers(0, 20)), st.integers(0, 50)))
def test_depths_of_queues_add_up_at_every_minute(rows: dict[tuple[int, int], int]) -> None:
    names = sorted(rows)
    at, found = levels(
        np.array([queue for queue, _ in names], np.int64),
        np.array([minute for _, minute in names], np.int64),
        np.array([rows[name] for name in names], np.int64),
    )
    for minute, depth in zip(at.tolist(), found.tolist(), strict=True):
        last: dict[int, int] = {}
        for queue, each in names:
            if each <= minute:
                last[queue] = rows[queue, each]
        assert depth == sum(last.values())
    assert sorted({minute for _, minute in names}) == at.tolist()


@given(st.integers(0, 3_000_000), st.integers(1, 10**7 * MINUTE_US))
def test_bins_are_few_and_cover_the_time(first: int, length_us: int) -> None:
    bins = Bins.over(first, first * MINUTE_US + length_us)
    times = bins.times()
    assert len(times) == bins.count <= BINS_MAX
    assert times[0].timestamp() <= first * 60
    assert (times[-1].timestamp() + bins.step * 60) * 10**6 >= bins.end_us
    covered = bins.minutes()
    assert len(covered) == bins.count
    assert abs(covered.sum() - length_us / MINUTE_US) <= 0.25 + 1e-6


def test_a_short_time_has_a_bin_for_each_minute() -> None:
    bins = Bins.over(100, 103 * MINUTE_US + 30_000_000)
    assert (bins.step, bins.count, bins.minutes().tolist()) == (1, 4, [1, 1, 1, 0.5])


def test_numbers_are_plain_for_json() -> None:
    assert plain(np.array([1.0, np.nan, 0.3333333333])) == [1, None, 0.333333]

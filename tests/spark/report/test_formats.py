"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.report import formats

MS, S, MIN, H, D = 1000, 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6


def plain(text: str) -> str:
    """With spaces that may break."""
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        *[(0, "0"), (7, "7"), (0.25, "0.25"), (0.333, "0.33"), (9.94, "9.9"), (9.96, "10"), (350, "350"), (999, "999")],
        *[(999.4, "999"), (999.6, "1 k"), (1234, "1.2 k"), (12_345, "12 k"), (999_499, "999 k"), (999_501, "1 M")],
        *[(5_600_000, "5.6 M"), (7e9, "7 G"), (2.5e12, "2.5 T"), (9e15, "9,000 T")],
    ],
)
def test_a_count_has_few_digits(value: float, told: str) -> None:
    assert plain(formats.count(value)) == told


@pytest.mark.parametrize(
    ("value_us", "told"),
    [
        *[(None, "–"), (0, "0 µs"), (350, "350 µs"), (4200, "4.2 ms"), (350 * MS, "350 ms"), (999_400, "999 ms")],
        *[(999_600, "1 s"), (1_250_000, "1.2 s"), (12 * S, "12 s"), (59_400_000, "59 s"), (59_600_000, "1 min")],
        *[(125 * S, "2 min 5 s"), (59 * MIN + 59_700_000, "1 h"), (2 * H + 5 * MIN, "2 h 5 min")],
        *[(23 * H + 59 * MIN + 40 * S, "1 d"), (3 * D + 4 * H, "3 d 4 h"), (1200 * D, "1,200 d")],
    ],
)
def test_a_duration_has_two_units(value_us: float | None, told: str) -> None:
    assert plain(formats.duration(value_us)) == told


@given(st.integers(0, 10**15))
def test_no_unit_of_a_duration_is_overfull(value_us: int) -> None:
    """There are no 60 s, 60 min or 24 h beside a larger unit, and no 1,000 ms."""
    told = plain(formats.duration(value_us))
    assert "1,000 ms" not in told
    assert "1000" not in told
    assert not any(told.endswith(f" {rest}") for rest in ("60 s", "60 min", "24 h"))
    assert told not in ("60 s", "60 min", "24 h")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        *[(None, "–"), (0, "0 %"), (0.00001, "< 0.01 %"), (0.0003, "0.03 %"), (0.012, "1.2 %"), (0.5, "50.0 %")],
        *[(0.9996, "99.96 %"), (0.99999, "> 99.99 %"), (1, "100 %")],
    ],
)
def test_a_share_is_nothing_or_all_only_if_it_is_so(value: float | None, told: str) -> None:
    assert plain(formats.share(value)) == told


def test_numbers_of_tables_are_exact() -> None:
    assert [formats.exact(value) for value in (None, 0, 1234567, 2.0, 0.125)] == ["–", "0", "1,234,567", "2", "0.125"]


def test_moments_are_told_to_the_minute() -> None:
    moment = datetime(2025, 3, 4, 5, 6, 59, tzinfo=UTC)
    assert formats.moment(moment) == "4 Mar 2025, 05:06 UTC"
    assert formats.stamp(moment) == "2025-03-04 05:06"
    assert formats.moment(None) == formats.stamp(None) == "–"

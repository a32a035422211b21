"""Values on the command line: durations, moments, keys, handles, headers."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.parameters import (
    DURATION,
    HANDLE,
    HEADER,
    KEY,
    KEY_RANGE,
    MOMENT,
    NONE,
    WAIT,
    DurationOrMoment,
    OrNone,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("1.5", 1.5), ("250ms", 0.25), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "1w", "s", "1e3", "nan", "inf", "forever", "1 000", "9" * 30])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_only_a_wait_may_last_forever() -> None:
    assert math.isinf(WAIT.convert("forever", None, None))


@given(st.text())
def test_no_text_makes_a_duration_raise_anything_else(text: str) -> None:
    with contextlib.suppress(click.BadParameter):
        assert DURATION.convert(text, None, None) >= 0


def test_moments_have_a_time_zone_and_local_time_is_meant_without_one() -> None:
    assert MOMENT.convert("2030-01-02T03:04:05Z", None, None) == datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    local = MOMENT.convert("2030-01-02T03:04", None, None)
    assert local.tzinfo is not None
    assert local.replace(tzinfo=None) == datetime(2030, 1, 2, 3, 4)  # noqa: DTZ001
    with pytest.raises(click.BadParameter):
        MOMENT.convert("tomorrow", None, None)


def test_an_expiry_is_a_duration_or_a_moment() -> None:
    either = DurationOrMoment()
    assert either.convert("5m", None, None) == 300
    assert either.convert("2030-01-02T00:00Z", None, None) == datetime(2030, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(("text", "pair"), [("0..9", (0, 9)), ("-5..-1", (-5, -1)), ("3..3", (3, 3))])
def test_ranges_of_keys(text: str, pair: tuple[int, int]) -> None:
    assert KEY_RANGE.convert(text, None, None) == pair


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (KEY_RANGE, "9..0"),
        (KEY_RANGE, "1-2"),
        (KEY_RANGE, "0..9999999999999999999"),
        (KEY, str(2**63)),
        (KEY, "x"),
        (HANDLE, "17"),
        (HANDLE, "17:x"),
        (HANDLE, "-1:2"),
        (HEADER, "name"),
        (HEADER, "=value"),
        (OrNone(KEY), "nothing"),
    ],
)
def test_bad_values_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_the_ends_of_the_keys_are_allowed() -> None:
    assert KEY_RANGE.convert(f"{-(2**63)}..{2**63 - 1}", None, None) == (-(2**63), 2**63 - 1)


def test_handles_headers_and_none() -> None:
    assert HANDLE.convert("17:42", None, None) == (17, 42)
    assert HEADER.convert("a=b=c", None, None) == ("a", "b=c")
    assert HEADER.convert("a=", None, None) == ("a", "")
    assert OrNone(KEY).convert("none", None, None) == NONE
    assert OrNone(KEY).convert("5", None, None) == 5

"""Numbers, times and names as people read them; in the tables of the page numbers stand exact."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Final

NONE: Final = "–"
_NBSP: Final = "\u00a0"
"""Keeps a number and its unit on one line."""
_UNITS_US: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))


def queue(name: str) -> str:
    """A queue's name as it is typed on the command line: the default queue, whose name is empty, is ''."""
    return name or "''"


def count(value: float) -> str:
    """A number in three digits: 7, 0.3, 350, 1.2 k, 34 k, 5.6 M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What would be rounded to 1,000 of the smaller unit is told in this one.
        if abs(value) >= unit * 0.9995:
            return f"{_digits(value / unit)}{_NBSP}{name}"
    return _digits(value)


def exact(value: float | None) -> str:
    """A number with all its digits, in groups of three; fractions with three of theirs."""
    if value is None:
        return NONE
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}"


def duration(value_us: float | None) -> str:
    """A time span in its two greatest units: 350 µs, 4.2 ms, 12 s, 2 h 5 min, 3 d 4 h."""
    if value_us is None:
        return NONE
    if value_us < 1000:
        return f"{round(value_us)}{_NBSP}µs"
    if value_us < 999_500:
        return f"{_digits(value_us / 1000)}{_NBSP}ms"
    if value_us < 59_500_000:
        return f"{_digits(value_us / 1_000_000)}{_NBSP}s"
    for (unit_us, name), (next_us, next_name) in pairwise(_UNITS_US):
        # Rounded first, so that there is no 1 h 60 min.
        whole, rest_us = divmod(round(value_us / next_us) * next_us, unit_us)
        if whole:
            rest = rest_us // next_us
            return f"{whole:,}{_NBSP}{name}" + (f"{_NBSP}{rest}{_NBSP}{next_name}" if rest else "")
    raise AssertionError("what is shorter than a minute was told above")


def share(value: float | None) -> str:
    """A share in percent; it is 0 % or 100 % only if it is so exactly."""
    if value is None:
        return NONE
    percent = value * 100
    if percent in (0, 100):
        return f"{percent:.0f}{_NBSP}%"
    if percent < 0.01:
        return f"<{_NBSP}0.01{_NBSP}%"
    if percent > 99.99:
        return f">{_NBSP}99.99{_NBSP}%"
    if percent < 1 or percent > 99:
        return f"{percent:.2f}{_NBSP}%"
    return f"{percent:.1f}{_NBSP}%"


def round_share(value: float) -> str:
    """A round share in percent, as at an axis."""
    return f"{value * 100:.4g}{_NBSP}%"


def moment(value: datetime | None) -> str:
    """A moment, to the minute, UTC."""
    return NONE if value is None else f"{value.day} {value:%b %Y, %H:%M} UTC"


def stamp(value: datetime | None) -> str:
    """A moment for tables: short, and in order when sorted as text."""
    return NONE if value is None else f"{value:%Y-%m-%d %H:%M}"


def _digits(value: float) -> str:
    """Two significant digits below ten, else whole."""
    if abs(value) < 9.95 and not float(value).is_integer():
        return f"{value:.2g}" if abs(value) < 0.95 else f"{value:.1f}".removesuffix(".0")
    return f"{value:,.0f}"

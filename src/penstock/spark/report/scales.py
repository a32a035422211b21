"""From values to places: scales of plots and their ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7 * 1440, 14 * 1440)
_MONTH_MINUTES: Final = 28 * 1440
# Round for people: thousandths up to seconds, then sixtieths, then days.
DURATION_STEPS_US: Final = (
    *(10**power for power in range(7)),
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    6 * 3_600_000_000,
    86_400_000_000,
    7 * 86_400_000_000,
    30 * 86_400_000_000,
    365 * 86_400_000_000,
    3650 * 86_400_000_000,
)


def minute_step(minutes: int, count_max: int) -> int:
    """The shortest round number of minutes that cuts a time into at most so many parts, wherever it begins."""
    for step in _MINUTE_STEPS:
        if minutes / step + 1 <= count_max:
            return step
    return _MONTH_MINUTES * math.ceil(minutes / _MONTH_MINUTES / max(1, count_max - 1))


@dataclass(frozen=True, slots=True)
class Scale:
    """Puts values between `low` and `high` between the places `start` and `end`; values beyond are held at the ends."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def linear_scale(greatest: float, start: float, end: float, *, ticks_max: int = 6, whole: bool = False) -> Scale:
    """From 0 to a round number at or above the greatest value; with `whole`, ticks are whole numbers."""
    step = _round_step(greatest / (ticks_max - 1)) if greatest > 0 else 1.0
    if whole:
        step = max(1.0, step)
    tops = max(1, math.ceil(greatest / step - 1e-9))
    return Scale(0.0, tops * step, start, end, tuple(number * step for number in range(tops + 1)))


def share_scale(greatest: float, start: float, end: float) -> Scale:
    """For shares: from 0 to a round one, never above all."""
    scale = linear_scale(max(greatest, 0.001), start, end, ticks_max=5)
    return Scale(0.0, 1.0, start, end, (0.0, 0.25, 0.5, 0.75, 1.0)) if scale.high > 1 else scale


def duration_scale(least_us: float, greatest_us: float, start: float, end: float, *, ticks_max: int) -> Scale:
    """From a round time span to another on a log scale, with at most so many ticks between and at them."""
    steps = DURATION_STEPS_US
    top = next((number for number, step in enumerate(steps) if step >= greatest_us), len(steps) - 1)
    bottom = max((number for number, step in enumerate(steps[:-1]) if step <= least_us), default=0)
    chosen = steps[bottom : max(top, bottom + 1) + 1]
    ticks = tuple(float(step) for step in chosen[:: math.ceil(len(chosen) / ticks_max)])
    return Scale(float(chosen[0]), float(chosen[-1]), start, end, ticks, is_log=True)


def time_scale(begin: datetime, end: datetime, start: float, stop: float, *, ticks_max: int) -> Scale:
    """Moments as seconds of the epoch, with ticks at round minutes, hours, days or weeks."""
    low, high = begin.timestamp(), end.timestamp()
    step_s = minute_step(math.ceil((high - low) / 60), ticks_max) * 60
    first = math.ceil(low / step_s) * step_s
    return Scale(low, high, start, stop, tuple(float(tick) for tick in range(first, math.floor(high) + 1, step_s)))


def time_labels(ticks: Sequence[float]) -> list[str]:
    """What to write at ticks of a time scale: the time of day; the day at its beginning."""
    moments = [_EPOCH + timedelta(seconds=tick) for tick in ticks]
    return [f"{each.day} {each:%b}" if each.hour == each.minute == 0 else f"{each:%H:%M}" for each in moments]


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, in order and near the wanted ones, at least `gap` apart as far as there is room."""
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=places.__getitem__)
    result = list(places)
    floor = low
    for position in order:
        result[position] = max(result[position], floor)
        floor = result[position] + gap
    ceiling = high
    for position in reversed(order):
        result[position] = min(result[position], ceiling)
        ceiling = result[position] - gap
    return result


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))

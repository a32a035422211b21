"""From samples to verdicts: medians over the rounds, ratios within each round, goals reached or not."""

from __future__ import annotations

from dataclasses import dataclass

from bench.model import FIGURES, Bound, Goal, Outcome, Sample
from bench.quantiles import median


@dataclass(frozen=True)
class Reading:
    """A goal's bound beside what was measured; nothing where it could not be."""

    bound: Bound
    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Verdict:
    """What became of a goal."""

    goal: Goal
    reach: Reading
    aim: Reading | None


def medians(samples: list[Sample]) -> Sample:
    """The median of each figure; of the worst cases the worst."""
    names = [name for name in FIGURES if any(name in sample for sample in samples)]
    return {
        name: (max if name == "max_ms" else median)([sample[name] for sample in samples if name in sample])
        for name in names
    }


def judge(outcome: Outcome) -> list[Verdict]:
    """All goals of a row."""
    return [
        Verdict(
            goal,
            _read(outcome, goal, goal.reach),
            _read(outcome, goal, goal.aim) if goal.aim is not None else None,
        )
        for goal in outcome.row.goals
    ]


def _read(outcome: Outcome, goal: Goal, bound: Bound) -> Reading:
    own = outcome.samples.get(goal.entry, [])
    if bound.times is None:
        measured = medians(own).get(goal.figure)
    else:
        measured = _ratio(own, outcome.samples.get(bound.times, []), goal.figure)
    if measured is None:
        return Reading(bound, None, None)
    return Reading(bound, measured, measured <= bound.value if goal.most else measured >= bound.value)


def _ratio(own: list[Sample], other: list[Sample], figure: str) -> float | None:
    """The median of the ratios of each round: what disturbs a round disturbs both, and cancels out."""
    ratios = [
        mine[figure] / theirs[figure]
        for mine, theirs in zip(own, other, strict=False)
        if figure in mine and theirs.get(figure)
    ]
    return median(ratios) if ratios else None

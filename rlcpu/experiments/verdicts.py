"""Which of two variants is better, as far as their runs tell: numbers, and a verdict in words."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcpu.experiments.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    STATISTICS,
    Array,
    Interval,
    interval,
    probability_of_improvement,
)
from rlcpu.experiments.tables import (
    INTERVAL,
    bounds_in_words,
    decimals,
    labelled,
    number,
    paragraphs,
    wrapped,
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Comparison of two variants by their runs; printed it is a few sentences.

    Attributes:
        first, second: the variants.
        statistic: "mean", "median" or "iqm".
        unit: what is compared: "return", "score" (normalised), or "steps", where fewer are better.
        num_pairs: pairs of runs, of one seed each.
        values: the statistic of each.
        difference: of the first from the second, with its interval.
        probability: that a run of the first is better than one of the second, with its interval.
        words: the verdict.
        notes: sentences on what it does not say.
    """

    first: str
    second: str
    statistic: str
    unit: str
    num_pairs: int
    values: tuple[float, float]
    difference: Interval
    probability: Interval
    words: str
    notes: tuple[str, ...]

    def lines(self) -> list[tuple[str, str]]:
        """Return what is estimated and its value, in words, and the verdict at the end."""
        digits = decimals(self.values, [self.difference.high - self.difference.low])
        first, second = (number(value, digits) for value in self.values)
        seeds = f"{self.num_pairs} seed{'s' * (self.num_pairs > 1)} in pairs"
        difference = number(self.difference.value, digits, sign=True)
        chance = f"{self.probability.value:.2f} that a run of {self.first!r} is the better one"
        return [
            (
                f"{self.statistic.replace('iqm', 'IQM')} {self.unit}",
                f"{first} of {self.first!r}, {second} of {self.second!r}; {seeds}",
            ),
            (
                "difference",
                f"{difference}, {INTERVAL} {bounds_in_words(*self.difference[1:], digits)}",
            ),
            ("probability", f"{chance}, {INTERVAL} {bounds_in_words(*self.probability[1:], 2)}"),
            ("verdict", self.words),
        ]

    def __str__(self) -> str:
        return "\n".join([*labelled(self.lines()), *wrapped(self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the sentences for notebooks."""
        *numbers, (_, verdict) = self.lines()
        lines = paragraphs(f"{name}: {text}" for name, text in numbers)
        return f"{lines}<p><b>Verdict: {html.escape(verdict)}</b></p>{paragraphs(self.notes)}"


def judge(
    names: tuple[str, str],
    pairs: Sequence[Array],
    statistic: str,
    unit: str,
    num_comparisons: int,
    notes: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on two variants.

    Args:
        names: of the variants.
        pairs: (2, n) scores of n seeds of both, for each environment.
        statistic: "mean", "median" or "iqm".
        unit: of the scores; see `Verdict`.
        num_comparisons: how many pairs of variants there are to choose from.
        notes: sentences on the pairs.
    """
    function = STATISTICS[statistic]
    better = -1.0 if unit == "steps" else 1.0  # fewer steps are better

    def difference(*drawn: Any, axis: int) -> Array:
        ours, theirs = _chosen(pairs, drawn)
        return np.asarray(function(*ours, axis=axis) - function(*theirs, axis=axis))

    def probability(*drawn: Any, axis: int) -> Array:
        ours, theirs = ([better * each for each in side] for side in _chosen(pairs, drawn))
        return probability_of_improvement(ours, theirs, axis=axis)

    numbers: list[Any] = [np.arange(pair.shape[1]) for pair in pairs]
    gap, chance = interval(numbers, difference), interval(numbers, probability)
    sides = _chosen(pairs, numbers)
    several = [
        f"This is one of {num_comparisons} pairs of variants: of {round(1 / (1 - LEVEL))} pairs of "
        "equals one is expected to seem different."
    ]
    return Verdict(
        *names,
        statistic,
        unit,
        num_pairs=sum(map(len, numbers)),
        values=(float(function(*sides[0])), float(function(*sides[1]))),
        difference=Interval(*map(float, gap)),
        probability=Interval(*map(float, chance)),
        words=_words(names, min(map(len, numbers)), better * np.array(gap), float(chance.value)),
        notes=(*notes, *(several if num_comparisons > 1 else [])),
    )


def _chosen(pairs: Sequence[Array], drawn: Any) -> tuple[list[Array], list[Array]]:
    """Return the scores (..., n) of both sides for pairs whose numbers (..., n) were drawn."""
    chosen = [pair[:, numbers] for pair, numbers in zip(pairs, drawn, strict=True)]
    return [each[0] for each in chosen], [each[1] for each in chosen]


def _words(names: tuple[str, str], fewest: int, gap: Array, chance: float) -> str:
    """Return a verdict: a claim only where the interval of the difference is on one side of 0.

    Args:
        names: of the variants.
        fewest: pairs in the environment that has fewest.
        gap: by how much the first is better, and the bounds of that in any order.
        chance: that a run of the first is better than one of the second.
    """
    if fewest < FEWEST_SEEDS:
        return (
            f"none, of {fewest} seed{'s' * (fewest > 1)}: no interval of fewer than {FEWEST_SEEDS} "
            "holds the truth as often as it says."
        )
    low, high = sorted(gap[1:])
    if low <= 0.0 <= high:
        return (
            "no difference can be told: its interval includes 0. That is no evidence that they are "
            "equal; more seeds make the interval narrower."
        )
    (better, other), share = (names, chance) if low > 0.0 else (names[::-1], 1.0 - chance)
    words = f"{better!r} is better: the interval of its difference from {other!r} excludes 0."
    if share <= 0.5:
        words += " Yet most of its single runs are not: look at all of them."
    return words

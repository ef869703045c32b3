"""Statistics over seeds: Agarwal et al.'s definitions, and intervals that hold what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from rlcpu.experiments import statistics
from rlcpu.experiments.statistics import (
    Array,
    interquartile_mean,
    interval,
    mean,
    median,
    probability_of_improvement,
)

Draw = Callable[[np.random.Generator, int], Array]


def naive_interquartile_mean(scores: Array) -> float:
    """The mean of the middle half of all numbers."""
    ordered, cut = sorted(scores.ravel()), scores.size // 4
    return float(np.mean(ordered[cut : len(ordered) - cut]))


@pytest.mark.parametrize("shape", [(10, 1), (5, 3), (4, 1), (3, 1), (7, 26)])
def test_aggregates_are_those_of_rliable(shape: tuple[int, int]) -> None:
    """Its functions take a table of runs by tasks."""
    scores = np.random.default_rng(0).lognormal(size=shape)
    strata = list(scores.T)
    assert interquartile_mean(*strata) == pytest.approx(naive_interquartile_mean(scores))
    assert interquartile_mean(*strata) == stats.trim_mean(scores, 0.25, axis=None)
    assert mean(*strata) == pytest.approx(np.mean(np.mean(scores, axis=0)))
    if shape[1] > 1:
        assert median(*strata) == pytest.approx(np.median(np.mean(scores, axis=0)))
    else:  # with one task that would be its mean: this is the median over runs
        assert median(*strata) == np.median(scores)


def test_environments_count_alike_whatever_their_number_of_runs() -> None:
    strata = [np.array([0.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0])]
    assert mean(*strata) == 0.5


def test_the_probability_of_improvement_is_mann_and_whitneys() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 5, 9).astype(float), rng.integers(1, 6, 7).astype(float)
    expected = stats.mannwhitneyu(first, second).statistic / (9 * 7)
    assert probability_of_improvement([first], [second]) == pytest.approx(expected)
    assert probability_of_improvement([second], [first]) == pytest.approx(1.0 - expected)
    both = probability_of_improvement([first, np.ones(3)], [second, np.zeros(4)])
    assert both == pytest.approx((expected + 1.0) / 2.0)
    assert probability_of_improvement([np.ones(3)], [np.ones(5)]) == 0.5


def normal(rng: np.random.Generator, n: int) -> Array:
    return rng.normal(size=n)


def solved_or_failed(rng: np.random.Generator, n: int) -> Array:
    """As agents do that either solve a task or stay where they began."""
    return np.where(rng.random(n) < 0.7, 500.0, 100.0) + rng.normal(size=n)


def coverage(draw: Draw, n: int, truth: float, statistic: statistics.Statistic) -> float:
    """The share of 400 experiments of n seeds whose interval holds the truth."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        _, low, high = interval([draw(rng, n)], statistic, samples=4000)
        held += bool(low <= truth <= high)
    return held / 400


@pytest.mark.parametrize(
    ("draw", "n", "truth", "statistic"),
    [
        (normal, 10, 0.0, mean),
        (normal, 10, 0.0, interquartile_mean),
        (normal, 20, 0.0, mean),
        (solved_or_failed, 20, 380.0, mean),
    ],
)
def test_an_interval_holds_the_truth_as_often_as_it_says(
    draw: Draw, n: int, truth: float, statistic: statistics.Statistic
) -> None:
    assert 0.91 <= coverage(draw, n, truth, statistic) <= 0.98


def test_intervals_of_few_seeds_hold_less_than_they_say() -> None:
    """From five on the gap is small; percentiles that nothing widens miss more."""
    assert coverage(normal, 3, 0.0, mean) < 0.85
    assert coverage(normal, 5, 0.0, mean) > 0.88
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        drawn = (normal(rng, 5),)
        plain = stats.bootstrap(drawn, np.mean, n_resamples=1000, method="percentile")
        low, high = plain.confidence_interval
        held += bool(low <= 0.0 <= high)
    assert held / 400 < 0.87


def test_runs_are_drawn_within_their_environment() -> None:
    """Scores that only differ between environments leave nothing unsure."""
    found = interval([np.zeros(5), np.ones(5)], mean)
    assert found == (0.5, 0.5, 0.5)


def test_of_several_environments_intervals_are_as_wide_as_their_runs_allow() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=10)
    narrow = interval([one + shift for shift in range(4)], mean)
    wide = interval([one], mean)
    ratio = (narrow.high - narrow.low) / (wide.high - wide.low)
    assert 0.4 < ratio < 0.5  # a half, and less is added for t of so many runs


def test_the_points_of_a_curve_have_an_interval_each() -> None:
    runs = np.random.default_rng(0).normal(size=(10, 3)) * [1.0, 0.0, 2.0]
    value, low, high = interval([runs], interquartile_mean)
    assert value.shape == low.shape == high.shape == (3,)
    assert (high - low)[1] == 0.0
    assert (low <= value).all()
    assert (value <= high).all()
    single = interval([runs[:, 0]], interquartile_mean)
    np.testing.assert_allclose([low[0], high[0]], single[1:], atol=0.05)


def test_the_same_runs_have_the_same_interval() -> None:
    runs = [np.random.default_rng(0).normal(size=10)]
    assert interval(runs, mean) == interval(runs, mean)


@pytest.mark.parametrize("strata", [[np.ones(1)], [np.arange(5.0), np.ones(1)]])
def test_one_run_has_no_interval(strata: list[Array]) -> None:
    found = interval(strata, mean)
    assert np.isfinite(found.value)
    assert np.isnan(found[1:]).all()


def test_two_runs_have_the_interval_between_them() -> None:
    found = interval([np.array([1.0, 3.0])], mean)
    assert found == (2.0, 1.0, 3.0)


def test_without_scipy_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match="statistics over seeds need SciPy: pip install scipy"):
        interval([np.arange(5.0)], mean)


def test_another_statistic_is_refused() -> None:
    with pytest.raises(ValueError, match="statistic='best': expected one of mean, median, iqm"):
        statistics.check_statistic("best")

"""Draws of an `Rng`: kernels give the bits of plain Python, and numbers of their distributions."""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rlcpu.envs import Rng, replace
from rlcpu.kernels.compiler.compile import kernel, specialise
from rlcpu.kernels.machine import distributions
from rlcpu.kernels.machine.random import STEP_GROUP
from rlcpu.kernels.machine.random_methods import make_rng

DTYPES = [np.float32, np.float64]
SIGNIFICANCE = 1e-4
#: Evenly spread words: what is drawn from them is the distribution but for its last 2**-20.
WORDS = (np.arange(1 << 20, dtype=np.uint64) * 4096 + 2048).astype(np.uint32)
LEVELS = (WORDS + 0.5) / 2.0**32


@functools.cache
def make_fill(distribution: Any, dtype: type) -> Any:
    scalar = specialise(distribution, dtype, exact=True)

    @kernel
    def fill(words, numbers, inputs):
        for i in range(numbers.shape[0]):
            numbers[i] = scalar(words[i], *inputs)

    return fill


def draw(distribution: Any, dtype: type, kind: type, *inputs: Any) -> Any:
    """Return what a kernel draws from `WORDS`, after a look at some of them in plain Python."""
    inputs = tuple(dtype(x) if isinstance(x, float) else x for x in inputs)
    numbers = np.empty(len(WORDS), kind)
    make_fill(distribution, dtype)(WORDS, numbers, inputs)
    plain, some = distributions.in_python(distribution, dtype), slice(None, None, 4097)
    given = [x.item() if isinstance(x, np.generic) else x for x in inputs]
    assert numbers[some].tolist() == [plain(word, *given) for word in WORDS[some]]
    assert (np.diff(numbers) >= 0).all()
    return numbers.astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_and_exponential_numbers_are_quantiles(dtype: type) -> None:
    found = draw(distributions.normal, dtype, dtype)
    np.testing.assert_allclose(found, stats.norm.ppf(LEVELS), rtol=3e-7, atol=2e-7)
    found = draw(distributions.exponential, dtype, dtype)
    np.testing.assert_allclose(found, -np.log1p(-(WORDS / 2.0**32)), rtol=3e-7, atol=1e-7)
    ends = np.array([0, 2**32 - 1], np.uint32)
    normal = distributions.in_python(distributions.normal, dtype)
    assert normal(ends[0]) == -normal(ends[1]) == pytest.approx(stats.norm.ppf(2.0**-33), rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_poisson_numbers_are_quantiles(dtype: type) -> None:
    # The share of words that may give a neighbour of their number.
    allowed = {0.0: 0.0, 0.01: 2e-6, 2.5: 4e-6, 9.0: 4e-6, 9.1: 4e-5, 30.0: 4e-5, 1e3: 1e-4}
    for lam, share in allowed.items():
        found = draw(distributions.poisson, dtype, np.int32, lam)
        expected = np.searchsorted(stats.poisson(lam).cdf(np.arange(2000)), LEVELS)
        assert (found != expected).mean() <= share, lam
        assert np.abs(found - expected).max() <= 1, lam


@pytest.mark.parametrize("dtype", DTYPES)
def test_binomial_numbers_are_quantiles(dtype: type) -> None:
    few = [(0, 0.3), (1, 0.3), (9, 0.0), (9, 1.0), (36, 0.5), (1000, 0.001), (10**6, 1e-6)]
    allowed = dict.fromkeys(few, 6e-6) | {(37, 0.5): 3e-4, (50, 0.3): 2e-4, (1000, 0.6): 1e-4}
    for (n, p), share in allowed.items():
        found = draw(distributions.binomial, dtype, np.int32, n, p)
        levels = LEVELS if p <= 0.5 else 1.0 - LEVELS
        rarer = np.searchsorted(stats.binom(n, min(p, 1.0 - p)).cdf(np.arange(n + 1)), levels)
        rarer = np.minimum(rarer, n)
        expected = rarer if p <= 0.5 else n - rarer
        assert (found != expected).mean() <= share, (n, p)
        assert np.abs(found - expected).max() <= 1, (n, p)


def draw_all(rng: Any, i: Any) -> Any:
    """Every draw, with a number and without, some of them in a branch and a loop."""
    first = rng.uniform() if i % 3 == 0 else 0.0
    walk = 0.0
    for _ in range(3):
        walk = max(walk, rng.normal())
    hand = replace(rng.permutation(6, (1.0, 2.0, 3.0)), i % 3, 9.0)
    order = rng.permutation(5)
    a, b, c, d, e = order
    orders = float(a), float(b), float(c), float(d), float(e)
    real = (first, walk, rng.uniform(2), rng.exponential(), rng.exponential(3), rng.normal(7))
    counts = (
        float(rng.integers(7)),
        float(rng.integers(9, 7)),
        float(rng.poisson(2.5)),
        float(rng.binomial(5, 100, 0.3)),
        float(rng.categorical((0.1, 0.2, 0.7))),
        float(rng.categorical(8, (1, 0, 3))),
        float(rng.integers(5)),
    )
    return real + counts + orders + hand


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_and_python_draw_the_same(dtype: type) -> None:
    make, scalar = make_rng(STEP_GROUP, dtype), specialise(draw_all, dtype, exact=True)

    @kernel
    def fill(a, b, numbers, decks):
        for i in range(numbers.shape[0]):
            rng = make(a[i], b[i])
            for k, number in enumerate(scalar(rng, i)):
                numbers[i, k] = number
            rng.shuffle(decks[i])
            numbers[i, 21] = rng.categorical(decks[i])

    rngs = [Rng.of_seed(seed)._replace(dtype=dtype) for seed in range(100)]
    words = np.array([(rng.a, rng.b) for rng in rngs], np.uint32)
    numbers, decks = np.zeros((100, 22), dtype), np.tile(np.arange(52), (100, 1))
    fill(words[:, 0].copy(), words[:, 1].copy(), numbers, decks)
    for i, rng in enumerate(rngs):
        np.testing.assert_array_equal(numbers[i, :21], np.array(draw_all(rng, i), dtype))
        deck = np.arange(52)
        rng.shuffle(deck)
        assert decks[i].tolist() == deck.tolist()
        assert sorted(decks[i].tolist()) == list(range(52))
        assert numbers[i, 21] == rng.categorical(deck)


def test_numbers_in_turn_are_others_and_leave_those_with_an_index() -> None:
    rng = Rng.of_seed(3)
    counted = [rng.uniform() for _ in range(50)]
    assert len({*counted, *(rng.uniform(k) for k in range(50))}) == 100
    assert rng.again().uniform() == counted[0]
    assert rng.calls == [50]
    first, second = np.array([[r.uniform(), r.uniform()] for r in map(Rng.of_seed, range(4000))]).T
    assert stats.kstest(first, "uniform").pvalue > SIGNIFICANCE
    assert stats.pearsonr(first, second).pvalue > SIGNIFICANCE


def test_draws_have_their_distributions() -> None:
    """Of single draws from many seeds, in plain Python, whose bits are those of kernels."""
    rngs = [Rng.of_seed(seed) for seed in range(6000)]
    assert stats.kstest([rng.normal() for rng in rngs], "norm").pvalue > SIGNIFICANCE
    assert stats.kstest([rng.exponential() for rng in rngs], "expon").pvalue > SIGNIFICANCE
    counts = np.bincount([rng.poisson(3.0) for rng in rngs], minlength=20)
    assert_counts(counts, stats.poisson(3.0).pmf(np.arange(len(counts))))
    counts = np.bincount([rng.poisson(20.0) for rng in rngs], minlength=60)
    assert_counts(counts, stats.poisson(20.0).pmf(np.arange(len(counts))))
    counts = np.bincount([rng.binomial(60, 0.7) for rng in rngs], minlength=61)
    assert_counts(counts, stats.binom(60, 0.7).pmf(np.arange(61)))
    weights = (2.0, 0.0, 1.0, 5.0, 0.0)
    counts = np.bincount([rng.categorical(weights) for rng in rngs], minlength=5)
    assert counts[1] == counts[4] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 6000 * np.array([2, 1, 5]) / 8).pvalue > SIGNIFICANCE
    orders = list(itertools.permutations(range(4)))
    counts = np.bincount([orders.index(rng.permutation(4)) for rng in rngs], minlength=24)
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


def assert_counts(counts: Any, probabilities: Any) -> None:
    """Chi-square, the rare outcomes taken together."""
    expected = probabilities * counts.sum()
    often = expected >= 5.0
    found = [*counts[often], counts[~often].sum()]
    wanted = [*expected[often], counts.sum() - expected[often].sum()]
    assert stats.chisquare(found, wanted).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda rng: rng.poisson(-1.0), "lam=-1.0: expected a mean of at least 0"),
        (lambda rng: rng.poisson(0, math.nan), "lam=nan: expected"),
        (lambda rng: rng.binomial(-1, 0.5), "n=-1, p=0.5: expected n of at least 0"),
        (lambda rng: rng.binomial(3, 1.5), "n=3, p=1.5: expected"),
        (lambda rng: rng.categorical((0.0, 0.0)), r"weights=\(0.0, 0.0\): expected numbers"),
        (lambda rng: rng.categorical(()), r"weights=\(\): expected numbers"),
        (lambda rng: rng.categorical((1.0, -1.0)), "not all 0"),
    ],
)
def test_impossible_distributions_are_refused(ask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(Rng.of_seed(0))

"""The shuffle permutes, and permutes evenly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rlcpu.kernels.compiler.compile import kernel
from rlcpu.kernels.machine.random import mix
from rlcpu.nn.learning.order import bits_of, shuffled


@kernel
def permutation(count, low, high, epoch):
    out = np.empty(count, np.int64)
    a, b = mix(low, high, epoch)
    for i in range(count):
        out[i] = shuffled(i, count, bits_of(count), a, b)
    return out


def draw(count: int, epoch: int) -> np.ndarray:
    return permutation(count, np.uint32(123), np.uint32(456), np.uint32(epoch))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100, 257, 4096, 5000])
def test_every_sample_comes_once(count: int) -> None:
    for epoch in range(20):
        np.testing.assert_array_equal(np.sort(draw(count, epoch)), np.arange(count))


def test_epochs_differ() -> None:
    drawn = {tuple(draw(16, epoch)) for epoch in range(1000)}
    assert len(drawn) > 990


@pytest.mark.parametrize("count", [5, 24, 32])
def test_places_and_pairs_are_even(count: int) -> None:
    """Chi-square tests at 1e-4: where samples land, and which two are drawn together first."""
    drawn = np.array([draw(count, epoch) for epoch in range(20_000)])
    for position in (0, 1, count // 2, count - 1):
        assert stats.chisquare(np.bincount(drawn[:, position], minlength=count)).pvalue > 1e-4
    pairs = np.bincount(drawn[:, 0] * count + drawn[:, 1], minlength=count * count)
    pairs = np.delete(pairs, np.arange(count) * (count + 1))
    assert stats.chisquare(pairs).pvalue > 1e-4

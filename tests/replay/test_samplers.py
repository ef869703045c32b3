"""Importance weights against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlcpu.replay.tree_cpu import importance_weight, importance_weights


def weights_of(leaves, indices, beta, total=10.0):
    indices = np.asarray(indices)
    probabilities, weights = np.empty(indices.size), np.empty(indices.size, np.float32)
    arguments = (np.asarray(leaves, float), indices, total, np.float32(beta))
    importance_weights()[1](*arguments, probabilities, weights)
    return probabilities, weights


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 80.0])
def test_weights_are_powers_of_the_ratio_to_the_least_probable(beta, spread):
    rng = np.random.default_rng(0)
    leaves, indices = np.exp(rng.uniform(0, spread, 300)), rng.integers(0, 300, 257)
    probabilities, weights = weights_of(leaves, indices, beta)
    np.testing.assert_array_equal(probabilities, leaves[indices] / 10.0)
    drawn = leaves[indices].astype(np.longdouble)
    exact = (drawn.min() / drawn) ** np.longdouble(np.float32(beta))
    bound = (2.0 + np.log(drawn / drawn.min()).astype(float)) * 1.2e-7
    assert (np.abs(weights - exact) <= bound * exact).all()
    assert weights.max() == 1.0


@pytest.mark.parametrize(("beta", "expected"), [(0.0, [1.0, 1.0]), (1.0, [1.0, 0.0])])
def test_leaves_whose_ratio_is_beyond_float32(beta, expected):
    _, weights = weights_of([1e-300, 1e200], [0, 1], beta)
    np.testing.assert_allclose(weights, expected, atol=1e-38)


def test_the_scalar_function_in_plain_python():
    assert importance_weight(1.0, 0.7) == 1.0
    assert importance_weight(16.0, 0.5) == pytest.approx(0.25)
    assert math.isclose(importance_weight(8.0, 1.0), 0.125)

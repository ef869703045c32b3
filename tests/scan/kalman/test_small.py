"""One model of at most two states: its step in plain Python, and its kernel."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.scan import kalman_loglik
from rlcpu.scan.kalman.small import (
    SAFE,
    Gaussian,
    Model,
    forecast_of,
    has_converged,
    multiply_pivot,
    pad,
    step,
    step_steady,
    weight_of,
)
from tests.scan.kalman.naive import NAMES, call, each_model, make_models, recursion


def read(arrays: dict[str, Any]) -> tuple[Model, Gaussian, np.ndarray]:
    """A model, the state before the first observation, and the observations."""
    numbers = pad(np.concatenate([arrays[name].ravel() for name in NAMES[1:]]))
    model = Model(*numbers[[0, 1, 2, 3, 4, 5, 7, 8, 9, 10]])
    return model, Gaussian(*numbers[[11, 12, 13, 14, 16]]), arrays["observations"].ravel()


def filter_plain(arrays: dict[str, Any]) -> float:
    """Log-likelihood by the step itself, uncompiled."""
    model, state, observations = read(arrays)
    forecast, total = forecast_of(state, model), 0.0
    for y in observations:
        state, forecast, square, spread = step(state, forecast, model, y)
        total += square + (0.0 if np.isnan(y) else math.log(2.0 * math.pi * spread))
        assert np.isnan(y) <= (square == 0.0 and spread == 1.0)
        np.testing.assert_allclose(forecast, forecast_of(state, model), rtol=1e-11, atol=1e-11)
    return -0.5 * total


def test_a_covariance_that_stands_still_needs_no_step():
    """Uncompiled: after many steps the next one and `step_steady` agree."""
    model, first, observations = read(make_models(2, 1, 200))
    state = before = first
    forecast = forecast_of(state, model)
    for y in observations:
        before = state
        state, forecast, square, spread = step(state, forecast, model, y)
    assert not has_converged(state, first, 1e-30)
    assert has_converged(state, before, 1e-30)
    w0, w1 = weight_of(before, model)
    other, v = step_steady(before, model, (w0 / spread, w1 / spread), observations[-1])
    np.testing.assert_allclose(other, state, rtol=1e-12)
    assert v * v / spread == pytest.approx(square, rel=1e-12)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 64, 200])
def test_likelihood_is_the_textbooks(m, missing, steps):
    arrays = make_models(m, 1, steps, missing=missing)
    (model,) = each_model(arrays)
    expected = float(recursion(model))
    assert filter_plain(arrays) == pytest.approx(expected, rel=1e-12)
    assert call(kalman_loglik, arrays) == pytest.approx(expected, rel=1e-12)
    single = {name: array.astype(np.float32) for name, array in arrays.items()}
    result = call(kalman_loglik, single)
    assert result.dtype == np.float32
    assert result == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-140, 1e-20, 1e20, 1e140])
def test_variances_of_any_size(scale):
    """Observations in another unit: the density changes by the unit, once each."""
    arrays = make_models(2, 1, 100)
    expected = call(kalman_loglik, arrays) - 100 * math.log(scale)
    arrays["observations"] *= scale
    for name in ("transition_cov", "observation_cov", "initial_cov"):
        arrays[name] *= scale * scale
    arrays["initial_mean"] *= scale
    np.testing.assert_allclose(call(kalman_loglik, arrays), expected, rtol=1e-11)


@pytest.mark.parametrize("steps", [1, 200])
@pytest.mark.parametrize("variance", [0.0, math.inf])
def test_no_density_where_a_variance_is_none(variance, steps):
    one = np.eye(1)
    design, y = (1e200 if variance else 0.0) * one, np.zeros((steps, 1))
    assert np.isnan(kalman_loglik(y, one, one, design, 0.0 * one))


@given(st.lists(st.floats(1e-300, 1e300), max_size=30))
def test_products_stay_in_range(spreads):
    product, volume = 1.0, 0.0
    for spread in spreads:
        product, volume = multiply_pivot(product, volume, spread)
        assert 1.0 / SAFE <= product <= SAFE
    expected = sum(map(math.log, spreads))
    assert volume + math.log(product) == pytest.approx(expected, rel=1e-12, abs=1e-10)


def test_a_singular_innovation_gives_nan():
    arrays = make_models(2, 1, 3)
    arrays["observation_cov"] = np.zeros((1, 1))
    arrays["design"] = np.zeros((1, 2))
    assert np.isnan(call(kalman_loglik, arrays))

"""Kalman filter, smoother and gradients against one joint normal distribution."""

import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.scan import kalman_filter, kalman_loglik, kalman_loglik_vjp, kalman_smooth
from rlcpu.scan.kalman.model import MATRICES
from rlcpu.scan.kalman.run import LONGEST
from tests.scan.kalman.naive import (
    NAMES,
    WIDE,
    Joint,
    call,
    each_model,
    make_models,
    problems,
    recursion,
    slope,
    solve,
)

#: Few examples: each is compared with dense matrices in extended precision, in Python.
few = settings(max_examples=25)


def assert_close(result: Any, expected: Any, tolerance: float = 1e-11) -> None:
    expected = np.asarray(expected, np.float64)
    scale = 1.0 + (abs(expected).max() if expected.size else 0.0)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * scale)


@few
@given(problems)
def test_loglik_is_the_joint_density(problem):
    arrays, options = problem
    models = each_model(arrays, options["time_varying"])
    result = call(kalman_loglik, arrays, **options)
    assert_close(result.ravel(), [Joint(model).loglik() for model in models])


@few
@given(problems)
def test_filtered_and_smoothed_states_are_conditional(problem):
    arrays, options = problem
    models = each_model(arrays, options["time_varying"])
    filtered = call(kalman_filter, arrays, **options)
    smoothed = call(kalman_smooth, arrays, **options)
    loglik = call(kalman_loglik, arrays, **options)
    assert_close(filtered.loglik, loglik, 1e-13)
    assert_close(smoothed.loglik, loglik, 1e-13)
    steps, p = arrays["observations"].shape[-2:]
    counts = {
        "predicted": [t * p for t in range(steps)],
        "filtered": [(t + 1) * p for t in range(steps)],
        "smoothed": [steps * p] * steps,
    }
    results = {
        "predicted": (filtered.predicted_mean, filtered.predicted_cov),
        "filtered": (filtered.filtered_mean, filtered.filtered_cov),
        "smoothed": (smoothed.mean, smoothed.cov),
    }
    for name, (mean, cov) in results.items():
        assert mean.shape == (*loglik.shape, *mean.shape[-2:])
        pairs = zip(
            models,
            mean.reshape(-1, *mean.shape[-2:]),
            cov.reshape(-1, *cov.shape[-3:]),
            strict=True,
        )
        for model, means, covs in pairs:
            expected = Joint(model).states(counts[name])
            assert_close(means, expected[0])
            assert_close(covs, expected[1])


@few
@given(problems)
def test_gradients_are_derivatives(problem):
    arrays, options = problem
    varying = options["time_varying"]
    models = each_model(arrays, varying)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=call(kalman_loglik, arrays, **options).shape)
    loglik, gradients = call(kalman_loglik_vjp, arrays, grad=weights, **options)
    assert_close(loglik, call(kalman_loglik, arrays, **options), 1e-13)
    for name in NAMES:
        gradient = getattr(gradients, name)
        assert gradient.shape == arrays[name].shape
        direction = rng.normal(size=gradient.shape)
        if "cov" in name:
            np.testing.assert_allclose(gradient, gradient.swapaxes(-1, -2), rtol=1e-9, atol=1e-9)
            direction += direction.swapaxes(-1, -2)
        changes = each_model({**arrays, name: direction}, varying)
        expected = sum(
            weight * slope(model, name, getattr(change, name))
            for weight, model, change in zip(weights.ravel(), models, changes, strict=True)
        )
        size = 1.0 + abs(gradient * direction).sum()
        assert abs((gradient * direction).sum() - expected) < 1e-10 * size


def test_a_model_without_weight_has_no_gradient():
    """Whatever its own is: the square of an observation of 1e200 is infinite."""
    arrays = make_models(2, 1, 4, batch=(2,))
    arrays["observations"][1] = 1e200
    loglik, gradients = call(kalman_loglik_vjp, arrays, grad=[1.0, 0.0])
    assert loglik[1] == -math.inf
    (alone, expected) = call(kalman_loglik_vjp, {name: a[:1] for name, a in arrays.items()})
    np.testing.assert_allclose(loglik[:1], alone, rtol=1e-13)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient[:1], other, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(gradient[1], 0.0)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 64, 200])
def test_likelihood_is_the_textbooks(m, missing, steps):
    arrays = make_models(m, 1, steps, missing=missing)
    (model,) = each_model(arrays)
    expected = float(recursion(model))
    assert call(kalman_loglik, arrays) == pytest.approx(expected, rel=1e-12)
    single = {name: array.astype(np.float32) for name, array in arrays.items()}
    result = call(kalman_loglik, single)
    assert result.dtype == np.float32
    assert result == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("form", ["plain", "joseph"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients_where_the_covariance_stands_still(batch, form):
    """It does so after a chunk, and again after the gap; on the way back after two."""
    arrays = make_models(2, 2, 6 * LONGEST, batch=batch)
    arrays["transition"] *= 0.3
    arrays["observations"][..., 4 * LONGEST + 3, 1] = np.nan
    models, rng = each_model(arrays), np.random.default_rng(0)
    loglik, gradients = call(kalman_loglik_vjp, arrays, form=form)
    assert_close(loglik.ravel(), [recursion(model) for model in models])
    for name in NAMES:
        direction = rng.normal(size=arrays[name].shape)
        if "cov" in name:
            direction += direction.swapaxes(-1, -2)
        changes = each_model({**arrays, name: direction})
        pairs = zip(models, changes, strict=True)
        expected = sum(slope(model, name, getattr(change, name)) for model, change in pairs)
        parts = getattr(gradients, name) * direction
        assert abs(parts.sum() - expected) < 1e-10 * (1.0 + abs(parts).sum())


@pytest.mark.parametrize("batch", [(), (9,)])
@pytest.mark.parametrize("scale", [1e-140, 1e-20, 1e20, 1e140])
def test_variances_of_any_size(scale, batch):
    """Observations in another unit: the density changes by the unit, once each."""
    arrays = make_models(2, 1, 100, batch=batch)
    expected = call(kalman_loglik, arrays) - 100 * math.log(scale)
    arrays["observations"] *= scale
    for name in ("transition_cov", "observation_cov", "initial_cov"):
        arrays[name] *= scale * scale
    arrays["initial_mean"] *= scale
    np.testing.assert_allclose(call(kalman_loglik, arrays), expected, rtol=1e-11)


@pytest.mark.parametrize("batch", [2, 3, 7, 8, 9, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_equal_their_models(batch, dtype):
    arrays = make_models(5, 2, 150, batch=(batch,), missing=0.02, dtype=dtype)
    tolerance = 1e-12 if dtype == "float64" else 2e-4
    whole, slopes = call(kalman_loglik_vjp, arrays)
    assert whole.dtype == dtype
    for k in range(batch):
        part = {name: array[k] for name, array in arrays.items()}
        loglik, gradients = call(kalman_loglik_vjp, part)
        np.testing.assert_allclose(whole[k], loglik, rtol=tolerance)
        for one, all_ in zip(gradients, slopes, strict=True):
            assert one.dtype == dtype
            np.testing.assert_allclose(
                all_[k], one, rtol=tolerance, atol=10 * tolerance * abs(one).max()
            )


@pytest.mark.parametrize(("m", "p"), [(13, 9), (30, 3)])
def test_large_models(m, p):
    """Rows of more than a register, and of a part of one more."""
    arrays = make_models(m, p, 12, batch=(2,), missing=0.2)
    models = each_model(arrays)
    loglik, gradients = call(kalman_loglik_vjp, arrays)
    assert_close(loglik, [recursion(model) for model in models])
    direction = np.random.default_rng(0).normal(size=arrays["transition"].shape)
    changes = zip(models, direction, strict=True)
    expected = sum(slope(model, "transition", change) for model, change in changes)
    assert_close((gradients.transition * direction).sum(), expected, 1e-10)


@pytest.mark.parametrize("batch", [(), (19,)])
def test_threads_do_not_change_the_result(batch):
    arrays = make_models(4, 1, 400, batch=batch, missing=0.01)
    one, all_ = (call(kalman_loglik_vjp, arrays, num_threads=n) for n in (1, None))
    np.testing.assert_array_equal(one[0], all_[0])
    for a, b in zip(one[1], all_[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_josephs_form_keeps_what_the_plain_one_loses():
    """A state that stands still, of which nothing is known before: precisions add up."""
    steps, variance, noise = 20, 1e9, 1e-3
    design = np.random.default_rng(0).normal(size=(steps, 1, 3))
    precision = np.eye(3, dtype=WIDE) / variance
    precision += (design.swapaxes(-1, -2) @ design).astype(WIDE).sum(0) / noise
    exact, _ = solve(precision, np.eye(3, dtype=WIDE))
    errors = {}
    for form in ("plain", "joseph"):
        states = kalman_filter(
            np.zeros((steps, 1)),
            np.eye(3),
            np.zeros((3, 3)),
            design,
            noise * np.eye(1),
            initial_cov=variance * np.eye(3),
            time_varying=["design"],
            form=form,
        )
        errors[form] = abs(states.filtered_cov[-1] - exact).max() / abs(exact).max()
    assert errors["joseph"] < 0.1 * errors["plain"]
    assert errors["joseph"] < 1e-5


@pytest.mark.parametrize("form", ["plain", "joseph"])
def test_josephs_form_keeps_a_variance_far_below_the_one_before(form):
    """An observation 1e18 times as precise as what was known leaves the variance of its noise."""
    one = np.eye(1)
    states = kalman_filter(
        np.zeros((1, 1)), one, one, one, 1e-9 * one, initial_cov=1e9 * one, form=form
    )
    error = abs(states.filtered_cov.item() - 1e-9)
    assert (error < 1e-20) == (form == "joseph")


def test_unstable_models_stay_symmetric():
    arrays = make_models(3, 1, 200)
    arrays["transition"] *= 1.5
    cov = call(kalman_filter, arrays).predicted_cov
    np.testing.assert_array_equal(cov, cov.swapaxes(-1, -2))
    assert (np.linalg.eigvalsh(cov) > 0).all()


@pytest.mark.skipif(importlib.util.find_spec("statsmodels") is None, reason="needs statsmodels")
@pytest.mark.parametrize(("m", "p"), [(2, 1), (5, 3)])
def test_statsmodels_agrees(m, p):
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    arrays = make_models(m, p, 300, missing=0.1)
    names = ("transition", "state_cov", "design", "obs_cov")
    peer = KalmanSmoother(k_endog=p, k_states=m, loglikelihood_burn=0)
    peer.bind(arrays["observations"].copy())
    for name, own in zip(names, MATRICES, strict=True):
        peer[name] = arrays[own]
    peer["selection"] = np.eye(m)
    peer.initialize_known(arrays["initial_mean"], arrays["initial_cov"])
    expected = peer.smooth()
    smoothed = call(kalman_smooth, arrays)
    np.testing.assert_allclose(smoothed.loglik, peer.loglike(), rtol=1e-11)
    np.testing.assert_allclose(smoothed.mean, expected.smoothed_state.T, rtol=1e-7, atol=1e-9)
    covs = np.moveaxis(expected.smoothed_state_cov, -1, 0)
    np.testing.assert_allclose(smoothed.cov, covs, rtol=1e-7, atol=1e-9)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_gradients_of_jax_agree():
    import jax
    import jax.numpy as jnp

    def loglik(y, transition, transition_cov, design, observation_cov, mean, cov):
        def step(carry, y):
            mean, cov = carry
            projected = design @ cov
            s = projected @ design.T + observation_cov
            v = y - design @ mean
            gain = jnp.linalg.solve(s, projected).T
            density = -0.5 * (jnp.linalg.slogdet(2 * jnp.pi * s)[1] + v @ jnp.linalg.solve(s, v))
            mean, cov = mean + gain @ v, cov - gain @ projected
            return (transition @ mean, transition @ cov @ transition.T + transition_cov), density

        return jax.lax.scan(step, (mean, cov), y)[1].sum()

    arrays = make_models(4, 2, 200)
    with jax.enable_x64(True):
        inputs = [jnp.asarray(arrays[name]) for name in NAMES]
        value, slopes = jax.value_and_grad(loglik, argnums=tuple(range(7)))(*inputs)
    result, gradients = call(kalman_loglik_vjp, arrays)
    np.testing.assert_allclose(result, value, rtol=1e-12)
    for name, own, peer in zip(NAMES, gradients, map(np.asarray, slopes), strict=True):
        if "cov" in name:
            peer = (peer + peer.T) / 2
        np.testing.assert_allclose(own, peer, rtol=1e-8, atol=1e-8 * abs(peer).max())

"""Covariances that stand still are no longer computed: which ones do, and that nothing changes."""

from typing import Any

import numpy as np
import pytest

from rlcpu.scan import kalman_filter, kalman_loglik, kalman_loglik_vjp, kalman_smooth
from rlcpu.scan.kalman.model import MATRICES
from rlcpu.scan.kalman.run import LONGEST
from tests.scan.kalman.naive import NAMES, call, make_models


def declared_varying(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the same models with every matrix repeated over time: these are always computed."""
    steps = arrays["observations"].shape[-2]
    repeated = dict(arrays)
    for name in MATRICES:
        shape = arrays[name].shape
        wide = (*shape[:-2], steps, *shape[-2:])
        repeated[name] = np.broadcast_to(arrays[name][..., None, :, :], wide)
    return repeated


@pytest.mark.parametrize("batch", [(), (9,)])
@pytest.mark.parametrize(("m", "p"), [(1, 1), (2, 1), (8, 1), (3, 2)])
@pytest.mark.parametrize("gap", [None, slice(350, 353), slice(700, 701)])
def test_a_covariance_that_stands_still_changes_nothing(batch, m, p, gap):
    """The same matrices, once constant and once declared to vary."""
    arrays = make_models(m, p, 23 * LONGEST + 1, batch=batch)
    if gap is not None:
        arrays["observations"][..., gap, :] = np.nan
    loglik, slopes = call(kalman_loglik_vjp, arrays)
    np.testing.assert_allclose(call(kalman_loglik, arrays), loglik, rtol=1e-13)
    smoothed = call(kalman_smooth, arrays)
    repeated = declared_varying(arrays)
    other, others = call(kalman_loglik_vjp, repeated, time_varying=MATRICES)
    np.testing.assert_allclose(loglik, other, rtol=1e-13)
    other_smoothed = call(kalman_smooth, repeated, time_varying=MATRICES)
    np.testing.assert_allclose(smoothed.cov, other_smoothed.cov, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(smoothed.mean, other_smoothed.mean, rtol=1e-11, atol=1e-11)
    for name, slope_, varying in zip(NAMES, slopes, others, strict=True):
        total = varying.sum(-3) if name in MATRICES else varying
        np.testing.assert_allclose(slope_, total, rtol=1e-11, atol=1e-11 * abs(total).max())


# ---------------------------------------------------------------- covariances without a limit


def test_a_covariance_without_limit_is_never_taken_for_one():
    """x stands still and is ever better known: P[t] = 1 / (t + 1)."""
    one, steps = np.eye(1), 3000
    states = kalman_filter(np.zeros((steps, 1)), one, 0 * one, one, one)
    np.testing.assert_allclose(
        states.predicted_cov.ravel(), 1.0 / np.arange(1.0, steps + 1.0), rtol=1e-12
    )


def test_a_covariance_that_moves_by_its_last_digit_is_never_taken_for_its_limit():
    """x is never observed, and its variance grows by one unit of rounding a step."""
    one, steps, unit = np.eye(1), 1000, np.finfo(np.float64).eps
    states = kalman_filter(np.zeros((steps, 1)), one, unit * one, 0 * one, one)
    np.testing.assert_array_equal(states.predicted_cov.ravel(), 1.0 + unit * np.arange(steps))


@pytest.mark.parametrize("form", ["plain", "joseph"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("period", [2, 3, 4, 8, 16, 32, 64])
def test_variances_that_go_round_are_never_taken_for_their_limit(period, batch, form):
    """Numbers that change their places, whose variances differ; none of them is observed."""
    steps, variances = 5 * LONGEST, np.arange(1.0, period + 1.0)
    states = kalman_filter(
        np.zeros((*batch, steps, 1)),
        np.roll(np.eye(period), 1, axis=0),
        np.zeros((period, period)),
        np.zeros((1, period)),
        np.eye(1),
        initial_cov=np.diag(variances),
        form=form,
    )
    expected = np.array([np.roll(variances, t) for t in range(steps)])
    found = states.predicted_cov.diagonal(axis1=-2, axis2=-1)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


def periodic_model(rng: Any, steps: int) -> dict[str, Any]:
    """Return a model of two parts: one goes round, the other may settle; each may be observed.

    F of the first has eigenvalues of size 1, most of whose powers meet at the ends of a chunk.
    """
    angle = 2.0 * np.pi / rng.choice([2, 4, 8, 32, 5, 1000])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scale = np.diag(2.0 ** rng.integers(-5, 6, 4))  # the same numbers in other units
    cycle = scale @ np.roll(np.eye(4), 1, axis=0) @ np.linalg.inv(scale)
    round_ = [turn, cycle, -np.eye(1), np.array([[1.0, 1.0], [0.0, 1.0]])][rng.integers(4)]
    settling = rng.uniform(0.1, 0.8) * np.linalg.qr(rng.normal(size=(2, 2)))[0]
    n, m = len(round_), len(round_) + 2
    transition = np.zeros((m, m))
    transition[:n, :n], transition[n:, n:] = round_, settling
    arrays = {
        "observations": rng.normal(size=(steps, 2)),
        "transition": transition,
        "transition_cov": np.diag([rng.choice([0.0, 1.0], p=[0.8, 0.2])] * n + [0.5, 0.0]),
        "design": rng.normal(size=(2, m)) * (rng.random(m) < 0.5),
        "observation_cov": rng.choice([0.1, 10.0]) * np.eye(2),
        "initial_mean": rng.normal(size=m),
        "initial_cov": rng.choice([0, 1], p=[0.2, 0.8]) * np.diag(2.0 ** rng.integers(-3, 4, m)),
    }
    mixed = np.linalg.qr(rng.normal(size=(m, m)))[0] if rng.random() < 0.3 else np.eye(m)
    for name in ("transition", "transition_cov", "initial_cov"):
        arrays[name] = mixed @ arrays[name] @ mixed.T
    arrays["design"] = arrays["design"] @ mixed.T
    for begin in rng.integers(0, steps, rng.integers(0, 4)):
        arrays["observations"][begin : begin + rng.choice([1, 5, LONGEST])] = np.nan
    return arrays


@pytest.mark.parametrize("seed", range(60))
def test_models_that_go_round_are_those_that_are_always_computed(seed):
    """Forward and back in time, with gaps at the end of which both begin again."""
    rng = np.random.default_rng(seed)
    arrays = periodic_model(rng, steps=int(rng.integers(2 * LONGEST, 12 * LONGEST)))
    repeated = declared_varying(arrays)
    form = ["plain", "joseph"][seed % 2]
    for function in (kalman_filter, kalman_smooth):
        found = call(function, arrays, form=form)
        expected = call(function, repeated, form=form, time_varying=MATRICES)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9 * (1.0 + abs(other).max()))
    _, found = call(kalman_loglik_vjp, arrays, form=form)
    _, expected = call(kalman_loglik_vjp, repeated, form=form, time_varying=MATRICES)
    for name, one, varying in zip(NAMES, found, expected, strict=True):
        total = varying.sum(-3) if name in MATRICES else varying
        np.testing.assert_allclose(one, total, rtol=1e-8, atol=1e-8 * (1.0 + abs(total).max()))

"""Heads: their scalar functions against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlcpu import nn
from rlcpu.envs.policies import uniform_allowed
from rlcpu.nn.heads import act_categorical, categorical_slope, gaussian_coordinate
from rlcpu.train.actors import act_epsilon_greedy


def test_categorical_slope_is_the_derivative_by_each_logit() -> None:
    logits, taken, slope, bonus = np.array([0.3, -0.7, 1.1]), 1, 0.8, 0.05

    def objective(values: np.ndarray) -> float:
        log_probs = values - math.log(np.exp(values).sum())
        entropy = -(np.exp(log_probs) * log_probs).sum()
        return float(slope * log_probs[taken] - bonus * entropy)

    log_probs = logits - math.log(np.exp(logits).sum())
    entropy = -(np.exp(log_probs) * log_probs).sum()
    for k in range(3):
        step = 1e-6 * np.eye(3)[k]
        expected = (objective(logits + step) - objective(logits - step)) / 2e-6
        actual = categorical_slope(float(k == taken), log_probs[k], entropy, slope, -bonus)
        assert actual == pytest.approx(expected, abs=1e-9)


def test_gaussian_is_the_log_density_and_has_its_derivatives() -> None:
    action, mean, log_std = 0.4, -0.2, -0.5
    density, (_, by_mean, by_log_std) = nn.slopes(gaussian_coordinate, action, mean, log_std)
    std = math.exp(log_std)
    expected = math.exp(-0.5 * ((action - mean) / std) ** 2) / (std * math.sqrt(2.0 * math.pi))
    assert density == pytest.approx(math.log(expected), abs=1e-14)
    step = 1e-6
    right, left = (
        gaussian_coordinate(action, mean + step, log_std),
        gaussian_coordinate(action, mean - step, log_std),
    )
    assert by_mean == pytest.approx((right - left) / (2.0 * step), abs=1e-8)
    right, left = (
        gaussian_coordinate(action, mean, log_std + step),
        gaussian_coordinate(action, mean, log_std - step),
    )
    assert by_log_std == pytest.approx((right - left) / (2.0 * step), abs=1e-8)


def test_categorical_acts_by_its_probabilities() -> None:
    act, logits = nn.categorical.act(3), (0.3, -0.7, 1.1)  # type: ignore[misc]
    probs = np.exp(logits) / np.exp(logits).sum()
    for uniform in np.linspace(0.0, 1.0, 101)[:-1]:
        action, log_prob = act(logits, (uniform,), (), False)
        assert action == np.searchsorted(probs.cumsum(), uniform, side="right")
        assert log_prob == pytest.approx(math.log(probs[action]), abs=1e-12)
    assert act(logits, (0.0,), (), True)[0] == 2


@pytest.mark.parametrize("size", [2, 7, 40])
def test_loops_over_actions_choose_what_lines_choose(size: int) -> None:
    """With masks and without, also of one action, for what acts greedily and what explores."""
    rng = np.random.default_rng(size)
    for _ in range(50):
        outputs = rng.normal(0.0, 2.0, size)
        mask = rng.random(size) < rng.random()
        mask[rng.integers(size)] = True
        uniforms, greedy = tuple(rng.random(2)), bool(rng.random() < 0.3)
        for make in (act_categorical, act_epsilon_greedy):
            for more in ((), (mask,)):
                lines, loops = make(size, bool(more)), make(size, bool(more), loops=True)
                action, log_prob = lines(tuple(outputs), uniforms, (0.5,), greedy, *more)
                found = loops(outputs, uniforms, (0.5,), greedy, *more)
                assert found == (action, pytest.approx(log_prob, abs=1e-12))
        lines, loops = uniform_allowed(size), uniform_allowed(size, loops=True)
        assert lines((), (), uniforms, tuple(mask)) == loops((), (), uniforms, mask)


def test_gaussian_acts_around_its_means() -> None:
    act = nn.gaussian.act(2)  # type: ignore[misc]
    means, log_stds = (0.5, -2.0), (-1.0, 0.3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action, log_prob = act(means, tuple(rng.random(4)), log_stds, False)
        each = map(gaussian_coordinate, action, means, log_stds)
        assert log_prob == pytest.approx(sum(each), abs=1e-12)
    assert act(means, (0.1, 0.2, 0.3, 0.4), log_stds, True)[0] == means

"""Heads: what they draw, and with which probability."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from rlcpu.envs import Dynamics
from rlcpu.envs.contract.policies import Uniform, loop_uniform_allowed, uniform_allowed
from rlcpu.nn.network.heads import ActCategoricals, act_categorical, act_gaussian
from rlcpu.nn.tape.operations import normal_log_density
from rlcpu.train.running.actors import act_epsilon_greedy
from rlcpu.train.sac import act_squashed
from rlcpu.train.td3 import act_noisy


class Unused(NamedTuple):
    unused: float = 0.0


def test_log_density_is_that_of_a_normal_number() -> None:
    action, mean, log_std = 0.4, -0.2, -0.5
    std = math.exp(log_std)
    expected = math.exp(-0.5 * ((action - mean) / std) ** 2) / (std * math.sqrt(2.0 * math.pi))
    density = normal_log_density(action, mean, log_std)
    assert density == pytest.approx(math.log(expected), abs=1e-14)


def test_categorical_acts_by_its_probabilities() -> None:
    act, logits = act_categorical(3), (0.3, -0.7, 1.1)
    probs = np.exp(logits) / np.exp(logits).sum()
    for uniform in np.linspace(0.0, 1.0, 101)[:-1]:
        action, log_prob = act(logits, (uniform,), (), False)
        assert action == np.searchsorted(probs.cumsum(), uniform, side="right")
        assert log_prob == pytest.approx(math.log(probs[action]), abs=1e-12)
    assert act(logits, (0.0,), (), True)[0] == 2


def test_gaussian_acts_around_its_means() -> None:
    act = act_gaussian(2)
    means, log_stds = (0.5, -2.0), (-1.0, 0.3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action, log_prob = act(means, tuple(rng.random(4)), log_stds, False)
        each = map(normal_log_density, action, means, log_stds)
        assert log_prob == pytest.approx(sum(each), abs=1e-12)
    assert act(means, (0.1, 0.2, 0.3, 0.4), log_stds, True)[0] == means


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
        expected = uniform_allowed(size)((), (), uniforms, tuple(mask))
        assert loop_uniform_allowed((), (), uniforms, mask) == expected


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("make", [act_gaussian, act_squashed, act_noisy, ActCategoricals])
def test_loops_over_numbers_draw_what_lines_draw(make: Any, size: int) -> None:
    """Of actions of several numbers, with the same outputs, random numbers and params."""
    rng = np.random.default_rng(size)
    num_outputs, params = size, rng.random(2 + 2 * size)
    if make is act_squashed:
        num_outputs = 2 * size
    if make is ActCategoricals:
        choices = rng.integers(1, 5, size)
        num_outputs, make = int(choices.sum()), make(tuple(choices.tolist()))
    for _ in range(20):
        outputs, uniforms = rng.normal(0.0, 2.0, num_outputs), rng.random(2 * size + 1)
        greedy, numbers = bool(rng.random() < 0.3), np.zeros(size)
        given = tuple(outputs), tuple(uniforms), tuple(params), greedy
        action, log_prob = make(num_outputs)(*given)
        found = make(num_outputs, loops=True)(outputs, uniforms, params, greedy, numbers)
        np.testing.assert_allclose(numbers, action, rtol=1e-12)
        assert found == pytest.approx(log_prob, abs=1e-12)


@pytest.mark.parametrize("space", [Box(-2.0, 3.0, (7,)), MultiDiscrete([2, 5, 3])])
def test_uniform_policies_draw_in_loops_what_lines_draw(space: Any) -> None:
    dynamics = Dynamics(
        id="Drawn-v0",
        step=lambda state, action, params: (state, 0.0, False),
        reset=lambda rng, params: (0.0,),
        observation_space=Box(-1.0, 1.0, (1,)),
        action_space=space,
        params=Unused(),
    )
    code, params = Uniform().code(dynamics), Uniform().arrays(dynamics).weights
    uniforms, numbers = np.random.default_rng(0).random(code.draws), np.zeros(dynamics.action_size)
    assert code.act is not None
    assert code.loop_act is not None
    action, *others = code.act((), tuple(params), tuple(uniforms))
    assert code.loop_act((), params, uniforms, numbers) == tuple(others)
    np.testing.assert_array_equal(numbers, action)
    assert space.contains(numbers.astype(space.dtype))

"""Policies: the distributions that they draw from, and every way not to fit an environment."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scipy.stats import chisquare, kstest, norm

import rlcpu
from rlcpu.envs import Dynamics
from rlcpu.envs.tasks.classic_control import acrobot, cartpole, pendulum
from rlcpu.policies import MLP, Linear, Scalar, Uniform
from tests.envs.test_states import TOY

#: Tests of distributions with fixed seeds: a sound generator fails one in a million of them.
SIGNIFICANCE = 1e-6


class Walk(NamedTuple):
    """Parameters of a walk in the plane."""

    drift: float = 0.01


def walk(state, action, params):
    return (state[0] + action[0] + params.drift, state[1] + action[1]), 0.0, False


#: Actions of two numbers, with bounds of different width.
PLANE = Dynamics(
    id="Plane-v0",
    step=walk,
    reset=lambda uniforms, params: (0.0, 0.0),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Box(np.float32([-1.0, 2.0]), np.float32([0.5, 10.0])),
    params=Walk(),
    reset_draws=0,
)
FREE = Dynamics(
    **{
        **{name: getattr(PLANE, name) for name in ("step", "reset", "observation_space", "params")},
        "id": "Free-v0",
        "reset_draws": 0,
        "action_space": Box(-np.inf, np.inf, (2,), np.float32),
    }
)


def constant(dynamics: Dynamics, outputs: list[float]) -> MLP:
    """A policy whose outputs do not depend on the observation."""
    policy = Linear(dynamics.observation_space, dynamics.action_space)
    policy.parameters[:] = 0.0
    policy.parameters[-len(outputs) :] = outputs
    return policy


def rollout_of(dynamics: Dynamics, policy: Any, num_steps: int = 300) -> rlcpu.Rollout:
    """Actions of 70 environments, which fill no block, over some steps."""
    env = rlcpu.make_vec(dynamics, 70)
    env.reset(seed=17)
    return rlcpu.collect(env, policy, num_steps)


def assert_independent(numbers: np.ndarray) -> None:
    """Numbers (T, N) are not correlated from step to step, nor between neighbours."""
    centred = numbers - numbers.mean()
    for shifted, kept in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1])):
        correlation = (shifted * kept).mean() / centred.var()
        assert abs(correlation) < 5.0 / math.sqrt(shifted.size)


# ---------------------------------------------------------------- distributions


@pytest.mark.parametrize("dynamics", [cartpole.DYNAMICS, TOY])
def test_uniform_actions(dynamics: Dynamics) -> None:
    rollout = rollout_of(dynamics, Uniform())
    counts = np.bincount(rollout.actions.ravel(), minlength=dynamics.num_actions)
    assert len(counts) == dynamics.num_actions
    assert chisquare(counts).pvalue > SIGNIFICANCE
    assert_independent(rollout.actions)
    np.testing.assert_allclose(rollout.log_probs, -math.log(dynamics.num_actions), rtol=1e-6)


def test_uniform_numbers() -> None:
    """Each within its own bounds, and both independent."""
    rollout = rollout_of(PLANE, Uniform())
    for k, (low, high) in enumerate([(-1.0, 0.5), (2.0, 10.0)]):
        drawn = rollout.actions[..., k]
        assert (drawn >= low).all()
        assert (drawn < high).all()
        assert kstest((drawn.ravel() - low) / (high - low), "uniform").pvalue > SIGNIFICANCE
        assert_independent(drawn)
    correlation = np.corrcoef(rollout.actions.reshape(-1, 2).T)[0, 1]
    assert abs(correlation) < 5.0 / math.sqrt(rollout.actions.size / 2)
    np.testing.assert_allclose(rollout.log_probs, -math.log(1.5 * 8.0), rtol=1e-6)


@pytest.mark.parametrize("logits", [[0.0, 1.0, -1.0], [-30.0, 0.0, -1.0], [500.0, 499.0, -500.0]])
def test_categorical_actions_follow_softmax(logits: list[float]) -> None:
    rollout = rollout_of(acrobot.DYNAMICS, constant(acrobot.DYNAMICS, logits))
    probabilities = np.exp(np.array(logits) - max(logits))
    probabilities /= probabilities.sum()
    counts = np.bincount(rollout.actions.ravel(), minlength=3)
    likely = probabilities > 1e-9
    assert not counts[~likely].any()
    assert chisquare(counts[likely], rollout.actions.size * probabilities[likely]).pvalue > (
        SIGNIFICANCE
    )
    with np.errstate(divide="ignore"):
        expected = np.log(probabilities)[rollout.actions]
    np.testing.assert_allclose(rollout.log_probs, expected, rtol=1e-5, atol=1e-6)
    assert_independent(rollout.actions)


def test_gaussian_actions() -> None:
    """Unclipped, with a standard deviation each, and both independent."""
    policy = constant(PLANE, [0.3, -2.0])
    policy.log_std[:] = [-1.0, 0.5]
    rollout = rollout_of(PLANE, policy)
    log_probs = np.zeros(rollout.log_probs.shape)
    for k, (mean, log_std) in enumerate([(0.3, -1.0), (-2.0, 0.5)]):
        drawn, normal = rollout.actions[..., k], norm(mean, math.exp(log_std))
        assert kstest(drawn.ravel(), normal.cdf).pvalue > SIGNIFICANCE
        assert_independent(drawn)
        log_probs += normal.logpdf(drawn)
    correlation = np.corrcoef(rollout.actions.reshape(-1, 2).T)[0, 1]
    assert abs(correlation) < 5.0 / math.sqrt(rollout.actions.size / 2)
    np.testing.assert_allclose(rollout.log_probs, log_probs, rtol=1e-5, atol=1e-5)
    assert (rollout.actions[..., 0] > 0.5).any()


def test_environment_gets_actions_within_its_bounds() -> None:
    rollout = rollout_of(PLANE, constant(PLANE, [4.0, -3.0]), num_steps=5)
    moved = np.diff(rollout.observations, axis=0)
    clipped = np.clip(rollout.actions, PLANE.action_space.low, PLANE.action_space.high)
    np.testing.assert_allclose(moved, clipped[:-1] + np.float32([0.01, 0.0]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("dynamics", "outputs", "action"),
    [
        (acrobot.DYNAMICS, [0.0, 2.0, 1.0], 1),
        (acrobot.DYNAMICS, [1.0, 0.0, 1.0], 0),  # the first of equals
        (PLANE, [0.25, 3.0], [0.25, 3.0]),
    ],
)
def test_greedy_actions(dynamics: Dynamics, outputs: list[float], action: Any) -> None:
    policy = constant(dynamics, outputs)
    policy.deterministic = True
    actions = rollout_of(dynamics, policy, num_steps=5).actions
    np.testing.assert_array_equal(actions, np.broadcast_to(action, actions.shape))


def watch(observation, params, uniforms):
    """Either the first two draws, or the mean of all and the last."""
    total = 0.0
    for number in uniforms:
        total += number
    if params[0] > 0.0:
        return 0, total / 20.0, uniforms[19]
    return 0, uniforms[0], uniforms[1]


def test_draws_of_a_policy_are_not_those_of_resets() -> None:
    """An environment that restarts at every step draws both from the same pair of words."""
    env = rlcpu.make_vec("CartPole-v1", 70, max_episode_steps=1)
    env.reset(seed=5)
    rollout = rlcpu.collect(env, Scalar(watch, (0.0,), 20), 300)
    drawn = [rollout.log_probs[:-1], rollout.values[:-1]]
    drawn += [rollout.observations[1:, :, k] * 10.0 + 0.5 for k in range(4)]
    for numbers in drawn:
        assert kstest(numbers.ravel(), "uniform").pvalue > SIGNIFICANCE
    correlations = np.corrcoef([numbers.ravel() for numbers in drawn]) - np.eye(6)
    assert np.abs(correlations).max() < 5.0 / math.sqrt(drawn[0].size)


def test_many_draws() -> None:
    """More than one pair of words of a step gives."""
    rollout = rollout_of(cartpole.DYNAMICS, Scalar(watch, (1.0,), 20))
    assert kstest(rollout.values.ravel(), "uniform").pvalue > SIGNIFICANCE
    spread = math.sqrt(20.0) * (rollout.log_probs.ravel() - 0.5) * math.sqrt(12.0)
    assert abs(spread.mean()) < 5.0 / math.sqrt(spread.size)
    assert spread.var() == pytest.approx(1.0, abs=5.0 * math.sqrt(2.0 / spread.size))


# ---------------------------------------------------------------- a policy of one's own


class Gain(NamedTuple):
    gain: float = 1.0


def push(observation, params, uniforms):
    return (1 if params.gain * observation[0] > 0.0 else 0), 0.0, params.gain


def test_scalar_is_read_anew_for_another_environment() -> None:
    """A helper redefined gives other code, the same once more gives the same."""
    scope: dict[str, Any] = {}
    exec("def lean(x): return 0.5 * x\ndef act(o, p, u): return 0, lean(o[0]), 0.0", scope)
    policy = Scalar(scope["act"])
    first = policy.code(cartpole.DYNAMICS)
    assert policy.code(cartpole.DYNAMICS) is first
    exec("def lean(x): return 2.0 * x", scope)
    second = policy.code(cartpole.DYNAMICS)
    exec("def lean(x): return 0.5 * x", scope)
    assert policy.code(cartpole.DYNAMICS) is first
    assert [code.act((1.0,), (), ()) for code in (first, second)] == [(0, 0.5, 0.0), (0, 2.0, 0.0)]


def draw(observation, params, uniforms):
    return int(2.0 * random.random()), 0.0, 0.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((numba.njit(push),), TypeError, "act=.*: expected a plain Python function"),
        (("push",), TypeError, "act='push': expected a plain Python function"),
        ((lambda seen: 0,), TypeError, r"act takes \(seen\): expected \(observation, params, un"),
        (
            (draw,),
            TypeError,
            r"line \d+, in draw: `.*` uses random\.random, .*a policy gets `draws`",
        ),
        ((push, [1.0]), TypeError, r"params=\[1.0\]: expected a NamedTuple or tuple of numbers"),
        ((push, ("1",)), TypeError, r"params=\('1',\): expected a NamedTuple or tuple of numbers"),
        ((push, Gain(), 1.5), TypeError, "draws=1.5: expected an int of at least 0"),
        ((push, Gain(), -1), ValueError, "draws=-1: expected at least 0"),
    ],
)
def test_bad_scalar_policy(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Scalar(*arguments)


BAD_RESULTS = [
    (cartpole, lambda o, p, u: 0, TypeError, r"act has to return \(action, log_prob, value\); ret"),
    (cartpole, lambda o, p, u: (0, 0.0), TypeError, r"act has to return \(action, log_prob, value"),
    (cartpole, lambda o, p, u: (0.0, 0.0, 0.0), TypeError, "CartPole-v1, an int from 0 to 1; ret"),
    (cartpole, lambda o, p, u: ((0,), 0.0, 0.0), TypeError, "CartPole-v1, an int from 0 to 1; re"),
    (cartpole, lambda o, p, u: (2, 0.0, 0.0), ValueError, "an int from 0 to 1; returned 2"),
    (cartpole, lambda o, p, u: (0, "a", 0.0), TypeError, "log_prob and value as floats; returned"),
    (cartpole, lambda o, p, u: (o[4], 0.0, 0.0), ValueError, r"act raised IndexError.* for observ"),
    (cartpole, lambda o, p, u: (u[0], 0.0, 0.0), ValueError, r"act raised IndexError.*uniforms=\("),
    (pendulum, lambda o, p, u: (0.5, 0.0, 0.0), TypeError, "Pendulum-v1, a tuple of 1 floats; ret"),
    (pendulum, lambda o, p, u: ((0.5,) * 2, 0.0, 0.0), TypeError, "a tuple of 1 floats; returned"),
]


@pytest.mark.parametrize(("module", "act", "error", "message"), BAD_RESULTS)
def test_bad_results(module: Any, act: Any, error: type[Exception], message: str) -> None:
    """Found by a trial, before anything is compiled or stepped."""
    env = rlcpu.make_vec(module.DYNAMICS, 3)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        rlcpu.collect(env, Scalar(act), 2)
    np.testing.assert_array_equal(env.state, before)


def test_uniform_needs_bounds() -> None:
    with pytest.raises(ValueError, match=r"Free-v0: action_space=.* has to be bounded for Uniform"):
        rlcpu.simulate(rlcpu.make_vec(FREE, 3), Uniform(), 2)


# ---------------------------------------------------------------- networks that do not fit


OTHER_SPACES = [
    (Box(-1.0, 1.0, (3,)), Discrete(2), "policy has 3 inputs, 2 outputs and 0 standard deviations"),
    (Box(-1.0, 1.0, (4,)), Discrete(3), "policy has 4 inputs, 3 outputs and 0 standard deviations"),
    (Box(-1.0, 1.0, (4,)), Box(-1.0, 1.0, (2,)), "4 inputs, 2 outputs and 2 standard deviations"),
]


@pytest.mark.parametrize("value", ["separate", "shared", None])
@pytest.mark.parametrize(("observations", "actions", "message"), OTHER_SPACES)
def test_network_of_other_sizes(
    observations: Any, actions: Any, message: str, value: str | None
) -> None:
    policy = MLP(observations, actions, hidden=(8,), value=value)
    env = rlcpu.make_vec("CartPole-v1", 3)
    env.reset(seed=0)
    before = env.state
    message = message if value != "shared" else "CartPole-v1 needs 4, 3 and 0"
    with pytest.raises(ValueError, match=message):
        rlcpu.collect(env, policy, 2)
    np.testing.assert_array_equal(env.state, before)


@pytest.mark.parametrize(
    "name", ["parameters", "value_parameters", "observation_mean", "observation_scale", "log_std"]
)
def test_replaced_arrays_are_checked(name: str) -> None:
    """Kernels read them without looking at their sizes."""
    env = rlcpu.make_vec("Pendulum-v1", 3)
    env.reset(seed=0)
    policy = MLP(env.single_observation_space, env.single_action_space, hidden=(8,))
    array = getattr(policy, name)
    setattr(policy, name, array.astype(np.float64))
    expected = rlcpu.collect(env, policy, 2)
    assert np.isfinite(expected.log_probs).all()
    setattr(policy, name, np.append(array, np.float32(0)))
    message = rf"{len(array) + 1}" if name == "log_std" else rf"policy.{name} has shape"
    with pytest.raises(ValueError, match=message):
        rlcpu.collect(env, policy, 2)

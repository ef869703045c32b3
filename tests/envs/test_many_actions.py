"""Hundreds of actions, and of numbers of an action: kernels have loops over them, not lines.

Masks of so many are written into `out`. Oracles are NumPy's: what is allowed, the best, densities.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from scipy.stats import chisquare, kstest, norm

import rlcpu
from rlcpu.envs import Dynamics, State
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.engine.structure import structure
from rlcpu.envs.rollout.compiled import collect_kernels
from rlcpu.kernels.compiler import hooks
from rlcpu.policies import Linear, Scalar, Uniform
from rlcpu.train import PPO
from tests.envs.masked import COUNTER, WIDE, Range
from tests.envs.trials import try_kernels

#: Tests of distributions with fixed seeds: a sound generator fails one in a million of them.
SIGNIFICANCE = 1e-6
NUM_ENVS = 70
MANY, SIZE = 2000, 40


def write_third(state, params, out):
    """What the mask of COUNTER returns."""
    for k in range(WIDE):
        out[k] = int(state[0]) % 3 == k % 3 and state[0] != params.empty


#: COUNTER, whose mask is written.
TWIN = dataclasses.replace(COUNTER, id="CounterTwin-v0", action_mask=write_third)


def write_seventh(state, params, out):
    """Every seventh action, others in each step."""
    for k in range(MANY):
        out[k] = (k + int(state[0])) % 7 == 0


WRITTEN = dataclasses.replace(
    COUNTER,
    id="Written-v0",
    step=lambda state, action, params: ((state[0] + 1.0,), 0.001 * float(action), False),
    action_mask=write_seventh,
    action_space=Discrete(MANY),
)


class Clock(State):
    """The steps so far."""

    time: int


def tick(state, action, params):
    """Reward the action's number."""
    state.time += 1
    return 0.001 * float(action), False


def start(state, rng, params):
    state.time = rng.integers(0, 2)


def write_seventh_of_clock(state, params, out):
    """Every seventh action, others in each step; a slice allows the first one always."""
    out[0:1] = True
    for k in range(1, MANY):
        out[k] = (k + state.time) % 7 == 0


#: The same where a state has arrays.
CLOCK = Dynamics(
    id="Clock-v0",
    state=Clock,
    step=tick,
    reset=start,
    observe=lambda state, params: (float(state.time),),
    action_mask=write_seventh_of_clock,
    observation_space=COUNTER.observation_space,
    action_space=Discrete(MANY),
    params=Range(),
    max_episode_steps=7,
)


def allowed_at(dynamics: Dynamics, times: Any) -> np.ndarray:
    """What WRITTEN or CLOCK allows after so many steps, (..., MANY)."""
    masks: np.ndarray = (np.arange(MANY) + np.asarray(times, int)[..., None]) % 7 == 0
    masks[..., 0] |= dynamics is CLOCK
    return masks


def rollout_of(dynamics: Dynamics, policy: Any, steps: int, dtype: str = "float32") -> Any:
    env = rlcpu.make_vec(dynamics, NUM_ENVS, dtype=dtype)
    env.reset(seed=17)
    return rlcpu.collect(env, policy, steps)


def sharp(dynamics: Dynamics, spread: float) -> Linear:
    """A network whose outputs are `spread` apart."""
    policy = Linear(dynamics.observation_space, dynamics.action_space)
    policy.parameters += spread * np.random.default_rng(5).standard_normal(
        policy.parameters.size, np.float32
    )
    return policy


def outputs_of(policy: Any, rollout: Any) -> np.ndarray:
    """The network's outputs for each step, (T, N, outputs)."""
    inputs = rollout.inputs
    outputs = policy.outputs(inputs.reshape(-1, inputs.shape[-1])).astype(np.float64)
    return outputs.reshape(*inputs.shape[:2], -1)


# ---------------------------------------------------------------- masks that are written


@pytest.mark.parametrize("dynamics", [WRITTEN, CLOCK])
def test_kernels_write_masks_as_plain_python_does(dynamics: Dynamics) -> None:
    try_kernels(dynamics, steps=40)
    env = rlcpu.make_vec(dynamics, NUM_ENVS)
    _, infos = env.reset(seed=0)
    for _ in range(9):
        times = env.observe()[:, 0]
        np.testing.assert_array_equal(infos["action_mask"], allowed_at(dynamics, times))
        *_, infos = env.step(np.argmax(infos["action_mask"], axis=1))


def first_allowed(observation, params, uniforms, mask):
    """The first action that is allowed; of an array and of a tuple."""
    action = 0
    for k in range(WIDE):
        action = WIDE - 1 - k if mask[WIDE - 1 - k] else action
    return action, 0.0, 0.0


def test_masks_that_are_written_act_as_tuples_do() -> None:
    for policy in (Uniform(), sharp(COUNTER, 1.0), Scalar(first_allowed)):
        expected, got = (rollout_of(each, policy, 9) for each in (COUNTER, TWIN))
        for name in ("actions", "log_probs", "rewards", "action_masks", "last_action_masks"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


@pytest.mark.parametrize("dynamics", [WRITTEN, CLOCK])
def test_uniform_among_many(dynamics: Dynamics) -> None:
    rollout = rollout_of(dynamics, Uniform(), 300)
    masks, actions = rollout.action_masks, rollout.actions[..., None]
    np.testing.assert_array_equal(masks, allowed_at(dynamics, rollout.observations[..., 0]))
    assert np.take_along_axis(masks, actions, axis=-1).all()
    np.testing.assert_allclose(rollout.log_probs, -np.log(masks.sum(axis=-1)), rtol=1e-6)
    drawn = rollout.actions[rollout.observations[..., 0] == 3]
    counts = np.bincount(drawn, minlength=MANY)[allowed_at(dynamics, 3)]
    assert counts.sum() == drawn.size > 5 * counts.size
    assert chisquare(counts).pvalue > SIGNIFICANCE
    env = rlcpu.make_vec(dynamics, NUM_ENVS)
    env.reset(seed=17)
    result = rlcpu.simulate(env, Uniform(), 300)
    assert result.num_episodes == len(rollout.episode_returns)
    np.testing.assert_allclose(result.mean_return, rollout.episode_returns.mean(), rtol=1e-4)


@pytest.mark.parametrize("dynamics", [WRITTEN, CLOCK])
def test_networks_among_many(dynamics: Dynamics) -> None:
    policy = sharp(dynamics, 0.3)
    rollout = rollout_of(dynamics, policy, 50)
    logits = np.where(rollout.action_masks, outputs_of(policy, rollout), -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    log_probs = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    drawn = np.take_along_axis(log_probs, rollout.actions[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(rollout.log_probs, drawn, atol=2e-5)  # none is -inf
    at = rollout.observations[..., 0] == 1  # in groups, of which each has many draws
    groups = np.arange(MANY) % 10
    expected = np.bincount(groups, np.exp(log_probs[at][0]))
    counts = np.bincount(groups[rollout.actions[at]], minlength=10)
    assert chisquare(counts, expected * at.sum()).pvalue > SIGNIFICANCE
    policy.deterministic = True
    rollout = rollout_of(dynamics, policy, 9)
    logits = np.where(rollout.action_masks, outputs_of(policy, rollout), -np.inf)
    np.testing.assert_array_equal(rollout.actions, logits.argmax(axis=-1))


def test_an_agent_learns_among_many() -> None:
    agent = PPO(WRITTEN, seed=0, num_envs=4, num_steps=8, minibatch_size=16, hidden=(16,))
    assert np.isfinite(agent.learn(64).losses).all()


def test_what_is_wrong_with_a_mask_that_is_written() -> None:
    def returns(state, params, out):
        out[0] = True
        return out

    def lists(state, params, out):
        out[0] = len([1]) > 0

    for mask, kind, match in (
        (returns, ValueError, "action_mask has to write into out and to return nothing"),
        (lists, TypeError, "makes a list"),
        (lambda state, params, out: None, ValueError, "action_mask allows nothing in step 0"),
        (lambda state, out: None, TypeError, r"action_mask has to take \(state, params, out\)"),
    ):
        with pytest.raises(kind, match=match):
            dataclasses.replace(COUNTER, action_mask=mask)
    with pytest.raises(ValueError, match=r"tuple of 2000 bools.*\(state, params, out\)"):
        dataclasses.replace(WRITTEN, action_mask=lambda state, params: (True,) * MANY)


# ---------------------------------------------------------------- many numbers of an action


def weigh(state, action, params):
    """The reward tells numbers of the action."""
    number = float(action[0]) + 10.0 * float(action[1]) + 100.0 * float(action[SIZE - 1])
    return (state[0] + 1.0,), number, False


def weigh_in_clock(state, action, params):
    """The same for a `Clock`."""
    state.time += 1
    number = float(action[0]) + 10.0 * float(action[1]) + 100.0 * float(action[SIZE - 1])
    return number, False


HANDS = Box(-np.linspace(1.0, 2.0, SIZE, dtype="f4"), np.linspace(0.5, 3.0, SIZE, dtype="f4"))
DIALS = MultiDiscrete([2, 3, 4, 5] * (SIZE // 4))
NO_MASK: dict[str, Any] = {"action_mask": None}
LANES_OF_HANDS, LANES_OF_DIALS = (
    dataclasses.replace(COUNTER, step=weigh, action_space=space, **NO_MASK)
    for space in (HANDS, DIALS)
)
CLOCKS_OF_HANDS, CLOCKS_OF_DIALS = (
    dataclasses.replace(CLOCK, step=weigh_in_clock, action_space=space, **NO_MASK)
    for space in (HANDS, DIALS)
)


def worth(actions: np.ndarray) -> np.ndarray:
    """The rewards of actions (..., SIZE)."""
    return actions[..., 0] + 10.0 * actions[..., 1] + 100.0 * actions[..., SIZE - 1]


@pytest.mark.parametrize("dynamics", [LANES_OF_HANDS, CLOCKS_OF_HANDS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_hands(dynamics: Dynamics, dtype: str) -> None:
    rollout = rollout_of(dynamics, Uniform(), 28, dtype)
    fractions = (rollout.actions - HANDS.low) / (HANDS.high - HANDS.low)
    assert kstest(fractions.ravel(), "uniform").pvalue > SIGNIFICANCE
    assert np.abs(np.corrcoef(fractions.reshape(-1, SIZE).T) - np.eye(SIZE)).max() < 0.15
    np.testing.assert_allclose(rollout.rewards, worth(rollout.actions), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(rollout.log_probs, -np.log(HANDS.high - HANDS.low).sum(), rtol=1e-5)
    env = rlcpu.make_vec(dynamics, NUM_ENVS, dtype=dtype)
    env.reset(seed=17)
    result = rlcpu.simulate(env, Uniform(), 28)
    np.testing.assert_allclose(result.mean_return, rollout.episode_returns.mean(), rtol=1e-3)


@pytest.mark.parametrize("dynamics", [LANES_OF_HANDS, CLOCKS_OF_HANDS])
def test_networks_move_hands(dynamics: Dynamics) -> None:
    policy = sharp(dynamics, 0.3)
    policy.log_std[:] = np.linspace(-1.0, 0.5, SIZE)
    rollout = rollout_of(dynamics, policy, 14)
    means, deviations = outputs_of(policy, rollout), np.exp(policy.log_std.astype(float))
    z = (rollout.actions - means) / deviations
    assert kstest(z.ravel(), "norm").pvalue > SIGNIFICANCE
    expected = (norm.logpdf(z) - policy.log_std).sum(axis=-1)
    np.testing.assert_allclose(rollout.log_probs, expected, rtol=1e-4)
    taken = np.clip(rollout.actions, HANDS.low, HANDS.high)
    assert (taken != rollout.actions).any()
    np.testing.assert_allclose(rollout.rewards, worth(taken), rtol=1e-4, atol=1e-3)
    policy.deterministic = True
    rollout = rollout_of(dynamics, policy, 3)
    np.testing.assert_allclose(rollout.actions, outputs_of(policy, rollout), rtol=1e-6)


@pytest.mark.parametrize("dynamics", [LANES_OF_DIALS, CLOCKS_OF_DIALS])
def test_networks_and_uniform_turn_dials(dynamics: Dynamics) -> None:
    choices, policy = DIALS.nvec, sharp(dynamics, 0.3)
    for chosen in (Uniform(), policy):
        rollout = rollout_of(dynamics, chosen, 70)
        np.testing.assert_allclose(rollout.rewards, worth(rollout.actions), rtol=1e-5)
        ends, at = np.cumsum(choices), rollout.observations[..., 0] == 2
        logits = outputs_of(policy, rollout) if chosen is policy else np.zeros((1, 1, ends[-1]))
        log_probs = np.zeros(rollout.log_probs.shape)
        for k, part in enumerate(np.split(logits, ends[:-1], axis=-1)):
            logs = part - np.log(np.exp(part).sum(axis=-1, keepdims=True))
            logs = np.broadcast_to(logs, (*rollout.actions.shape[:2], choices[k]))
            number = rollout.actions[..., k]
            log_probs += np.take_along_axis(logs, number[..., None], axis=-1)[..., 0]
            counts = np.bincount(number[at], minlength=choices[k])
            assert chisquare(counts, np.exp(logs[at][0]) * at.sum()).pvalue > SIGNIFICANCE
        np.testing.assert_allclose(rollout.log_probs, log_probs, rtol=1e-4)
    policy.deterministic = True
    rollout = rollout_of(dynamics, policy, 3)
    parts = np.split(outputs_of(policy, rollout), ends[:-1], axis=-1)
    best = np.stack([part.argmax(axis=-1) for part in parts], axis=-1)
    np.testing.assert_array_equal(rollout.actions, best)


# ---------------------------------------------------------------- what is compiled


def code_size(function: Any) -> int:
    """The lines of LLVM's code of a kernel."""
    (compiled,) = function.overloads.values()
    return hooks.llvm_of(compiled).count("\n")


def test_code_does_not_grow_with_the_actions() -> None:
    def size_of_acting(count: int) -> int:
        space = MultiDiscrete([3] * count)
        dynamics = dataclasses.replace(LANES_OF_DIALS, action_space=space)
        code = Linear(dynamics.observation_space, space).code(dynamics)
        return code_size(collect_kernels(structure(dynamics), np.float32, code).function)

    assert size_of_acting(80) < 1.1 * size_of_acting(SIZE)


def test_code_of_masks_does_not_grow_with_the_actions() -> None:
    def size_of_step(dynamics: Dynamics) -> int:
        return code_size(step_kernels(structure(dynamics), np.float32).function)

    # Of 2,000 actions there are 61 words more than of 33, which are read and written one by one.
    more_words = 61
    assert size_of_step(WRITTEN) < size_of_step(TWIN) + 30 * more_words

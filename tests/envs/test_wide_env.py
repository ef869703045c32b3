"""Environments with more numbers than numba compiles in one literal tuple."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Dynamics

SIZE = 40


class Params(NamedTuple):
    """None is needed, but for the contract."""

    gain: float = 0.5


def step(state: Any, action: Any, params: Any) -> Any:
    """Move every number on by one place, and change one."""
    return state[1:] + (params.gain * state[0],), state[0], False  # noqa: RUF005 - numba compiles it


def reset(uniforms: Any, params: Any) -> Any:
    return uniforms


WIDE = Dynamics(
    id="Wide-v0",
    step=step,
    reset=reset,
    reset_draws=SIZE,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (SIZE,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=100,
)


def test_forty_numbers_a_state() -> None:
    env = rlcpu.make_vec(WIDE, num_envs=3)
    env.reset(seed=1)
    before = env.state.copy()
    observations, rewards, *_ = env.step(np.zeros(3, np.int64))
    expected = np.array([step(tuple(row), 0, Params())[0] for row in before])
    np.testing.assert_array_equal(env.state, expected)
    np.testing.assert_array_equal(observations, expected.astype(np.float32))
    np.testing.assert_array_equal(rewards, before[:, 0])


def test_they_are_collected() -> None:
    env = rlcpu.make_vec(WIDE, num_envs=3)
    env.reset(seed=1)
    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, hidden=(8,))
    rollout = rlcpu.collect(env, policy, num_steps=5)
    np.testing.assert_allclose(
        rollout.observations[1:, :, :-1], rollout.observations[:-1, :, 1:], rtol=1e-6
    )

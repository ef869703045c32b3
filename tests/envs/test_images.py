"""Observations that are one array of whole numbers, as an image is, of a user's own environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Dynamics, State

SIDE = 7
SPACE = Box(0, 255, (1, SIDE, SIDE), np.uint8)


class Params(NamedTuple):
    side: int = SIDE


class Dot(State):
    place: int
    goal: int


def reset(state: Dot, rng: Any, params: Params) -> None:
    state.place, state.goal = rng.integers(params.side), rng.integers(params.side)


def step(state: Dot, action: int, params: Params) -> tuple[float, bool]:
    state.place = min(max(state.place + 2 * action - 1, 0), params.side - 1)
    is_there = state.place == state.goal
    return (1.0 if is_there else -0.1), is_there


def observe(state: Dot, params: Params, out: Any) -> None:
    out[0, 1, state.place] = 255
    out[0, 5, state.goal] = 128


def make(**changes: Any) -> Dynamics:
    fields: dict[str, Any] = {"observation_space": SPACE, "observe": observe, **changes}
    return Dynamics(
        id="Dot-v0",
        state=Dot,
        step=step,
        reset=reset,
        params=Params(),
        action_space=Discrete(2),
        max_episode_steps=20,
        **fields,
    )


def test_kernels_write_what_plain_python_writes() -> None:
    report = rlcpu.envs.check(make(), steps=100)
    assert report.ok, report
    with pytest.raises(ValueError, match=r"\[0, 2, 1\]=101: expected 0 to 100"):
        make(observation_space=Box(0, 100, (1, SIDE, SIDE), np.uint8), observe=far)


def far(state: Dot, params: Params, out: Any) -> None:
    out[0, 2, 1] = 101 if state.place + state.goal == 2 * SIDE - 3 else 7  # in one trial


def test_steps_rollouts_and_gymnasium_show_images() -> None:
    rlcpu.register(make())
    env = rlcpu.make_vec("Dot-v0", 5)
    assert env.single_observation_space == SPACE
    observations, _ = env.reset(seed=0)
    assert observations.shape == (5, 1, SIDE, SIDE)
    assert observations.dtype == np.uint8
    np.testing.assert_array_equal(observations[range(5), 0, 1, env.state.place], 255)
    np.testing.assert_array_equal(observations.astype(int).sum(axis=(1, 2, 3)), 255 + 128)
    rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 6)
    assert rollout.observations.shape == (6, 5, 1, SIDE, SIDE)
    assert rollout.observations.dtype == np.uint8
    assert (rollout.observations.max(axis=(2, 3, 4)) == 255).all()
    assert rollout.transitions()["next_observation"].dtype == np.uint8
    assert rlcpu.simulate(env, rlcpu.policies.Uniform(), 30).num_episodes > 0
    single = gymnasium.make("rlcpu/Dot-v0")
    image, _ = single.reset(seed=0)
    assert single.observation_space.contains(image)
    greedy = rlcpu.policies.Scalar(towards)
    assert rlcpu.simulate(env, greedy, num_episodes=20).mean_return > 0.4


def towards(observation: Any, params: Any, uniforms: Any) -> tuple[int, float, float]:
    place, goal = 0, 0
    for k in range(SIDE):
        place = k if observation[0, 1, k] == 255 else place
        goal = k if observation[0, 5, k] == 128 else goal
    return 1 if goal > place else 0, 0.0, 0.0


def test_an_agent_convolves_them() -> None:
    agent = rlcpu.train.PPO(make(), seed=0, num_envs=16, num_steps=16, num_threads=1)
    assert agent.config.network == "conv"
    history = agent.learn(512)
    assert np.isfinite(history.losses).all()


def test_whole_numbers_that_are_returned_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"Box\(\(1, 7, 7\), uint8\) has to be .*observe\(state, pa"
    ):
        make(observe=lambda state, params: (1.0,))

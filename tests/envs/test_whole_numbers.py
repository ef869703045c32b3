"""Whole numbers of users: parameters that are ints, rewards and observations without a point."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Dynamics, Rng
from tests.envs.trials import try_kernels

TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6])


class Params(NamedTuple):
    size: int = 5  # an index and the turns of a loop
    gain: float = 2  # a float: its hint says so
    first: int = 1


class State(NamedTuple):
    place: int
    weight: float


class Drawn(NamedTuple):
    first: int


def randomize(rng: Rng, params: Params) -> Drawn:
    return Drawn(rng.integers(params.size))


def reset(rng: Rng, params: Params) -> State:
    return State(params.first, 0)


def step(state: State, action: int, params: Params) -> Any:
    place = min(max(state.place + 2 * action - 1, 0), params.size)
    total = 0
    for k in range(params.size):
        total += TABLE[k] * params.gain if k < place else 1
    weight = total / 4 + TABLE[params.size % 8]
    if place == params.size:
        return State(place, 1), 1, True
    return State(place, weight), weight if action else False, False


def observe(state: State, params: Params) -> Any:
    return state.place, state.place > 2, state.weight, params.size // 2


def make(**changes: Any) -> Dynamics:
    fields: dict[str, Any] = {"step": step, "reset": reset, "observe": observe}
    return Dynamics(
        id="Whole-v0",
        **{**fields, "params": Params(), **changes},
        observation_space=Box(-100, 100, (4,), np.float32),
        action_space=Discrete(2),
        max_episode_steps=20,
    )


def test_they_are_those_of_plain_python() -> None:
    try_kernels(make(randomize=randomize))


def test_parameters_stay_ints() -> None:
    dynamics = make()
    assert [type(value) for value in dynamics.params] == [int, float, int]
    sizes = np.array([3, 6, 4])
    env = rlcpu.make_vec(dynamics, 3, size=sizes)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.params.size, sizes)
    assert env.params.size.dtype == np.int64
    for _ in range(6):
        observations, rewards, terminated, _, _ = env.step(np.ones(3, np.int64))
        np.testing.assert_array_equal(observations[:, 3], sizes // 2)
        if terminated[0]:
            break
    assert rewards[0] == 1
    assert env.state.place[0] == 3
    assert rlcpu.make_vec(dynamics, 1, size=4.0).params.size == 4


@pytest.mark.parametrize("size", [2.5, 2**24 + 1, [3, 2.5], math.inf, [3, -math.inf]])
def test_others_than_whole_numbers_are_refused(size: Any) -> None:
    with pytest.raises(
        ValueError, match=r"Whole-v0: size.* has to be a whole number from -16777216"
    ):
        make().with_params(size=size)


def test_all_that_is_refused_is_told_at_once() -> None:
    def made(state: State, params: Params) -> Any:
        return [0.0 for _ in range(4)]

    def drawn(rng: Rng, params: Params) -> State:
        print(params)
        return State(sorted((2, 1))[0], 0.0)

    with pytest.raises(TypeError) as caught:
        make(observe=made, reset=drawn)
    for text in ("print(params)", "sorted((2, 1))", "[0.0 for _ in range(4)]"):
        assert text in str(caught.value)


def test_plain_tuples_of_whole_numbers_are_floats() -> None:
    dynamics = make(
        step=lambda state, action, params: ((state[0] + action, 1), action, state[0] > 3),
        reset=lambda rng, params: (0, rng.integers(3)),
        observe=lambda state, params: (state[0], 1, state[1] > 0, params.gain),
    )
    try_kernels(dynamics)
    env = rlcpu.make_vec(dynamics, 2)
    env.reset(seed=0)
    observations, rewards, *_ = env.step(np.array([0, 1]))
    np.testing.assert_array_equal(observations, [[0, 1, 1, 2], [1, 1, 1, 2]])
    np.testing.assert_array_equal(rewards, [0, 1])
    rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 4)
    assert rollout.observations.dtype == np.float32

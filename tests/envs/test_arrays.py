"""States with arrays: kernels beside the same functions in plain Python."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.envs import Rng
from rlcpu.envs.engine.lane import PENDING
from rlcpu.kernels.random import RESET_GROUP, STEP_GROUP, keys, mix, stream_seeds
from tests.envs import snake

NUM_ENVS, STEPS = 70, 120


class PlainEnvs:
    """N environments in plain Python, with the random numbers of kernels.

    A reset is turn 0 of a stream, each step is the next turn.
    """

    def __init__(self, dynamics: rlcpu.Dynamics, num_envs: int, seed: int) -> None:
        self.dynamics, self.turn = dynamics, 0
        self.keys = keys(stream_seeds(seed, num_envs))
        self.states: list[Any] = [dynamics.state.made() for _ in range(num_envs)]
        self.elapsed = [0] * num_envs
        for i in range(num_envs):
            self.start(i)

    def rng(self, i: int, group: int) -> Rng:
        with np.errstate(over="ignore"):
            a, b = mix.py_func(self.keys[0][i], self.keys[1][i], np.uint32(self.turn))
        return Rng(int(a), int(b), group, np.float32)

    def start(self, i: int) -> None:
        self.states[i] = self.dynamics.state.made()
        self.dynamics.reset(self.states[i], self.rng(i, RESET_GROUP), self.dynamics.params)
        self.elapsed[i] = 0

    def step(self, actions: Any, mode: str) -> list[tuple[float, bool, bool]]:
        self.turn += 1
        results = []
        for i, action in enumerate(actions.tolist()):
            if mode == "NextStep" and self.elapsed[i] == PENDING:
                self.start(i)
                results.append((0.0, False, False))
                continue
            rng = self.rng(i, STEP_GROUP)
            reward, terminated = self.dynamics.step(
                self.states[i], action, self.dynamics.params, rng
            )
            self.elapsed[i] += 1
            truncated = self.elapsed[i] >= (self.dynamics.max_episode_steps or 2**32)
            results.append((reward, terminated, truncated))
            if terminated or truncated:
                if mode == "SameStep":
                    self.start(i)
                else:
                    self.elapsed[i] = PENDING
        return results

    def observations(self) -> Any:
        shape = self.dynamics.observation_space.shape
        seen = np.zeros((len(self.states), *shape), np.float32)
        for state, out in zip(self.states, seen, strict=True):
            self.dynamics.observe(copy.copy(state), self.dynamics.params, out)
        return seen


def assert_equal_states(env: rlcpu.envs.VectorEnv, plain: PlainEnvs) -> None:
    for field in plain.dynamics.state.fields:
        expected = np.array([np.asarray(getattr(state, field.name)) for state in plain.states])
        np.testing.assert_array_equal(getattr(env.state, field.name), expected)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_steps_are_those_of_plain_python(mode: str) -> None:
    env = rlcpu.make_vec(snake.snake, NUM_ENVS, autoreset_mode=mode)
    plain = PlainEnvs(snake.snake, NUM_ENVS, seed=5)
    seen, _ = env.reset(seed=5)
    np.testing.assert_array_equal(seen, plain.observations())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(STEPS):
        actions = rng.integers(0, 4, NUM_ENVS)
        seen, rewards, terminated, truncated, _ = env.step(actions)
        expected = plain.step(actions, mode)
        assert list(zip(rewards.tolist(), terminated, truncated, strict=True)) == expected
        np.testing.assert_array_equal(seen, plain.observations())
        assert_equal_states(env, plain)
        ends += int((terminated | truncated).sum())
    assert ends > NUM_ENVS


def test_simulate_and_collect_take_the_same_steps() -> None:
    policy = rlcpu.policies.Uniform()
    env, other = (rlcpu.make_vec(snake.snake, NUM_ENVS) for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=1)
    rollout = rlcpu.collect(env, policy, STEPS)
    statistics = rlcpu.simulate(other, policy, STEPS)
    assert statistics.num_episodes == len(rollout.episode_returns) > NUM_ENVS
    assert statistics.mean_return == pytest.approx(rollout.episode_returns.mean())
    np.testing.assert_array_equal(env.state.grid, other.state.grid)
    plain = PlainEnvs(snake.snake, NUM_ENVS, seed=1)
    for step in range(STEPS):
        np.testing.assert_array_equal(rollout.observations[step], plain.observations())
        expected = plain.step(rollout.actions[step], "SameStep")
        flags = rollout.terminated[step], rollout.truncated[step]
        assert list(zip(rollout.rewards[step].tolist(), *flags, strict=True)) == expected

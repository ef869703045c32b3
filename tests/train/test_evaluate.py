"""Evaluation plays the first episode of each environment to its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.train.running.evaluate import evaluate


def make(seed: int = 0, **options: object) -> tuple[rlcpu.VectorEnv, rlcpu.policies.MLP]:
    env = rlcpu.make_vec("CartPole-v1", num_envs=3, **options)
    return env, rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, seed=seed)


def play(env: rlcpu.VectorEnv, policy: rlcpu.policies.MLP, episodes: int, seed: int) -> np.ndarray:
    """Greedy returns by `env.step`, from the same starts."""
    fresh = rlcpu.make_vec("CartPole-v1", num_envs=episodes)
    seeds = np.random.SeedSequence(seed).generate_state(episodes)
    observations, _ = fresh.reset(seed=seeds.tolist())
    returns, running = np.zeros(episodes), np.ones(episodes, bool)
    while running.any():
        actions = policy.outputs(observations).argmax(axis=1)
        observations, rewards, terminated, truncated, _ = fresh.step(actions)
        returns += rewards * running
        running &= ~(terminated | truncated)
    return returns


def test_equals_a_loop_over_step() -> None:
    env, policy = make()
    returns = evaluate(env, policy, 40, seed=5)
    np.testing.assert_array_equal(returns, play(env, policy, 40, 5))
    assert len(set(returns)) > 1


def test_is_a_function_of_its_arguments_and_touches_neither() -> None:
    env, policy = make()
    env.reset(seed=0)
    before = env.state
    first = evaluate(env, policy, 20, seed=1, deterministic=False)
    np.testing.assert_array_equal(first, evaluate(env, policy, 20, seed=1, deterministic=False))
    assert (first != evaluate(env, policy, 20, seed=2, deterministic=False)).any()
    np.testing.assert_array_equal(env.state, before)
    assert policy.deterministic is False


def test_keeps_the_limit_of_the_environment() -> None:
    env, policy = make(max_episode_steps=5)
    assert (evaluate(env, policy, 10) == 5.0).all()


@pytest.mark.parametrize(("episodes", "error"), [(0, ValueError), (2.5, TypeError)])
def test_number_of_episodes_is_checked(episodes: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_episodes"):
        evaluate(*make(), episodes)

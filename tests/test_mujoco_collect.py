"""Rollouts of MuJoCo's tasks: the same as steps one by one, whatever the threads and the split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.policies import MLP, Scalar, Uniform
from rlcpu.train.sac import SquashedGaussian
from tests.envs.test_memory import check_values

pytest.importorskip("mujoco")

N, K = 5, 12
FIELDS = ("observations", "actions", "log_probs", "values", "rewards", "terminated", "truncated")
CHEETAH = "HalfCheetah-v5"


def make(name: str = CHEETAH, **options: Any) -> Any:
    env = rlcpu.make_vec(name, N, **{"max_episode_steps": 7, "dtype": "float64", **options})
    env.reset(seed=3)
    return env


def network(env: Any, value: str | None = "separate", **options: Any) -> MLP:
    policy = MLP(env.single_observation_space, env.single_action_space, (16, 16), value=value)
    rng = np.random.default_rng(1)
    for array in (policy.parameters, policy.value_parameters):
        array += 0.3 * rng.standard_normal(array.size, np.float32)
    policy.log_std += rng.uniform(-1.0, 0.5, policy.log_std.size).astype(np.float32)
    policy.observation_mean += rng.uniform(-0.1, 0.1, policy.observation_mean.size)
    policy.observation_scale *= rng.uniform(0.5, 2.0, policy.observation_scale.size)
    policy.observation_limit = 0.7
    for name, value in options.items():
        setattr(policy, name, value)
    return policy


def lean(observation, params, uniforms):
    """Six torques, some beyond their bounds."""
    push = params[0] * observation[1] + uniforms[0]
    return (push, -push, 0.1, uniforms[1], 3.0 * push, 0.0), -push, observation[0]


POLICIES = {
    "uniform": lambda env: Uniform(),
    "scalar": lambda env: Scalar(lean, (2.0,), 2),
    "separate": network,
    "shared": lambda env: network(env, "shared", activation="relu"),
    "squashed": lambda env: SquashedGaussian(env.dynamics, (16,), seed=1),
    "none": lambda env: network(env, None, deterministic=True),
}


def test_a_rollout_with_memory_is_what_the_networks_say() -> None:
    check_values(make("InvertedPendulum-v5"), "separate", 16)


@pytest.mark.parametrize("name", POLICIES)
def test_a_rollout_is_steps_one_by_one(name: str) -> None:
    env, twin = make(), make(autoreset_mode="SameStep")
    rollout = rlcpu.collect(env, POLICIES[name](env), K)
    seen, final = twin.observe(), 0
    space = env.single_action_space
    for step in range(K):
        np.testing.assert_array_equal(rollout.observations[step], seen)
        actions = np.clip(rollout.actions[step], space.low, space.high)
        seen, rewards, terminated, truncated, infos = twin.step(actions)
        np.testing.assert_array_equal(rollout.rewards[step], rewards)
        np.testing.assert_array_equal(rollout.terminated[step], terminated)
        np.testing.assert_array_equal(rollout.truncated[step], truncated)
        for i in np.flatnonzero(terminated | truncated):
            assert rollout.final_indices[final].tolist() == [step, i]
            reached = rollout.final_observations[final]
            np.testing.assert_array_equal(reached, infos["final_obs"][i])
            final += 1
    assert final == len(rollout.final_observations) == N
    np.testing.assert_array_equal(rollout.last_observations, seen)
    expected = rollout.rewards[:7].sum(axis=0)
    np.testing.assert_allclose(rollout.episode_returns, expected, rtol=1e-12)
    assert rollout.episode_lengths.tolist() == [7] * N


@pytest.mark.parametrize("name", ["separate", "scalar"])
def test_threads_and_the_split_into_calls_change_nothing(name: str) -> None:
    env, other = make(num_threads=1), make(num_threads=2)
    whole = rlcpu.collect(env, POLICIES[name](env), K)
    policy = POLICIES[name](other)
    parts = [rlcpu.collect(other, policy, steps) for steps in (1, 4, K - 5)]
    for field in FIELDS:
        joined = np.concatenate([getattr(part, field) for part in parts])
        np.testing.assert_array_equal(getattr(whole, field), joined)
    np.testing.assert_array_equal(env.state, other.state)


def test_a_network_acts_as_it_does_in_python() -> None:
    env = make()
    policy = network(env, "shared")
    rollout = rlcpu.collect(env, policy, K)
    seen = rollout.observations.reshape(-1, 17)
    means, stds = policy.outputs(seen), np.exp(policy.log_std)
    z = (rollout.actions.reshape(-1, 6) - means) / stds
    density = (-0.5 * z * z - policy.log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    np.testing.assert_allclose(rollout.log_probs.ravel(), density, atol=2e-4)
    np.testing.assert_allclose(rollout.values.ravel(), policy.evaluate(seen), atol=2e-5)
    rollout = rlcpu.collect(env, policy, 1, deterministic=True)
    means = policy.outputs(rollout.observations[0])
    np.testing.assert_allclose(rollout.actions[0], means, atol=2e-5)


def test_changes_of_a_policy_between_calls_count() -> None:
    """Whether it counts its versions, or its numbers are changed in place."""
    env, twin = make(), make()
    policy, same = network(env), network(twin)
    for change in ("none", "in place", "greedy", "other array"):
        for each in (policy, same):
            if change == "in place":
                each.parameters *= np.float32(0.5)
                each.log_std += np.float32(0.5)
            elif change == "greedy":
                each.deterministic = True
            elif change == "other array":
                each.observation_mean = each.observation_mean + np.float32(1)
        twin.engine.last_runner = None
        rollout, expected = rlcpu.collect(env, policy, K), rlcpu.collect(twin, same, K)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(rollout, field), getattr(expected, field))


def test_the_noise_of_a_network_is_normal() -> None:
    env = rlcpu.make_vec(CHEETAH, 64, dtype="float64")
    policy = MLP(env.single_observation_space, env.single_action_space, (8,), value=None)
    policy.parameters[:] = 0.0
    env.reset(seed=0)
    z = np.sort(rlcpu.collect(env, policy, 40).actions.ravel())
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * z.size)
    assert np.abs(np.corrcoef(rlcpu.collect(env, policy, 40).actions.reshape(-1, 6).T)).sum() < 6.8


def test_simulate_sums_up_what_collect_records() -> None:
    env, other = make(), make()
    policy = network(env)
    rollout, sums = rlcpu.collect(env, policy, 20), rlcpu.simulate(other, policy, 20)
    assert sums.num_steps == 20 * N
    assert sums.num_episodes == len(rollout.episode_returns)
    np.testing.assert_allclose(sums.mean_return, rollout.episode_returns.mean(), rtol=1e-12)
    np.testing.assert_allclose(sums.std_return, rollout.episode_returns.std(), rtol=1e-6)
    assert sums.mean_length == 7
    np.testing.assert_array_equal(env.state, other.state)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rollouts_have_the_dtype_of_the_environment(dtype: str) -> None:
    env = make(dtype=dtype)
    policy = network(env)
    out = rlcpu.collect(env, policy, K)
    arrays = out.observations, out.rewards, out.last_observations, out.final_observations
    assert {array.dtype.name for array in arrays} == {dtype}
    assert out.actions.dtype == np.float32
    assert rlcpu.collect(env, policy, K, out=out) is out
    assert out.transitions()["next_observation"].dtype == np.dtype(dtype)
    other = make(dtype="float32" if dtype == "float64" else "float64")
    with pytest.raises(ValueError, match="out has"):
        rlcpu.collect(other, policy, K, out=out)


def test_numbers_that_are_not_finite_are_named() -> None:
    env = make()
    policy = network(env)
    policy.log_std[2] = np.nan
    with pytest.raises(FloatingPointError, match=r"policy\.log_std\[2\] is nan"):
        rlcpu.collect(env, policy, 2)
    with pytest.raises(FloatingPointError, match=r"policy\.log_std\[2\] is nan"):
        rlcpu.simulate(env, policy, 2)
    policy.log_std[2] = 0.0
    rlcpu.collect(env, policy, 2)


def test_a_policy_of_another_size_is_refused() -> None:
    env = make()
    policy = MLP(rlcpu.make_vec("CartPole-v1").single_observation_space, env.single_action_space)
    with pytest.raises(ValueError, match="HalfCheetah-v5 needs 17, 6"):
        rlcpu.collect(env, policy, 2)

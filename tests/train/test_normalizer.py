"""Running statistics equal those of all rows at once, and what other libraries compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcpu.train.keeping.normalise import Normalizer, RewardNormalizer


def policy_of(size: int) -> Any:
    """A policy that normalises observations of so many numbers."""
    arrays = np.zeros((2, size), np.float32)
    return SimpleNamespace(observation_mean=arrays[0], observation_scale=arrays[1])


@pytest.mark.parametrize("extra", [0, 2])
def test_parts_add_up_to_the_whole(extra: int) -> None:
    """Also of rows that have something else behind their numbers, such as masks."""
    rng = np.random.default_rng(0)
    rows = rng.normal([1e3, -2.0, 0.0], [1.0, 5.0, 0.1], (1000, 3)).astype(np.float32)
    wide = np.full((1000, 3 + extra), np.nan, np.float32)
    wide[:, :3] = rows
    normalizer, policy = Normalizer(3), policy_of(3)
    for part in np.split(wide[:, :3], [1, 10, 500]):
        normalizer.normalise(policy, part)
    assert normalizer.count.tolist() == [1000]
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(normalizer.mean, exact.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(policy.observation_mean, exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(policy.observation_scale, 1.0 / exact.std(axis=0), rtol=1e-6)


def test_a_constant_has_a_finite_scale() -> None:
    policy = policy_of(1)
    Normalizer(1).normalise(policy, np.ones((5, 1), np.float32))
    assert np.isfinite(policy.observation_scale).all()


def scaled(normalizer: RewardNormalizer, rewards: Any, n_step: int = 1) -> Any:
    scale, learnt = normalizer.scaling(np.float32(rewards), True, n_step, factor=1.0)
    scale()
    return learnt


T, N = 600, 4


class Script:
    """Rewards, observations and ends (T, N, ...) that no action changes."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.rewards = rng.normal(2.0, 3.0, (T, N)).astype(np.float32)
        self.rewards[::97] *= 40.0  # which is clipped
        self.terminated = rng.random((T, N)) < 0.03
        self.truncated = rng.random((T, N)) < 0.02
        self.observations = rng.normal([1.0, -20.0], [0.1, 5.0], (T, N, 2)).astype(np.float32)

    def rollout(self, begin: int, end: int) -> Any:
        names = "rewards", "terminated", "truncated"
        return SimpleNamespace(**{name: getattr(self, name)[begin:end] for name in names})


def test_rewards_and_observations_are_those_of_stable_baselines3() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

    class Told(vec_env.DummyVecEnv):  # type: ignore[misc,name-defined]
        number = 0

        def step_async(self, actions: Any) -> None:
            pass

        def step_wait(self) -> Any:
            t, self.number = self.number, self.number + 1
            done = script.terminated[t] | script.truncated[t]
            return script.observations[t], script.rewards[t], done, [{} for _ in range(N)]

    class Idle(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

    script = Script()
    theirs = vec_env.VecNormalize(Told([Idle] * N), gamma=0.97)
    theirs.returns = np.zeros(N)
    ours, seen, policy = RewardNormalizer(N), Normalizer(2), policy_of(2)
    for t in range(T):
        _, expected, _, _ = theirs.step(np.zeros(N))
        ours.add(script.rollout(t, t + 1), 0.97)
        seen.normalise(policy, script.observations[t])
        # Theirs begin with a variance of 1 that counts as 1e-4 rows.
        rewards = scaled(ours, script.rewards[t])
        np.testing.assert_allclose(rewards, expected, rtol=1e-3 if t < 10 else 1e-5)
    np.testing.assert_array_equal(ours.returns, theirs.returns)
    np.testing.assert_allclose(seen.mean, theirs.obs_rms.mean, rtol=1e-6)
    np.testing.assert_allclose(policy.observation_scale, theirs.obs_rms.var**-0.5, rtol=1e-5)


def test_a_rollout_counts_as_its_steps_do() -> None:
    script, whole, single = Script(), RewardNormalizer(N), RewardNormalizer(N)
    whole.add(script.rollout(0, T), 0.9)
    for t in range(T):
        single.add(script.rollout(t, t + 1), 0.9)
    np.testing.assert_array_equal(whole.returns, single.returns)
    for name, array in whole.state().items():
        np.testing.assert_array_equal(array, single.state()[name])


def test_sums_of_rewards_have_wider_bounds() -> None:
    script, normalizer = Script(), RewardNormalizer(N)
    normalizer.add(script.rollout(0, T), 0.9)
    rewards = np.array([1e9, -1e9, 0.0], np.float32)
    assert scaled(normalizer, rewards).tolist() == [10.0, -10.0, 0.0]
    assert scaled(normalizer, rewards, 3).tolist() == [30.0, -30.0, 0.0]

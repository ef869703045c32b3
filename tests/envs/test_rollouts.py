"""`collect` and `simulate` against a step-by-step replay in plain NumPy."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs.policies import MLP, Linear, Scalar, Uniform

NUM_ENVS, NUM_STEPS, LIMIT = 70, 24, 11


def make(name: str, dtype: str = "float32", **options: Any) -> rlcpu.VectorEnv:
    options.setdefault("autoreset_mode", AutoresetMode.SAME_STEP)
    options.setdefault("max_episode_steps", LIMIT)
    env = rlcpu.make_vec(name, NUM_ENVS, dtype=dtype, **options)
    env.reset(seed=7)
    return env


def lean(observation: Any, params: Any, uniforms: Any) -> Any:
    """Push towards the side that the car moves to, and now and then anywhere."""
    ahead = 2 if observation[1] > 0.0 else 0
    return (1 if uniforms[0] < params[0] else ahead), -0.5, observation[0]


def make_policy(kind: str, env: rlcpu.VectorEnv) -> Any:
    spaces = env.single_observation_space, env.single_action_space
    if kind == "uniform":
        return Uniform()
    if kind == "scalar":
        return Scalar(lean, params=(0.25,), draws=1)
    if kind == "linear":
        return Linear(*spaces, value="shared", seed=3)
    activation, value = kind.split("-")
    policy = MLP(*spaces, hidden=(24, 16), activation=activation, value=value, seed=5)
    rng = np.random.default_rng(1)
    policy.parameters[:] = rng.normal(0.0, 0.3, policy.parameters.size)
    policy.value_parameters[:] = rng.normal(0.0, 0.3, policy.value_parameters.size)
    policy.log_std[:] = rng.normal(-0.5, 0.3, policy.log_std.size)
    policy.observation_mean[:] = rng.normal(0.0, 0.1, policy.observation_mean.size)
    policy.observation_scale[:] = rng.uniform(0.5, 2.0, policy.observation_scale.size)
    return policy


def forward(policy: MLP, parameters: Any, sizes: Any, observations: Any) -> Any:
    """The network in float64 NumPy, read off its documented layout."""
    x = np.clip((observations - policy.observation_mean) * policy.observation_scale, -10, 10)
    x, start = x.astype(np.float64), 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        weights = parameters[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        x = x @ weights + parameters[start : start + fan_out]
        start += fan_out
        if layer < len(sizes) - 2:
            x = np.tanh(x) if policy.activation == "tanh" else np.maximum(x, 0.0)
    return x


def log_prob(policy: MLP, outputs: Any, actions: Any) -> Any:
    if actions.ndim == outputs.ndim:
        noise = (actions - outputs) / np.exp(policy.log_std)
        terms = -0.5 * noise**2 - policy.log_std - 0.5 * math.log(2.0 * math.pi)
        return terms.sum(axis=-1)
    shifted = outputs - outputs.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, actions[..., None], axis=-1)[..., 0]
    return chosen - np.log(np.exp(shifted).sum(axis=-1))


CASES = [
    ("MountainCar-v0", "uniform"),
    ("MountainCar-v0", "scalar"),
    ("MountainCar-v0", "linear"),
    ("MountainCar-v0", "tanh-separate"),
    ("MountainCar-v0", "relu-shared"),
    ("Pendulum-v1", "uniform"),
    ("Pendulum-v1", "tanh-shared"),
    ("Pendulum-v1", "relu-separate"),
]


def compare(dtype: str) -> Any:
    """Two kernels of the exact mode agree in every bit; fast ones may reorder sums differently."""
    if dtype == "float64":
        return np.testing.assert_array_equal
    return functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    [*((*case, "float32") for case in CASES), ("Pendulum-v1", "uniform", "float64")],
)
def test_collect_is_what_stepping_gives(name: str, kind: str, dtype: str) -> None:
    env, twin = make(name, dtype), make(name, dtype)
    assert_same = compare(dtype)
    rollout = rlcpu.collect(env, make_policy(kind, env), NUM_STEPS)
    space = env.single_action_space
    observation = twin.observe()
    ends, finals, returns, lengths = [], [], [], []
    total, steps = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, int)
    for t in range(NUM_STEPS):
        assert_same(rollout.observations[t], observation)
        actions = rollout.actions[t]
        if actions.ndim == 2:
            actions = np.clip(actions, space.low, space.high)
        observation, rewards, terminated, truncated, infos = twin.step(actions)
        assert_same(rollout.rewards[t], rewards)
        np.testing.assert_array_equal(rollout.terminated[t], terminated)
        np.testing.assert_array_equal(rollout.truncated[t], truncated)
        total, steps = total + rewards, steps + 1
        for i in np.flatnonzero(terminated | truncated):
            ends.append([t, i])
            finals.append(infos["final_obs"][i])
            returns.append(total[i])
            lengths.append(steps[i])
            total[i], steps[i] = 0.0, 0
    assert_same(rollout.last_observations, observation)
    np.testing.assert_array_equal(rollout.final_indices, ends)
    assert_same(rollout.final_observations, finals)
    np.testing.assert_array_equal(rollout.episode_lengths, lengths)
    assert_same(rollout.episode_returns, returns)
    assert len(ends) >= 2 * NUM_ENVS
    assert_same(env.state, twin.state)


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if "-" in case[1]])
@pytest.mark.parametrize("deterministic", [False, True])
def test_log_probs_and_values(name: str, kind: str, deterministic: bool) -> None:
    env = make(name)
    policy = make_policy(kind, env)
    policy.deterministic = deterministic
    rollout = rlcpu.collect(env, policy, NUM_STEPS)
    outputs = forward(policy, policy.parameters, policy.sizes, rollout.observations)
    values = outputs[..., -1]
    if policy.value == "separate":
        seen = rollout.observations
        values = forward(policy, policy.value_parameters, policy.value_sizes, seen)[..., 0]
    else:
        outputs = outputs[..., :-1]
    np.testing.assert_allclose(rollout.values, values, rtol=2e-5, atol=2e-5)
    expected = log_prob(policy, outputs, rollout.actions)
    np.testing.assert_allclose(rollout.log_probs, expected, rtol=1e-4, atol=1e-4)
    if deterministic and rollout.actions.ndim == 2:
        np.testing.assert_array_equal(rollout.actions, outputs.argmax(axis=-1))
    elif deterministic:
        np.testing.assert_allclose(rollout.actions, outputs, rtol=2e-5, atol=2e-5)
    finals = policy.evaluate(rollout.final_observations)
    steps, envs = rollout.final_indices.T
    cut = rollout.truncated[steps, envs] & ~rollout.terminated[steps, envs]
    assert cut.any()
    np.testing.assert_array_equal(rollout.final_values[steps, envs], np.where(cut, finals, 0.0))
    assert np.count_nonzero(rollout.final_values) <= len(steps)
    np.testing.assert_array_equal(rollout.last_values, policy.evaluate(rollout.last_observations))


def test_sampled_actions_follow_the_policy() -> None:
    """Standardised sums of (taken - probability) and of Gaussian noise, |z| < 5: p < 1e-6."""
    env = rlcpu.make_vec("MountainCar-v0", 512)
    env.reset(seed=1)
    policy = make_policy("tanh-separate", env)
    rollout = rlcpu.collect(env, policy, 200)
    logits = forward(policy, policy.parameters, policy.sizes, rollout.observations)
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    for action in range(3):
        p = chances[..., action]
        z = ((rollout.actions == action) - p).sum() / math.sqrt((p * (1 - p)).sum())
        assert abs(z) < 5.0
    env = rlcpu.make_vec("Pendulum-v1", 512)
    env.reset(seed=1)
    policy = make_policy("relu-separate", env)
    rollout = rlcpu.collect(env, policy, 200)
    means = forward(policy, policy.parameters, policy.sizes, rollout.observations)
    noise = ((rollout.actions - means) / np.exp(policy.log_std)).ravel()
    assert abs(noise.mean()) * math.sqrt(noise.size) < 5.0
    assert abs((noise**2).mean() - 1.0) * math.sqrt(noise.size / 2) < 5.0
    assert 4.0 < np.abs(noise).max() < 6.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_collecting_resumes_where_it_stopped(dtype: str) -> None:
    whole, parts = make("MountainCar-v0", dtype), make("MountainCar-v0", dtype)
    policy = make_policy("relu-shared", whole)
    once = rlcpu.collect(whole, policy, NUM_STEPS)
    first = rlcpu.collect(parts, policy, 10)
    second = rlcpu.collect(parts, policy, NUM_STEPS - 10)
    for field in ("observations", "actions", "log_probs", "values", "rewards", "truncated"):
        joined = np.concatenate((getattr(first, field), getattr(second, field)))
        np.testing.assert_array_equal(joined, getattr(once, field))
    ends = np.concatenate((first.episode_returns, second.episode_returns))
    np.testing.assert_array_equal(ends, once.episode_returns)
    assert once.rewards.dtype == dtype


def test_collecting_mixes_with_stepping() -> None:
    """Episodes begun by `step` end in `collect` with their whole return and length."""
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        env = make("MountainCar-v0", autoreset_mode=mode)
        for _ in range(4):
            env.step(np.ones(NUM_ENVS, np.int64))
        rollout = rlcpu.collect(env, Uniform(), LIMIT - 4)
        assert len(rollout.episode_lengths) == NUM_ENVS
        assert set(rollout.episode_lengths) == {LIMIT}
        assert set(rollout.episode_returns) == {-float(LIMIT)}
        for _ in range(LIMIT):
            results = env.step(np.ones(NUM_ENVS, np.int64))
        assert results[3].all()
        assert rlcpu.collect(env, Uniform(), LIMIT).truncated[-1].all()


def test_out_is_reused_and_checked() -> None:
    env = make("MountainCar-v0")
    policy = make_policy("relu-shared", env)
    rollout = rlcpu.collect(env, policy, NUM_STEPS)
    pointers = [rollout.observations.ctypes.data, rollout.actions.ctypes.data]
    before = rollout.observations.copy()
    again = rlcpu.collect(env, policy, NUM_STEPS, out=rollout)
    assert again is rollout
    assert pointers == [again.observations.ctypes.data, again.actions.ctypes.data]
    assert not np.array_equal(before, again.observations)
    with pytest.raises(ValueError, match=r"out has .* expected"):
        rlcpu.collect(env, policy, NUM_STEPS + 1, out=rollout)
    with pytest.raises(TypeError, match="out="):
        rlcpu.collect(env, policy, NUM_STEPS, out=before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_simulate_reports_what_collect_records(dtype: str) -> None:
    env, twin = make("MountainCar-v0", dtype), make("MountainCar-v0", dtype)
    rollout = rlcpu.collect(env, Uniform(), 300)
    statistics = rlcpu.simulate(twin, Uniform(), 300)
    assert statistics.num_steps == 300 * NUM_ENVS
    assert statistics.num_episodes == len(rollout.episode_returns)
    np.testing.assert_allclose(statistics.mean_return, rollout.episode_returns.mean(), rtol=1e-6)
    np.testing.assert_allclose(statistics.std_return, rollout.episode_returns.std(), atol=1e-3)
    np.testing.assert_allclose(statistics.mean_length, rollout.episode_lengths.mean(), rtol=1e-6)
    np.testing.assert_array_equal(env.state, twin.state)


def test_policies_that_do_not_fit() -> None:
    env, other = make("MountainCar-v0"), make("Pendulum-v1")
    policy = make_policy("tanh-separate", env)
    before = other.state
    with pytest.raises(ValueError, match=r"policy has 2 inputs, 3 outputs.*Pendulum-v1 needs 3, 1"):
        rlcpu.collect(other, policy, 4)
    with pytest.raises(TypeError, match="policy="):
        rlcpu.collect(env, None, 4)
    with pytest.raises(ValueError, match="num_steps=0"):
        rlcpu.simulate(env, Uniform(), 0)
    with pytest.raises(TypeError, match=r"num_steps=1\.5"):
        rlcpu.simulate(env, Uniform(), 1.5)
    np.testing.assert_array_equal(other.state, before)

"""Fused rollouts against a plain Python loop, and against `env.step`."""

from __future__ import annotations

import numpy as np
import pytest

import rlcpu
from rlcpu.policies import Uniform
from tests import naive
from tests.envs.rollouts import CASES, FIELDS, LIMIT, NUM_ENVS, assert_same, make

#: Nine float32 steps of the environment, and float32 activations, against float64: relative to
#: the largest numbers of a field, at least 1. Exact environments see float32 actions only.
ERRORS = {"float32": 2e-5, "float64": 2e-6}
#: By policies that other tests compile for the same environments.
REPLAYED = ["CartPole-v1 uniform", "CartPole-v1 exact own", "Pendulum-v1 uniform"]
REPLAYED += ["Pendulum-v1 exact tanh"]
every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_collect_is_a_plain_loop(case: str) -> None:
    env, policy = make(case)
    num_steps = 2 * LIMIT + 5
    rollout = rlcpu.collect(env, policy, num_steps)
    expected = naive.collect(env, policy, num_steps, range(11, 11 + NUM_ENVS))
    for name in ("terminated", "truncated", "final_indices", "episode_lengths"):
        np.testing.assert_array_equal(getattr(rollout, name), expected.pop(name), err_msg=name)
    if env.dynamics.is_discrete:
        np.testing.assert_array_equal(rollout.actions, expected.pop("actions"))
    for name, values in expected.items():
        scale = max(np.abs(values).max(), 1.0)
        error = np.abs(getattr(rollout, name) - values).max() / scale
        assert error <= ERRORS[env.dtype.name], name


@every_case
def test_shapes_and_dtypes(case: str) -> None:
    env, policy = make(case, num_envs=3)
    rollout = rlcpu.collect(env, policy, 10)
    size, width = env.dynamics.observation_size, env.dynamics.action_size
    action = ((10, 3, width), np.float32) if width else ((10, 3), np.int64)
    ends = len(rollout.final_indices)
    assert ends >= 3
    expected = {
        "observations": ((10, 3, size), np.float32),
        "actions": action,
        "log_probs": ((10, 3), np.float32),
        "values": ((10, 3), np.float32),
        "rewards": ((10, 3), env.dtype),
        "terminated": ((10, 3), np.bool_),
        "truncated": ((10, 3), np.bool_),
        "last_observations": ((3, size), np.float32),
        "last_values": ((3,), np.float32),
        "final_indices": ((ends, 2), np.int64),
        "final_observations": ((ends, size), np.float32),
        "final_values": ((10, 3), np.float32),
        "episode_returns": ((ends,), np.float64),
        "episode_lengths": ((ends,), np.int64),
    }
    kinds = {k: (getattr(rollout, k).shape, getattr(rollout, k).dtype) for k in FIELDS}
    assert kinds == expected
    assert all(getattr(rollout, name).flags.c_contiguous for name in FIELDS)


@pytest.mark.parametrize("case", REPLAYED)
def test_steps_replay_a_rollout(case: str) -> None:
    """`env.step` in same-step mode with the recorded actions goes the same way."""
    (collecting, policy), (stepping, _) = (make(case, autoreset_mode="SameStep") for _ in range(2))
    collecting.reset(seed=4)
    observations, _ = stepping.reset(seed=4)
    rollout = rlcpu.collect(collecting, policy, 3 * LIMIT)
    finals = iter(rollout.final_observations)
    for step in range(3 * LIMIT):
        assert_same(observations, rollout.observations[step])
        observations, rewards, *flags, infos = stepping.step(rollout.actions[step])
        assert_same(rewards, rollout.rewards[step])
        for field, values in zip(("terminated", "truncated"), flags, strict=True):
            np.testing.assert_array_equal(values, getattr(rollout, field)[step])
        for final in infos.get("final_obs", []):
            if final is not None:
                assert_same(final, next(finals))
    assert next(finals, None) is None
    assert_same(observations, rollout.last_observations)
    assert_same(stepping.state, collecting.state)


def test_final_values_are_those_of_truncated_episodes() -> None:
    env, policy = make("CartPole-v1 tanh", reset_low=-0.15, reset_high=0.15)
    rollout = rlcpu.collect(env, policy, 40)
    ends = tuple(rollout.final_indices.T)
    cut = rollout.truncated[ends] & ~rollout.terminated[ends]
    assert 0 < cut.sum() < len(cut)
    values = policy.evaluate(rollout.final_observations)
    np.testing.assert_array_equal(rollout.final_values[ends], np.where(cut, values, 0.0))
    elsewhere = np.ones_like(rollout.terminated)
    elsewhere[ends] = False
    assert not rollout.final_values[elsewhere].any()
    np.testing.assert_array_equal(rollout.last_values, policy.evaluate(rollout.last_observations))
    np.testing.assert_allclose(rollout.values[0], policy.evaluate(rollout.observations[0]), 1e-5)


def test_transitions_are_those_that_stepping_makes() -> None:
    """Next observations are what `env.step` shows, the last ones of an episode included."""
    collecting, policy = make("CartPole-v1 tanh")
    stepping, _ = make("CartPole-v1 tanh", autoreset_mode="SameStep")
    stepping.reset(seed=11)
    collecting.reset(seed=11)
    rollout = rlcpu.collect(collecting, policy, 40)
    found = rollout.transitions([*rollout.transitions(), "value", "log_prob"])
    assert {len(array) for array in found.values()} == {40 * NUM_ENVS}
    for step, actions in enumerate(rollout.actions):
        following, rewards, terminated, truncated, infos = stepping.step(actions)
        following = following.copy()
        for i in np.flatnonzero(terminated | truncated):
            following[i] = infos["final_obs"][i]
        own = slice(step * NUM_ENVS, (step + 1) * NUM_ENVS)
        np.testing.assert_array_equal(found["next_observation"][own], following)
        np.testing.assert_array_equal(found["observation"][own], rollout.observations[step])
        np.testing.assert_array_equal(found["action"][own], actions)
        np.testing.assert_array_equal(found["reward"][own], rewards)
        np.testing.assert_array_equal(found["terminated"][own], terminated)
        np.testing.assert_array_equal(found["truncated"][own], truncated)
        np.testing.assert_array_equal(found["value"][own], rollout.values[step])
        np.testing.assert_array_equal(found["log_prob"][own], rollout.log_probs[step])
    assert rollout.final_indices.size > 0


def test_transitions_fill_a_buffer() -> None:
    env = rlcpu.make_vec("Pendulum-v1", 4, max_episode_steps=7)
    example = {
        "observation": env.single_observation_space,
        "action": env.single_action_space,
        "next_observation": env.single_observation_space,
        "reward": np.float32(0),
    }
    buffer = rlcpu.replay.ReplayBuffer(100, example, seed=0)
    rollout = rlcpu.collect(env, Uniform(), 20)
    buffer.add(rollout.transitions(example))
    assert len(buffer) == 80
    batch = buffer.sample(500)
    rows = {row.tobytes() for row in rollout.final_observations}
    assert any(row.tobytes() in rows for row in batch["next_observation"])
    with pytest.raises(ValueError, match="names: 'next_obs' is none of observation, action"):
        rollout.transitions(["next_obs"])

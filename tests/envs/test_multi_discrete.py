"""Actions of several whole numbers: steps, policies, agents, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from scipy.stats import chisquare

import rlcpu
from rlcpu.envs import Dynamics
from rlcpu.envs.engine.scalar_env import ScalarEnv
from rlcpu.policies import MLP, Scalar, Uniform
from rlcpu.train import DQN, PPO, PQN, SAC
from tests.envs.samples import LEVERS
from tests.envs.trials import try_kernels

CHOICES = [3, 2, 4]
NUM_ENVS = 70
SIGNIFICANCE = 1e-6


def worth(actions: np.ndarray) -> np.ndarray:
    """The rewards of actions (..., 3)."""
    return actions @ np.array([1.0, 10.0, 100.0])


def test_steps_take_rows_of_whole_numbers() -> None:
    env = rlcpu.make_vec(LEVERS, NUM_ENVS)
    env.reset(seed=0)
    assert env.action_space == gymnasium.vector.utils.batch_space(MultiDiscrete(CHOICES), NUM_ENVS)
    env.action_space.seed(1)
    for dtype in (np.int64, np.int32, np.uint8):
        actions = env.action_space.sample().astype(dtype)
        np.testing.assert_array_equal(env.step(actions)[1], worth(actions))
    before = env.state
    for k, value in ((0, 3), (1, -1), (2, 4)):
        actions = np.zeros((NUM_ENVS, 3), np.int64)
        actions[66, k] = value
        match = r"actions\[66\]=.* of Levers-v0 \(1 such\): expected .*below \[3, 2, 4\]"
        with pytest.raises(ValueError, match=match):
            env.step(actions)
    with pytest.raises(TypeError, match="float64: expected an integer"):
        env.step(np.zeros((NUM_ENVS, 3)))
    with pytest.raises(ValueError, match=r"shape \(70,\): expected \(70, 3\)"):
        env.step(np.zeros(NUM_ENVS, np.int64))
    with pytest.raises(ValueError, match=r"actions\[2\]="):
        env.step(np.full((NUM_ENVS, 3), np.uint64(2**63)) * (np.arange(NUM_ENVS) == 2)[:, None])
    np.testing.assert_array_equal(env.state, before)


def test_one_environment() -> None:
    env = ScalarEnv(LEVERS)
    env.reset(seed=0)
    for action in (np.array([2, 1, 3]), (0, 1, 2), [1, 0, 0]):
        assert env.step(action)[1] == worth(np.array(action))
    with pytest.raises(ValueError, match=r"actions\[0\]=.*expected"):
        env.step(np.array([2, 2, 3]))


def rollout_of(policy: Any, steps: int) -> Any:
    env = rlcpu.make_vec(LEVERS, NUM_ENVS)
    env.reset(seed=17)
    return rlcpu.collect(env, policy, steps)


def test_uniform_draws_all_combinations_evenly() -> None:
    rollout = rollout_of(Uniform(), 400)
    assert rollout.actions.shape == (400, NUM_ENVS, 3)
    assert rollout.actions.dtype == np.int64
    np.testing.assert_array_equal(rollout.rewards, worth(rollout.actions))
    np.testing.assert_allclose(rollout.log_probs, -np.log(24.0), rtol=1e-6)
    counts = np.bincount(np.ravel_multi_index(rollout.actions.reshape(-1, 3).T, CHOICES))
    assert len(counts) == 24
    assert chisquare(counts).pvalue > SIGNIFICANCE


def test_networks_draw_each_number_by_its_own_logits() -> None:
    """With a value in the outputs, after the logits."""
    space = LEVERS.observation_space, LEVERS.action_space
    policy = MLP(*space, hidden=(8,), value="shared")
    policy.parameters += np.random.default_rng(0).normal(0, 0.5, policy.parameters.size)
    rollout = rollout_of(policy, 200)
    logits = policy.outputs(rollout.inputs.reshape(-1, 2)).astype(np.float64)
    assert logits.shape[1] == sum(CHOICES)
    expected, actions = np.zeros(len(logits)), rollout.actions.reshape(-1, 3)
    for k, part in enumerate(np.split(logits, np.cumsum(CHOICES)[:-1], axis=1)):
        log_probs = part - np.log(np.exp(part).sum(axis=1, keepdims=True))
        expected += log_probs[np.arange(len(part)), actions[:, k]]
        found = np.bincount(actions[:, k], minlength=CHOICES[k])
        assert chisquare(found, np.exp(log_probs).sum(axis=0)).pvalue > SIGNIFICANCE
    np.testing.assert_allclose(rollout.log_probs.ravel(), expected, atol=1e-5)
    values = policy.evaluate(rollout.inputs.reshape(-1, 2)).reshape(200, NUM_ENVS)
    np.testing.assert_allclose(rollout.values, values, atol=1e-5)
    policy.parameters[:] = 0.0
    even = rollout_of(policy, 200).actions.reshape(-1, 3).T
    counts = np.bincount(np.ravel_multi_index(even, CHOICES), minlength=24)
    assert chisquare(counts).pvalue > SIGNIFICANCE
    policy.parameters += np.random.default_rng(1).normal(0, 0.5, policy.parameters.size)
    policy.deterministic = True
    greedy = rollout_of(policy, 3)
    logits = policy.outputs(greedy.inputs.reshape(-1, 2))
    best = [part.argmax(axis=1) for part in np.split(logits, np.cumsum(CHOICES)[:-1], axis=1)]
    np.testing.assert_array_equal(greedy.actions.reshape(-1, 3), np.stack(best, axis=1))


def test_policies_of_ones_own() -> None:
    rollout = rollout_of(Scalar(lambda observation, params, uniforms: ((2, 1, 3), 0.0, 0.0)), 3)
    assert (rollout.rewards == 312.0).all()
    for act, kind in (
        (lambda o, p, u: (1, 0.0, 0.0), TypeError),
        (lambda o, p, u: ((1, 1), 0.0, 0.0), TypeError),
        (lambda o, p, u: ((1, 2, 0), 0.0, 0.0), ValueError),
    ):
        with pytest.raises(kind, match=r"a tuple of 3 ints, below \(3, 2, 4\); returned"):
            rollout_of(Scalar(act), 3)


def test_ppo_pulls_the_best_levers(tmp_path: Any) -> None:
    agent = PPO(LEVERS, seed=0, num_envs=64, num_steps=20, hidden=(16,), learning_rate=1e-9)
    losses = agent.learn(64 * 20).losses
    assert 0.0 <= losses.kl < 1e-6
    assert losses.entropy == pytest.approx(np.log(24.0), abs=0.05)
    options = {"num_envs": 64, "num_steps": 20, "hidden": (16,), "minibatch_size": 160}
    fair = LEVERS.with_params(one=1.0, ten=2.0, hundred=1.0)
    agent = PPO(fair, seed=0, learning_rate=5e-3, **options)
    agent.learn(40_000)
    assert agent.evaluate(20).mean() == 5 * 7.0
    best = agent.predict(np.zeros((4, 2), np.float32))
    np.testing.assert_array_equal(best, np.tile([2, 1, 3], (4, 1)))
    assert agent.predict(np.zeros(2, np.float32)).tolist() == [2, 1, 3]
    drawn = agent.predict(np.zeros((50, 2), np.float32), deterministic=False)
    assert drawn.shape == (50, 3)
    assert (drawn < CHOICES).all()
    agent.save(tmp_path / "agent.npz")
    again = PPO.load(tmp_path / "agent.npz", env=type(agent.env)(fair, 64))
    np.testing.assert_array_equal(again.policy.parameters, agent.policy.parameters)


def test_what_is_refused() -> None:
    for algorithm in (DQN, PQN):
        with pytest.raises(TypeError, match=r"Levers-v0 has action_space=.*: expected Discrete"):
            algorithm(LEVERS)
    with pytest.raises(TypeError, match=r"Levers-v0 has action_space=.*: expected a Box"):
        SAC(LEVERS)
    fields = {
        "observation_space": LEVERS.observation_space,
        "params": LEVERS.params,
        "id": "Levers-v1",
    }
    fields |= {"step": LEVERS.step, "reset": LEVERS.reset, "reset_draws": 1}
    for space in (MultiDiscrete([[2, 2], [2, 2]]), MultiDiscrete([2, 2], start=[0, 1])):
        with pytest.raises(ValueError, match=r"has to be of one axis and to start at 0"):
            Dynamics(**fields, action_space=space)


def test_the_check_and_pickles() -> None:
    try_kernels(LEVERS)
    env = rlcpu.make_vec(LEVERS, 3)
    env.reset(seed=0)
    rollout = pickle.loads(pickle.dumps(rlcpu.collect(env, Uniform(), 4)))
    assert rollout.transitions(["action"])["action"].shape == (12, 3)

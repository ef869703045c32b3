"""Agents of thousands of actions, whose kernels have loops over them in the place of lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcpu.envs import Dynamics
from rlcpu.envs.collect import collect
from rlcpu.train import DQN, PPO, PQN
from tests.envs.masked import COUNTER, WIDE, Range

MANY = Dynamics(
    id="Many-v0",
    step=lambda state, action, params: ((0.5 - state[0],), 1.0 * (action == 7), False),
    reset=lambda uniforms, params: (uniforms[0],),
    reset_draws=1,
    observation_space=Box(-1.0, 1.0, (1,), np.float32),
    action_space=Discrete(2000),
    params=Range(),
    max_episode_steps=10,
)
FEW: dict[str, Any] = {"num_envs": 4, "hidden": (16,)}
AGENTS: dict[Any, dict[str, Any]] = {
    PPO: {"num_steps": 8, "minibatch_size": 16, "normalize_observations": False},
    PQN: {"num_steps": 8, "minibatch_size": 16},
    DQN: {"num_steps": 8, "learning_starts": 8, "batch_size": 16, "num_updates": 1},
}


@pytest.mark.parametrize("kind", AGENTS)
def test_thousands_of_actions(kind: Any) -> None:
    agent = kind(MANY, seed=0, **FEW, **AGENTS[kind])
    assert np.isfinite(agent.learn(64).losses).all()
    agent.policy.deterministic = True
    rollout = collect(agent.env, agent.policy, 8)
    expected = agent.predict(rollout.observations.reshape(-1, 1))
    np.testing.assert_array_equal(rollout.actions.ravel(), expected)
    agent.policy.deterministic = False
    rollout = collect(agent.env, agent.policy, 64)
    actions = rollout.actions.ravel()
    assert len(np.unique(actions)) > 200
    assert (actions.min() < 100) & (actions.max() >= 1900)
    if kind is PPO:
        logits = agent.policy.outputs(rollout.observations.reshape(-1, 1)).astype(float)
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        taken = log_probs[np.arange(len(actions)), actions]
        np.testing.assert_allclose(rollout.log_probs.ravel(), taken, atol=1e-4)


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_more_actions_than_lines_with_masks(kind: Any) -> None:
    agent = kind(COUNTER, seed=0, **FEW, **AGENTS[kind])
    agent.learn(64)
    for deterministic in (True, False):
        agent.policy.deterministic = deterministic
        rollout = collect(agent.env, agent.policy, 16)
        masks, actions = rollout.action_masks.reshape(-1, WIDE), rollout.actions.ravel()
        assert masks.sum(axis=1).tolist() == [11] * len(actions)
        assert masks[np.arange(len(actions)), actions].all()
    assert len(np.unique(actions)) > 15
    agent.policy.deterministic = True
    rollout = collect(agent.env, agent.policy, 16)
    seen, masks = rollout.observations.reshape(-1, 1), rollout.action_masks.reshape(-1, WIDE)
    np.testing.assert_array_equal(rollout.actions.ravel(), agent.predict(seen, action_masks=masks))

"""Agents of thousands of actions, whose kernels have loops over them in the place of lines."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.envs import Dynamics
from rlcpu.envs.rollout.collect import collect
from rlcpu.policies import Uniform
from rlcpu.train import DQN, PPO, PQN, SAC, TD3
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
AGENTS |= dict.fromkeys((SAC, TD3), AGENTS[DQN])


@pytest.mark.parametrize("kind", [PPO, PQN, DQN])
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


class Shelf(gymnasium.Env[Any, Any]):
    """An environment of Gymnasium with any actions, of which it checks each.

    Of a `Discrete` every seventh is allowed, others in each step.
    """

    observation_space = Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, acting: Any) -> None:
        self.action_space, self.age = acting, 0

    def infos(self) -> dict[str, Any]:
        if not isinstance(self.action_space, Discrete):
            return {}
        return {"action_mask": (np.arange(self.action_space.n) % 7 == self.age % 7).astype(np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32), self.infos()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        assert "action_mask" not in self.infos() or self.infos()["action_mask"][action]
        self.age += 1
        observation = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return observation, float(np.sum(action)), False, self.age == 10, self.infos()


@pytest.mark.parametrize(
    ("kind", "acting"),
    [
        (PPO, Discrete(2000)),
        (PQN, Discrete(2000)),
        (DQN, Discrete(2000)),
        (PPO, MultiDiscrete([2, 300] * 100)),
        (PPO, Box(-1.0, 1.0, (300,))),
        (SAC, Box(-1.0, 1.0, (300,))),
        (TD3, Box(-1.0, 1.0, (300,))),
    ],
)
def test_thousands_of_actions_in_gymnasium(kind: Any, acting: Any) -> None:
    """Masked actions, and actions of hundreds of numbers: kernels have no lines for each."""
    agent = kind(Shelf(acting), seed=0, hidden=(16,), **AGENTS[kind])
    assert np.isfinite(agent.learn(64).losses).all()
    drawn = collect(agent.env, Uniform(), 20).actions[:, 0]
    assert (drawn[1:] != drawn[:-1]).any(axis=0).all()
    agent.policy.deterministic = True
    rollout = collect(agent.env, agent.policy, 20)
    masks = {"action_masks": rollout.action_masks[:, 0]} if rollout.action_masks is not None else {}
    expected = agent.predict(rollout.observations[:, 0], **masks)
    low, high = (acting.low, acting.high) if isinstance(acting, Box) else (-np.inf, np.inf)
    taken = np.clip(rollout.actions[:, 0], low, high)
    np.testing.assert_allclose(taken, expected, rtol=1e-5, atol=1e-6)

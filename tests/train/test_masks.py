"""Agents that heed action masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.envs.rollout.collect import collect
from rlcpu.train import DQN, PPO, PQN
from tests.envs.masked import TIC_TAC_TOE
from tests.train.off_policy_cases import plain

FEW: dict[str, Any] = {"num_envs": 70, "hidden": (16,)}
LEARN: dict[str, Any] = {"num_updates": 1, "batch_size": 64, "learning_starts": 0, "n_step": 2}


def free_cells(observations: np.ndarray) -> np.ndarray:
    """Cells (n, 9) of tic-tac-toe that nobody holds."""
    return observations.reshape(-1, 2, 9).sum(axis=1) == 0


def test_ppo_updates_the_policy_that_acted() -> None:
    agent = PPO(TIC_TAC_TOE, num_steps=16, learning_rate=1e-9, entropy_coefficient=0.0, **FEW)
    agent.policy.parameters += np.random.default_rng(0).standard_normal(
        agent.policy.parameters.size, np.float32
    )
    losses = agent.learn(16 * 70).losses
    assert abs(losses.kl) < 1e-6  # up to rounding it is positive
    assert losses.clip_fraction == 0.0
    masks = agent._rollout.action_masks  # type: ignore[union-attr]
    assert losses.entropy < np.log(masks.sum(axis=-1)).mean()


def test_pqn_learns_from_the_best_allowed_action() -> None:
    settings = {"num_envs": 70, "num_steps": 16, "hidden": (16,), "lambda_": 0.0}
    agent = PQN(TIC_TAC_TOE, normalize_rewards=False, **settings)
    rollout = collect(agent.env, agent.policy, 16)
    targets = agent._targets(rollout)
    names = ("next_observation", "next_action_mask", "reward", "terminated")
    after, masks, rewards, terminated = rollout.transitions(names, as_inputs=True).values()
    best = np.where(masks, agent.policy.outputs(after), -1e9).max(axis=1)
    expected = rewards + agent.config.gamma * np.where(terminated, 0.0, best)
    np.testing.assert_allclose(targets.ravel(), expected, atol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_agents_take_allowed_actions(algorithm: Any, tmp_path: Any) -> None:
    options = {} if algorithm is PPO else LEARN
    agent = algorithm(TIC_TAC_TOE, seed=1, **FEW, **options)
    agent.learn(1000)
    if algorithm is DQN:
        batch = plain(agent._columns(agent.buffer.sample(300)))
        is_over = batch["terminated"][:, None] != 0
        free = free_cells(batch["next_observation"]) | is_over
        held = (batch["next_action_mask"] != 0) | is_over
        np.testing.assert_array_equal(held, free)
    agent.save(tmp_path / "agent.npz")
    again = algorithm.load(tmp_path / "agent.npz", env=type(agent.env)(TIC_TAC_TOE, 70))
    np.testing.assert_array_equal(again.evaluate(50), agent.evaluate(50))
    _, infos = agent.env.reset(seed=0)
    for _ in range(3):
        observations, *_, infos = agent.env.step(infos["action_mask"].argmax(axis=1))
    masks = infos["action_mask"]
    best = agent.predict(observations, action_masks=masks)
    rows = np.arange(70)
    outputs = agent.policy.outputs(observations)[:, :9]
    np.testing.assert_array_equal(best, np.where(masks != 0, outputs, -np.inf).argmax(axis=1))
    assert agent.predict(observations[3], action_masks=masks[3]) == best[3]
    drawn = [agent.predict(observations, False, masks.astype(bool)) for _ in range(200)]
    assert all((masks[rows, each] == 1).all() for each in drawn)
    agent_of_one = np.array(drawn)[:, 0]
    assert set(agent_of_one) == set(np.flatnonzero(masks[0]))
    for given, kind, match in (
        (None, TypeError, r"TicTacToe-v0 has action masks: give action_masks=infos\["),
        (masks[:, :8], ValueError, r"action_masks have shape \(70, 8\): expected \(n, 9\)"),
        (masks[:3], ValueError, r"action_masks have shape \(3, 9\): expected \(70, 9\)"),
        (masks * 0.5, TypeError, "action_masks are of float64"),
        (masks * (rows != 4)[:, None], ValueError, r"action_masks\[4\] allows nothing"),
    ):
        with pytest.raises(kind, match=match):
            agent.predict(observations, action_masks=given)
    returns = agent.evaluate(100)
    assert set(returns) <= {-1.0, 0.0, 1.0}

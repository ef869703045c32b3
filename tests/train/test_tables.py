"""What the best policies of tables reach, by value iteration on Gymnasium's own transitions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcpu.train.ppo import DEFAULTS

DOCS = Path(__file__).parents[2] / "docs" / "train.md"


class Table:
    """An environment of Gymnasium as arrays (num_states, num_actions, num_outcomes)."""

    def __init__(self, env_id: str) -> None:
        env: Any = gymnasium.make(env_id).unwrapped
        outcomes = [[env.P[s][a] for a in range(len(env.P[s]))] for s in range(len(env.P))]
        most = max(len(each) for row in outcomes for each in row)
        padded = [
            [each + [(0.0, 0, 0.0, True)] * (most - len(each)) for each in r] for r in outcomes
        ]
        found = np.array(padded, float)
        self.probabilities, self.rewards = found[..., 0], found[..., 2]
        self.following, self.going_on = found[..., 1].astype(int), 1.0 - found[..., 3]
        self.initial = np.asarray(env.initial_state_distrib)
        self.limit = gymnasium.spec(env_id).max_episode_steps or 0

    def action_values(self, values: Any, gamma: float) -> Any:
        """(num_states, num_actions), of a step and the values of what follows."""
        worth = self.rewards + gamma * self.going_on * values[self.following]
        return (self.probabilities * worth).sum(axis=-1)

    def best_policy(self, gamma: float) -> Any:
        """The best action of each state, (num_states,), if episodes had no limit."""
        values = np.zeros(len(self.initial))
        for _ in range(10_000):
            values = self.action_values(values, gamma).max(axis=1)
        return self.action_values(values, gamma).argmax(axis=1)

    def expected_return(self, policy: Any) -> float:
        """Of an episode, undiscounted, until its limit."""
        values = np.zeros(len(self.initial))
        for _ in range(self.limit):
            values = self.action_values(values, 1.0)[np.arange(len(values)), policy]
        return float(self.initial @ values)


@pytest.mark.parametrize(
    ("env_id", "before"), [("FrozenLake-v1", "it returns"), ("Taxi-v4", "and")]
)
def test_the_documentation_says_what_the_best_policy_returns(env_id: str, before: str) -> None:
    table = Table(env_id)
    name = env_id.replace("Taxi-v4", "Taxi")
    told = re.search(rf"{before} ([\d.]+)\s+on\s+{name}", DOCS.read_text("utf-8"))
    assert told is not None
    digits = len(told[1].partition(".")[2])
    assert round(table.expected_return(table.best_policy(0.999)), digits) == float(told[1])


def test_a_shorter_horizon_arrives_less_often_on_the_large_lake() -> None:
    table = Table("FrozenLake8x8-v1")
    gamma = DEFAULTS["FrozenLake8x8-v1"].gamma
    arrives = {g: table.expected_return(table.best_policy(g)) for g in (0.99, gamma)}
    assert gamma > 0.99
    assert arrives[gamma] > arrives[0.99] + 0.02

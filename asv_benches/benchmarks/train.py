"""Training."""

from __future__ import annotations

import numpy as np

from ._common import Quick, require, timed


class Ppo(Quick):
    """PPO with the defaults of each environment: 100,000 steps."""

    params = (["CartPole-v1", "Pendulum-v1"],)
    param_names = ("env_id",)
    timeout = 300

    def setup(self, env_id: str) -> None:
        """Compiles by training for a moment, then trains."""
        make = require("rlcpu.train.PPO")
        make(env_id, seed=0).learn(1)
        self.history = make(env_id, seed=0).learn(100_000)

    def track_update(self, env_id: str) -> float:
        """Seconds in the network's update."""
        return float(self.history.time_update)

    def track_collect(self, env_id: str) -> float:
        """Seconds in simulation and inference."""
        return float(self.history.time_collect)


Ppo.track_update.unit = Ppo.track_collect.unit = "seconds"  # type: ignore[attr-defined]


class Predict(Quick):
    """Greedy actions of an agent."""

    params = ([1, 4096],)
    param_names = ("num_envs",)

    def setup(self, num_envs: int) -> None:
        """An agent that has learned next to nothing."""
        self.agent = require("rlcpu.train.PPO")("CartPole-v1", seed=0)
        self.observations = np.zeros((num_envs, 4), np.float32)

    @timed
    def track_predict(self, num_envs: int) -> None:
        """One call."""
        self.agent.predict(self.observations)

"""Training."""

from __future__ import annotations

from functools import partial

import numpy as np

from ._common import Quick, benchmark, require


class Ppo(Quick):
    """PPO with the defaults of each environment, 100,000 steps: seconds of both halves."""

    params, param_names = (["CartPole-v1", "Pendulum-v1"],), ("env_id",)
    timeout = 300
    unit = "seconds"

    def setup(self, env_id):
        make = require("rlcpu.train.PPO")
        make(env_id, seed=0).learn(1)  # compiles
        self.history = make(env_id, seed=0).learn(100_000)

    def track_update(self, *_):
        """In the network's update."""
        return float(self.history.time_update)

    def track_collect(self, *_):
        """In simulation and inference."""
        return float(self.history.time_collect)


@benchmark("predict", num_envs=[1, 4096])
def Predict(num_envs):
    """Greedy actions of an agent that has learned next to nothing."""
    agent = require("rlcpu.train.PPO")("CartPole-v1", seed=0)
    return partial(agent.predict, np.zeros((num_envs, 4), np.float32))

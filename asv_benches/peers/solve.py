"""One training run to "solved", one process: `python -m asv_benches.peers.solve AGENT SEED`.

Prints one line of JSON: the seconds that learning took (imports and warm-up excluded), the
environment steps, and the mean return of the last 100 training episodes. CartPole-v1 counts as
solved at 475.

The module imports nothing of weight: the process's own duration is a figure too.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

SOLVED = 475.0
EPISODES = 100
TOTAL_STEPS = 100_000


def stable_baselines3(seed: int) -> dict[str, Any]:
    """stable-baselines3's PPO with the rl-zoo's settings for CartPole-v1."""
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class StopWhenSolved(BaseCallback):
        def _on_training_start(self) -> None:
            self.returns: deque[float] = deque(maxlen=EPISODES)

        def _on_step(self) -> bool:
            infos = self.locals["infos"]
            self.returns.extend(info["episode"]["r"] for info in infos if "episode" in info)
            return len(self.returns) < EPISODES or float(np.mean(self.returns)) < SOLVED

    agent = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining,
        seed=seed,
        device="cpu",
    )
    callback = StopWhenSolved()
    begin = time.perf_counter()
    agent.learn(TOTAL_STEPS, callback=callback)
    return {
        "seconds": time.perf_counter() - begin,
        "steps": agent.num_timesteps,
        "episode_return": float(np.mean(callback.returns)),
    }


def rlcpu_zoo(seed: int) -> dict[str, Any]:
    from rlcpu.train import PPO

    settings: dict[str, Any] = {
        "num_envs": 8,
        "num_steps": 32,
        "minibatch_size": 256,
        "num_epochs": 20,
        "gamma": 0.98,
        "lambda_": 0.8,
        "entropy_coefficient": 0.0,
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "clip_range": 0.2,
        "clip_schedule": "linear",
    }
    PPO("CartPole-v1", seed=seed, **settings).learn(2 * 8 * 32)  # compiles, or loads from the cache
    return _learn(PPO("CartPole-v1", seed=seed, **settings), TOTAL_STEPS)


def rlcpu_default(seed: int) -> dict[str, Any]:
    """Ours with its default settings, no warm-up: the process's duration is the figure."""
    from rlcpu.train import PPO

    return _learn(PPO("CartPole-v1", seed=seed), 10 * TOTAL_STEPS)


def _learn(agent: Any, total_steps: int) -> dict[str, Any]:
    """Learns until solved by the rule that the peer is stopped by.

    `target_return` would be stricter: it asks for 100 greedy episodes on top.
    """

    def unsolved(progress: Any) -> bool:
        return progress.episodes < EPISODES or progress.episode_return < SOLVED

    begin = time.perf_counter()
    history = agent.learn(total_steps, callback=unsolved)
    return {
        "seconds": time.perf_counter() - begin,
        "steps": history.steps,
        "episode_return": history.episode_return,
    }


AGENTS = {
    "stable-baselines3": stable_baselines3,
    "rlcpu-zoo": rlcpu_zoo,
    "rlcpu-default": rlcpu_default,
}

if __name__ == "__main__":
    print(json.dumps(AGENTS[sys.argv[1]](int(sys.argv[2]))))

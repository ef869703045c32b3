"""stable-baselines3: environments, replay buffers, and DQN with prioritised replay.

Importing this module imports stable-baselines3 and torch, the extra `sb3`.
"""

from rlcpu.adapters.sb3.dqn import DQN
from rlcpu.adapters.sb3.replay import (
    PrioritizedReplayBuffer,
    PrioritizedSamples,
    ReplayBuffer,
    ReturnWeightedReplayBuffer,
)
from rlcpu.adapters.sb3.vec_env import VecEnv

__all__ = [
    "DQN",
    "PrioritizedReplayBuffer",
    "PrioritizedSamples",
    "ReplayBuffer",
    "ReturnWeightedReplayBuffer",
    "VecEnv",
]


def __dir__() -> list[str]:
    return __all__

"""Agents that live on the layers below."""

from rlcpu.train.config import PPOConfig
from rlcpu.train.history import History, Progress
from rlcpu.train.ppo import PPO

__all__ = ["PPO", "History", "PPOConfig", "Progress"]


def __dir__() -> list[str]:
    return __all__

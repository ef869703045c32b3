"""Agents that live on the layers below."""

from rlcpu.train.config import PPOConfig
from rlcpu.train.ppo import PPO, History, Progress

__all__ = ["PPO", "History", "PPOConfig", "Progress"]

"""Agents that live on the layers below."""

from typing import TYPE_CHECKING

from rlcpu.train.config import PPOConfig
from rlcpu.train.history import History, Progress
from rlcpu.train.ppo import PPO

if TYPE_CHECKING:
    from rlcpu.train.dqn import DQN, DQNConfig

__all__ = ["DQN", "PPO", "DQNConfig", "History", "PPOConfig", "Progress"]


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        # Imported at first use: who trains by PPO does not wait for replay.
        if name not in __all__:
            raise AttributeError(f"module 'rlcpu.train' has no attribute {name!r}")
        from rlcpu.train import dqn

        value = getattr(dqn, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__

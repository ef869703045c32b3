"""Agents: PPO, PQN, DQN, QRDQN, SAC, TQC, TD3, DDPG and BC."""

import importlib
from typing import TYPE_CHECKING

from rlcpu.algorithms import TABLE
from rlcpu.train.keeping.history import Evaluation, History, Progress, TensorBoard
from rlcpu.train.ppo import PPO, PPOConfig
from rlcpu.train.running.evaluations import Evaluations

if TYPE_CHECKING:
    from rlcpu.train.bc import BC, BCConfig
    from rlcpu.train.dqn import DQN, DQNConfig
    from rlcpu.train.pqn import PQN, PQNConfig
    from rlcpu.train.qrdqn import QRDQN, QRDQNConfig
    from rlcpu.train.replaying.datasets import buffer_of_episodes
    from rlcpu.train.sac import SAC, SACConfig
    from rlcpu.train.td3 import DDPG, TD3, DDPGConfig, TD3Config
    from rlcpu.train.tqc import TQC, TQCConfig

__all__ = [
    "BC",
    "DDPG",
    "DQN",
    "PPO",
    "PQN",
    "QRDQN",
    "SAC",
    "TD3",
    "TQC",
    "BCConfig",
    "DDPGConfig",
    "DQNConfig",
    "Evaluation",
    "Evaluations",
    "History",
    "PPOConfig",
    "PQNConfig",
    "Progress",
    "QRDQNConfig",
    "SACConfig",
    "TD3Config",
    "TQCConfig",
    "TensorBoard",
    "buffer_of_episodes",
]


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        # Imported at first use: who trains by PPO does not wait for replay.
        if name not in __all__:
            from rlcpu.translation import hint_at

            hint = "" if name.startswith("_") else hint_at(name, __all__)
            reason = f"module 'rlcpu.train' has no attribute {name!r}"
            raise AttributeError(f"{reason}: {hint}" if hint else reason)
        row = TABLE.get(name.removesuffix("Config"))
        module = row.module if row else "replaying.datasets"
        value = getattr(importlib.import_module(f"rlcpu.train.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__

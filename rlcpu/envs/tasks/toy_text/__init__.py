"""Gymnasium's small games, whose observation is one whole number."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "frozen_lake": {"FrozenLake-v1": Limits(100, 0.7), "FrozenLake8x8-v1": Limits(200, 0.85)},
        "cliff_walking": {"CliffWalking-v1": Limits()},
        "taxi": {"Taxi-v4": Limits(200, 8.0)},
        "blackjack": {"Blackjack-v1": Limits()},
    },
)

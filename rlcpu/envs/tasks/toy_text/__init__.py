"""Gymnasium's small games, whose observation is one whole number."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    from rlcpu.envs.tasks.toy_text import blackjack, cliff_walking, frozen_lake, taxi

    made = [module.DYNAMICS for module in (blackjack, cliff_walking, frozen_lake, taxi)]
    return {dynamics.id: dynamics for dynamics in (*made, frozen_lake.DYNAMICS_8X8)}[id]


FAMILY = add_family(
    Family(
        {
            "FrozenLake-v1": Limits(100, 0.7),
            "FrozenLake8x8-v1": Limits(200, 0.85),
            "CliffWalking-v1": Limits(),
            "Taxi-v4": Limits(200, 8.0),
            "Blackjack-v1": Limits(),
        },
        _make,
    )
)

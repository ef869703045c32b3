"""Classic control without velocities, under rl-baselines3-zoo's names."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    from rlcpu.envs.tasks.no_velocity import hidden

    return {dynamics.id: dynamics for dynamics in hidden.ALL}[id]


FAMILY = add_family(
    Family(
        {
            "CartPoleNoVel-v1": Limits(500, 475.0),
            "MountainCarContinuousNoVel-v0": Limits(999, 90.0),
            "PendulumNoVel-v1": Limits(200),
        },
        _make,
    )
)

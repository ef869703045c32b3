"""Gymnasium's classic control, ported."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    """Import the environments and return the dynamics of an id."""
    from rlcpu.envs.tasks.classic_control import (
        acrobot,
        cartpole,
        mountain_car,
        mountain_car_continuous,
        pendulum,
    )

    modules = (cartpole, mountain_car, mountain_car_continuous, pendulum, acrobot)
    return {module.DYNAMICS.id: module.DYNAMICS for module in modules}[id]


FAMILY = add_family(
    Family(
        {
            "CartPole-v1": Limits(500, 475.0),
            "MountainCar-v0": Limits(200, -110.0),
            "MountainCarContinuous-v0": Limits(999, 90.0),
            "Pendulum-v1": Limits(200),
            "Acrobot-v1": Limits(500, -100.0),
        },
        _make,
    )
)

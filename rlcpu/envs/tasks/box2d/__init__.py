"""Gymnasium's LunarLander, without Box2D."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    """Import an environment's module and return its dynamics."""
    from rlcpu.envs.tasks.box2d import lunar_lander

    return lunar_lander.CONTINUOUS if "Continuous" in id else lunar_lander.DYNAMICS


FAMILY = add_family(
    Family(
        {
            "LunarLander-v3": Limits(1000, 200.0),
            "LunarLanderContinuous-v3": Limits(1000, 200.0),
        },
        _make,
    )
)

"""Gymnasium's tasks of Box2D, without Box2D."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    if id.startswith("LunarLander"):
        from rlcpu.envs.tasks.box2d import lunar_lander

        made = (lunar_lander.DYNAMICS, lunar_lander.CONTINUOUS)
    else:
        from rlcpu.envs.tasks.box2d import bipedal_walker

        made = (bipedal_walker.DYNAMICS, bipedal_walker.HARDCORE)
    return {dynamics.id: dynamics for dynamics in made}[id]


FAMILY = add_family(
    Family(
        {
            "LunarLander-v3": Limits(1000, 200.0),
            "LunarLanderContinuous-v3": Limits(1000, 200.0),
            "BipedalWalker-v3": Limits(1600, 300.0),
            "BipedalWalkerHardcore-v3": Limits(2000, 300.0),
        },
        _make,
    )
)

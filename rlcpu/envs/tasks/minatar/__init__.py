"""The five games of MinAtar, with as few actions as each needs: "MinAtar/Breakout-v1"."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    from rlcpu.envs.tasks.minatar import asterix, breakout, freeway, seaquest, space_invaders

    modules = (asterix, breakout, freeway, seaquest, space_invaders)
    return {module.DYNAMICS.id: module.DYNAMICS for module in modules}[id]


FAMILY = add_family(
    Family(
        {
            "MinAtar/Asterix-v1": Limits(),
            "MinAtar/Breakout-v1": Limits(),
            "MinAtar/Freeway-v1": Limits(),
            "MinAtar/Seaquest-v1": Limits(),
            "MinAtar/SpaceInvaders-v1": Limits(),
        },
        _make,
    )
)

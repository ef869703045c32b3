"""A corridor at whose end is to be remembered what stood at its beginning: "TMaze-v0"."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    from rlcpu.envs.tasks.t_maze.t_maze import DYNAMICS

    return DYNAMICS


FAMILY = add_family(Family({"TMaze-v0": Limits(300)}, _make))

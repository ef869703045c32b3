"""Tasks whose goal is part of the observation: "BitFlip-v0" and "PointMaze-v0"."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "bit_flip": {"BitFlip-v0": Limits(40, -20.0)},
        "point_maze": {"PointMaze-v0": Limits(100)},
    },
)

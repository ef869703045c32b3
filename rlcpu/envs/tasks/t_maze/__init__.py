"""A corridor at whose end is to be remembered what stood at its beginning: "TMaze-v0"."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(__name__, {"t_maze": {"TMaze-v0": Limits(300)}})

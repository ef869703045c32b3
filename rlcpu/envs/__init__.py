"""Environments, policies, and the loop that joins them.

Read `contract` (what an author writes), `layout` (how memory holds it), `engine` (N environments:
reset, step, observe), `acting` (policies in kernels) and `rollout` (`collect` and `simulate`).
Users hold an `engine.vector_env`, which `registration` makes. `tasks` are environments,
`transforms` change them, `gymnasium` and `mujoco` are engines of their own, and `checks` is `rlcpu
check`.
"""

from typing import TYPE_CHECKING

from rlcpu.envs.contract.names import find
from rlcpu.envs.registration import make_vec, register, registered

if TYPE_CHECKING:
    from rlcpu.envs import transforms
    from rlcpu.envs.checks.against import compare
    from rlcpu.envs.checks.checker import check
    from rlcpu.envs.checks.findings import Report
    from rlcpu.envs.contract.dynamics import Dynamics
    from rlcpu.envs.engine.vector_env import VectorEnv
    from rlcpu.envs.gymnasium.alone import spaces_of
    from rlcpu.envs.gymnasium.env import GymnasiumEnv
    from rlcpu.envs.layout.arrays import Array, State
    from rlcpu.kernels.machine.boards import Board
    from rlcpu.kernels.machine.random import Rng
    from rlcpu.kernels.machine.tuples import replace

__all__ = [
    "Array",
    "Board",
    "Dynamics",
    "GymnasiumEnv",
    "Report",
    "Rng",
    "State",
    "VectorEnv",
    "check",
    "compare",
    "find",
    "make_vec",
    "register",
    "registered",
    "replace",
    "spaces_of",
    "transforms",
]


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'rlcpu.envs' has no attribute {name!r}")
        if name == "transforms":
            import rlcpu.envs.transforms

            return rlcpu.envs.transforms
        if name in ("Report", "check", "compare"):
            from rlcpu.envs.checks import against, checker

            modules = (against, checker)
        else:  # what environments are made of, which takes numba with it
            from rlcpu.envs.contract import dynamics
            from rlcpu.envs.engine import vector_env
            from rlcpu.envs.gymnasium import alone, env
            from rlcpu.envs.layout import arrays
            from rlcpu.kernels.machine import boards, random, tuples

            modules = (arrays, dynamics, vector_env, alone, env, boards, random, tuples)
        globals()[name] = next(vars(each)[name] for each in modules if name in vars(each))
        return globals()[name]


def __dir__() -> list[str]:
    return __all__

"""Simulate and collect: environments, policies, and the loop that joins them."""

from typing import TYPE_CHECKING

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Array, State
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.envs.registration import find, make_vec, register, registered
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Rng
from rlcpu.kernels.tuples import replace

if TYPE_CHECKING:
    from rlcpu.envs import transforms
    from rlcpu.envs.checks.against import compare
    from rlcpu.envs.checks.checker import check
    from rlcpu.envs.checks.findings import Report

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
    "transforms",
]


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        if name == "transforms":
            import rlcpu.envs.transforms

            return rlcpu.envs.transforms
        if name == "compare":
            from rlcpu.envs.checks.against import compare

            return compare
        if name not in ("Report", "check"):
            raise AttributeError(f"module 'rlcpu.envs' has no attribute {name!r}")
        from rlcpu.envs.checks import checker

        return getattr(checker, name)


def __dir__() -> list[str]:
    return __all__

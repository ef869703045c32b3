"""MuJoCo's physics in C, and everything around it compiled; needs `rlcpu[mujoco]`."""

from typing import Any

from rlcpu.envs.engine import engines
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics

__all__ = ["MuJoCoDynamics"]


def _engine(task: MuJoCoDynamics) -> Any:
    from rlcpu.envs.mujoco.engine import MuJoCoEngine

    return MuJoCoEngine


engines[MuJoCoDynamics] = _engine

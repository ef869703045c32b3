"""MuJoCo's physics in C, and everything around it compiled; needs `rlcpu[mujoco]`."""

from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics

__all__ = ["MuJoCoDynamics"]

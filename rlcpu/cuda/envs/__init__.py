"""Simulate and collect on the device; mirrors `rlcpu.envs`."""

from rlcpu.cuda.envs.vector_env import VectorEnv

__all__ = ["VectorEnv"]

"""Simulate and collect: environments, policies, and the loop that joins them."""

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.registration import find, make_vec, register, registered
from rlcpu.envs.vector_env import VectorEnv

__all__ = ["Dynamics", "VectorEnv", "find", "make_vec", "register", "registered"]


def __dir__() -> list[str]:
    return __all__

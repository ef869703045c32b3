"""The reinforcement-learning data path at the speed of the machine, from plain Python."""

from rlcpu.envs import Dynamics, VectorEnv, make_vec, policies, register, registered
from rlcpu.envs.collect import Rollout, Statistics, collect, simulate
from rlcpu.envs.registration import register_built_in as _register_built_in

__version__ = "0.1.0"
__all__ = [
    "Dynamics",
    "Rollout",
    "Statistics",
    "VectorEnv",
    "collect",
    "make_vec",
    "policies",
    "register",
    "registered",
    "simulate",
]

_register_built_in()

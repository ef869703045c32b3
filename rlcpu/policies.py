"""Policies for `rlcpu.collect` and `rlcpu.simulate`."""

from rlcpu.envs.networks import MLP, Linear
from rlcpu.envs.policies import Policy, Scalar, Uniform

__all__ = ["MLP", "Linear", "Policy", "Scalar", "Uniform"]


def __dir__() -> list[str]:
    return __all__

"""Policies for `rlcpu.collect` and `rlcpu.simulate`."""

from rlcpu.envs.acting.networks import MLP, Linear, NetworkPolicy
from rlcpu.envs.contract.policies import Policy, Scalar, Uniform

__all__ = ["MLP", "Linear", "NetworkPolicy", "Policy", "Scalar", "Uniform"]


def __dir__() -> list[str]:
    return __all__

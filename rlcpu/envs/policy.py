"""The contract of a policy: what `collect` and `simulate` need of what chooses the actions.

A policy is either a scalar function of one observation or a network. Policies compute in float32,
whatever the environment's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rlcpu.envs.dynamics import Dynamics

Array = npt.NDArray[Any]


class PolicyCode(NamedTuple):
    """What of a policy decides machine code: policies that share it share kernels.

    Attributes:
        act: scalar function (observation, params, uniforms) -> (action, log_prob, value), or None
            for a network.
        params_type: class of its params, if it is a NamedTuple.
        num_params: its fields.
        draws: random numbers that it takes.
        value: where the value comes from: a "scalar" function, a "shared" or "separate" network, or
            "none".
    """

    act: Callable[..., Any] | None
    params_type: type | None
    num_params: int
    draws: int
    value: str


class PolicyArrays(NamedTuple):
    """The run-time numbers of a policy, as kernels take them.

    Attributes:
        weights, sizes: (P,) float32 and (L + 1,) int64, the policy network, or the scalar
            policy's params.
        value_weights, value_sizes: the value network, if it is a separate one.
        log_std: (action_size,) float32 of a Gaussian.
        mean, scale: (observation_size,) float32: the network sees (observation - mean) * scale,
            clipped to +-10.
        settings: (2,) int64: activation code, 1 for greedy actions.
    """

    weights: Array
    sizes: Array
    value_weights: Array
    value_sizes: Array
    log_std: Array
    mean: Array
    scale: Array
    settings: Array

    @classmethod
    def of_scalar(cls, params: tuple[float, ...]) -> PolicyArrays:
        """The arrays of a scalar policy, which are its params."""
        empty, none = np.zeros(0, np.float32), np.zeros(1, np.int64)
        settings = np.zeros(2, np.int64)
        return cls(np.array(params, np.float32), none, empty, none, empty, empty, empty, settings)


class Policy(Protocol):
    """What `collect` and `simulate` need of a policy.

    They ask for both anew in every call, unless its class itself has a third method, `marks() ->
    (objects, values)`, of what decides them: nothing is asked for while the objects are the same
    ones and the values are equal. Arrays among the objects may change their numbers if `arrays`
    gives the arrays themselves.
    """

    def code(self, dynamics: Dynamics) -> PolicyCode:
        """Its machine code's key, for an environment.

        Raises:
            TypeError, ValueError: the policy and the environment do not fit.
        """

    def arrays(self, dynamics: Dynamics) -> PolicyArrays:
        """Its present numbers."""

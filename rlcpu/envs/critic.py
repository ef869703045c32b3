"""A policy's value head, kept as it was when the policy acted."""

from __future__ import annotations

import copy

import numpy as np

from rlcpu.envs.networks import MLP
from rlcpu.envs.policy import Array


class Critic:
    """Copies of the arrays that a policy's values depend on, which may be trained before they are.

    Args:
        policy: one with a value head. It may change its arrays later on, but neither their sizes
            nor anything else: that asks for a new `Critic`.
    """

    def __init__(self, policy: MLP) -> None:
        self._policy = copy.copy(policy)
        self._name = "parameters" if policy.value == "shared" else "value_parameters"
        self._weights = np.array(getattr(policy, self._name), np.float32)
        self._mean = np.array(policy.observation_mean, np.float32)
        self._scale = np.array(policy.observation_scale, np.float32)
        setattr(self._policy, self._name, self._weights)
        self._policy.observation_mean, self._policy.observation_scale = self._mean, self._scale

    def take(self, policy: MLP) -> None:
        """Copy the present numbers."""
        self._weights[:] = getattr(policy, self._name)
        self._mean[:] = policy.observation_mean
        self._scale[:] = policy.observation_scale

    def evaluate(self, observations: Array) -> Array:
        """(n,) float32 values of (n, observation_size) observations."""
        return self._policy.evaluate(observations)

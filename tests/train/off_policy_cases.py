"""Updates of agents that learn off-policy in NumPy, sample after sample where that is plain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rlcpu.nn import Network
from rlcpu.nn.network import flat_layers, packed_layers

Array = Any


class HalfFrozen(gymnasium.Env[Any, Any]):
    """Pays for the first number of an action; the second one is 0.5 and nothing else."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(np.float32([-1.0, 0.5]), np.float32([1.0, 0.5]))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low, {}

    def step(self, action: Array) -> Any:
        assert self.action_space.contains(action)
        self.steps += 1
        seen = np.float32([self.steps / 10 - 1.0])
        return seen, float(action[0]), False, self.steps == 20, {}


def seen(agent: Any, observations: Array) -> Array:
    """Observations as the agent's networks see them."""
    policy = agent.policy
    inputs = (observations - policy.observation_mean) * policy.observation_scale
    return np.clip(inputs, -10.0, 10.0)


def networks_of(learner: Any) -> list[Network]:
    """Copies of all networks of a learner, targets too, with the parameters that it has now."""
    learner.write_networks(range(len(learner.networks)))
    return [
        Network(x.sizes, x.activation, parameters=x.parameters.copy()) for x in learner.networks
    ]


def flat_gradient(learner: Any, number: int) -> Array:
    """Gradient of one network in the learner's last update, in the order of its parameters."""
    begin, end = learner.layout.begins[number : number + 2]
    sizes = learner.networks[number].sizes
    flat = np.zeros_like(learner.networks[number].parameters)
    for ours, theirs in zip(
        packed_layers(sizes, learner.space.gradients[0, begin:end]),
        flat_layers(sizes, flat),
        strict=True,
    ):
        for source, target in zip(ours, theirs, strict=True):
            target[...] = source
    return flat


class NaiveAdam:
    """The textbook's form, in float64."""

    def __init__(self, size: int) -> None:
        self.m, self.v, self.number = np.zeros(size), np.zeros(size), 0

    def step(self, parameters: Array, gradient: Array, rate: float, epsilon: float = 1e-8) -> None:
        self.number += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        mean, square = self.m / (1 - 0.9**self.number), self.v / (1 - 0.999**self.number)
        parameters -= rate * mean / (np.sqrt(square) + epsilon)


def numeric(loss: Callable[[Array], float], x: Sequence[float], step: float = 1e-5) -> Array:
    """Derivatives of a function of a vector by central differences."""
    at = np.array(x, float)
    return np.array(
        [
            (loss(at + e) - loss(at - e)) / (2 * step)
            for e in step * np.eye(len(at))
        ]
    )  # fmt: skip

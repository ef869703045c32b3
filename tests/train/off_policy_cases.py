"""Updates of agents that learn off-policy in NumPy, sample after sample where that is plain."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rlcpu.nn import Network, Ones

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
    return np.clip(inputs, -policy.observation_limit, policy.observation_limit)


def plain(columns: dict[str, Any]) -> dict[str, Array]:
    """Columns of which each is an array, (S,) or (S, width)."""
    return {name: x.expand() if isinstance(x, Ones) else np.array(x) for name, x in columns.items()}


def networks_of(learner: Any) -> list[Network]:
    """Copies of all networks of a learner, targets too, with the parameters that it has now."""
    learner.write_networks(learner.names)
    return copy.deepcopy(list(learner.networks))


def layers_of(network: Network) -> list[tuple[Array, Array]]:
    """Views of the weights (in, out) and biases of each layer."""
    layers, begin = [], 0
    for size, following in itertools.pairwise(map(int, network.sizes)):
        end = begin + size * following
        weights = network.parameters[begin:end].reshape(size, following)
        layers.append((weights, network.parameters[end : end + following]))
        begin = end + following
    return layers


#: With an epsilon far above all gradients, Adam's first step is the gradient times STEP.
EPSILON, STEP = 1e12, 1e6


def restart(learner: Any) -> None:
    """Forget the moments of Adam, and all counts."""
    for array in (learner.learnt.first, learner.learnt.second, learner.counters):
        array[:] = 0


def gradient_of(learner: Any, columns: Any, update: int = 0, **options: Any) -> Array:
    """Gradient of the first network that an update learns, of all samples; nothing changes."""
    copied = copy.deepcopy(learner)
    restart(copied)
    name = learner.updates[update].learns[0]
    network, rates = copied.networks[copied.names.index(name)], np.zeros(len(learner.updates))
    rates[update] = EPSILON * STEP
    copied.write_networks()
    before = network.parameters.astype(np.float64)
    copied.update(
        columns, learning_rate=rates, epsilon=EPSILON, minibatch_size=10**6, tau=0.0, **options
    )
    return (before - network.parameters) / STEP


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

"""An environment that tells whether a policy's memory begins and ends with each episode.

In the second step of an episode, and in no other, it shows 1. A policy is to say 0 before that and
1 from then on: it has to remember within an episode, and nothing of the episode before. Each right
answer is worth 1. Episodes of 2 to 5 steps end at different times in different environments, and
those of 5 are cut off after 4.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu import nn
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.policies import NetworkPolicy

State = tuple[float, float]
MOST = 4
SPACES = Box(0.0, 1.0, (1,)), Discrete(2)


class Params(NamedTuple):
    """None that matter."""

    unused: float = 0.0


def reset(uniforms, params):
    """The step of the episode, and its length."""
    return 0.0, 2.0 + float(int(uniforms[0] * 4.0))


def step(state, action, params):
    now, length = state
    right = 0 if now == 0.0 else 1
    return (now + 1.0, length), (1.0 if action == right else 0.0), now + 1.0 >= length


def observe(state, params):
    return (1.0 if state[0] == 1.0 else 0.0,)


RECALL = Dynamics(
    id="Recall-v0",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=SPACES[0],
    action_space=SPACES[1],
    params=Params(),
    reset_draws=1,
    max_episode_steps=MOST,
)


def near_step(state, action, params):
    now, length = state
    right = -0.5 if now == 0.0 else 0.5
    return (now + 1.0, length), 1.0 - abs(action[0] - right), now + 1.0 >= length


#: The same for continuous actions, near -0.5 in the place of 0, and near 0.5 in that of 1.
RECALL_BOX = dataclasses.replace(
    RECALL, id="RecallBox-v0", step=near_step, action_space=Box(-1.0, 1.0, (1,))
)


class Recall(gymnasium.Env[Any, Any]):
    """The same for Gymnasium; `number` and episodes decide the lengths."""

    observation_space, action_space = SPACES

    def __init__(self, number: int) -> None:
        self.number, self.episode, self.state = number, -1, (0.0, 2.0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.state = 0.0, 2.0 + (3 * self.number + 5 * self.episode) % 4
        return np.array(observe(self.state, None), np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state, reward, terminated = step(self.state, action, None)
        seen = np.array(observe(self.state, None), np.float32)
        return seen, reward, terminated, self.state[0] >= MOST, {}


def remember(value: str | None = None) -> NetworkPolicy:
    """A policy that says whether it has seen 1 in this episode."""
    policy = NetworkPolicy.of_layers(*SPACES, lambda space: nn.MinGru(1), value)
    policy.deterministic = True
    for network in policy.networks().values():
        arrays = network.arrays()
        # The gate is open where 1 is seen, and what it lets in is 1.
        arrays["dense0.weights"][:] = 60.0, 1.0
        arrays["dense0.biases"][:] = -30.0, 0.0
        arrays["dense1.weights"][:] = np.linspace(-9.0, 9.0, arrays["dense1.weights"].shape[1])
    arrays = policy.networks()["policy"].arrays()
    arrays["dense1.weights"][0, :2], arrays["dense1.biases"][:2] = (-9.0, 9.0), (4.0, -4.0)
    return policy

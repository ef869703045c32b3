"""A drifting voltage is held at zero: observations of 1e-3, no bounds, noise, three choices."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    push: float = 3e-4  # V
    noise: float = 4e-4  # V, on either side
    width: float = 1e-3  # V, an error that is worth nothing


def step(state, action, params, rng):
    """Push down, not at all, or up."""
    (level,) = state
    level = 1.02 * level + params.push * (action - 1) + params.noise * (2.0 * rng.uniform(0) - 1.0)
    level = min(max(level, -0.01), 0.01)
    return (level,), 1.0 - min(abs(level) / params.width, 1.0), False


def reset(rng, params):
    return (4e-3 * rng.uniform(0) - 2e-3,)


def act(observation, params, uniforms):
    (level,) = observation
    return (0 if level > 1.5e-4 else 2 if level < -1.5e-4 else 1), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Microvolts-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (1,), np.float32),
    action_space=Discrete(3),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=9.08,
    good=77.6,
    steps=50_000,
)

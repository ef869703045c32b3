"""Two dials are to be set as two gauges say, and a third one does nothing: several choices."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    most: float = 100.0  # of a gauge


def step(state, action, params, rng):
    first, second = state
    right = (1.0 if action[0] == int(5.0 * first / params.most) else 0.0) + (
        1.0 if action[1] == int(5.0 * second / params.most) else 0.0
    )
    return (params.most * rng.uniform(0), params.most * rng.uniform(1)), 0.5 * right, False


def reset(rng, params):
    return params.most * rng.uniform(0), params.most * rng.uniform(1)


def act(observation, params, uniforms):
    return (int(observation[0] / 20.0), int(observation[1] / 20.0), 0), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Dials-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(0.0, 100.0, (2,), np.float32),
    action_space=MultiDiscrete((5, 5, 4)),
    max_episode_steps=10,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=2.0,
    good=10.0,
    steps=50_000,
)

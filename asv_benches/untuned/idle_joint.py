"""A puck is pushed to the middle of a table: three actions, of which one does nothing."""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    seconds: float = 0.1  # of a step
    friction: float = 0.2  # 1/s


def step(state, action, params):
    """Push by accelerations in m/s^2 along both axes; the one in the middle is not read."""
    x, y, speed_x, speed_y = state
    speed_x = speed_x + params.seconds * (action[0] - params.friction * speed_x)
    speed_y = speed_y + params.seconds * (action[2] - params.friction * speed_y)
    x, y = x + params.seconds * speed_x, y + params.seconds * speed_y
    return (x, y, speed_x, speed_y), -0.2 * math.sqrt(x * x + y * y), False


def reset(rng, params):
    return 10.0 * rng.uniform(0) - 5.0, 10.0 * rng.uniform(1) - 5.0, 0.0, 0.0


def act(observation, params, uniforms):
    """Brake where the puck would pass the middle."""
    x, y, speed_x, speed_y = observation
    push_x = -30.0 * (x + speed_x * (0.2 + 0.3 * abs(speed_x)))
    push_y = -30.0 * (y + speed_y * (0.2 + 0.3 * abs(speed_y)))
    return (min(max(push_x, -1.0), 1.0), 0.0, min(max(push_y, -1.0), 1.0)), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/IdleJoint-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (4,), np.float32),
    action_space=Box(-1.0, 1.0, (3,), np.float32),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-80.3,
    good=-14.1,
    steps=50_000,
)

"""A satellite is turned by thrusts of at most 1e-3: narrow actions, angles of hundredths."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    width: float = 0.05  # rad, of an error that costs 1


def step(state, action, params):
    """Change the rate of turning, rad a step, by an action of at most 1e-3."""
    angle, rate = state
    rate = min(max(rate + action[0], -0.01), 0.01)
    angle = min(max(angle + rate, -0.3), 0.3)
    return (angle, rate), -abs(angle) / params.width, False


def reset(rng, params):
    return 0.2 * rng.uniform(0) - 0.1, 4e-3 * rng.uniform(1) - 2e-3


def act(observation, params, uniforms):
    """Brake where the angle would pass zero."""
    angle, rate = observation
    push = -angle - rate * (0.5 + 500.0 * abs(rate))
    return (min(max(push, -1e-3), 1e-3),), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Trim-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Box(-1e-3, 1e-3, (1,), np.float32),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-237.0,
    good=-7.36,
    steps=50_000,
)

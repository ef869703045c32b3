"""A balloon is to stay at 10,000 m: observations of 1e4, bounds far too loose, costs alone."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    height: float = 1e4  # m, at which it is to stay
    lift: float = 2.0  # m/s^2, upwards with the burner and downwards without
    drag: float = 0.02  # 1/s


def step(state, action, params):
    """Burn (1) or do not, for a second."""
    height, speed = state
    push = params.lift if action == 1 else -params.lift
    speed = speed + push - params.drag * speed
    height = height + speed
    return (height, speed), -0.001 * abs(height - params.height), False


def reset(rng, params):
    return params.height + 4000.0 * rng.uniform(0) - 2000.0, 40.0 * rng.uniform(1) - 20.0


def act(observation, params, uniforms):
    """Burn where the balloon, braked from now on, would stop below."""
    height, speed = observation
    stop = height + speed * (2.0 + 0.15 * abs(speed))
    return (1 if stop < 1e4 else 0), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Altitude-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-1e6, 1e6, (2,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=200,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-236.0,
    good=-27.2,
    steps=50_000,
)

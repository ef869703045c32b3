"""A cart on a spring is brought to rest: values of +-1 in bounds of +-10,000, costs alone."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    seconds: float = 0.1  # of a step
    stiffness: float = 1.0  # 1/s^2


def step(state, action, params):
    place, speed = state
    (force,) = action
    cost = place * place + 0.1 * speed * speed + 0.01 * force * force
    speed = speed + params.seconds * (force - params.stiffness * place)
    place = min(max(place + params.seconds * speed, -3.0), 3.0)
    return (place, speed), -cost, False


def reset(rng, params):
    return 2.0 * rng.uniform(0) - 1.0, 2.0 * rng.uniform(1) - 1.0


def act(observation, params, uniforms):
    force = -6.0 * observation[0] - 4.0 * observation[1]
    return (min(max(force, -2.0), 2.0),), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Loose-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-1e4, 1e4, (2,), np.float32),
    action_space=Box(-2.0, 2.0, (1,), np.float32),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-74.6,
    good=-2.36,
    steps=50_000,
)

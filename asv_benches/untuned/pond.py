"""A boat drifts on a pond whose far bank alone pays: rare rewards, and an action in [-0.5, 0.5]."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    bank: float = 5.0  # m
    drift: float = 0.2  # m in a step, on either side


def step(state, action, params, rng):
    (place,) = state
    place = max(place + action[0] + params.drift * (2.0 * rng.uniform(0) - 1.0), -5.0)
    arrived = place >= params.bank
    return (place,), (1.0 if arrived else 0.0), arrived


def reset(rng, params):
    return (2.0 * rng.uniform(0) - 1.0,)


def act(observation, params, uniforms):
    return (0.5,), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Pond-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-5.0, 10.0, (1,), np.float32),
    action_space=Box(-0.5, 0.5, (1,), np.float32),
    max_episode_steps=80,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=0.0701,
    good=1.0,
    steps=50_000,
)

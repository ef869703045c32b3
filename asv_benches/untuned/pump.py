"""A tank is held at half by a pump from -1 to 50: lopsided bounds, levels of a hundred."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    wanted: float = 100.0  # of at most 200
    most: float = 45.0  # that flows in during a step


def step(state, action, params, rng):
    level, inflow = state
    level = min(max(level + inflow - action[0], 0.0), 200.0)
    inflow = min(max(inflow + 6.0 * rng.uniform(0) - 3.0, 5.0), params.most)
    return (level, inflow), -abs(level - params.wanted) / 50.0, False


def reset(rng, params):
    return 60.0 + 80.0 * rng.uniform(0), 10.0 + 30.0 * rng.uniform(1)


def act(observation, params, uniforms):
    level, inflow = observation
    return (min(max(level + inflow - 100.0, -1.0), 50.0),), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Pump-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(0.0, 1000.0, (2,), np.float32),
    action_space=Box(-1.0, 50.0, (1,), np.float32),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-159.0,
    good=-0.0838,
    steps=50_000,
)

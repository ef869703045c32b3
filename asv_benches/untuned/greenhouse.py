"""A greenhouse is heated with up to 3,000 W: kelvins, rewards of hundredths, no end."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    wanted: float = 295.0  # K
    leak: float = 0.1  # share of the difference to the outside that is lost in a step
    heat: float = 1e-3  # K for a watt in a step


def step(state, action, params, rng):
    inside, outside = state
    inside = inside + params.leak * (outside - inside) + params.heat * action[0]
    outside = outside + 0.05 * (280.0 - outside) + 2.0 * rng.uniform(0) - 1.0
    miss = min(abs(inside - params.wanted) / 5.0, 1.0)
    return (inside, outside), 0.01 * (1.0 - miss), False


def reset(rng, params):
    return 285.0 + 10.0 * rng.uniform(0), 275.0 + 10.0 * rng.uniform(1)


def act(observation, params, uniforms):
    """Heat so much that the next temperature is the right one."""
    inside, outside = observation
    power = 1000.0 * (295.0 - inside - 0.1 * (outside - inside))
    return (min(max(power, 0.0), 3000.0),), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Greenhouse-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(0.0, np.inf, (2,), np.float32),
    action_space=Box(0.0, 3000.0, (1,), np.float32),
    max_episode_steps=200,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=1.19,
    good=1.99,
    steps=50_000,
)

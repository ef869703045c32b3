"""Twenty additions are to make a sum: nothing is paid before the last one."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    turns: float = 20.0


def step(state, action, params):
    """Add 0, 1 or 3."""
    wanted, total, turn = state
    total = total + (0.0 if action == 0 else 1.0 if action == 1 else 3.0)
    ends = turn + 1.0 >= params.turns
    return (wanted, total, turn + 1.0), (-abs(total - wanted) if ends else 0.0), ends


def reset(rng, params):
    return 15.0 + rng.integers(0, 26), 0.0, 0.0


def act(observation, params, uniforms):
    left = observation[0] - observation[1]
    return (2 if left >= 3.0 else 1 if left >= 1.0 else 0), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Late-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(0.0, 100.0, (3,), np.float32),
    action_space=Discrete(3),
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-7.78,
    good=0.0,
    steps=50_000,
)

"""One bet on one of four arms: episodes of one step, and more noise than signal."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    gain: float = 3.0
    noise: float = 6.0  # the payment is off by as much on either side


def worth(form, arm):
    """Return what an arm pays on average, of a form (3,) in +-1."""
    a, b, c = form
    return a if arm == 0 else b if arm == 1 else c if arm == 2 else -(a + b + c) / 3.0


def step(state, action, params, rng):
    reward = params.gain * worth(state, action) + params.noise * (2.0 * rng.uniform(0) - 1.0)
    return state, reward, True


def reset(rng, params):
    return 2.0 * rng.uniform(0) - 1.0, 2.0 * rng.uniform(1) - 1.0, 2.0 * rng.uniform(2) - 1.0


def act(observation, params, uniforms):
    best, most = 0, worth(observation, 0)
    for arm in range(1, 4):
        pays = worth(observation, arm)
        best, most = (arm, pays) if pays > most else (best, most)
    return best, 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Bets-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-1.0, 1.0, (3,), np.float32),
    action_space=Discrete(4),
)
TASK = Task(
    DYNAMICS,
    act,
    chance=0.0,
    good=1.8,
    steps=50_000,
)

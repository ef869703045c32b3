"""Three patients, and a dose for each: rewards of thousands, short episodes, actions in [0, 1]."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    worth: float = 5000.0  # of the right dose
    width: float = 0.3  # an error that leaves nothing of it


def right_dose(weight, sensitivity):
    """Return the best dose of a patient of 40 to 120 kg, who is 0.5 to 1.5 times as sensitive."""
    return min(0.006 * weight / sensitivity, 0.95)


def step(state, action, params, rng):
    weight, sensitivity = state
    error = (action[0] - right_dose(weight, sensitivity)) / params.width
    reward = params.worth * (1.0 - error * error)
    return reset(rng, params), max(reward, -2.0 * params.worth), False


def reset(rng, params):
    return 40.0 + 80.0 * rng.uniform(0), 0.5 + rng.uniform(1)


def act(observation, params, uniforms):
    return (right_dose(observation[0], observation[1]),), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Dose-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Box(0.0, 1.0, (1,), np.float32),
    max_episode_steps=3,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-2300.0,
    good=15000.0,
    steps=50_000,
)

"""A mine pays thousands for ore, and twenty thousand are lost when it falls in."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    price: float = 1000.0  # of a cart of ore
    repair: float = 2500.0
    collapse: float = 20000.0


def step(state, action, params, rng):
    """Dig, haul all ore, or repair."""
    ore, wear = state
    dug = 1.0 if action == 0 and ore < 5.0 else 0.0
    reward = params.price * ore if action == 1 else -params.repair if action == 2 else 0.0
    ore = 0.0 if action == 1 else ore + dug
    wear = 0.0 if action == 2 else wear + 2.0 * dug * rng.uniform(0)
    falls = wear > 10.0
    return (ore, wear), (reward - params.collapse if falls else reward), falls


def reset(rng, params):
    return 0.0, 4.0 * rng.uniform(0)


def act(observation, params, uniforms):
    ore, wear = observation
    return (2 if wear > 8.0 else 1 if ore > 4.5 else 0), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Mine-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(3),
    max_episode_steps=100,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-51600.0,
    good=53600.0,
    steps=50_000,
)

"""A price wanders and comes back: buy it when it is low; most of a reward is luck."""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    usual: float = 50.0
    back: float = 0.1  # share of the way to the usual price in a step, in logarithms
    noise: float = 0.15
    fee: float = 0.5  # for each unit that is bought or sold


def step(state, action, params, rng):
    """Be short (0), out (1) or long (2) of one unit."""
    price, held = state
    change = params.noise * (2.0 * rng.uniform(0) - 1.0)
    log = (1.0 - params.back) * math.log(price / params.usual) + change
    new_price, position = params.usual * math.exp(log), action - 1.0
    reward = position * (new_price - price) - params.fee * abs(position - held)
    return (new_price, position), reward, False


def reset(rng, params):
    return params.usual * (0.7 + 0.7 * rng.uniform(0)), 0.0


def act(observation, params, uniforms):
    price, held = observation
    away = math.log(price / 50.0)
    return (2 if away < -0.06 else 0 if away > 0.06 else int(held) + 1), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Prices-v0",
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
    chance=-44.4,
    good=69.8,
    steps=50_000,
)

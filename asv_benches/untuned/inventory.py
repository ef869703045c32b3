"""A shop orders up to nine boxes a day: costs alone, of orders, boxes and customers who leave."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    order: float = 5.0  # cost of an order, whatever its size
    holding: float = 0.5  # of a box over night
    lost: float = 4.0  # of a customer who finds none


def step(state, action, params, rng):
    (stock,) = state
    stock = min(stock + action, 20.0)
    demand = rng.integers(0, 5) + rng.integers(1, 5)  # 0 to 8
    left = max(stock - demand, 0.0)
    cost = (params.order if action > 0 else 0.0) + params.holding * left
    return (left,), -cost - params.lost * max(demand - stock, 0.0), False


def reset(rng, params):
    return (float(rng.integers(0, 21)),)


def act(observation, params, uniforms):
    """Order nine where less than four are left."""
    return (9 if observation[0] < 3.5 else 0), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Inventory-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(0.0, 20.0, (1,), np.float32),
    action_space=Discrete(10),
    max_episode_steps=50,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-511.0,
    good=-242.0,
    steps=50_000,
)

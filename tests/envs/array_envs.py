"""Environments whose states hold arrays: a pipeline of orders, and a rod that is heated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Array, State


class Costs(NamedTuple):
    """Of an item sold, of one in stock for a day, and how many are wanted on average."""

    price: float = 2.0
    holding: float = 0.1
    demand: float = 5.0


class Stock(State):
    """Orders arrive after four days; which of the last four were enough."""

    pipeline: Array[float, 4]
    arrived: Array[bool, 4]
    stock: float
    day: int


class Drawn(NamedTuple):
    """What each episode draws."""

    demand: float


def randomize(rng, params):
    return Drawn(params.demand * (0.5 + rng.uniform(0)))


def reset(state, rng, params):
    state.stock = 10.0 * rng.uniform(0)
    for k in range(4):
        state.pipeline[k] = math.floor(4.0 * rng.uniform(k + 1))


def step(state, action, params, rng):
    state.stock += state.pipeline[0]
    state.pipeline[0:3] = state.pipeline[1:4]
    state.pipeline[3] = float(action)
    state.arrived[state.day % 4] = state.stock > 5.0
    wanted = 2.0 * params.demand * rng.uniform(0)
    sold = min(wanted, state.stock)
    state.stock -= sold
    state.day += 1
    return (
        params.price * sold - params.holding * state.stock - float(action),
        state.stock > 50.0,
        state.day >= 30,
    )


def observe(state, params):
    total = 0.0
    for k in range(4):
        total += state.pipeline[k]
    return state.stock, total, state.pipeline[0], params.demand


def action_mask(state, params):
    return True, True, True, state.stock < 20.0, state.stock < 15.0, state.stock < 10.0


inventory = rlcpu.Dynamics(
    id="Inventory-v0",
    state=Stock,
    step=step,
    reset=reset,
    observe=observe,
    action_mask=action_mask,
    randomize=randomize,
    params=Costs(),
    observation_space=Box(0.0, np.inf, (4,)),
    action_space=Discrete(6),
)


class Rod(State):
    """Temperatures, and what flows in a step."""

    heat: Array[float, 16]
    flow: Array[float, 16]


class Physics(NamedTuple):
    """Of heat."""

    conductivity: float = 0.2


def reset_rod(state, rng, params):
    for k in range(16):
        state.heat[k] = rng.uniform(k)


def step_rod(state, action, params, rng):
    state.flow[1:15] = params.conductivity * (
        state.heat[0:14] - 2.0 * state.heat[1:15] + state.heat[2:16]
    )
    state.heat[:] = state.heat + state.flow
    state.heat[0] += 0.1 * action[0]
    state.heat[15] += 0.1 * action[1]
    error = 0.0
    for k in range(16):
        error += (state.heat[k] - 0.5) ** 2
    return -error, error > 16.0


def observe_rod(state, params, out):
    out[:] = state.heat


rod = rlcpu.Dynamics(
    id="Rod-v0",
    state=Rod,
    step=step_rod,
    reset=reset_rod,
    observe=observe_rod,
    params=Physics(),
    observation_space=Box(-np.inf, np.inf, (16,)),
    action_space=Box(-1.0, 1.0, (2,)),
    max_episode_steps=100,
)

"""Environments whose observations have several parts, returned and written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import rlcpu
from rlcpu.envs import Array, Board, State


class Nothing(NamedTuple):
    """No parameters but one."""

    speed: float = 1.0


class Cart(NamedTuple):
    """A point on a line of nine cells, the cell it has to go to, and steps so far."""

    place: float
    goal: int
    board: Board
    age: int


class Seen(NamedTuple):
    """Parts, in another order than their space has them."""

    walls: tuple[Board, Board]
    place: tuple[float, float]
    goal: int
    pair: tuple[int, int]


def reset(rng, params):
    return Cart(rng.uniform(0), rng.integers(1, 3), Board(5), 0)


def step(state, action, params, rng):
    place = state.place + 0.5 * params.speed * float(action - 1) + 0.01 * rng.uniform(0)
    reward = -abs(place - float(state.goal))
    board = state.board.set(state.age % 9)
    return Cart(place, state.goal, board, state.age + 1), reward, abs(place) > 5.0


def observe(state, params):
    return Seen(
        (state.board, Board(0).set(state.goal)),
        (state.place, -state.place),
        state.goal + 1,
        (state.age % 2, 4 - state.goal),
    )


def action_mask(state, params):
    return state.age % 3 != 0, True, state.age % 3 != 1


cart = rlcpu.Dynamics(
    id="GroupedCart-v0",
    step=step,
    reset=reset,
    observe=observe,
    action_mask=action_mask,
    params=Nothing(),
    observation_space=Dict(
        {
            "goal": Discrete(3, start=1),
            "pair": MultiDiscrete([2, 3], start=[0, 2]),
            "place": Box(-np.inf, np.inf, (2,)),
            "walls": MultiBinary((2, 3, 3)),
        }
    ),
    action_space=Discrete(3),
    max_episode_steps=7,
)


class Camera(State):
    """A bright spot in a picture of six by five cells, seen twice, and what was done."""

    row: int
    column: int
    age: int
    last: float
    trail: Array[bool, 6, 5]


def reset_camera(state, rng, params):
    state.row, state.column = rng.integers(0, 6), rng.integers(1, 5)


def step_camera(state, action, params, rng):
    state.trail[state.row, state.column] = True
    state.row = (state.row + action) % 6
    state.column = (state.column + rng.integers(0, 2)) % 5
    state.last = params.speed * float(action)
    state.age += 1
    return float(state.column) - 2.0, state.age >= 9


def observe_camera(state, params, out):
    for column in range(4):  # as a float32 a signalling NaN, which NumPy warns of
        out.picture[0, state.row, column] = (1, 1, 128, 255)[column]
    out.picture[1] = state.trail
    out.depth[:] = 0.25
    out.depth[state.row] = state.last
    out.age = state.age % 4 + 1
    out.near[0] = state.row
    out.near[1] = state.column
    out.flags[2] = state.age > 3


camera = rlcpu.Dynamics(
    id="GroupedCamera-v0",
    state=Camera,
    step=step_camera,
    reset=reset_camera,
    observe=observe_camera,
    params=Nothing(),
    observation_space=Dict(
        {
            "age": Discrete(4, start=1),
            "depth": Box(-1.0, 2.0, (6,)),
            "flags": MultiBinary(3),
            "near": MultiDiscrete([6, 5]),
            "picture": Box(0, 255, (2, 6, 5), np.uint8),
        }
    ),
    action_space=Discrete(3),
)

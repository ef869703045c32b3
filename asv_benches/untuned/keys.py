"""A room of seven by seven cells: fetch the key, then leave by the corner; only that pays."""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    size: int = 7


class State(NamedTuple):
    row: int
    column: int
    key_row: int
    key_column: int
    has_key: bool


def step(state, action, params):
    """Go up, right, down or left."""
    down = 1 if action == 2 else -1 if action == 0 else 0
    right = 1 if action == 1 else -1 if action == 3 else 0
    row = min(max(state.row + down, 0), params.size - 1)
    column = min(max(state.column + right, 0), params.size - 1)
    has_key = state.has_key or (row == state.key_row and column == state.key_column)
    leaves = has_key and row == params.size - 1 and column == params.size - 1
    return State(row, column, state.key_row, state.key_column, has_key), float(leaves), leaves


def reset(rng, params):
    size = params.size
    return State(0, rng.integers(0, size), rng.integers(1, size), rng.integers(2, size), False)


def observe(state, params):
    has_key = 1.0 if state.has_key else 0.0
    return state.row, state.column, state.key_row, state.key_column, has_key


def act(observation, params, uniforms):
    row, column, key_row, key_column, has_key = observation
    to_row, to_column = (6.0, 6.0) if has_key > 0.5 else (key_row, key_column)
    sideways = 1 if column < to_column else 3
    return (2 if row < to_row else 0 if row > to_row else sideways), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Keys-v0",
    step=step,
    reset=reset,
    observe=observe,
    params=Params(),
    observation_space=Box(0.0, 6.0, (5,), np.float32),
    action_space=Discrete(4),
    max_episode_steps=60,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=0.0613,
    good=1.0,
    steps=50_000,
)

"""Snake on ten by ten cells: a queue and a grid in the state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Array, State

SIZE = 10
CELLS = SIZE * SIZE
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # up, right, down, left


class Params(NamedTuple):
    meal: float = 1.0  # reward of a meal


class Snake(State):
    body: Array[np.int16, CELLS]  # cells of the snake, a ring
    grid: Array[np.uint8, SIZE, SIZE]  # 1 where the snake is
    head: int  # where the ring begins
    length: int
    food: int


def place_food(state, rng, k):
    left = rng.integers(k, CELLS - state.length)
    for cell in range(CELLS):
        if state.grid[cell // SIZE, cell % SIZE] == 0:
            if left == 0:
                return cell
            left -= 1
    return -1


def reset(state, rng, params):
    cell = rng.integers(0, CELLS)
    state.body[0] = cell
    state.grid[cell // SIZE, cell % SIZE] = 1
    state.length = 1
    state.food = place_food(state, rng, 1)


def step(state, action, params, rng):
    cell = state.body[state.head]
    row = cell // SIZE + MOVES[action, 0]
    column = cell % SIZE + MOVES[action, 1]
    if row < 0 or row >= SIZE or column < 0 or column >= SIZE:
        return -1.0, True
    eats = SIZE * row + column == state.food
    if not eats:
        tail = state.body[(state.head - state.length + 1) % CELLS]
        state.grid[tail // SIZE, tail % SIZE] = 0
    if state.grid[row, column] == 1:
        return -1.0, True
    state.head = (state.head + 1) % CELLS
    state.body[state.head] = SIZE * row + column
    state.grid[row, column] = 1
    if eats:
        state.length += 1
        state.food = place_food(state, rng, 0)
    return (params.meal if eats else 0.0), state.length == CELLS


def observe(state, params, out):
    for row in range(SIZE):
        for column in range(SIZE):
            out[row, column] = state.grid[row, column]
    cell = state.body[state.head]
    out[cell // SIZE, cell % SIZE] = 2.0
    out[state.food // SIZE, state.food % SIZE] = -1.0


snake = rlcpu.Dynamics(
    id="Snake-v0",
    state=Snake,
    step=step,
    reset=reset,
    observe=observe,
    params=Params(),
    observation_space=Box(-1.0, 2.0, (SIZE, SIZE)),
    action_space=Discrete(4),
    max_episode_steps=50,
)

"""Taxi-v4: fetch a passenger at one of four stops and bring them to another.

Transitions and action masks are Gymnasium's; a fickle passenger is not provided. Source: Dietterich
(2000), "Hierarchical Reinforcement Learning with the MAXQ Value Function Decomposition", JAIR 13.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, YELLOW, Picture, draw
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

IN_TAXI = 4
STOPS = Board().set(0).set(4).set(20).set(23)  # red, green, yellow, blue: cell 5 * row + column
#: Cells from which the taxi can go to the east: row 4 first, column 0 to the right.
OPEN_EAST = Board(0b01010_01010_01111_01101_01101)
OPEN_WEST = OPEN_EAST << 1


class State(NamedTuple):
    """Rows and columns from 0 to 4; stops are 0 red, 1 green, 2 yellow, 3 blue."""

    row: int
    column: int
    passenger: int  # the stop, or 4: in the taxi
    destination: int


class Params(NamedTuple):
    """Options."""

    is_rainy: bool = False  # a step may go to the left or right of its direction
    rainy_probability: float = 0.8  # of going ahead in rain; else to the left or right


def reset(rng: Rng, params: Params) -> State:
    """Draw the taxi anywhere, the passenger at a stop, the destination at another one."""
    cell, passenger, other = rng.integers(0, 25), rng.integers(1, 4), rng.integers(2, 3)
    return State(cell // 5, cell % 5, passenger, other + 1 if other >= passenger else other)


def drive(row: int, column: int, way: int) -> tuple[int, int]:
    """Return row and column one step to the south, north, east or west, unless a wall is there."""
    cell = 5 * row + column
    east, west = way == 2 and OPEN_EAST.test(cell), way == 3 and OPEN_WEST.test(cell)
    return min(max(row + (way == 0) - (way == 1), 0), 4), column + east - west


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Drive to the south, north, east or west by actions 0 to 3, pick up by 4, drop off by 5.

    Random number 0 is where the taxi goes in rain.
    """
    row, column = drive(s.row, s.column, action)
    if params.is_rainy:
        u, ahead = rng.uniform(0), params.rainy_probability
        # To the left of south (0) is east (2), of north (1) west (3), of east north, of west south.
        left = action + 2 if action < 2 else 3 - action
        right = 3 - action if action < 2 else action - 2
        aside = left if u < ahead + 0.5 * (1.0 - ahead) else right
        drifts = u >= ahead and (row != s.row or column != s.column)
        row, column = drive(s.row, s.column, aside if drifts else action)
    cell = 5 * s.row + s.column
    stop = (cell == 4) + 2 * (cell == 20) + 3 * (cell == 23)
    picks = action == 4 and STOPS.test(cell) and s.passenger == stop
    drops = action == 5 and STOPS.test(cell) and s.passenger == IN_TAXI
    passenger = IN_TAXI if picks else s.passenger
    passenger = stop if drops else passenger
    done = drops and stop == s.destination
    reward = -1.0 if action < 4 or picks or drops else -10.0
    return State(row, column, passenger, s.destination), 20.0 if done else reward, done


def observe(s: State, params: Params) -> int:
    """Return one of 500 numbers."""
    return ((s.row * 5 + s.column) * 5 + s.passenger) * 4 + s.destination


def action_mask(s: State, params: Params) -> tuple[bool, bool, bool, bool, bool, bool]:
    """Return the actions that change the state, as a mask."""
    cell = 5 * s.row + s.column
    stop = (cell == 4) + 2 * (cell == 20) + 3 * (cell == 23)
    picks = STOPS.test(cell) and s.passenger == stop
    drops = STOPS.test(cell) and s.passenger == IN_TAXI
    return s.row < 4, s.row > 0, OPEN_EAST.test(cell), OPEN_WEST.test(cell), picks, drops


def picture(s: State, params: Params) -> Picture:
    """Draw walls, stops, destination, passenger and taxi, on a grid with room for the walls."""
    grid = np.full((11, 11), GREY)
    for cell in range(25):
        row, column = 2 * (cell // 5) + 1, 2 * (cell % 5) + 1
        grid[row, column] = BROWN if STOPS.test(cell) else BLACK
        grid[row + 1, column] = BLACK
        grid[row : row + 2, column + 1] = BLACK if OPEN_EAST.test(cell) else GREY
    grid[10] = GREY
    stops = [(1, 1), (1, 9), (9, 1), (9, 7)]
    grid[stops[s.destination]] = GREEN
    grid[2 * s.row + 1, 2 * s.column + 1] = YELLOW if s.passenger == IN_TAXI else ORANGE
    if s.passenger != IN_TAXI:
        grid[stops[s.passenger]] = BLUE
    return draw(grid)


DYNAMICS = Dynamics(
    id="Taxi-v4",
    step=step,
    reset=reset,
    observe=observe,
    action_mask=action_mask,
    picture=picture,
    observation_space=Discrete(500),
    action_space=Discrete(6),
    params=Params(),
    max_episode_steps=200,
    reward_threshold=8.0,
)

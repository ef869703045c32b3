"""POPGym/MineSweeper: view all cells without a mine; each tells how many mines are around it.

Source: see `rlcpu.envs.tasks.popgym`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Array, State
from rlcpu.kernels.random import Rng

CLEAR, MINE, VIEWED = 0, 1, 2


class Field(State):
    """Number of cells that are clear and not viewed, steps so far, and the number in sight."""

    clear: int
    steps: int
    around: int


class Small(Field):  # noqa: D101
    cells: Array[np.uint8, 4, 4]


class Middle(Field):  # noqa: D101
    cells: Array[np.uint8, 6, 6]


class Large(Field):  # noqa: D101
    cells: Array[np.uint8, 8, 8]


class Params(NamedTuple):
    """There are no parameters."""


def count_mines(cells: Any, row: int, column: int) -> int:
    """Return the mines in a cell and the eight around it."""
    n, count = len(cells), 0
    for i in range(max(row - 1, 0), min(row + 2, n)):
        for j in range(max(column - 1, 0), min(column + 2, n)):
            count += cells[i, j] == MINE
    return count


def mine_sweeper(id: str, state: type[State], size: int, mines: int) -> Dynamics:
    """Make a field of `size` by `size` cells."""
    limit = size * size - mines
    success, repeated = 1.0 / limit, -0.5 / (limit - 2)

    def reset(s: Any, rng: Rng, params: Params) -> None:
        left = mines
        for cell in range(size * size):  # each of the cells to come is as likely to have one
            if rng.integers(size * size - cell) < left:
                s.cells[cell // size, cell % size] = MINE
                left -= 1
        s.clear = limit

    def step(s: Any, action: tuple[int, int], params: Params) -> tuple[float, bool, bool]:
        """View a row and a column."""
        row, column = action
        found = s.cells[row, column]
        s.around = count_mines(s.cells, row, column)
        s.steps += 1
        if found == CLEAR:
            s.cells[row, column] = VIEWED
            s.clear -= 1
        reward = success if found == CLEAR else (repeated if found == VIEWED else -0.5 - success)
        terminated = found == MINE or s.clear == 0
        return reward, terminated, s.steps == limit and not terminated

    def observe(s: Any, params: Params) -> int:
        """Return how many mines are in the cell that was viewed and around it."""
        return s.around

    return Dynamics(
        id=id,
        state=state,
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(min(mines + 1, 10)),
        action_space=MultiDiscrete([size, size]),
        params=Params(),
    )


LEVELS = (
    mine_sweeper("POPGym/MineSweeperEasy-v0", Small, 4, 2),
    mine_sweeper("POPGym/MineSweeperMedium-v0", Middle, 6, 6),
    mine_sweeper("POPGym/MineSweeperHard-v0", Large, 8, 10),
)

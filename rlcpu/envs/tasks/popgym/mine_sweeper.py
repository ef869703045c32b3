"""POPGym/MineSweeper: view all cells without a mine; each tells how many mines are around it.

Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

CLEAR, MINE, VIEWED = 0, 1, 2


class MineField(State):
    """Cells that are clear and not viewed, steps, and the number in sight; `cells` has kinds."""

    clear: int
    steps: int
    around: int


def count_mines(cells: Any, row: int, column: int) -> int:
    """Return the mines in a cell and the eight around it."""
    n, count = len(cells), 0
    for i in range(max(row - 1, 0), min(row + 2, n)):
        for j in range(max(column - 1, 0), min(column + 2, n)):
            count += cells[i, j] == MINE
    return count


def mine_sweeper(id: str, size: int, mines: int) -> Dynamics:
    """Return the game on `size` by `size` cells with so many mines.

    Its functions know from here `limit`, the clear cells and the steps to view them in, and the
    rewards `success`, for a clear cell, and `repeated`, for one that was viewed before. A mine
    costs 0.5 and one success.
    """
    limit = size * size - mines
    success, repeated = 1.0 / limit, -0.5 / (limit - 2)  # POPGym's numbers

    def reset(s: Any, rng: Rng, params: NoParams) -> None:
        remaining = mines
        for cell in range(size * size):  # each of the cells to come is as likely to have one
            if rng.integers(size * size - cell) < remaining:
                s.cells[cell // size, cell % size] = MINE
                remaining -= 1
        s.clear = limit

    def step(s: Any, action: tuple[int, int], params: NoParams) -> tuple[float, bool, bool]:
        """View the cell of a row and a column; return (reward, terminated, truncated)."""
        row, column = action
        content = s.cells[row, column]
        s.around = count_mines(s.cells, row, column)
        s.steps += 1
        if content == CLEAR:
            s.cells[row, column] = VIEWED
            s.clear -= 1
        reward = (
            success if content == CLEAR else (repeated if content == VIEWED else -0.5 - success)
        )
        terminated = content == MINE or s.clear == 0
        return reward, terminated, s.steps == limit and not terminated

    def observe(s: Any, params: NoParams) -> int:
        """Return how many mines are in the cell that was viewed and around it."""
        return s.around

    return Dynamics(
        id=id,
        state=MineField.sized(cells=Array[np.uint8, size, size]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(min(mines + 1, 10)),
        action_space=MultiDiscrete([size, size]),
    )


LEVELS = (
    mine_sweeper("POPGym/MineSweeperEasy-v0", size=4, mines=2),
    mine_sweeper("POPGym/MineSweeperMedium-v0", size=6, mines=6),
    mine_sweeper("POPGym/MineSweeperHard-v0", size=8, mines=10),
)

"""POPGym/LabyrinthEscape and POPGym/LabyrinthExplore: find the way out of a maze, or see all of it.

The maze is dug by random walks, one after the other, from cells that were dug before: mazelib's
hunt-and-kill in its random order, which may leave cells that no way leads to.
Source: see `rlcpu.envs.tasks.popgym`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

FREE, WALL, START, GOAL, CELLS = 0, 1, 2, 3, 5  # popgym counts a fifth kind, which is never seen
NO_ACTION, ACTIONS = 4, 5
STEPS = 1024
COST = 1.0 / STEPS  # of a step
LEFT, RIGHT, UP, DOWN = (0, -1), (0, 1), (-1, 0), (1, 0)
MOVES = np.array([LEFT, RIGHT, UP, DOWN])


class Maze(State):
    """The agent, its last action, and cells: kinds in `grid`, 1 in `visited` where it has been."""

    row: int
    column: int
    action: int
    unseen: int  # cells without a wall where it has not been
    free: int  # cells without a wall, but for start and goal


def is_dug(grid: Any, row: int, column: int) -> bool:
    """Return whether a cell is outside of the maze or has been dug."""
    inside = row > 0 and column > 0 and row < len(grid) and column < len(grid)
    return not inside or grid[row, column] == FREE


def walk(grid: Any, row: int, column: int, rng: Rng) -> None:
    """Dig from a cell to random neighbours, two cells away, until all of them have been dug.

    Dug cells of the maze, `grid` (rows, columns), become `FREE`.
    """
    for _ in range(len(grid) * len(grid)):
        count = 0
        for k in range(4):
            count += not is_dug(grid, row + 2 * MOVES[k, 0], column + 2 * MOVES[k, 1])
        if count == 0:
            return
        skipped, chosen = rng.integers(count), 0  # ways to pass over before the chosen one
        for k in range(4):
            if not is_dug(grid, row + 2 * MOVES[k, 0], column + 2 * MOVES[k, 1]):
                chosen = k if skipped == 0 else chosen
                skipped -= 1
        for _ in range(2):
            row += MOVES[chosen, 0]
            column += MOVES[chosen, 1]
            grid[row, column] = FREE


def dig(s: Any, rng: Rng, has_goal: bool) -> None:
    """Write a new maze into `s`: a start in one outer wall, perhaps a goal in the opposite one.

    All numbers of `s` are 0 before. `rng.integers(n)` draws one of 0 to n - 1.
    """
    size = len(s.grid)
    half = size // 2
    s.grid[:, :] = WALL
    row, column = 1 + 2 * rng.integers(half), 1 + 2 * rng.integers(half)
    s.grid[row, column] = FREE
    for _ in range(size * size + 1):
        if s.grid[row, column] == FREE:
            walk(s.grid, row, column, rng)
        row, column = 1 + 2 * rng.integers(half), 1 + 2 * rng.integers(half)
    # The start is at the side 0, the upper, 1, the lower, 2, the left or 3, the right one: `start`
    # cells along that, as the goal is `end` cells along the opposite side.
    side, start, end = rng.integers(4), 1 + 2 * rng.integers(half), 1 + 2 * rng.integers(half)
    wall, opposite = (0, size - 1) if side % 2 == 0 else (size - 1, 0)  # their rows, or columns
    s.row, s.column = (wall, start) if side < 2 else (start, wall)
    s.grid[s.row, s.column] = START
    if has_goal:
        s.grid[opposite if side < 2 else end, end if side < 2 else opposite] = GOAL
    s.visited[s.row, s.column] = 1
    s.action = NO_ACTION
    for i in range(size):
        for j in range(size):
            s.free += s.grid[i, j] == FREE
    s.unseen = s.free + (1 if has_goal else 0)


def move(s: Any, action: int) -> bool:
    """Move the agent unless a wall is there; return whether its cell is new to it."""
    row = min(max(s.row + MOVES[action, 0], 0), len(s.grid) - 1)
    column = min(max(s.column + MOVES[action, 1], 0), len(s.grid) - 1)
    if s.grid[row, column] != WALL:
        s.row, s.column = row, column
    s.action = action
    is_new = s.visited[s.row, s.column] == 0
    s.visited[s.row, s.column] = 1
    s.unseen -= is_new
    return is_new


def reset_escape(s: Any, rng: Rng, params: NoParams) -> None:
    """Make a maze with a goal."""
    dig(s, rng, True)


def step_escape(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
    """Go to the left, right, up or down; each step costs, the goal gives 1."""
    move(s, action)
    is_there = s.grid[s.row, s.column] == GOAL
    return (1.0 if is_there else 0.0) - COST, is_there


def reset_explore(s: Any, rng: Rng, params: NoParams) -> None:
    """Make a maze without a goal."""
    dig(s, rng, False)


def step_explore(s: Any, action: int, params: NoParams) -> tuple[float, bool]:
    """Go to the left, right, up or down; each cell that is new gives a share of 1."""
    is_new = move(s, action)
    return (1.0 / float(s.free) if is_new else -COST), s.unseen == 0


def observe(s: Any, params: NoParams, out: Any) -> None:
    """Write nine cells around the agent, and the action before, one-hot, into `out`, (9 * 5 + 5,).

    At the upper and left edge the window of three by three cells begins with the edge, not with a
    row or column beyond it, and ends with walls.
    """
    size = len(s.grid)
    top, left = max(s.row - 1, 0), max(s.column - 1, 0)
    for i in range(3):
        for j in range(3):
            row, column = top + i, left + j
            is_inside = row <= min(s.row + 1, size - 1) and column <= min(s.column + 1, size - 1)
            out[(3 * i + j) * CELLS + (s.grid[row, column] if is_inside else WALL)] = 1.0
    out[9 * CELLS + s.action] = 1.0


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/{name}{level}-v0",
        state=Maze.sized(grid=Array[np.uint8, n, n], visited=Array[np.uint8, n, n]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Box(0.0, 1.0, (9 * CELLS + ACTIONS,)),
        action_space=Discrete(4),
        max_episode_steps=STEPS - 1,
    )
    for name, step, reset in (
        ("LabyrinthEscape", step_escape, reset_escape),
        ("LabyrinthExplore", step_explore, reset_explore),
    )
    for level, n in (("Easy", 11), ("Medium", 15), ("Hard", 19))
)

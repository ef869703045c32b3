"""What an agent of MiniGrid sees: seven by seven cells ahead, a plane for each kind of thing.

A plane's row x and column y is cell (x, y) of MiniGrid's image: x from left to right, y from far to
near; the agent is at (3, 6). `image` gives the image itself: three numbers for each cell. Sets of
these 49 cells are whole numbers here, bit `7 * x + y` for each: they turn with the agent.
Source: Chevalier-Boisvert et al. (2023), "Minigrid & Miniworld", arXiv:2306.13831.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiBinary

from rlcpu.envs.dynamics import Dynamics

#: MiniGrid's type, colour and state of: nothing, wall, goal, key; open, closed, locked door.
KINDS = np.array(
    [[1, 0, 0], [2, 5, 0], [8, 1, 0], [5, 4, 0], [4, 4, 0], [4, 4, 1], [4, 4, 2]], np.uint8
)

ALL = (1 << 49) - 1
NEAR = sum(1 << 7 * x + 6 for x in range(7))  #: the agent's row of the view
AGENT = 1 << 7 * 3 + 6


def image(planes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return MiniGrid's image of an observation.

    Args:
        planes: (..., kinds, 7, 7), for the first kinds of `KINDS`.

    Returns:
        (..., 7, 7, 3) uint8: type, colour and state of each cell; zeros where nothing is seen.
    """
    planes = np.moveaxis(np.asarray(planes, np.uint8), -3, -1)
    return planes @ KINDS[: planes.shape[-1]]


def room(size: int) -> npt.NDArray[np.int64]:
    """Return the walls around a world, as a grid of colours."""
    return np.pad(np.zeros((size - 2, size - 2), np.int64), 1, constant_values=4)


def make_world(kinds: int, limit: float, **fields: Any) -> Dynamics:
    """Make an environment that shows so many kinds of things, and is cut after so many steps.

    Other fields are those of `Dynamics`.
    """
    space = MultiBinary(np.array([kinds, 7, 7]))
    fields |= {"observation_space": space, "action_space": Discrete(7)}
    return Dynamics(**fields, max_episode_steps=int(limit))


def reward(reaches_goal: bool, steps: int, limit: float) -> float:
    """Return 1 at the goal, less 0.9 times the part of the steps that went by; else 0."""
    return 1.0 - 0.9 * (float(steps) / limit) if reaches_goal else 0.0


def heading(direction: int) -> tuple[int, int]:
    """Return a step ahead, (dx, dy), in direction 0 right, 1 down, 2 left or 3 up."""
    return (direction == 0) - (direction == 2), (direction == 1) - (direction == 3)


def turned(direction: int, action: int) -> int:
    """Return the direction after action 0, to the left, 1, to the right, or another."""
    return (direction + (action == 1) - (action == 0)) % 4


def point(dx: int, dy: int, direction: int) -> int:
    """Return the cell of a place (dx, dy) from the agent, if it is in the view."""
    ax, ay = heading(direction)
    ahead, right = ax * dx + ay * dy, ax * dy - ay * dx
    is_inside = 0 <= ahead <= 6 and -3 <= right <= 3
    return 1 << 7 * (3 + right) + 6 - ahead if is_inside else 0


def column(dx: int, direction: int) -> int:
    """Return the cells of a column of the world, dx from the agent."""
    ax, ay = heading(direction)
    return across(ax * dx) if ay == 0 else along(-ay * dx)


def row(dy: int, direction: int) -> int:
    """Return the cells of a row of the world, dy from the agent."""
    ax, ay = heading(direction)
    return across(ay * dy) if ax == 0 else along(ax * dy)


def across(ahead: int) -> int:
    """Return the cells at one distance ahead."""
    return NEAR >> min(ahead, 6) if 0 <= ahead <= 6 else 0


def along(right: int) -> int:
    """Return the cells at one distance to the right, or left if it is negative."""
    return 127 << 7 * (3 + right) if -3 <= right <= 3 else 0


def outside(x: int, y: int, size: int, direction: int) -> int:
    """Return the walls around a world of `size` by `size` cells, and what is behind them."""
    ahead = distance(x, y, size, direction)
    right = distance(x, y, size, (direction + 1) % 4)
    left = distance(x, y, size, (direction + 3) % 4)
    far = (NEAR >> 6) * ((1 << max(7 - ahead, 0)) - 1)
    return far | (ALL & -(1 << 7 * min(3 + right, 7))) | ((1 << 7 * max(4 - left, 0)) - 1)


def distance(x: int, y: int, size: int, direction: int) -> int:
    """Return the steps from the agent to the wall around the world."""
    level = size - 1 - x if direction == 0 else x
    upright = size - 1 - y if direction == 1 else y
    return level if direction % 2 == 0 else upright


def visible(opaque: int) -> int:
    """Return the cells that the agent sees: light goes ahead and aside, not through walls."""
    cells = AGENT
    for k in range(7):
        near = NEAR >> k
        for _ in range(6):
            lit = cells & near & ~opaque
            cells = cells | ((lit << 7 | lit >> 7) & ALL)
        lit = cells & near & ~opaque
        cells = cells | ((lit | lit << 7 | lit >> 7) >> 1 & near >> 1 & ALL if k < 6 else 0)
    return cells

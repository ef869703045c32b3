"""What an agent of MiniGrid sees: seven by seven cells ahead, a plane for each kind of thing.

A plane's row x and column y is cell (x, y) of MiniGrid's image: x from left to right, y from far to
near; the agent is at (3, 6). `image` gives the image itself: three numbers for each cell.

`point`, `column`, `row` and `outside` return *cell sets*: whole numbers with bit `7 * x + y` set
for each cell (x, y) of the view. Sets are joined by `|`, and `& ~` takes cells away. Directions are
0 right, 1 down, 2 left and 3 up in the world, and (dx, dy) are cells from the agent there.
Source: Chevalier-Boisvert et al. (2023), "Minigrid & Miniworld", arXiv:2306.13831.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiBinary

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import GREY

#: MiniGrid's type, colour and state of: nothing, wall, goal, key; open, closed, locked door.
KINDS = np.array(
    [[1, 0, 0], [2, 5, 0], [8, 1, 0], [5, 4, 0], [4, 4, 0], [4, 4, 1], [4, 4, 2]], np.uint8
)

ALL = (1 << 49) - 1
NEAR = sum(1 << 7 * x + 6 for x in range(7))  #: the agent's row of the view
AGENT = 1 << 7 * 3 + 6  #: its cell, which shows what it carries, or is empty


def image(planes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return MiniGrid's image of an observation: type, colour and state of each cell.

    Planes (..., kinds, 7, 7) of the first kinds of `KINDS` become (..., 7, 7, 3) uint8, zeros where
    nothing is seen.
    """
    planes = np.moveaxis(np.asarray(planes, np.uint8), -3, -1)
    return planes @ KINDS[: planes.shape[-1]]


def room(size: int) -> npt.NDArray[np.int64]:
    """Return the walls around a world, as a grid of colours."""
    return np.pad(np.zeros((size - 2, size - 2), np.int64), 1, constant_values=GREY)


def make_world(kinds: int, limit: float, **fields: Any) -> Dynamics:
    """Return the environment of a world whose observations have planes for the first of `KINDS`.

    An episode is cut after `limit` steps; `fields` are other fields of `Dynamics`.
    """
    space = MultiBinary(np.array([kinds, 7, 7]))
    fields |= {"observation_space": space, "action_space": Discrete(7)}
    return Dynamics(**fields, max_episode_steps=int(limit))


def reward(reaches_goal: bool, steps: int, limit: float) -> float:
    """Return 1 at the goal, less 0.9 times the part of the steps that went by; else 0."""
    return 1.0 - 0.9 * (float(steps) / limit) if reaches_goal else 0.0


def heading(direction: int) -> tuple[int, int]:
    """Return the step (dx, dy) of an agent that walks in a direction."""
    return (direction == 0) - (direction == 2), (direction == 1) - (direction == 3)


def turned(direction: int, action: int) -> int:
    """Return the direction after an action: 0 turns to the left, 1 to the right, others do not."""
    return (direction + (action == 1) - (action == 0)) % 4


def point(dx: int, dy: int, direction: int) -> int:
    """Return the cell set of the world's cell (dx, dy) from the agent; 0 if it is out of view."""
    ax, ay = heading(direction)
    ahead, right = ax * dx + ay * dy, ax * dy - ay * dx
    is_inside = 0 <= ahead <= 6 and -3 <= right <= 3
    return 1 << 7 * (3 + right) + 6 - ahead if is_inside else 0


def column(dx: int, direction: int) -> int:
    """Return the cell set of the world's column dx from the agent."""
    ax, ay = heading(direction)  # who looks right or left, ay = 0, has columns ahead
    return cells_ahead(ax * dx) if ay == 0 else cells_aside(-ay * dx)


def row(dy: int, direction: int) -> int:
    """Return the cell set of the world's row dy from the agent."""
    ax, ay = heading(direction)
    return cells_ahead(ay * dy) if ax == 0 else cells_aside(ax * dy)


def cells_ahead(ahead: int) -> int:
    """Return the cell set of the view's row that is `ahead` cells before the agent."""
    return NEAR >> min(ahead, 6) if 0 <= ahead <= 6 else 0


def cells_aside(right: int) -> int:
    """Return the cell set of the view's column `right` of the agent, left if negative."""
    return 127 << 7 * (3 + right) if -3 <= right <= 3 else 0


def outside(x: int, y: int, size: int, direction: int) -> int:
    """Return the cell set of the walls around a world, and of what is behind them.

    The agent is at (x, y) in a world of `size` rows and columns.
    """
    ahead = distance(x, y, size, direction)
    right = distance(x, y, size, (direction + 1) % 4)
    left = distance(x, y, size, (direction + 3) % 4)
    # Rows of the view from the far end to the wall ahead: bits 0 to 6 - ahead of all columns, which
    # begin at the bits of NEAR >> 6.
    far = (NEAR >> 6) * ((1 << max(7 - ahead, 0)) - 1)
    # Columns from the wall on the right on: column x has the bits from 7 * x on. And those before
    # the end of the one with the wall on the left.
    on_right, on_left = ALL & -(1 << 7 * min(3 + right, 7)), (1 << 7 * max(4 - left, 0)) - 1
    return far | on_right | on_left


def distance(x: int, y: int, size: int, direction: int) -> int:
    """Return the steps from an agent at (x, y) to the outer wall in a direction."""
    level = size - 1 - x if direction == 0 else x
    upright = size - 1 - y if direction == 1 else y
    return level if direction % 2 == 0 else upright


def visible(opaque: int) -> int:
    """Return the cell set that the agent sees: light goes ahead and aside, not through walls.

    From the agent's row on, light spreads along each row from cell to cell, and from there into the
    row before it, straight and diagonally: MiniGrid's `process_vis`. `opaque` has walls and closed
    doors, which are seen, but not what is behind them.
    """
    in_sight = AGENT  # the cells that light has reached
    for k in range(7):
        row_ahead = NEAR >> k  # the row of the view k cells ahead
        for _ in range(6):  # from one side of the row to the other
            lit = in_sight & row_ahead & ~opaque
            in_sight = in_sight | (
                (lit << 7 | lit >> 7) & ALL
            )  # cells on the right and on the left
        lit = in_sight & row_ahead & ~opaque
        spread = lit | lit << 7 | lit >> 7
        in_sight = in_sight | (spread >> 1 & row_ahead >> 1 & ALL if k < 6 else 0)  # one cell ahead
    return in_sight

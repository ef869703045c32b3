"""What the games of MinAtar share: a board of ten by ten cells, and actions that stick.

Source: Young & Tian (2019), "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible
Reinforcement Learning Experiments", arXiv:1903.03176; the package minatar 1.0.15.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import Picture, draw, grid_of
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

NONE = Board()
ALL = Board((1 << 100) - 1)
COLUMN = Board(sum(1 << 10 * y for y in range(10)))  #: column 0; `COLUMN << x` is column x
ROW = Board((1 << 10) - 1)  #: row 0; `ROW << 10 * y` is row y


class Params(NamedTuple):
    """Options of all games; those without a ramp of difficulty ignore the second."""

    sticky_action_prob: float = 0.1  # that an action is replaced by the one before
    difficulty_ramping: bool = True  # the game becomes faster


def cell(y: int, x: int) -> Board:
    """Return the board of one cell."""
    return Board().set(10 * y + x)


def sticky(action: int, last_action: int, params: Params, rng: Rng) -> int:
    """Return the action, or sometimes the one before it; takes random number 0."""
    return last_action if rng.uniform(0) < params.sticky_action_prob else action


def moved(cells: Board, right: Board) -> Board:
    """Return things moved by one cell: from cells of `right` to the right, from others to the left.

    Those that leave the board are gone.
    """
    rightwards = (cells & right & ~(COLUMN << 9)) << 1
    return rightwards | ((cells & ~right & ~COLUMN) >> 1)


def behind(cells: Board, right: Board) -> Board:
    """Return the trails of things: the cells from which `moved` has brought them."""
    return moved(cells, ~right)


def game(
    id: str,
    step: Callable[..., Any],
    reset: Callable[..., Any],
    observe: Callable[..., tuple[Board, ...]],
    *,
    planes: int,
    actions: int,
) -> Dynamics:
    """Return a game from its functions, and how many planes and actions it has."""
    return Dynamics(
        id=id,
        step=step,
        reset=reset,
        observe=observe,
        picture=functools.partial(picture, observe),
        observation_space=MultiBinary(np.array([planes, 10, 10])),
        action_space=Discrete(actions),
        params=Params(),
    )


def picture(observe: Callable[..., tuple[Board, ...]], state: Any, params: Params) -> Picture:
    """Return the planes of a state as a picture, the last one above the others."""
    return draw(grid_of(observe(state, params), 10, 10))

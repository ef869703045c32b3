"""POPGym/Battleship: sink four ships on a board of which nothing is seen but hits and misses.

Source: see `rlcpu.envs.tasks.popgym`. Ships lie as there, each with the same probability wherever
it fits: places are drawn until one does.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.layout.arrays import Array, State
from rlcpu.kernels.machine.random import Rng

SHIPS = (2, 3, 3, 4)  # cells of each
NEEDED = sum(SHIPS)
HIT = 1.0 / NEEDED  # reward
#: Places that are drawn for a ship, of which none fits once in 10^12; the next one is taken then.
TRIES = 64


class Fleet(State):
    """Hits so far, whether the last shot was one, and cells: `ships` and `shots` are 1 there."""

    hits: int
    is_hit: bool


def fits(ships: Any, place: int, cells: int) -> bool:
    """Return whether a ship of so many cells has room on a board (n, n), 1 in cells with ships.

    `place` is `2 * (row * n + column)` of the ship's first cell, and 1 more if it goes down from
    there, not to the right.
    """
    n = len(ships)
    row, column, down = place // 2 // n, place // 2 % n, place % 2
    if (row if down else column) + cells > n:
        return False
    is_free = True
    for k in range(cells):
        is_free = is_free and ships[row + k * down, column + k * (1 - down)] == 0
    return is_free


def reset(s: Any, rng: Rng, params: NoParams) -> None:
    """Place the ships, one after the other, each at random places until it fits."""
    n = len(s.ships)
    for cells in SHIPS:
        place, tries = rng.integers(2 * n * n), 1
        while not fits(s.ships, place, cells):
            place = rng.integers(2 * n * n) if tries < TRIES else (place + 1) % (2 * n * n)
            tries += 1
        down = place % 2
        for k in range(cells):
            s.ships[place // 2 // n + k * down, place // 2 % n + k * (1 - down)] = 1


def step(s: Any, action: tuple[int, int], params: NoParams) -> tuple[float, bool]:
    """Shoot at a row and a column; a second shot at a cell is a miss."""
    row, column = action
    s.is_hit = s.ships[row, column] == 1 and s.shots[row, column] == 0
    s.shots[row, column] = 1
    s.hits += s.is_hit
    miss = -1.0 / float(s.ships.size - NEEDED)
    return (HIT if s.is_hit else miss), s.hits == NEEDED


def observe(s: Any, params: NoParams) -> int:
    """Return 1 for a hit, 0 for a miss."""
    return int(s.is_hit)


LEVELS = tuple(
    Dynamics(
        id=f"POPGym/Battleship{level}-v0",
        state=Fleet.sized(ships=Array[np.uint8, n, n], shots=Array[np.uint8, n, n]),
        step=step,
        reset=reset,
        observe=observe,
        observation_space=Discrete(2),
        action_space=MultiDiscrete([n, n]),
        max_episode_steps=n * n,
    )
    for level, n in (("Easy", 8), ("Medium", 10), ("Hard", 12))
)

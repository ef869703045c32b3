"""What an agent sees of Craftax-Classic: 7 x 9 cells around it, what it carries, how it fares."""

from typing import Any

import numpy as np

from rlcpu.envs.tasks.craftax.state import (
    ALIVE,
    COLUMN,
    ROW,
    Action,
    Block,
    Item,
    Params,
    is_inside,
)

ROWS, COLUMNS = 7, 9
KINDS = 21  # of a cell: 17 blocks, then these
ZOMBIE, COW, SKELETON, ARROW = range(17, KINDS)
#: Where in an observation, behind the cells, items, health to energy, directions and light begin.
ITEMS = ROWS * COLUMNS * KINDS
BODY = ITEMS + len(Item)
DIRECTIONS = BODY + 4
LIGHT = DIRECTIONS + 4
NUMBERS = LIGHT + 2
#: Tenths as the package has them, compiled: JAX multiplies there, in float16.
TENTHS = (np.arange(10, dtype=np.float16) * np.float16(0.1)).astype(np.float64)


def show_mobs(s: Any, mobs: Any, plane: int, out: Any) -> None:
    """Write a plane of the observation `out`, (NUMBERS,): where mobs of one kind, (mobs, 5), are.

    `plane` is the number of the kind among the `KINDS` of a cell. A mob that is not alive or not in
    the view clears a cell, as in the package: JAX counts a negative row or column from the other
    end, so that a mob beyond the upper or left edge clears a cell on the opposite side.
    """
    for k in range(len(mobs)):
        row, column = mobs[k, ROW] - s.row + ROWS // 2, mobs[k, COLUMN] - s.column + COLUMNS // 2
        is_seen = 0 <= row < ROWS and 0 <= column < COLUMNS and mobs[k, ALIVE] == 1
        row, column = row + ROWS if row < 0 else row, column + COLUMNS if column < 0 else column
        if 0 <= row < ROWS and 0 <= column < COLUMNS:
            out[(row * COLUMNS + column) * KINDS + plane] = 1.0 if is_seen else 0.0


def observe(s: Any, params: Params, out: Any) -> None:
    """Write cells in view, items, health, food, drink, energy, direction, light and sleep.

    Into `out`, (NUMBERS,): the cells come first, by rows, each as `KINDS` numbers of 0 or 1. Twelve
    items, health, food, drink and energy follow in tenths, then four of 0 or 1 for left, right, up
    and down, the light, and whether the player sleeps.
    """
    for i in range(ROWS):
        row = s.row + i - ROWS // 2
        for j in range(COLUMNS):
            column = s.column + j - COLUMNS // 2
            place = (i * COLUMNS + j) * KINDS
            if is_inside(row, column):
                out[place + s.map[row, column]] = 1.0
            else:
                out[place + Block.OUTSIDE] = 1.0
    show_mobs(s, s.zombies, ZOMBIE, out)
    show_mobs(s, s.cows, COW, out)
    show_mobs(s, s.skeletons, SKELETON, out)
    show_mobs(s, s.arrows, ARROW, out)
    for k in range(len(s.inventory)):
        out[ITEMS + k] = TENTHS[s.inventory[k]]
    out[BODY] = TENTHS[s.health]
    out[BODY + 1] = TENTHS[s.food]
    out[BODY + 2] = TENTHS[s.drink]
    out[BODY + 3] = TENTHS[s.energy]
    out[DIRECTIONS + s.direction - Action.LEFT] = 1.0
    out[LIGHT] = s.light
    out[LIGHT + 1] = 1.0 if s.is_sleeping else 0.0

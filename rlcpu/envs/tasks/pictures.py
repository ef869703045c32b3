"""Pictures of games on a grid: a colour for each kind of thing, a square for each cell."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.machine.boards import Board

Grid = npt.NDArray[np.int64]
Picture = npt.NDArray[np.uint8]

#: Side of a cell in pixels.
PIXELS = 32
#: Numbers of `COLOURS`.
BLACK, WHITE, BLUE, ORANGE, GREY, RED, GREEN, PURPLE, CYAN, YELLOW, BROWN = range(11)
#: Red, green and blue of nothing, BLACK, and of up to ten kinds of things.
COLOURS = np.array(
    [
        (20, 20, 28),
        (230, 230, 230),
        (70, 130, 220),
        (245, 160, 50),
        (95, 95, 110),
        (220, 70, 70),
        (80, 180, 100),
        (160, 100, 200),
        (90, 200, 210),
        (240, 220, 90),
        (150, 110, 80),
    ],
    np.uint8,
)


def grid_of(boards: Iterable[Board], rows: int, columns: int) -> Grid:
    """Return (rows, columns) ints: the number, from 1, of the board that has each cell, 0 for none.

    Cell `columns * row + column` of a board is at (row, column); the last board that has it counts.
    """
    grid = np.zeros(rows * columns, np.int64)
    for k, board in enumerate(boards, 1):
        grid[[cell for cell in range(len(grid)) if board.test(cell)]] = k
    return grid.reshape(rows, columns)


def draw(grid: Grid, pixels: int = PIXELS) -> Picture:
    """Return the picture of a grid (rows, columns), whose numbers are rows of `COLOURS`.

    It is (rows * pixels, columns * pixels, 3) uint8.
    """
    return COLOURS[grid].repeat(pixels, 0).repeat(pixels, 1)


def draw_arrow(picture: Picture, row: int, column: int, direction: int) -> Picture:
    """Draw an arrow in a cell of a picture: to the right, down, left or up, 0 to 3."""
    # A triangle that points to the right: each column has fewer points than the one before.
    place = np.arange(PIXELS)
    arrow = 2 * np.abs(place - (PIXELS - 1) / 2)[:, None] < PIXELS - 1 - place
    cell = np.s_[PIXELS * row : PIXELS * (row + 1), PIXELS * column : PIXELS * (column + 1)]
    picture[cell][np.rot90(arrow, -direction)] = COLOURS[RED]
    return picture

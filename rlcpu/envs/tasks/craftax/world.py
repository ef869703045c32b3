"""Worlds of Craftax-Classic: four maps of Perlin noise, which say where what is.

Perlin noise (1985, "An image synthesizer") has a slope of length 1 and random direction at each
corner of a lattice; a cell's number blends what the slopes at the four corners around it say. Four
lattices of the map's 64 x 64 cells are taken, as the package takes them: water and mountains 4 x 4,
tunnels 8 x 32, trees 16 x 16. Each is scaled to 0 to 1 over the map.

One map is in `s.noise` at a time, not yet scaled: functions take `low`, its lowest number, and
`scale`, so that `(s.noise[row, column] - low) * scale` is from 0 to 1. A *line* is one of the
lattice, of which each has the slopes of a row of corners; rows and columns are those of the map.
`rng.uniform(k)` and `rng.integers(k, n)`, from 0 to n - 1, are random number k of a reset.
"""

import math
from typing import Any

import numpy as np

from rlcpu.envs.tasks.craftax.state import (
    DOWNWARDS,
    HEALTH,
    MOST,
    RIGHTWARDS,
    SIZE,
    Action,
    Block,
    Params,
)
from rlcpu.kernels.machine.random import Rng

MIDDLE = SIZE // 2  # row and column in which the player starts
#: Maps of noise, and columns of `LATTICES`: the number of the first slope's direction, and how many
#: cells the lattice has down and to the right.
WATERS, MOUNTAINS, TUNNELS, TREES = range(4)
FIRST, DOWN, ACROSS = range(3)
LATTICES = np.array([[0, 4, 4], [25, 4, 4], [50, 8, 32], [350, 16, 16]])
#: Rows of `s.edges`: slope down and height of the noise at the line above a cell, and below it.
SLOPE_ABOVE, HEIGHT_ABOVE, SLOPE_BELOW, HEIGHT_BELOW = range(4)
# Numbers after those of slopes: one for each cell, and one for the last diamond.
CELLS = 640
LAST_DIAMOND = CELLS + SIZE * SIZE
#: Cells while a world is made: grass near water; high stone, in which diamonds are; the heart of a
#: mountain, in which lava may be, and where it is near water, so that a cave is there.
SHORE, HIGH, HEART, CAVE = range(17, 21)
# Shares of stone that are coal, iron and, in high stone, diamonds, the later ones of what is left.
COAL_SHARE = 0.04
IRON_SHARE = COAL_SHARE + (1.0 - COAL_SHARE) * 0.03
DIAMOND_SHARE = IRON_SHARE + (1.0 - IRON_SHARE) * 0.005


def fade(x: float) -> float:
    """Return the weight of the far corner, from 0 at x = 0 to 1 at x = 1 (Perlin 2002)."""
    return x * x * x * (x * (x * 6.0 - 15.0) + 10.0)


def draw_slopes(s: Any, rng: Rng, first: int, count: int) -> None:
    """Draw the slopes of `count` corners into `s.slopes`: down into row 0, to the right into row 1.

    `first` is the number of the first random number.
    """
    for k in range(count):
        angle = 2.0 * math.pi * rng.uniform(first + k)
        s.slopes[0, k] = math.cos(angle)
        s.slopes[1, k] = math.sin(angle)


def blend_line(s: Any, line: int, columns: int) -> None:
    """Blend the slopes of two neighbouring corners to each column of the map between them.

    Writes `s.edges`, (4, SIZE): what was the line below becomes the line above, and this line of
    the lattice the one below. The lattice has `columns` cells from left to right.
    """
    width = SIZE // columns
    for cell in range(columns):
        k = line * (columns + 1) + cell  # number of the corner on its left
        for offset in range(width):
            j, x = cell * width + offset, float(offset) / float(width)
            far = fade(x)
            near = 1.0 - far
            s.edges[SLOPE_ABOVE, j] = s.edges[SLOPE_BELOW, j]
            s.edges[HEIGHT_ABOVE, j] = s.edges[HEIGHT_BELOW, j]
            s.edges[SLOPE_BELOW, j] = near * s.slopes[0, k] + far * s.slopes[0, k + 1]
            height = near * x * s.slopes[1, k] + far * (x - 1.0) * s.slopes[1, k + 1]
            s.edges[HEIGHT_BELOW, j] = height


def write_noise(s: Any, row: int, height: int) -> None:
    """Write the noise between two lines of the lattice into `s.noise`, by `s.edges`.

    The upper line is at `row` of the map, the lower one `height` rows below.
    """
    for i in range(height):
        x = float(i) / float(height)
        far = fade(x)
        near = 1.0 - far
        above, below = near * x, far * (x - 1.0)
        for j in range(SIZE):
            upper = above * s.edges[SLOPE_ABOVE, j] + near * s.edges[HEIGHT_ABOVE, j]
            lower = below * s.edges[SLOPE_BELOW, j]
            s.noise[row + i, j] = upper + lower + far * s.edges[HEIGHT_BELOW, j]


def make_noise(s: Any, rng: Rng, layer: int) -> tuple[float, float]:
    """Write the noise of a layer (`WATERS` to `TREES`), and return `low` and `scale`."""
    rows, columns = LATTICES[layer, DOWN], LATTICES[layer, ACROSS]
    height = SIZE // rows
    draw_slopes(s, rng, LATTICES[layer, FIRST], (rows + 1) * (columns + 1))
    for line in range(rows + 1):
        blend_line(s, line, columns)
        if line > 0:
            write_noise(s, (line - 1) * height, height)
    low, high = 2.0, -2.0  # which noise never reaches
    for i in range(SIZE):
        for j in range(SIZE):
            low, high = min(low, s.noise[i, j]), max(high, s.noise[i, j])
    return low, 1.0 / (high - low)


def start_clearing(row: int, column: int) -> float:
    """Return what is added to the noise of water and mountains: -1 at the start, 0 5 cells away.

    So there is grass where the player starts.
    """
    return min(float(abs(row - MIDDLE) + abs(column - MIDDLE)) / 5.0, 1.0) - 1.0


def flood(s: Any, row: int, low: float, scale: float) -> None:
    """Write water, the sand around it, or grass into a row of the map."""
    for column in range(SIZE):
        wet = (s.noise[row, column] - low) * scale + start_clearing(row, column)
        dry = SHORE if wet > 0.4 else Block.GRASS
        s.map[row, column] = Block.WATER if wet > 0.7 else Block.SAND if wet > 0.6 else dry


def raise_stone(s: Any, row: int, low: float, scale: float) -> None:
    """Write stone into a row of the map where the noise of mountains is high."""
    for column in range(SIZE):
        high = (s.noise[row, column] - low) * scale + 0.05 + start_clearing(row, column)
        if high > 0.85:
            s.map[row, column] = HEART if s.map[row, column] == Block.GRASS else CAVE
        elif high > 0.7:
            s.map[row, column] = HIGH if high > 0.8 else Block.STONE


def dig(s: Any, row: int, column: int) -> None:
    """Make a tunnel of a cell, if there is stone."""
    block = s.map[row, column]
    if block == HEART:
        s.map[row, column] = CAVE
    elif block == Block.STONE or block == HIGH:
        s.map[row, column] = Block.PATH


def dig_tunnels(s: Any, row: int, low: float, scale: float) -> None:
    """Dig along a row, and along the column of the same number."""
    for column in range(SIZE):
        if (s.noise[row, column] - low) * scale > 0.8:
            dig(s, row, column)
            dig(s, column, row)


def ore_of(block: int, chance: float) -> int:
    """Return what a cell of stone becomes: coal, iron, diamond, or still stone.

    Its block is `Block.STONE`, `HIGH` or `HEART`, and diamonds are in the last two; `chance` is a
    random number in [0, 1).
    """
    if chance < COAL_SHARE:
        return Block.COAL
    if chance < IRON_SHARE:
        return Block.IRON
    return Block.DIAMOND if block != Block.STONE and chance < DIAMOND_SHARE else Block.STONE


def write_blocks(s: Any, row: int, low: float, scale: float, rng: Rng) -> None:
    """Turn the cells of a row into the blocks of the game: trees, lava, ores among them.

    `s.noise` is that of trees, by which lava is placed, too; `SHORE` to `CAVE` end here.
    """
    for column in range(SIZE):
        growth = (s.noise[row, column] - low) * scale
        block = s.map[row, column]
        k = CELLS + SIZE * row + column  # number of the cell's random number
        if block == Block.GRASS or block == SHORE:
            grows = growth > 0.5 and rng.uniform(k) > 0.8
            s.map[row, column] = Block.TREE if grows else Block.GRASS
        elif block in (HEART, CAVE) and growth > 0.7:
            s.map[row, column] = Block.LAVA
        elif block == CAVE:
            s.map[row, column] = Block.PATH
        elif block == Block.STONE or block in (HIGH, HEART):
            s.map[row, column] = ore_of(block, rng.uniform(k))


def paint(s: Any, rng: Rng, layer: int) -> None:
    """Write what the noise of a layer decides about each cell of the map."""
    low, scale = make_noise(s, rng, layer)
    for row in range(SIZE):
        if layer == WATERS:
            flood(s, row, low, scale)
        elif layer == MOUNTAINS:
            raise_stone(s, row, low, scale)
        elif layer == TUNNELS:
            dig_tunnels(s, row, low, scale)
        else:
            write_blocks(s, row, low, scale, rng)


def hide_diamond(s: Any, rng: Rng) -> None:
    """Turn one stone of the map, drawn at random, into a diamond."""
    stones = 0
    for i in range(SIZE):
        for j in range(SIZE):
            stones += 1 if s.map[i, j] == Block.STONE else 0
    left = rng.integers(LAST_DIAMOND, max(stones, 1))
    for i in range(SIZE):
        for j in range(SIZE):
            if s.map[i, j] == Block.STONE:
                if left == 0:
                    s.map[i, j] = Block.DIAMOND
                left -= 1


def light_at(timestep: int, params: Params) -> float:
    """Return the light at a step of the episode: 1 by day, near 0 at night."""
    days = float(timestep) / params.day_length
    wave = abs(math.cos(math.pi * (days - math.floor(days) + 0.3)))
    return 1.0 - wave * wave * wave


def reset(s: Any, rng: Rng, params: Params) -> None:
    """Make a world without mobs, and put the player into its middle."""
    for layer in range(4):
        paint(s, rng, layer)
    s.map[MIDDLE, MIDDLE] = Block.GRASS
    if params.always_diamond:
        hide_diamond(s, rng)
    s.row, s.column, s.direction = MIDDLE, MIDDLE, Action.UP
    s.health, s.food, s.drink, s.energy = MOST, MOST, MOST, MOST
    # As in the package, mobs that never lived have some health and wait in cell (0, 0), see `mobs`.
    for k in range(3):
        s.zombies[k, HEALTH] = 1
        s.cows[k, HEALTH] = int(params.cow_health)
        s.arrows[k, DOWNWARDS] = 1
        s.arrows[k, RIGHTWARDS] = 1
    s.light = light_at(s.timestep, params)

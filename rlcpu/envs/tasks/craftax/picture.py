"""Pictures of Craftax-Classic: the cells that an agent sees, and below them what it carries.

A cell is drawn as eight by eight points. A *shape* is an integer of 64 bits, one for each point: a
byte for each of eight lines, the upper one first. `shapes` are pairs (shape, colour), drawn one
over the other. `cells` are (rows, columns, POINTS, POINTS, 3) uint8, a `cell` one of these.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.tasks.craftax.state import (
    ALIVE,
    COLUMN,
    DOWNWARDS,
    RIGHTWARDS,
    ROW,
    SIZE,
    Action,
    Block,
    Item,
    Params,
)
from rlcpu.envs.tasks.craftax.view import COLUMNS, ROWS

Picture = npt.NDArray[Any]

POINTS, SCALE = 8, 4  # of a cell, and pixels of a point
GROUND = {
    Block.GRASS: (96, 160, 72),
    Block.WATER: (64, 110, 200),
    Block.STONE: (128, 128, 132),
    Block.TREE: (96, 160, 72),
    Block.WOOD: (150, 110, 70),
    Block.PATH: (196, 186, 160),
    Block.COAL: (128, 128, 132),
    Block.IRON: (128, 128, 132),
    Block.DIAMOND: (128, 128, 132),
    Block.TABLE: (150, 110, 70),
    Block.FURNACE: (104, 104, 110),
    Block.SAND: (226, 210, 150),
    Block.LAVA: (236, 110, 30),
    Block.PLANT: (96, 160, 72),
    Block.RIPE_PLANT: (96, 160, 72),
}
#: Shapes on the ground of a block, each in its colour.
DETAILS = {
    Block.GRASS: ((0x0008000040000200, (82, 142, 60)),),
    Block.WATER: ((0x0060180000063000, (110, 150, 226)),),
    Block.STONE: ((0x0000600000040030, (104, 104, 108)),),
    Block.TREE: ((0x3C7EFFFF7E3C0000, (34, 92, 44)), (0x0000000000001818, (104, 72, 40))),
    Block.WOOD: ((0xFF0000FF0000FF00, (112, 78, 44)),),
    Block.COAL: ((0x0030300006064400, (30, 30, 34)),),
    Block.IRON: ((0x0030300006064400, (226, 160, 110)),),
    Block.DIAMOND: ((0x00183C7E3C180000, (235, 250, 255)),),
    Block.TABLE: ((0xFF818181FF000000, (96, 64, 34)), (0x0018187E00000000, (210, 170, 110))),
    Block.FURNACE: ((0x00003C7E7E7E0000, (40, 36, 36)), (0x0000000018180000, (240, 150, 40))),
    Block.SAND: ((0x0000100200400800, (206, 188, 126)),),
    Block.LAVA: ((0x0000384000060C00, (252, 196, 70)),),
    Block.PLANT: ((0x0000001854381010, (44, 120, 50)),),
    Block.RIPE_PLANT: ((0x0000001854381010, (44, 120, 50)), (0x00183C1800000000, (226, 70, 90))),
}
BODY = 0x183C187E5A182466
ZOMBIE = ((BODY, (70, 150, 90)), (0x0000003C18000000, (60, 70, 140)))
SKELETON = ((BODY, (226, 226, 220)), (0x0024000000000000, (30, 30, 34)))
COW = ((0x00C0FE7E7E424200, (120, 76, 52)), (0x0000183010000000, (240, 236, 230)))
ARROW = ((0x0010387C10101000, (240, 236, 224)),)
#: The player's face, which looks to the left, to the right, up or down, or sleeps.
PLAYER = ((BODY, (240, 200, 150)), (0x0000003C18000000, (190, 60, 60)))
FACES = (0x0020000000000000, 0x0004000000000000, 0x1800000000000000, 0x0024000000000000)
PICKAXE = ((0x3C42080808080800, (0, 0, 0)), (0x0000080808080800, (112, 78, 44)))
SWORD = ((0x0101020408100000, (0, 0, 0)), (0x0000000000502050, (112, 78, 44)))
MATERIALS = ((150, 110, 70), (150, 150, 156), (226, 160, 110))
HEART = ((0x0066FFFF7E3C1800, (220, 50, 60)),)
FOOD = ((0x000E1E3C78F0C000, (200, 120, 60)),)
DRINK = ((0x0010383C7E7E3C00, (80, 140, 230)),)
ENERGY = ((0x061C38FE1C387000, (240, 220, 80)),)
DARK, NIGHT = (24, 24, 30), np.array((0.0, 8.0, 32.0))


def points_of(shape: int) -> npt.NDArray[np.bool_]:
    """Return the points of a shape as bools, (POINTS, POINTS)."""
    lines = np.array([shape >> 8 * line & 255 for line in range(7, -1, -1)], np.uint8)
    return np.unpackbits(lines[:, None], axis=1).astype(np.bool_)


def stamp(cell: Picture, shapes: Any, turns: int = 0) -> None:
    """Draw shapes into a cell, turned to the left by `turns` right angles."""
    for shape, colour in shapes:
        cell[np.rot90(points_of(shape), turns)] = colour


def draw_block(cell: Picture, block: int) -> None:
    """Draw a block into a cell."""
    cell[...] = GROUND.get(Block(block), DARK) if block else DARK
    stamp(cell, DETAILS.get(Block(block), ()) if block else ())


def cells_of(points: Picture) -> Picture:
    """Return points as cells, (rows, columns, POINTS, POINTS, 3), a view."""
    rows, columns = points.shape[0] // POINTS, points.shape[1] // POINTS
    return points.reshape(rows, POINTS, columns, POINTS, 3).transpose(0, 2, 1, 3, 4)


def draw_map(s: Any, cells: Picture) -> None:
    """Draw the blocks, mobs and arrows in view, and the player, of world `s` into `cells`."""
    top, left = s.row - ROWS // 2, s.column - COLUMNS // 2
    for i in range(ROWS):
        for j in range(COLUMNS):
            inside = 0 <= top + i < SIZE and 0 <= left + j < SIZE
            draw_block(cells[i, j], s.map[top + i, left + j] if inside else Block.OUTSIDE)
    for mobs, shapes in ((s.zombies, ZOMBIE), (s.cows, COW), (s.skeletons, SKELETON)):
        for mob in mobs[mobs[:, ALIVE] == 1]:
            draw_mob(cells, mob[ROW] - top, mob[COLUMN] - left, shapes)
    for arrow in s.arrows[s.arrows[:, ALIVE] == 1]:
        way = (arrow[DOWNWARDS], arrow[RIGHTWARDS])  # the shape points up, (-1, 0)
        turns = {(-1, 0): 0, (0, -1): 1, (1, 0): 2}.get(way, 3)
        draw_mob(cells, arrow[ROW] - top, arrow[COLUMN] - left, ARROW, turns)
    face = 0x0000660000000000 if s.is_sleeping else FACES[s.direction - Action.LEFT]
    stamp(cells[ROWS // 2, COLUMNS // 2], (*PLAYER, (face, (40, 30, 30))))


def draw_mob(cells: Picture, row: int, column: int, shapes: Any, turns: int = 0) -> None:
    """Draw a mob's shapes into cell (row, column) of the view, unless that is beyond the view."""
    if 0 <= row < ROWS and 0 <= column < COLUMNS:
        stamp(cells[row, column], shapes, turns)


def icon_of(item: int) -> Any:
    """Return the shapes of an `Item`: a tool in the colour of its material, a block in small."""
    if item == Item.SAPLING:
        return DETAILS[Block.PLANT]
    if item >= Item.WOOD_PICKAXE:  # three pickaxes, then three swords
        is_sword, material = divmod(item - Item.WOOD_PICKAXE, 3)
        (shape, _), handle = SWORD if is_sword else PICKAXE
        return (shape, MATERIALS[material]), handle
    rounded_square = (0x7EFFFFFFFFFFFF7E, GROUND[ITEM_BLOCKS[item]])
    return (rounded_square, *DETAILS[ITEM_BLOCKS[item]])


ITEM_BLOCKS = (Block.WOOD, Block.STONE, Block.COAL, Block.IRON, Block.DIAMOND)


def draw_amount(cell: Picture, shapes: Any, amount: int) -> None:
    """Draw an icon, and below it a point for each two of an amount, the last one dim if it is odd.

    Nothing is drawn of what is not there.
    """
    if amount <= 0:
        return
    stamp(cell, shapes)
    cell[POINTS - 1] = DARK
    cell[POINTS - 1, : amount // 2] = (250, 250, 250)
    if amount % 2:
        cell[POINTS - 1, amount // 2] = (150, 150, 156)


def picture(s: Any, params: Params) -> npt.NDArray[np.uint8]:
    """Return the picture of a state, ((7 + 2) * 32, 9 * 32, 3) uint8."""
    points = np.empty(((ROWS + 2) * POINTS, COLUMNS * POINTS, 3))
    points[:] = DARK
    cells = cells_of(points)
    draw_map(s, cells)
    shown = points[: ROWS * POINTS]
    shown[:] = s.light * shown + (1.0 - s.light) * (0.4 * shown.mean(axis=2, keepdims=True) + NIGHT)
    if s.is_sleeping:
        shown[:] = 0.4 * shown.mean(axis=2, keepdims=True) + NIGHT
    body = ((HEART, s.health), (FOOD, s.food), (DRINK, s.drink), (ENERGY, s.energy))
    amounts = [*body, *((icon_of(item), s.inventory[item]) for item in Item)]
    for k, (shapes, amount) in enumerate(amounts):
        draw_amount(cells[ROWS + k // COLUMNS, k % COLUMNS], shapes, amount)
    return points.astype(np.uint8).repeat(SCALE, 0).repeat(SCALE, 1)

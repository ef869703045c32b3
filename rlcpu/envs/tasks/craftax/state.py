"""Blocks, actions, items, achievements and the state of Craftax-Classic, and questions about cells.

Names, numbers and their order are the package's.
"""

import enum
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.layout.arrays import Array, State

SIZE = 64  # rows and columns of the map
MOST = 9  # of each item, and of health, food, drink and energy


class Block(enum.IntEnum):
    """Kinds of cells; 0 is none, and OUTSIDE is what is shown beyond the edges of the map."""

    OUTSIDE, GRASS, WATER, STONE, TREE, WOOD, PATH, COAL, IRON = range(1, 10)
    DIAMOND, TABLE, FURNACE, SAND, LAVA, PLANT, RIPE_PLANT = range(10, 17)


class Action(enum.IntEnum):
    """Actions; the first four after NOOP are directions, too."""

    NOOP, LEFT, RIGHT, UP, DOWN, DO, SLEEP = range(7)
    PLACE_STONE, PLACE_TABLE, PLACE_FURNACE, PLACE_PLANT = range(7, 11)
    WOOD_PICKAXE, STONE_PICKAXE, IRON_PICKAXE, WOOD_SWORD, STONE_SWORD, IRON_SWORD = range(11, 17)


class Item(enum.IntEnum):
    """Items of the inventory."""

    WOOD, STONE, COAL, IRON, DIAMOND, SAPLING = range(6)
    WOOD_PICKAXE, STONE_PICKAXE, IRON_PICKAXE, WOOD_SWORD, STONE_SWORD, IRON_SWORD = range(6, 12)


class Achievement(enum.IntEnum):
    """Achievements: each gives a reward of 1 when it is first reached."""

    COLLECT_WOOD, PLACE_TABLE, EAT_COW, COLLECT_SAPLING, COLLECT_DRINK = range(5)
    MAKE_WOOD_PICKAXE, MAKE_WOOD_SWORD, PLACE_PLANT, DEFEAT_ZOMBIE, COLLECT_STONE = range(5, 10)
    PLACE_STONE, EAT_PLANT, DEFEAT_SKELETON, MAKE_STONE_PICKAXE, MAKE_STONE_SWORD = range(10, 15)
    WAKE_UP, PLACE_FURNACE, COLLECT_COAL, COLLECT_IRON, COLLECT_DIAMOND = range(15, 20)
    MAKE_IRON_PICKAXE, MAKE_IRON_SWORD = range(20, 22)


#: Rows down and columns to the right, by direction.
MOVES = np.array([[0, 0], [0, -1], [0, 1], [-1, 0], [1, 0]])
#: Whether nobody walks through a block, by its number.
SOLID = np.isin(
    np.arange(17),
    [
        *(Block.WATER, Block.STONE, Block.TREE, Block.COAL, Block.IRON, Block.DIAMOND),
        *(Block.TABLE, Block.FURNACE, Block.PLANT, Block.RIPE_PLANT),
    ],
)

# Numbers of a mob; an arrow has its move in the place of the last two.
ROW, COLUMN, ALIVE, HEALTH, COOLDOWN = range(5)
DOWNWARDS, RIGHTWARDS = 3, 4
# Numbers of a plant, after its row and column.
PLANTED, AGE = 2, 3


class World(State):
    """The map, the player, what moves and what grows there.

    Mobs that are gone keep their places and walk on, unseen: see `rlcpu.envs.tasks.craftax.mobs`.
    """

    map: Array[np.uint8, SIZE, SIZE]
    mob_map: Array[bool, SIZE, SIZE]  # where a zombie, cow or skeleton is
    row: int  # of the player
    column: int
    direction: int  # LEFT to DOWN
    health: int
    food: int
    drink: int
    energy: int
    is_sleeping: bool
    recover: float  # what leads to the next change of health, food, drink and energy
    hunger: float
    thirst: float
    fatigue: float
    inventory: Array[np.int32, 12]
    zombies: Array[np.int32, 3, 5]
    cows: Array[np.int32, 3, 5]
    skeletons: Array[np.int32, 2, 5]
    arrows: Array[np.int32, 3, 5]
    plants: Array[np.int32, 10, 4]
    achievements: Array[bool, 22]
    light: float  # 1 by day, near 0 at night
    timestep: int
    noise: Array[float, SIZE, SIZE]  # memory while a world is made
    slopes: Array[float, 2, 9 * 33]
    edges: Array[float, 4, SIZE]


class Params(NamedTuple):
    """The package's parameters; `max_episode_steps` takes the place of `max_timesteps`."""

    day_length: float = 300.0  # steps of a day and a night
    always_diamond: bool = True  # whether every world has one diamond more
    zombie_health: float = 5.0  # of a new zombie
    cow_health: float = 3.0  # of a new cow
    skeleton_health: float = 3.0  # of a new skeleton
    mob_despawn_distance: float = 14.0  # cells from the player at which mobs vanish
    spawn_cow_chance: float = 0.1  # of a new cow in a step
    spawn_zombie_base_chance: float = 0.02  # of a new zombie in a step by day
    spawn_zombie_night_chance: float = 0.1  # what the darkest night adds to it
    spawn_skeleton_chance: float = 0.05  # of a new skeleton in a step


def is_inside(row: int, column: int) -> bool:
    """Return whether a cell is on the map."""
    return 0 <= row < SIZE and 0 <= column < SIZE


def block_at(s: Any, row: int, column: int) -> int:
    """Return the block of a cell; beyond the edges as JAX reads it.

    Row -1 is the last one there, and row 64 is row 63: so a player may walk off the map to lava.
    """
    row, column = (row + SIZE if row < 0 else row), (column + SIZE if column < 0 else column)
    block: int = s.map[min(row, SIZE - 1), min(column, SIZE - 1)]
    return block


def is_taken(s: Any, row: int, column: int) -> bool:
    """Return whether a mob or the player is in a cell of the map."""
    return s.mob_map[row, column] or (row == s.row and column == s.column)


def is_free(s: Any, row: int, column: int) -> bool:
    """Return whether a mob can go to a cell."""
    if not is_inside(row, column):
        return False
    block = s.map[row, column]
    return not SOLID[block] and block != Block.LAVA and not is_taken(s, row, column)


def distance(s: Any, row: int, column: int) -> int:
    """Return how many steps a cell is from the player."""
    return abs(row - s.row) + abs(column - s.column)

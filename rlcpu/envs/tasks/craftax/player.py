"""What the player of Craftax-Classic does: craft, gather, fight, place, walk; and what it needs.

`s` is the `World`, which all functions change in place.
"""

from typing import Any

import numpy as np

from rlcpu.envs.tasks.craftax.state import (
    AGE,
    ALIVE,
    COLUMN,
    HEALTH,
    MOST,
    MOVES,
    PLANTED,
    ROW,
    SIZE,
    SOLID,
    Achievement,
    Action,
    Block,
    Item,
    block_at,
    is_free,
    is_inside,
    is_taken,
)
from rlcpu.kernels.machine.random import Rng

SAPLING_CHANCE = 0.1  # of a sapling in grass
SAPLING = 0  # number of the step's random number for it
RIPE = 600  # steps until a plant can be eaten
MISSED, HIT, DEFEATED = 0, 1, 2
#: Tools by the actions that make them, with the stone, and the iron and coal each, that they take
#: beside a wood. Columns are named below.
RECIPES = np.array(
    [
        (Item.WOOD_PICKAXE, Achievement.MAKE_WOOD_PICKAXE, 0, 0),
        (Item.STONE_PICKAXE, Achievement.MAKE_STONE_PICKAXE, 1, 0),
        (Item.IRON_PICKAXE, Achievement.MAKE_IRON_PICKAXE, 1, 1),
        (Item.WOOD_SWORD, Achievement.MAKE_WOOD_SWORD, 0, 0),
        (Item.STONE_SWORD, Achievement.MAKE_STONE_SWORD, 1, 0),
        (Item.IRON_SWORD, Achievement.MAKE_IRON_SWORD, 1, 1),
    ]
)
RECIPE_ITEM, RECIPE_ACHIEVEMENT, RECIPE_STONE, RECIPE_IRON = range(4)
#: What is dug out and leaves a path, and the tool that it takes; columns are named below.
ORES = np.array(
    [
        (Block.STONE, Item.STONE, Achievement.COLLECT_STONE, Item.WOOD_PICKAXE),
        (Block.COAL, Item.COAL, Achievement.COLLECT_COAL, Item.WOOD_PICKAXE),
        (Block.IRON, Item.IRON, Achievement.COLLECT_IRON, Item.STONE_PICKAXE),
        (Block.DIAMOND, Item.DIAMOND, Achievement.COLLECT_DIAMOND, Item.IRON_PICKAXE),
    ]
)
ORE_BLOCK, ORE_ITEM, ORE_ACHIEVEMENT, ORE_TOOL = range(4)


# ---------------------------------------------------------------- crafting


def is_beside(s: Any, block: int) -> bool:
    """Return whether one of the eight cells around the player is of a block."""
    for row in range(max(s.row - 1, 0), min(s.row + 2, SIZE)):
        for column in range(max(s.column - 1, 0), min(s.column + 2, SIZE)):
            if s.map[row, column] == block and not (row == s.row and column == s.column):
                return True
    return False


def craft(s: Any, action: int) -> None:
    """Make the tool of an action, if the player has what its recipe takes.

    It has to be beside a table, and for a tool of iron beside a furnace, too.
    """
    k = action - Action.WOOD_PICKAXE
    stone, iron = RECIPES[k, RECIPE_STONE], RECIPES[k, RECIPE_IRON]
    has_all = s.inventory[Item.WOOD] >= 1 and s.inventory[Item.STONE] >= stone
    has_all = has_all and s.inventory[Item.IRON] >= iron and s.inventory[Item.COAL] >= iron
    if has_all and is_beside(s, Block.TABLE) and (iron == 0 or is_beside(s, Block.FURNACE)):
        s.inventory[Item.WOOD] -= 1
        s.inventory[Item.STONE] -= stone
        s.inventory[Item.IRON] -= iron
        s.inventory[Item.COAL] -= iron
        collect(s, RECIPES[k, RECIPE_ITEM], RECIPES[k, RECIPE_ACHIEVEMENT])


# ---------------------------------------------------------------- the cell in front


def strike(mobs: Any, row: int, column: int, damage: int) -> int:
    """Hit the first living mob in a cell, and return MISSED, HIT or DEFEATED.

    As in the package, every mob whose health is left lives after any `DO`: one that had vanished in
    the distance, too, until `mobs.go_to` sees how far away it is.
    """
    outcome = MISSED
    for k in range(len(mobs)):
        is_there = mobs[k, ROW] == row and mobs[k, COLUMN] == column and mobs[k, ALIVE] == 1
        if is_there and outcome == MISSED:
            mobs[k, HEALTH] -= damage
            outcome = HIT if mobs[k, HEALTH] > 0 else DEFEATED
        mobs[k, ALIVE] = 1 if mobs[k, HEALTH] > 0 else 0
    return outcome


def fight(s: Any, row: int, column: int) -> bool:
    """Hit what is in a cell, eat it if it was a cow, and return whether there was something."""
    swords = max(2 * s.inventory[Item.WOOD_SWORD], 3 * s.inventory[Item.STONE_SWORD])
    damage = max(1, swords, 5 * s.inventory[Item.IRON_SWORD])
    zombie = strike(s.zombies, row, column, damage)
    cow = strike(s.cows, row, column, damage)
    skeleton = strike(s.skeletons, row, column, damage)
    if zombie == DEFEATED:
        s.achievements[Achievement.DEFEAT_ZOMBIE] = True
    if cow == DEFEATED:
        s.achievements[Achievement.EAT_COW] = True
        s.food, s.hunger = min(s.food + 6, MOST), 0.0
    if skeleton == DEFEATED:
        s.achievements[Achievement.DEFEAT_SKELETON] = True
    if zombie == DEFEATED or cow == DEFEATED or skeleton == DEFEATED:
        s.mob_map[row, column] = False
    return zombie != MISSED or cow != MISSED or skeleton != MISSED


def collect(s: Any, item: int, achievement: int) -> None:
    """Add one to an item of the inventory, and mark an achievement as reached."""
    s.inventory[item] += 1
    s.achievements[achievement] = True


def plant_at(s: Any, row: int, column: int) -> int:
    """Return the number of the plant in a cell, in `s.plants`; 0 if there is none."""
    for k in range(len(s.plants)):
        if s.plants[k, ROW] == row and s.plants[k, COLUMN] == column:
            return k
    return 0


def interact(s: Any, rng: Rng) -> None:
    """Let the player fight, gather, drink or eat what is in front of it, if it has the tool."""
    row, column = s.row + MOVES[s.direction, 0], s.column + MOVES[s.direction, 1]
    if fight(s, row, column) or not is_inside(row, column):
        return
    block = s.map[row, column]
    for k in range(len(ORES)):
        if block == ORES[k, ORE_BLOCK] and s.inventory[ORES[k, ORE_TOOL]] > 0:
            s.map[row, column] = Block.PATH
            collect(s, ORES[k, ORE_ITEM], ORES[k, ORE_ACHIEVEMENT])
    if block == Block.TREE:
        s.map[row, column] = Block.GRASS
        collect(s, Item.WOOD, Achievement.COLLECT_WOOD)
    elif block == Block.GRASS and rng.uniform(SAPLING) < SAPLING_CHANCE:
        collect(s, Item.SAPLING, Achievement.COLLECT_SAPLING)
    elif block == Block.WATER:
        s.drink, s.thirst = min(s.drink + 1, MOST), 0.0
        s.achievements[Achievement.COLLECT_DRINK] = True
    elif block == Block.RIPE_PLANT:
        s.map[row, column] = Block.PLANT
        s.plants[plant_at(s, row, column), AGE] = 0
        s.food, s.hunger = min(s.food + 4, MOST), 0.0
        s.achievements[Achievement.EAT_PLANT] = True


def sow(s: Any, row: int, column: int) -> None:
    """Let a plant grow in a cell; those after the tenth stay as they are."""
    for k in range(len(s.plants)):
        if s.plants[k, PLANTED] == 0:
            s.plants[k, ROW], s.plants[k, COLUMN] = row, column
            s.plants[k, PLANTED], s.plants[k, AGE] = 1, 0
            return


def place(s: Any, action: int) -> None:
    """Put the block of an action in front of the player, if it has what that takes."""
    row, column = s.row + MOVES[s.direction, 0], s.column + MOVES[s.direction, 1]
    if not is_inside(row, column) or is_taken(s, row, column):
        return
    block = s.map[row, column]
    is_open = not SOLID[block]
    if action == Action.PLACE_TABLE and is_open and s.inventory[Item.WOOD] >= 2:
        s.map[row, column] = Block.TABLE
        s.inventory[Item.WOOD] -= 2
        s.achievements[Achievement.PLACE_TABLE] = True
    elif action == Action.PLACE_FURNACE and is_open and s.inventory[Item.STONE] > 0:
        s.map[row, column] = Block.FURNACE
        s.inventory[Item.STONE] -= 1
        s.achievements[Achievement.PLACE_FURNACE] = True
    elif action == Action.PLACE_STONE and s.inventory[Item.STONE] > 0:
        if is_open or block == Block.WATER:
            s.map[row, column] = Block.STONE
            s.inventory[Item.STONE] -= 1
            s.achievements[Achievement.PLACE_STONE] = True
    elif action == Action.PLACE_PLANT and block == Block.GRASS and s.inventory[Item.SAPLING] > 0:
        s.map[row, column] = Block.PLANT
        s.inventory[Item.SAPLING] -= 1
        s.achievements[Achievement.PLACE_PLANT] = True
        sow(s, row, column)


def walk(s: Any, action: int) -> None:
    """Turn the player to a direction, and let it go there if the cell is free, or lava."""
    row, column = s.row + MOVES[action, 0], s.column + MOVES[action, 1]
    if is_free(s, row, column) or block_at(s, row, column) == Block.LAVA:
        s.row, s.column = row, column
    s.direction = action


# ---------------------------------------------------------------- time


def grow(s: Any) -> None:
    """Let all plants grow older by a step, and ripen at `RIPE`."""
    for k in range(len(s.plants)):
        if s.plants[k, PLANTED] == 1:
            s.plants[k, AGE] += 1
            if s.plants[k, AGE] >= RIPE:
                s.map[s.plants[k, ROW], s.plants[k, COLUMN]] = Block.RIPE_PLANT


def fall_asleep_or_wake(s: Any, action: int) -> None:
    """Let the player fall asleep by its action if it is tired, or wake up if it is not."""
    s.is_sleeping = s.is_sleeping or (action == Action.SLEEP and s.energy < MOST)
    if s.is_sleeping and s.energy >= MOST:
        s.is_sleeping = False
        s.achievements[Achievement.WAKE_UP] = True


def live(s: Any) -> None:
    """Let hunger, thirst and fatigue grow, which take food, drink and energy, and change health.

    Health grows slowly while all three are above 0, and falls otherwise.
    """
    pace = 0.5 if s.is_sleeping else 1.0
    s.hunger += pace
    if s.hunger > 25.0:
        s.food, s.hunger = max(s.food - 1, 0), 0.0
    s.thirst += pace
    if s.thirst > 20.0:
        s.drink, s.thirst = max(s.drink - 1, 0), 0.0
    s.fatigue = min(s.fatigue - 1.0, 0.0) if s.is_sleeping else s.fatigue + 1.0
    if s.fatigue > 30.0:
        s.energy, s.fatigue = max(s.energy - 1, 0), 0.0
    elif s.fatigue < -10.0:
        s.energy, s.fatigue = min(s.energy + 1, MOST), 0.0
    if s.food > 0 and s.drink > 0 and (s.energy > 0 or s.is_sleeping):
        s.recover += 2.0 if s.is_sleeping else 1.0
    else:
        s.recover -= pace
    if s.recover > 25.0:
        s.health, s.recover = min(s.health + 1, MOST), 0.0
    elif s.recover < -15.0:
        s.health, s.recover = s.health - 1, 0.0

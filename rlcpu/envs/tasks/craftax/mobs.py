"""Zombies, cows, skeletons and arrows of Craftax-Classic: how they move, attack and appear.

Mobs that are not alive walk as the others do, but nothing meets them: the package moves all, and a
`DO` of the player brings those back that vanished with some health left, where they are then.

A `mob` here is a row of `s.zombies`, `s.cows` or `s.skeletons`, five numbers by `ROW`, `COLUMN`,
`ALIVE`, `HEALTH` and `COOLDOWN`; an `arrow` is one of `s.arrows`. `k` is the number of its first
random number in this step: `rng.uniform(k)`, or `rng.integers(k, n)` from 0 to n - 1. `way` is a
direction, a row of `MOVES`.
"""

from typing import Any, NamedTuple

from rlcpu.envs.tasks.craftax.state import (
    ALIVE,
    COLUMN,
    COOLDOWN,
    DOWNWARDS,
    HEALTH,
    MOVES,
    RIGHTWARDS,
    ROW,
    SIZE,
    SOLID,
    Achievement,
    Block,
    Params,
    block_at,
    distance,
    is_free,
    is_inside,
    is_taken,
)
from rlcpu.kernels.machine.random import Rng

# Random numbers of a step: three for each zombie and skeleton, one for each cow; number 0 is the
# player's, and those from 19 on are for new mobs.
ZOMBIES, COWS, SKELETONS = 1, 10, 13
MOVE, AXIS, MOOD = range(3)


def move_to_player(s: Any, mob: Any, rng: Rng, k: int) -> tuple[int, int]:
    """Return a mob's step to the player, (rows down, columns to the right).

    It goes along the axis on which the player is farther away; if both are equal, random number
    `k` chooses.
    """
    down, right = s.row - mob[ROW], s.column - mob[COLUMN]
    if abs(down) > abs(right) or (abs(down) == abs(right) and rng.uniform(k) >= 0.5):
        return min(max(down, -1), 1), 0
    return 0, min(max(right, -1), 1)


def go_to(s: Any, mob: Any, row: int, column: int, params: Params) -> None:
    """Move a mob to a cell if that is free; let it vanish if it was far from the player."""
    is_near = distance(s, mob[ROW], mob[COLUMN]) < int(params.mob_despawn_distance)
    can_go, is_alive = is_free(s, row, column), mob[ALIVE] == 1
    if is_alive:
        s.mob_map[mob[ROW], mob[COLUMN]] = False
    if can_go:
        mob[ROW], mob[COLUMN] = row, column
    if is_alive and is_near:
        s.mob_map[mob[ROW], mob[COLUMN]] = True
    else:
        mob[ALIVE] = 0


def move_zombie(s: Any, mob: Any, rng: Rng, k: int, params: Params) -> None:
    """Let a zombie attack from beside the player, else come nearer, or go anywhere.

    An attack takes more health from a sleeping player, and wakes it.
    """
    away = distance(s, mob[ROW], mob[COLUMN])
    way = 1 + rng.integers(k + MOVE, 4)
    down, right = MOVES[way, 0], MOVES[way, 1]
    if away < 10 and rng.uniform(k + MOOD) < 0.75:
        down, right = move_to_player(s, mob, rng, k + AXIS)
    if away == 1 and mob[COOLDOWN] <= 0 and mob[ALIVE] == 1:
        down, right = 0, 0
        mob[COOLDOWN] = 5
        s.health -= 7 if s.is_sleeping else 2
        if s.is_sleeping:
            s.is_sleeping = False
            s.achievements[Achievement.WAKE_UP] = True
    else:
        mob[COOLDOWN] -= 1
    go_to(s, mob, mob[ROW] + down, mob[COLUMN] + right, params)


def move_cow(s: Any, mob: Any, rng: Rng, k: int, params: Params) -> None:
    """Let a cow go anywhere, or in half of the steps nowhere."""
    way = 1 + rng.integers(k, 8)
    way = way if way <= 4 else 0
    go_to(s, mob, mob[ROW] + MOVES[way, 0], mob[COLUMN] + MOVES[way, 1], params)


def move_skeleton(s: Any, mob: Any, rng: Rng, k: int, params: Params) -> None:
    """Let a skeleton shoot or walk.

    It shoots from 4 or 5 cells away, or from nearer where it cannot step; in 15 % of the steps it
    comes nearer from afar or goes back from nearby, in the others it goes anywhere.
    """
    away = distance(s, mob[ROW], mob[COLUMN])
    way = 1 + rng.integers(k + MOVE, 4)
    down, right = MOVES[way, 0], MOVES[way, 1]
    nearer_down, nearer_right = move_to_player(s, mob, rng, k + AXIS)
    if rng.uniform(k + MOOD) > 0.85:
        if away >= 10:
            down, right = nearer_down, nearer_right
        elif away <= 3:
            down, right = -nearer_down, -nearer_right
    aims = away == 4 or away == 5
    aims = aims or (away <= 3 and not is_free(s, mob[ROW] + down, mob[COLUMN] + right))
    if aims and mob[COOLDOWN] <= 0 and mob[ALIVE] == 1:
        shoot(s, mob[ROW], mob[COLUMN], nearer_down, nearer_right)
        down, right = 0, 0
        mob[COOLDOWN] = 4
    else:
        mob[COOLDOWN] -= 1
    go_to(s, mob, mob[ROW] + down, mob[COLUMN] + right, params)


def shoot(s: Any, row: int, column: int, down: int, right: int) -> None:
    """Let an arrow, if one of the three is free, fly from a cell by (down, right) in a step."""
    for k in range(len(s.arrows)):
        if s.arrows[k, ALIVE] == 0:
            s.arrows[k, ROW], s.arrows[k, COLUMN], s.arrows[k, ALIVE] = row, column, 1
            s.arrows[k, DOWNWARDS], s.arrows[k, RIGHTWARDS] = down, right
            return


def move_arrow(s: Any, arrow: Any) -> None:
    """Move an arrow one cell on: it may hit the player, or break a table or furnace.

    It is gone when it meets an obstacle, a mob or the player; over water it flies on.
    """
    row, column = arrow[ROW] + arrow[DOWNWARDS], arrow[COLUMN] + arrow[RIGHTWARDS]
    arrow[ROW], arrow[COLUMN] = row, column
    if arrow[ALIVE] == 0:
        return
    if row == s.row and column == s.column:
        s.health -= 2
        s.is_sleeping = False
    block = block_at(s, row, column)
    if (block == Block.TABLE or block == Block.FURNACE) and row < SIZE and column < SIZE:
        s.map[row, column] = Block.PATH
    is_stopped = not is_inside(row, column) or (SOLID[block] and block != Block.WATER)
    if is_stopped or is_taken(s, row, column):
        arrow[ALIVE] = 0


def move_all(s: Any, rng: Rng, params: Params) -> None:
    """Move zombies, cows, skeletons and arrows, one after the other."""
    for k in range(len(s.zombies)):
        move_zombie(s, s.zombies[k], rng, ZOMBIES + 3 * k, params)
    for k in range(len(s.cows)):
        move_cow(s, s.cows[k], rng, COWS + k, params)
    for k in range(len(s.skeletons)):
        move_skeleton(s, s.skeletons[k], rng, SKELETONS + 3 * k, params)
    for k in range(len(s.arrows)):
        move_arrow(s, s.arrows[k])


# ---------------------------------------------------------------- new mobs


class MobKind(NamedTuple):
    """Cells in which a kind of mobs appears."""

    nearest: int  # cells from the player, at least
    on_grass: bool  # whether it does so there
    on_path: bool
    number: int  # of the first of its two random numbers of a step


COW = MobKind(nearest=4, on_grass=True, on_path=False, number=19)
ZOMBIE = MobKind(nearest=10, on_grass=True, on_path=True, number=21)
SKELETON = MobKind(nearest=10, on_grass=False, on_path=True, number=23)


def can_appear(s: Any, kind: MobKind, row: int, column: int) -> bool:
    """Return whether a mob of a kind may appear in a cell: its block fits, and nothing is near."""
    block = s.map[row, column]
    fits = (block == Block.GRASS and kind.on_grass) or (block == Block.PATH and kind.on_path)
    return fits and not s.mob_map[row, column] and distance(s, row, column) >= kind.nearest


def find_place(s: Any, kind: MobKind, reach: int, number: int) -> tuple[int, int, int]:
    """Return (row, column, count): cell `number`, from 0 by rows, of those where a mob may appear.

    They are at most `reach` steps from the player. Where there are no more than `number`, the cell
    is (-1, -1) and `count` is how many there are.
    """
    count = 0
    for row in range(max(s.row - reach, 0), min(s.row + reach + 1, SIZE)):
        wide = reach - abs(row - s.row)
        for column in range(max(s.column - wide, 0), min(s.column + wide + 1, SIZE)):
            if can_appear(s, kind, row, column):
                if count == number:
                    return row, column, count
                count += 1
    return -1, -1, count


def appear(
    s: Any, mobs: Any, kind: MobKind, health: int, chance: float, reach: int, rng: Rng
) -> None:
    """Let a new mob of one kind appear with some chance, if there is a place for it.

    `mobs` are the rows of all mobs of the kind: none appears if all are alive. The new one has
    `health`, and is at most `reach` steps from the player.
    """
    free = -1  # number of the first mob that is not alive
    for k in range(len(mobs) - 1, -1, -1):
        free = k if mobs[k, ALIVE] == 0 else free
    if free < 0:  # the package marks the first one's cell again, which another may have left
        s.mob_map[mobs[0, ROW], mobs[0, COLUMN]] = True
        return
    if rng.uniform(kind.number) >= chance:
        return
    # There are fewer cells than that number: this counts them.
    row, column, count = find_place(s, kind, reach, SIZE * SIZE)
    if count > 0:
        row, column, _ = find_place(s, kind, reach, rng.integers(kind.number + 1, count))
        mobs[free, ROW], mobs[free, COLUMN] = row, column
        mobs[free, HEALTH], mobs[free, ALIVE] = health, 1
        s.mob_map[row, column] = True


def appear_all(s: Any, rng: Rng, params: Params) -> None:
    """Let cows, zombies (more in the dark) and skeletons appear, at most one of each."""
    reach, dark = int(params.mob_despawn_distance) - 1, 1.0 - s.light
    zombies = params.spawn_zombie_base_chance + params.spawn_zombie_night_chance * dark * dark
    appear(s, s.cows, COW, int(params.cow_health), params.spawn_cow_chance, reach, rng)
    appear(s, s.zombies, ZOMBIE, int(params.zombie_health), zombies, reach, rng)
    chance = params.spawn_skeleton_chance
    appear(s, s.skeletons, SKELETON, int(params.skeleton_health), chance, reach, rng)

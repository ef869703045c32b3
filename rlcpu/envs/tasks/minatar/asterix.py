"""MinAtar/Asterix-v1: collect gold, and keep away from enemies.

Gold and enemies enter from the sides, at most one in each of the rows 1 to 8, and cross the board.
Gold gives a reward of 1, an enemy ends the episode. They come and move ever faster.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minatar.common`.
"""

from typing import NamedTuple

from rlcpu.envs.tasks.minatar.common import (
    COLUMN,
    NONE,
    ROW,
    Params,
    behind,
    cell,
    game,
    moved,
    sticky,
)
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

RAMP_INTERVAL = 100
LAST_RAMP = 9


class State(NamedTuple):
    """Boards are sets of cells: bit 10 * y + x is column x, row y from the top. Timers run to 0."""

    x: int  # of the player, 0 to 9
    y: int  # 1 to 8
    enemies: Board
    gold: Board
    right: Board  # rows whose enemy or gold moves to the right
    spawn_timer: int
    move_timer: int
    ramp_timer: int
    ramp: int  # 0 to 9: how often the game has become faster
    last_action: int


def reset(rng: Rng, params: Params) -> State:
    """Return a state with the player in the middle of an empty board."""
    return State(
        x=5, y=5, enemies=NONE, gold=NONE, right=NONE, spawn_timer=10, move_timer=5,
        ramp_timer=RAMP_INTERVAL, ramp=0, last_action=0,
    )  # fmt: skip


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Move the player: 0 stays; 1, 2, 3 and 4 move to the left, up, right and down.

    All others move every few steps. Random numbers 0 to 3 are whether the action sticks, and
    direction, kind and row of what enters.
    """
    action = sticky(action, s.last_action, params, rng)
    spawns, moves = s.spawn_timer <= 0, s.move_timer <= 0
    row = free_row(s.enemies | s.gold, rng) if spawns else NONE
    to_right, is_gold = rng.integers(1, 2) == 0, rng.integers(2, 3) == 0
    entry = row & (COLUMN if to_right else COLUMN << 9)
    right = s.right | row if to_right else s.right & ~row
    gold = s.gold | entry if is_gold else s.gold
    enemies = s.enemies if is_gold else s.enemies | entry

    x = min(max(s.x + (action == 3) - (action == 1), 0), 9)
    y = min(max(s.y + (action == 4) - (action == 2), 1), 8)
    player = cell(y, x)
    has_gold, lost = bool(gold & player), bool(enemies & player)
    gold = gold & ~player
    if moves:
        gold, enemies = moved(gold, right), moved(enemies, right)
    has_gold, lost = has_gold or bool(gold & player), lost or bool(enemies & player)
    gold = gold & ~player

    spawn_timer = (10 - s.ramp if spawns else s.spawn_timer) - 1
    move_timer = (5 - s.ramp // 2 if moves else s.move_timer) - 1
    ramp, ramp_timer = s.ramp, s.ramp_timer
    if params.difficulty_ramping and ramp < LAST_RAMP:
        ramp = ramp + 1 if s.ramp_timer < 0 else ramp
        ramp_timer = RAMP_INTERVAL if s.ramp_timer < 0 else ramp_timer - 1
    after = State(x, y, enemies, gold, right, spawn_timer, move_timer, ramp_timer, ramp, action)
    return after, 1.0 if has_gold else 0.0, lost


def free_row(taken: Board, rng: Rng) -> Board:
    """Return one of the rows 1 to 8 that have nothing, each as likely; none if there is none."""
    # Free rows above the one to return; each cell of `taken` is in a row of its own.
    free_before = rng.integers(3, max(8 - taken.count(), 1))
    row = NONE
    for y in range(1, 9):
        is_free = not (taken & (ROW << 10 * y))
        row = ROW << 10 * y if is_free and free_before == 0 else row
        free_before = free_before - 1 if is_free else free_before
    return row


def observe(s: State, params: Params) -> tuple[Board, Board, Board, Board]:
    """Return the planes player, enemies, trails, gold."""
    return cell(s.y, s.x), s.enemies, behind(s.enemies | s.gold, s.right), s.gold


DYNAMICS = game("MinAtar/Asterix-v1", step, reset, observe, planes=4, actions=5)

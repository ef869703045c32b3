"""MinAtar/SpaceInvaders-v1: shoot aliens that come down, row by row, and shoot back.

Each alien gives a reward of 1. They move faster the fewer they are, and each new wave of them is
faster than the one before. The episode ends when an alien or its bullet hits the cannon.
Source: see `rlcpu.envs.tasks.minatar.common`.
"""

from typing import NamedTuple

from rlcpu.envs.tasks.minatar.common import ALL, COLUMN, NONE, ROW, Params, cell, game, sticky
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

WAVE = Board(sum(1 << 10 * y + x for y in range(4) for x in range(2, 8)))
COOL_DOWN = 5  # steps between two shots of the cannon
ALIEN_COOL_DOWN = 10
SLOWEST, FASTEST = 12, 6  # steps between two moves of a wave


class State(NamedTuple):
    """Boards are sets of cells: bit 10 * y + x is column x, row y from the top. Timers run to 0."""

    x: int  # column of the cannon, which is in row 9
    bullets: Board  # the cannon's
    alien_bullets: Board
    aliens: Board
    direction: int  # -1 or 1: the aliens move to the left or right
    shot_timer: int
    alien_move_timer: int
    alien_shot_timer: int
    ramp: int  # 0 to 6: how much faster waves have become
    last_action: int


def reset(rng: Rng, params: Params) -> State:
    """Return a wave of 24 aliens that move to the left."""
    return State(
        x=5, bullets=NONE, alien_bullets=NONE, aliens=WAVE, direction=-1, shot_timer=0,
        alien_move_timer=SLOWEST, alien_shot_timer=ALIEN_COOL_DOWN, ramp=0, last_action=0,
    )  # fmt: skip


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Move the cannon: 0 stays, 1 and 2 move to the left and right, 3 shoots; and the bullets.

    Aliens move every few steps. Random number 0 decides whether the action sticks.
    """
    action = sticky(action, s.last_action, params, rng)
    shoots = action == 3 and s.shot_timer <= 0
    bullets = (s.bullets | cell(9, s.x) if shoots else s.bullets) >> 10
    x = min(max(s.x + (action == 2) - (action == 1), 0), 9)
    cannon = cell(9, x)
    alien_bullets = (s.alien_bullets << 10) & ALL
    lost = bool((alien_bullets | s.aliens) & cannon)

    aliens, direction, moves = s.aliens, s.direction, s.alien_move_timer <= 0
    if moves:
        lead = COLUMN if direction < 0 else COLUMN << 9
        if aliens & lead:
            direction = -direction
            lost = lost or bool(aliens & (ROW << 90))
            aliens = ((aliens << 10) & ALL) | (aliens >> 90)  # a row down, the last to the top
        else:
            aliens = aliens >> 1 if direction < 0 else aliens << 1
        lost = lost or bool(aliens & cannon)
    move_timer = min(s.aliens.count(), SLOWEST - s.ramp) if moves else s.alien_move_timer
    alien_shoots = s.alien_shot_timer <= 0
    alien_bullets = alien_bullets | lowest_near(aliens, x) if alien_shoots else alien_bullets

    hit = aliens & bullets
    aliens, bullets, ramp = aliens & ~hit, bullets & ~hit, s.ramp
    if not aliens:
        aliens = WAVE
        faster = params.difficulty_ramping and ramp < SLOWEST - FASTEST
        ramp = ramp + 1 if faster else ramp
    shot_timer = max((COOL_DOWN if shoots else s.shot_timer) - 1, 0)
    alien_shot_timer = (ALIEN_COOL_DOWN if alien_shoots else s.alien_shot_timer) - 1
    after = State(
        x, bullets, alien_bullets, aliens, direction,
        shot_timer, move_timer - 1, alien_shot_timer, ramp, action,
    )  # fmt: skip
    return after, float(hit.count()), lost


def lowest_near(aliens: Board, x: int) -> Board:
    """Return the lowest alien of the column with aliens nearest to x; of two columns, the left."""
    above = (aliens >> 10) | (aliens >> 20)  # all cells one or two rows above an alien
    above = above | (above >> 20) | (above >> 40)  # one to six rows
    above = above | (above >> 40)  # one to ten rows, which are all
    lowest = aliens & ~above
    least, nearest = 10, NONE
    for other in range(10):
        distance = abs(other - x)
        is_nearer = distance < least and bool(lowest & (COLUMN << other))
        least = distance if is_nearer else least
        nearest = COLUMN << other if is_nearer else nearest
    return lowest & nearest


def observe(s: State, params: Params) -> tuple[Board, ...]:
    """Return planes: cannon, aliens, aliens moving left, moving right, bullets, aliens' bullets."""
    left = s.aliens if s.direction < 0 else NONE
    return cell(9, s.x), s.aliens, left, s.aliens & ~left, s.bullets, s.alien_bullets


DYNAMICS = game("MinAtar/SpaceInvaders-v1", step, reset, observe, planes=6, actions=4)

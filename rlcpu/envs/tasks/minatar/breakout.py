"""MinAtar/Breakout-v1: a paddle keeps a ball in play that breaks bricks.

The ball moves along diagonals. Each brick gives a reward of 1; when all are broken, there are new
ones as soon as the ball comes down. The episode ends when the ball passes the paddle.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minatar.common`.
"""

from typing import NamedTuple

from rlcpu.envs.tasks.minatar.common import ROW, Params, cell, game, sticky
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

BRICKS = (ROW << 10) | (ROW << 20) | (ROW << 30)


class State(NamedTuple):
    """Columns count from the left, rows from the top, both from 0 to 9."""

    ball_x: int
    ball_y: int
    last_x: int  # where the ball was before
    last_y: int
    dx: int  # -1 or 1: to the left or right
    dy: int  # -1 or 1: up or down
    paddle: int  # its column; it is in row 9
    strike: bool  # the ball has just broken a brick, and passes through the next
    bricks: Board
    last_action: int


def reset(rng: Rng, params: Params) -> State:
    """Place the ball left or right below the bricks; it falls towards the middle."""
    right = rng.integers(0, 2)
    x, dx = 9 * right, 1 - 2 * right
    return State(
        ball_x=x, ball_y=3, last_x=x, last_y=3, dx=dx, dy=1,
        paddle=4, strike=False, bricks=BRICKS, last_action=0,
    )  # fmt: skip


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Move the ball, and the paddle: 0 stays, 1 moves to the left, 2 to the right.

    Random number 0 decides whether the action sticks.
    """
    action = sticky(action, s.last_action, params, rng)
    paddle = min(max(s.paddle + (action == 2) - (action == 1), 0), 9)
    dx, dy, bricks, reward, strike, lost = s.dx, s.dy, s.bricks, 0.0, False, False
    x, y = s.ball_x + dx, s.ball_y + dy
    if x < 0 or x > 9:
        x = min(max(x, 0), 9)
        dx = -dx
    if y < 0:
        y = 0
        dy = -dy
    elif bricks & cell(y, x):
        strike = True
        if not s.strike:
            reward = 1.0
            bricks = bricks & ~cell(y, x)
            y = s.ball_y
            dy = -dy
    elif y == 9:
        # The paddle below the ball returns it upwards, one where the ball goes, sideways too.
        bricks = bricks if bricks else BRICKS
        lost = s.ball_x != paddle and x != paddle
        dx = -dx if s.ball_x != paddle and not lost else dx
        dy = dy if lost else -dy
        y = y if lost else s.ball_y
    after = State(x, y, s.ball_x, s.ball_y, dx, dy, paddle, strike, bricks, action)
    return after, reward, lost


def observe(s: State, params: Params) -> tuple[Board, Board, Board, Board]:
    """Return the planes paddle, ball, where the ball was, bricks."""
    return cell(9, s.paddle), cell(s.ball_y, s.ball_x), cell(s.last_y, s.last_x), s.bricks


DYNAMICS = game("MinAtar/Breakout-v1", step, reset, observe, planes=4, actions=3)

"""MiniGrid-FourRooms-v0: find the goal in one of four rooms, which gaps in the walls connect.

The reward is 1, less 0.9 times the part of the 100 steps that went by.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minigrid.view`.
"""

from typing import NamedTuple

from rlcpu.envs.contract.dynamics import NoParams
from rlcpu.envs.tasks.minigrid import view
from rlcpu.envs.tasks.pictures import BLACK, GREEN, GREY, Picture, draw, draw_arrow
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

SIZE, MIDDLE = 19, 9
LIMIT = 100.0


class State(NamedTuple):
    """Cells count from 0, the wall, from the left and from the top."""

    x: int
    y: int
    direction: int  # 0 right, 1 down, 2 left, 3 up
    goal_x: int
    goal_y: int
    top: int  # row of the gap in the wall between the upper rooms, 1 to 8
    left: int  # column of that between the left rooms
    right: int  # column of that between the right rooms, 10 to 17
    bottom: int  # row of that between the lower rooms
    steps: int  # since the start


def reset(rng: Rng, params: NoParams) -> State:
    """Return a world with gaps, agent and goal anywhere, by the random numbers 0 to 6."""
    top, left = 1 + rng.integers(0, 8), 1 + rng.integers(1, 8)
    right, bottom = 10 + rng.integers(2, 8), 10 + rng.integers(3, 8)
    start, other = rng.integers(4, 260), rng.integers(6, 259)
    other = other + 1 if other >= start else other  # the goal's cell, not the agent's
    x, y = free_cell(start, top, left, right, bottom)
    goal_x, goal_y = free_cell(other, top, left, right, bottom)
    return State(x, y, rng.integers(5, 4), goal_x, goal_y, top, left, right, bottom, 0)


def free_cell(k: int, top: int, left: int, right: int, bottom: int) -> tuple[int, int]:
    """Return (x, y) of free cell k: 0 to 255 are in the rooms, 256 to 259 are the gaps.

    The other arguments are fields of `State`.
    """
    x, y = 1 + k % 16, 1 + k // 16
    x = x + 1 if x >= MIDDLE else x
    y = y + 1 if y >= MIDDLE else y
    if k >= 256:
        x = left if k == 257 else right if k == 258 else MIDDLE
        y = top if k == 256 else bottom if k == 259 else MIDDLE
    return x, y


def is_free(s: State, x: int, y: int) -> bool:
    """Tell whether a cell is no wall: it is in a room, or a gap of a wall."""
    in_room = 0 < x < SIZE - 1 and 0 < y < SIZE - 1 and x != MIDDLE and y != MIDDLE
    in_upright_wall = x == MIDDLE and (y == s.top or y == s.bottom)
    in_level_wall = y == MIDDLE and (x == s.left or x == s.right)
    return in_room or in_upright_wall or in_level_wall


def step(s: State, action: int, params: NoParams, rng: Rng) -> tuple[State, float, bool]:
    """Turn to the left (0) or to the right (1), or go ahead (2); others do nothing."""
    dx, dy = view.heading(s.direction)
    goes = action == 2 and is_free(s, s.x + dx, s.y + dy)
    x, y = s.x + dx if goes else s.x, s.y + dy if goes else s.y
    reaches_goal = goes and x == s.goal_x and y == s.goal_y
    reward = view.reward(reaches_goal, s.steps + 1, LIMIT)
    turned = view.turned(s.direction, action)
    gaps = s.top, s.left, s.right, s.bottom
    return State(x, y, turned, s.goal_x, s.goal_y, *gaps, s.steps + 1), reward, reaches_goal


def observe(s: State, params: NoParams) -> tuple[Board, Board, Board]:
    """Return the planes empty, wall, goal."""
    # All names below but these are cell sets, ints with a bit for each cell in view (see `view`).
    way, dx, dy = s.direction, MIDDLE - s.x, MIDDLE - s.y
    gaps = view.point(dx, s.top - s.y, way) | view.point(dx, s.bottom - s.y, way)
    gaps = gaps | view.point(s.left - s.x, dy, way) | view.point(s.right - s.x, dy, way)
    walls = view.column(dx, way) | view.row(dy, way)
    walls = walls & ~gaps | view.outside(s.x, s.y, SIZE, way)
    visible = view.visible(walls)
    goal = visible & view.point(s.goal_x - s.x, s.goal_y - s.y, way) & ~view.AGENT
    return Board(visible & ~walls & ~goal), Board(visible & walls), Board(goal)


def picture(s: State, params: NoParams) -> Picture:
    """Return the whole world, with an arrow for the agent."""
    grid = view.room(SIZE)
    grid[MIDDLE] = grid[:, MIDDLE] = GREY
    grid[[s.top, s.bottom, MIDDLE, MIDDLE], [MIDDLE, MIDDLE, s.left, s.right]] = BLACK
    grid[s.goal_y, s.goal_x] = GREEN
    return draw_arrow(draw(grid), s.y, s.x, s.direction)


DYNAMICS = view.make_world(
    kinds=3,
    limit=LIMIT,
    id="MiniGrid-FourRooms-v0",
    step=step,
    reset=reset,
    observe=observe,
    picture=picture,
)

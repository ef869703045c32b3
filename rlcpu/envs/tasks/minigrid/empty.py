"""MiniGrid-Empty-8x8-v0: find the goal in the far corner of an empty room.

The reward is 1, less 0.9 times the part of the time that went by. Walls hide nothing here.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minigrid.view`.
"""

from typing import Any, NamedTuple

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.minigrid import view
from rlcpu.envs.tasks.pictures import GREEN, Picture, draw, draw_arrow
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng


class State(NamedTuple):
    """Cells count from 0, the wall, from the left and from the top."""

    x: int
    y: int
    direction: int  # 0 right, 1 down, 2 left, 3 up
    steps: int  # since the start


class Params(NamedTuple):
    """Options."""

    random_start: bool = False  # anywhere, in any direction; else in the upper left, to the right


def empty(size: int = 8, random_start: bool = False, **fields: Any) -> Dynamics:
    """Return the environment of an empty room of `size` by `size` cells, outer walls included.

    Its functions know `size` from here; `random_start` is that of `Params`, `fields` are other
    fields of `Dynamics`.
    """
    inner, limit = size - 2, 4.0 * size * size

    def reset(rng: Rng, params: Params) -> State:
        # Any cell but the last, the goal.
        start = rng.integers(0, inner * inner - 1) if params.random_start else 0
        direction = rng.integers(1, 4) if params.random_start else 0
        return State(1 + start % inner, 1 + start // inner, direction, 0)

    def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
        """Turn to the left (0) or to the right (1), or go ahead (2); others do nothing."""
        dx, dy = view.heading(s.direction)
        x = min(max(s.x + dx, 1), inner) if action == 2 else s.x
        y = min(max(s.y + dy, 1), inner) if action == 2 else s.y
        reaches_goal = action == 2 and x == inner and y == inner
        reward = view.reward(reaches_goal, s.steps + 1, limit)
        return State(x, y, view.turned(s.direction, action), s.steps + 1), reward, reaches_goal

    def observe(s: State, params: Params) -> tuple[Board, Board, Board]:
        """Return the planes empty, wall, goal."""
        # Ints with a bit for each cell in view, of which the agent's own is shown as empty.
        walls = view.outside(s.x, s.y, size, s.direction)
        goal = view.point(inner - s.x, inner - s.y, s.direction) & ~view.AGENT
        return Board(view.ALL & ~walls & ~goal), Board(walls), Board(goal)

    def picture(s: State, params: Params) -> Picture:
        grid = view.room(size)
        grid[inner, inner] = GREEN
        return draw_arrow(draw(grid), s.y, s.x, s.direction)

    functions = {"step": step, "reset": reset, "observe": observe, "picture": picture}
    return view.make_world(kinds=3, limit=limit, params=Params(random_start), **functions, **fields)


DYNAMICS = empty(id="MiniGrid-Empty-8x8-v0")

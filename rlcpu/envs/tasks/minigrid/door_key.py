"""MiniGrid-DoorKey-8x8-v0: fetch the key, open the door, and find the goal behind it.

The reward is 1, less 0.9 times the part of the time that went by.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minigrid.view`.
"""

from typing import Any, NamedTuple

from rlcpu.envs.contract.dynamics import Dynamics, NoParams
from rlcpu.envs.tasks.minigrid import view
from rlcpu.envs.tasks.pictures import (
    BLACK,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    YELLOW,
    Picture,
    draw,
    draw_arrow,
)
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

OPEN, CLOSED, LOCKED = 0, 1, 2


class State(NamedTuple):
    """Cells count from 0, the wall, from the left and from the top."""

    x: int
    y: int
    direction: int  # 0 right, 1 down, 2 left, 3 up
    split: int  # column of the wall with the door
    door_y: int
    door: int  # 0 open, 1 closed, 2 locked
    key_x: int  # 0 if the agent carries the key
    key_y: int
    steps: int  # since the start


def place_all(rng: Rng, size: int) -> State:
    """Return a new world of `size` by `size` cells.

    Agent and key are anywhere in the room to the left of the wall with the door. The random numbers
    0 to 4 are for the wall, the agent's cell and direction, the door and the key.
    """
    inner = size - 2
    split = 2 + rng.integers(0, size - 4)
    cells = (split - 1) * inner  # free ones left of the wall, numbered column by column
    start, key = rng.integers(1, cells), rng.integers(4, cells - 1)
    key = key + 1 if key >= start else key  # not where the agent is
    return State(
        x=1 + start // inner,
        y=1 + start % inner,
        direction=rng.integers(2, 4),
        split=split,
        door_y=1 + rng.integers(3, size - 3),
        door=LOCKED,
        key_x=1 + key // inner,
        key_y=1 + key % inner,
        steps=0,
    )


def act(s: State, action: int, size: int) -> tuple[State, bool]:
    """Return the world after an action, and whether the agent has reached the goal.

    Actions are 0 to turn left, 1 right, 2 to go ahead, 3 to take the key, 4 to drop it, and 5 to
    open or close the door.
    """
    dx, dy = view.heading(s.direction)
    x, y = s.x + dx, s.y + dy  # in front of the agent
    at_door = x == s.split and y == s.door_y
    at_key = x == s.key_x and y == s.key_y
    at_goal = x == size - 2 and y == size - 2
    inside = 0 < x < size - 1 and 0 < y < size - 1 and (x != s.split or at_door)
    goes = action == 2 and inside and not at_key and (not at_door or s.door == OPEN)
    carries = s.key_x == 0
    drops = action == 4 and carries and inside and not at_door and not at_goal
    takes = action == 3 and at_key and not carries
    turns = action == 5 and at_door and (s.door != LOCKED or carries)
    x_after, y_after = x if goes else s.x, y if goes else s.y
    door = (CLOSED if s.door == OPEN else OPEN) if turns else s.door
    key_x = x if drops else 0 if takes else s.key_x
    key_y = y if drops else 0 if takes else s.key_y
    direction = view.turned(s.direction, action)
    after = State(x_after, y_after, direction, s.split, s.door_y, door, key_x, key_y, s.steps + 1)
    return after, goes and at_goal


def planes_of(s: State, size: int) -> tuple[Board, ...]:
    """Return the planes empty, wall, goal, key; open, closed and locked door.

    Names but `way` and `dx` are cell sets, ints with a bit for each cell in view (see `view`). The
    agent's cell, `view.AGENT`, is shown as empty, or has the key that the agent carries.
    """
    way, dx = s.direction, s.split - s.x
    door = view.point(dx, s.door_y - s.y, way)
    walls = view.column(dx, way) & ~door | view.outside(s.x, s.y, size, way)
    visible = view.visible(walls if s.door == OPEN else walls | door)
    door = door & visible & ~view.AGENT
    key_on_floor = view.point(s.key_x - s.x, s.key_y - s.y, way) & visible
    key = view.AGENT if s.key_x == 0 else key_on_floor
    goal = view.point(size - 2 - s.x, size - 2 - s.y, way) & visible & ~view.AGENT
    return (
        Board(visible & ~walls & ~door & ~key & ~goal),
        Board(visible & walls),
        Board(goal),
        Board(key),
        Board(door if s.door == OPEN else 0),
        Board(door if s.door == CLOSED else 0),
        Board(door if s.door == LOCKED else 0),
    )


def door_key(size: int = 8, **fields: Any) -> Dynamics:
    """Return the environment of a world of `size` by `size` cells, outer walls included.

    Its functions know `size` from here; `fields` are other fields of `Dynamics`.
    """
    limit = 10.0 * size * size

    def reset(rng: Rng, params: NoParams) -> State:
        return place_all(rng, size)

    def step(s: State, action: int, params: NoParams, rng: Rng) -> tuple[State, float, bool]:
        """Turn left (0) or right (1), go (2), take (3) or drop (4) the key, or use the door (5)."""
        after, reaches_goal = act(s, action, size)
        return after, view.reward(reaches_goal, after.steps, limit), reaches_goal

    def observe(s: State, params: NoParams) -> tuple[Board, ...]:
        """Return the planes empty, wall, goal, key; open, closed and locked door."""
        return planes_of(s, size)

    def picture(s: State, params: NoParams) -> Picture:
        grid = view.room(size)
        grid[:, s.split] = GREY
        grid[s.door_y, s.split] = (BLACK, ORANGE, BROWN)[s.door]
        grid[size - 2, size - 2] = GREEN
        grid[s.key_y, s.key_x] = YELLOW  # in the corner, if it is carried
        return draw_arrow(draw(grid), s.y, s.x, s.direction)

    functions = {"step": step, "reset": reset, "observe": observe, "picture": picture}
    return view.make_world(kinds=7, limit=limit, **functions, **fields)


DYNAMICS = door_key(id="MiniGrid-DoorKey-8x8-v0")

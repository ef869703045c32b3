"""PointMaze-v0: push a point through a maze to a place that is drawn for each episode.

A step costs 1, unless the point is near the goal after it, where it may stay: episodes end by their
limit alone. Walls stop the point in the direction in which it runs into them.
Source: the map is that of Gymnasium-Robotics' PointMaze_Medium (Fu et al. 2020, "D4RL"); the motion
is simpler, that of a mass with friction.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import COLOURS, GREEN, GREY, ORANGE, PIXELS, Picture, draw, grid_of
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

#: Most of a cell's side that the point moves in one step: it passes no wall.
MAX_SPEED = 0.5


class State(NamedTuple):
    """Places in cells from the upper left corner, to the right and down; a cell's side is 1."""

    x: float
    y: float
    dx: float  # velocity, cells a step
    dy: float
    goal_x: float
    goal_y: float


class Params(NamedTuple):
    """Motion, and what is near."""

    power: float = 0.06  # velocity that an action of 1 adds in a step
    friction: float = 0.2  # share of the velocity that is lost in a step
    radius: float = 0.5  # distance from the goal that is near enough, in cells
    noise: float = 0.25  # starts and goals are as far from the middle of a cell, at most


class PlaceAndGoal(NamedTuple):
    """Place and velocity, the place, and that of the goal."""

    observation: tuple[float, float, float, float]
    achieved_goal: tuple[float, float]
    desired_goal: tuple[float, float]


def compute_reward(
    achieved_goal: tuple[float, float], desired_goal: tuple[float, float], params: Params
) -> float:
    """Return 0 near the goal, else -1."""
    dx, dy = achieved_goal[0] - desired_goal[0], achieved_goal[1] - desired_goal[1]
    return 0.0 if dx * dx + dy * dy <= params.radius * params.radius else -1.0


def accelerate(velocity: float, action: float, params: Params) -> float:
    """Return the velocity after one step."""
    push = params.power * min(max(action, -1.0), 1.0)
    return min(max((1.0 - params.friction) * velocity + push, -MAX_SPEED), MAX_SPEED)


def observe(s: State, params: Params) -> PlaceAndGoal:
    """Return place, velocity and goal."""
    place = s.x, s.y
    return PlaceAndGoal((s.x, s.y, s.dx, s.dy), place, (s.goal_x, s.goal_y))


def point_maze(rows: Any, **fields: Any) -> Dynamics:
    """Return the environment of a map: strings of # and dots, # all around, 128 cells at most.

    Its functions know walls and free cells from here; `fields` are of `Dynamics`.
    """
    letters, width, height = "".join(rows), len(rows[0]), len(rows)
    border = "".join((rows[0], rows[-1], *(row[0] + row[-1] for row in rows)))
    is_map = {*map(len, rows)} == {width} and {*letters} == {*"#."} and {*border} == {"#"}
    if not is_map or len(letters) > 128:
        raise ValueError(
            f"rows={rows!r}: expected strings of one length, # and dots, # all around, 128 in all"
        )
    walls = Board(sum(1 << cell for cell, letter in enumerate(letters) if letter == "#"))
    free = Board((1 << len(letters)) - 1) & ~walls
    num_free = free.count()

    def cell_of(x: float, y: float) -> int:
        return int(y) * width + int(x)

    def reset(rng: Rng, params: Params) -> State:
        """Draw the start and the goal, each in the middle part of a free cell."""
        start = free.nth(rng.integers(0, num_free))
        goal = free.nth(rng.integers(1, num_free))
        noise = 2.0 * params.noise
        return State(
            start % width + 0.5 + noise * (rng.uniform(2) - 0.5),
            start // width + 0.5 + noise * (rng.uniform(3) - 0.5),
            0.0,
            0.0,
            goal % width + 0.5 + noise * (rng.uniform(4) - 0.5),
            goal // width + 0.5 + noise * (rng.uniform(5) - 0.5),
        )

    def step(s: State, action: tuple[float, float], params: Params) -> tuple[State, float, bool]:
        """Push to the right and down, by -1 to 1 each; move to the right, then down."""
        dx, dy = accelerate(s.dx, action[0], params), accelerate(s.dy, action[1], params)
        hits_x = walls.test(cell_of(s.x + dx, s.y))
        x, dx = s.x if hits_x else s.x + dx, 0.0 if hits_x else dx
        hits_y = walls.test(cell_of(x, s.y + dy))
        y, dy = s.y if hits_y else s.y + dy, 0.0 if hits_y else dy
        reward = compute_reward((x, y), (s.goal_x, s.goal_y), params)
        return State(x, y, dx, dy, s.goal_x, s.goal_y), reward, False

    def picture(s: State, params: Params) -> Picture:
        image = draw(GREY * grid_of((walls,), height, width))
        down, right = (np.indices(image.shape[:2]) + 0.5) / PIXELS
        for x, y, radius, colour in (
            (s.goal_x, s.goal_y, params.radius, GREEN),
            (s.x, s.y, 0.2, ORANGE),
        ):
            image[np.hypot(right - x, down - y) <= radius] = COLOURS[colour]
        return image

    corner = np.array([width, height], np.float32)
    place, speed = Box(np.zeros(2, np.float32), corner), np.full(2, MAX_SPEED, np.float32)
    low, high = np.concatenate((place.low, -speed)), np.concatenate((place.high, speed))
    return Dynamics(
        step=step,
        reset=reset,
        observe=observe,
        picture=picture,
        compute_reward=compute_reward,
        observation_space=Dict(observation=Box(low, high), achieved_goal=place, desired_goal=place),
        action_space=Box(-1.0, 1.0, (2,)),
        params=Params(),
        **{"max_episode_steps": 100, **fields},
    )


MEDIUM = "########/#..##..#/#..#...#/##...###/#..#...#/#.#..#.#/#...#..#/########"
DYNAMICS = point_maze(MEDIUM.split("/"), id="PointMaze-v0")

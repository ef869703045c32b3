"""CliffWalking-v1: walk along a cliff from the lower left to the lower right corner.

Each step costs 1, one into the cliff 100, and leads back to the start. Transitions are those of
Gymnasium's table. Source: Sutton & Barto (2018), "Reinforcement Learning", Example 6.6.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
"""

from typing import NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import Picture, draw, grid_of
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

WIDTH, HEIGHT = 12, 4
START, GOAL = 36, 47


class State(NamedTuple):
    """Cell of the walker: `12 * row + column`."""

    cell: int


class Params(NamedTuple):
    """Options."""

    is_slippery: bool = False  # one step in three goes to the left, one to the right


def reset(rng: Rng, params: Params) -> State:
    """Return the lower left corner."""
    return State(START)


def walk(cell: int, way: int, width: int, height: int) -> int:
    """Return the next cell of a grid, or the same at its edge: 0 up, 1 right, 2 down, 3 left."""
    x = min(max(cell % width + (way == 1) - (way == 3), 0), width - 1)
    y = min(max(cell // width + (way == 2) - (way == 0), 0), height - 1)
    return width * y + x


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Make one step: action 0 is up, 1 right, 2 down, 3 left."""
    slip = rng.integers(0, 3) - 1 if params.is_slippery else 0
    cell = walk(s.cell, (action + slip) % 4, WIDTH, HEIGHT)
    falls = cell > START and cell < GOAL
    return State(START if falls else cell), -100.0 if falls else -1.0, cell == GOAL


def observe(s: State, params: Params) -> int:
    """Return the cell of the walker."""
    return s.cell


def picture(s: State, params: Params) -> Picture:
    """Return the walker, the cliff and the goal."""
    cliff, walker = Board((1 << GOAL) - (1 << START + 1)), Board().set(s.cell)
    # Colours begin at 1: with a board before it, the cliff is BLUE, the goal ORANGE.
    return draw(grid_of((walker, cliff, Board().set(GOAL), walker), HEIGHT, WIDTH))


DYNAMICS = Dynamics(
    id="CliffWalking-v1",
    step=step,
    reset=reset,
    observe=observe,
    picture=picture,
    observation_space=Discrete(WIDTH * HEIGHT),
    action_space=Discrete(4),
    params=Params(),
)

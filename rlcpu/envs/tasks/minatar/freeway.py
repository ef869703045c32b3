"""MinAtar/Freeway-v1: lead a chicken across eight lanes of cars.

Each lane, the rows 1 to 8, has one car, which leaves at one side and comes back at the other. A car
that hits the chicken sends it back to row 9; in row 0 it has arrived: a reward of 1, and it starts
again among cars of other speeds. The episode ends after 2,501 steps.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minatar.common`.
"""

from typing import NamedTuple

from rlcpu.envs.tasks.minatar.common import COLUMN, NONE, ROW, Params, cell, game, sticky
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

TIME_LIMIT = 2500
PAUSE = 3  # steps from one move of the chicken to the next, at least

#: One number from 0 to 7 for each row: the rows that have its bits 1, 2 and 4.
Numbers = tuple[Board, Board, Board]


class State(NamedTuple):
    """Boards are sets of cells: bit 10 * y + x is column x, row y from the top. Timers run to 0."""

    y: int  # row of the chicken, which is in column 4
    move_timer: int  # steps to come in which the chicken cannot move
    time_left: int
    cars: Board
    right: Board  # rows whose car moves to the right
    waits: tuple[Board, Board, Board]  # `Numbers`: steps until a car moves
    slowness: tuple[Board, Board, Board]  # `Numbers` 1 to 5: steps that a car waits after a move
    last_action: int


def reset(rng: Rng, params: Params) -> State:
    """Return a state with the chicken in row 9 and all cars in column 0."""
    right, slowness = new_traffic(rng)
    cars = COLUMN & ~cell(0, 0) & ~cell(9, 0)  # the first and last row have none
    return State(9, PAUSE, TIME_LIMIT, cars, right, slowness, slowness, 0)


def new_traffic(rng: Rng) -> tuple[Board, Numbers]:
    """Draw direction and slowness of all cars, from the random numbers 1 to 8."""
    right, ones, twos, fours = NONE, NONE, NONE, NONE
    for y in range(1, 9):
        drawn, row = rng.integers(y, 10), ROW << 10 * y
        slowness = 1 + drawn // 2
        right = right | row if drawn % 2 == 1 else right
        ones = ones | row if slowness % 2 == 1 else ones
        # Of 1 to 5, the numbers 2 and 3 have bit 2, the numbers 4 and 5 bit 4.
        twos = twos | row if slowness // 2 == 1 else twos
        fours = fours | row if slowness // 4 == 1 else fours
    return right, (ones, twos, fours)


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Move the chicken: 0 stays, 1 goes up, 2 goes down; and the cars.

    The chicken moves in every third step at most, first in the fourth of an episode.
    Random number 0 decides whether the action sticks, 1 to 8 are the traffic after an arrival.
    """
    action = sticky(action, s.last_action, params, rng)
    walks = s.move_timer <= 0 and action > 0
    y = s.y + (1 if action == 2 else -1) if walks else s.y
    y = min(max(y, 0), 9)
    move_timer = max((PAUSE if walks else s.move_timer) - 1, 0)
    right, waits, slowness, arrived = s.right, s.waits, s.slowness, y == 0
    if arrived:
        right, slowness = new_traffic(rng)
        waits = slowness
        y = 9

    hit = bool(s.cars & cell(y, 4))
    moving = ~(waits[0] | waits[1] | waits[2])  # cells in rows whose number is 0
    cars = (s.cars & ~moving) | around(s.cars & moving, right)
    hit = hit or bool(cars & cell(y, 4))
    # Cars that moved wait anew; the waits of others, numbers of three bits, are less by 1: each bit
    # changes if all lower ones are 0.
    waits = (
        (slowness[0] & moving) | (~waits[0] & ~moving),
        (slowness[1] & moving) | ((waits[1] ^ ~waits[0]) & ~moving),
        (slowness[2] & moving) | ((waits[2] ^ ~(waits[0] | waits[1])) & ~moving),
    )
    left = s.time_left - 1
    after = State(9 if hit else y, move_timer, left, cars, right, waits, slowness, action)
    return after, 1.0 if arrived else 0.0, left < 0


def around(cars: Board, right: Board) -> Board:
    """Return the cars one further, from one side of the board to the other."""
    rightwards, leftwards = cars & right, cars & ~right
    rightwards = ((rightwards & ~(COLUMN << 9)) << 1) | ((rightwards >> 9) & COLUMN)
    return rightwards | ((leftwards & ~COLUMN) >> 1) | ((leftwards & COLUMN) << 9)


def observe(s: State, params: Params) -> tuple[Board, ...]:
    """Return the planes chicken, cars, and trails of cars of slowness 1, 2, 3, 4 and 5."""
    trails = around(s.cars, ~s.right)
    ones, twos, fours = s.slowness
    return (
        cell(s.y, 4),
        s.cars,
        trails & ones & ~twos & ~fours,
        trails & twos & ~ones,
        trails & twos & ones,
        trails & fours & ~ones,
        trails & fours & ones,
    )


DYNAMICS = game("MinAtar/Freeway-v1", step, reset, observe, planes=7, actions=3)

"""Connect Four against an opponent who plays at random, as a user writes it.

`four` looks for lines, and `four_of_pairs` loops over a tuple of pairs, which `simulate` dislikes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium.spaces import Discrete, MultiBinary

from rlcpu.envs import Board, Dynamics, replace

ROWS, COLUMNS = 6, 7  # row 0 is the top
ALL = Board((1 << 42) - 1)
NOT_FIRST, NOT_LAST = ALL, ALL
for _row in range(ROWS):
    NOT_FIRST, NOT_LAST = NOT_FIRST.clear(7 * _row), NOT_LAST.clear(7 * _row + 6)
SHIFTS, MASKS = (1, 7, 8, 6), (NOT_FIRST, ALL, NOT_FIRST, NOT_LAST)


class Params(NamedTuple):
    begins: float = 0.5  # chance that the opponent has the first move


class State(NamedTuple):
    mine: Board
    theirs: Board


def free(state: Any, column: Any) -> Any:
    return not (state.mine | state.theirs).test(column)


def drop(state: Any, column: Any) -> Any:
    """Return the cell to which a stone falls."""
    cell = column
    for row in range(1, ROWS):
        cell = cell if (state.mine | state.theirs).test(7 * row + column) else 7 * row + column
    return cell


def four(stones: Any) -> Any:
    for k in range(4):
        two = (stones << SHIFTS[k]) & MASKS[k] & stones
        three = (two << SHIFTS[k]) & MASKS[k] & stones
        if (three << SHIFTS[k]) & MASKS[k] & stones:
            return True
    return False


def four_of_pairs(stones: Any) -> Any:
    for shift, mask in ((1, NOT_FIRST), (7, ALL), (8, NOT_FIRST), (6, NOT_LAST)):
        two = (stones << shift) & mask & stones
        three = (two << shift) & mask & stones
        if (three << shift) & mask & stones:
            return True
    return False


def answer(state: Any, rng: Any) -> Any:
    weights = (0.0,) * COLUMNS
    for column in range(COLUMNS):
        weights = replace(weights, column, 1.0 if free(state, column) else 0.0)
    return State(state.mine, state.theirs.set(drop(state, rng.categorical(weights))))


def reset(rng: Any, params: Any) -> Any:
    state = State(Board(), Board())
    return answer(state, rng) if rng.uniform() < params.begins else state


def make(four: Callable[[Any], Any]) -> Dynamics:
    def step(state: Any, action: Any, params: Any, rng: Any) -> Any:
        if not free(state, action):
            return state, -1, True
        state = State(state.mine.set(drop(state, action)), state.theirs)
        if four(state.mine):
            return state, 1, True
        if (state.mine | state.theirs).count() == 42:
            return state, 0, True
        state = answer(state, rng)
        if four(state.theirs):
            return state, -1, True
        return state, 0, (state.mine | state.theirs).count() == 42

    return Dynamics(
        id="ConnectFour-v0",
        step=step,
        reset=reset,
        observe=lambda state, params: (state.mine, state.theirs),
        params=Params(),
        observation_space=MultiBinary((2, ROWS, COLUMNS)),
        action_space=Discrete(COLUMNS),
    )

"""Environments with action masks, which several tests run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary

from rlcpu.envs import Board, Dynamics
from rlcpu.kernels.compiler.compile import define, source_of_tuple

ROWS = (0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100)
FULL = Board(0b111111111)


class Cells(NamedTuple):
    """Who holds which cells of tic-tac-toe."""

    mine: Board
    theirs: Board


class Params(NamedTuple):
    """None that matter."""

    unused: float = 0.0


def has_row(cells):
    """Whether three cells in a row are held."""
    return (
        ((cells & Board(ROWS[0])) == Board(ROWS[0]))
        | ((cells & Board(ROWS[1])) == Board(ROWS[1]))
        | ((cells & Board(ROWS[2])) == Board(ROWS[2]))
        | ((cells & Board(ROWS[3])) == Board(ROWS[3]))
        | ((cells & Board(ROWS[4])) == Board(ROWS[4]))
        | ((cells & Board(ROWS[5])) == Board(ROWS[5]))
        | ((cells & Board(ROWS[6])) == Board(ROWS[6]))
        | ((cells & Board(ROWS[7])) == Board(ROWS[7]))
    )


def tic_tac_toe_step(state, action, params, rng):
    """Take a cell; then the other player takes a random free one."""
    mine = state.mine.set(action)
    free = ~(mine | state.theirs) & FULL
    won, full = has_row(mine), not free
    chosen, left = rng.integers(0, max(free.count(), 1)), 0
    theirs = state.theirs
    for cell in range(9):
        theirs = theirs.set(cell) if free.test(cell) and left == chosen else theirs
        left += free.test(cell)
    theirs = state.theirs if won or full else theirs
    lost = not won and has_row(theirs)
    reward = 1.0 if won else -1.0 if lost else 0.0
    return Cells(mine, theirs), reward, won or lost or full


def tic_tac_toe_mask(state, params):
    """The free cells; none after a draw."""
    free = ~(state.mine | state.theirs)
    return (
        *(free.test(0), free.test(1), free.test(2), free.test(3), free.test(4)),
        *(free.test(5), free.test(6), free.test(7), free.test(8)),
    )


TIC_TAC_TOE = Dynamics(
    id="TicTacToe-v0",
    step=tic_tac_toe_step,
    reset=lambda rng, params: Cells(Board(0), Board(0)),
    observe=lambda state, params: (state.mine, state.theirs),
    action_mask=tic_tac_toe_mask,
    observation_space=MultiBinary((2, 3, 3)),
    action_space=Discrete(9),
    params=Params(),
)

WIDE = 33


class Range(NamedTuple):
    """In which step nothing is allowed."""

    empty: float = -1.0


def _make_wide_mask():
    """Every third action, others in each step."""
    items = [f"t % 3 == {k % 3} and state[0] != params.empty" for k in range(WIDE)]
    source = f"def mask(state, params):\n    t = int(state[0])\n    return {source_of_tuple(items)}"
    return define(source)


#: More actions than a word has bits, and an observation of floats: the steps so far.
COUNTER = Dynamics(
    id="Counter-v0",
    step=lambda state, action, params: ((state[0] + 1.0,), 1.0, False),
    reset=lambda uniforms, params: (1.0 * (uniforms[0] < 0.5),),
    reset_draws=1,
    action_mask=_make_wide_mask(),
    observation_space=Box(0.0, np.inf, (1,), np.float32),
    action_space=Discrete(WIDE),
    params=Range(),
    max_episode_steps=7,
)

"""Environments with action masks, which several tests run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

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

#: Choices of each number of an action, which kernels draw in lines, or in loops.
FEW, MANY = (5, 2, 3), (40, 2, 100)


def make_sieve(choices: tuple[int, ...], writes: bool) -> Dynamics:
    """An environment that allows other choices in each of three turns, of which it shows the turn.

    A step is worth 1 for each number of the action that is the largest allowed one, and -1 for each
    that is not allowed. In step `empty` the last number has no choice.
    """
    rules = []
    for j, count in enumerate(choices):
        last = " and state[0] != params.empty" if j == len(choices) - 1 else ""
        rules += [f"(t + {j + k}) % 3 != 0{last}" for k in range(count)]
    if writes:
        lines = "".join(f"\n    out[{k}] = {rule}" for k, rule in enumerate(rules))
        mask = define(f"def mask(state, params, out):\n    t = int(state[0]){lines}")
    else:
        source = f"    t = int(state[0])\n    return {source_of_tuple(rules)}"
        mask = define(f"def mask(state, params):\n{source}")
    # The last choice, or the one before it where the last is not allowed.
    terms = [
        f"(-1.0 if (t + {j} + int(action[{j}])) % 3 == 0 else "
        f"1.0 if action[{j}] == ({n - 1} if (t + {j + n - 1}) % 3 != 0 else {n - 2}) else 0.0)"
        for j, n in enumerate(choices)
    ]
    step = define(
        "def step(state, action, params):\n    t = int(state[0])\n"
        f"    return (state[0] + 1.0,), {' + '.join(terms)}, False"
    )
    return Dynamics(
        id=f"Sieve{len(rules)}-v0",
        step=step,
        reset=lambda uniforms, params: (1.0 * (uniforms[0] < 0.5),),
        reset_draws=1,
        observe=lambda state, params: (
            1.0 * (int(state[0]) % 3 == 0),
            1.0 * (int(state[0]) % 3 == 1),
            1.0 * (int(state[0]) % 3 == 2),
        ),
        action_mask=mask,
        observation_space=Box(0.0, 1.0, (3,), np.float32),
        action_space=MultiDiscrete(choices),
        params=Range(),
        max_episode_steps=7,
    )


def sieve_masks(observations: np.ndarray, choices: tuple[int, ...]) -> np.ndarray:
    """What a sieve allows, (..., sum(choices)), after observations (..., 3)."""
    turn = observations.argmax(axis=-1)[..., None]
    return np.concatenate([(turn + j + np.arange(n)) % 3 != 0 for j, n in enumerate(choices)], -1)


SIEVE, WIDE_SIEVE = make_sieve(FEW, writes=False), make_sieve(MANY, writes=True)

GOALS = (12, 9)


def identity_step(state, action, params, uniforms):
    """Reward the numbers that are the goals; then others are."""
    reward = 1.0 if action[0] == int(state[0]) and action[1] == int(state[1]) else 0.0
    return identity_reset(uniforms, params), reward, False


def identity_reset(uniforms, params):
    """Draw goals, and how many of the three allowed choices stand before them."""
    goals = float(int(uniforms[0] * 12.0)), float(int(uniforms[1] * 9.0))
    return (*goals, float(int(uniforms[2] * 3.0)))


def identity_mask(state, params, out):
    """Allow the goal of each number, and two choices beside it."""
    for k in range(12):
        out[k] = (k - int(state[0]) + int(state[2]) + 12) % 12 < 3
    for k in range(9):
        out[12 + k] = (k - int(state[1]) + int(state[2]) + 9) % 9 < 3


#: What is shown is what is to be done, after sb3-contrib's environment of invalid actions.
IDENTITY = Dynamics(
    id="Identity-v0",
    step=identity_step,
    reset=identity_reset,
    reset_draws=3,
    step_draws=3,
    observe=define(
        "def observe(state, params): return "
        + source_of_tuple(
            f"1.0 * (int(state[{j}]) == {k})" for j, n in enumerate(GOALS) for k in range(n)
        )
    ),
    action_mask=identity_mask,
    observation_space=Box(0.0, 1.0, (sum(GOALS),), np.float32),
    action_space=MultiDiscrete(GOALS),
    params=Params(),
    max_episode_steps=100,
)

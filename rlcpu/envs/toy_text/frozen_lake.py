"""FrozenLake-v1: cross a frozen lake from S to the goal G without falling into a hole H.

Transitions are those of Gymnasium's table. On slippery ice the walker goes where it wants at
`success_rate`, else to one side or the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.pictures import Picture, draw, grid_of
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Rng

SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")
LARGE = "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG"


class State(NamedTuple):
    """Where the walker is: `width * row + column`."""

    cell: int


class Params(NamedTuple):
    """Options, and the rewards of a step into the goal, into a hole and onto ice."""

    is_slippery: bool = True
    success_rate: float = 1 / 3
    goal_reward: float = 1.0
    hole_reward: float = 0.0
    frozen_reward: float = 0.0


def frozen_lake(rows: Sequence[str], slippery: bool = True, **fields: Any) -> Dynamics:
    """The environment of a map.

    Args:
        rows: S (starts, each as likely), F (frozen), H and G, as in ("SFG", "FHF"); at most 128.
        slippery: the default of `is_slippery`.
        **fields: `id` and other fields of `Dynamics`.

    Raises:
        ValueError: rows are of different lengths, without an S, with other letters or too many.
    """
    width, height, letters = len(rows[0]), len(rows), "".join(rows)
    fits = {len(row) for row in rows} == {width} and len(letters) <= 128
    if not (fits and "S" in letters and set(letters) <= set("SFHG")):
        raise ValueError(f"rows={rows!r}: expected strings of one length, S, F, H, G, 128 in all")
    starts = tuple(k for k, letter in enumerate(letters) if letter == "S")
    holes, goals = (
        Board(sum(1 << k for k, letter in enumerate(letters) if letter == kind)) for kind in "HG"
    )
    count = len(starts)

    def reset(rng: Rng, params: Params) -> State:
        return State(starts[rng.integers(0, count)])

    def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
        u, rate = rng.uniform(0), params.success_rate
        aside = 1 if u < rate + 0.5 * (1.0 - rate) else -1
        turn = aside if params.is_slippery and u >= rate else 0
        way = (action + turn) % 4  # left, down, right, up
        x = min(max(s.cell % width + (way == 2) - (way == 0), 0), width - 1)
        y = min(max(s.cell // width + (way == 1) - (way == 3), 0), height - 1)
        over = (holes | goals).test(s.cell)
        here = s.cell if over else width * y + x
        won, lost = goals.test(here), holes.test(here)
        gain = params.hole_reward if lost else params.frozen_reward
        gain = params.goal_reward if won else gain
        return State(here), 0.0 if over else gain, won or lost

    def picture(s: State, params: Params) -> Picture:
        walker = Board().set(s.cell)
        return draw(grid_of((walker, holes, goals, walker), height, width))

    spaces: Any = {"observation_space": Discrete(width * height), "action_space": Discrete(4)}
    params = Params(is_slippery=slippery)
    return Dynamics(
        step=step, reset=reset, observe=observe, picture=picture, params=params, **spaces, **fields
    )


def observe(s: State, params: Params) -> int:
    """The cell of the walker."""
    return s.cell


DYNAMICS = frozen_lake(SMALL, id="FrozenLake-v1", max_episode_steps=100, reward_threshold=0.7)
DYNAMICS_8X8 = frozen_lake(
    LARGE.split("/"), id="FrozenLake8x8-v1", max_episode_steps=200, reward_threshold=0.85
)

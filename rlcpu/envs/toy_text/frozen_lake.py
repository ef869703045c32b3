"""FrozenLake-v1: cross a frozen lake from S to the goal G without falling into a hole H.

Transitions are those of Gymnasium's table. On slippery ice a step goes where it should with
probability `success_rate`, else to the left or right of that.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.pictures import Picture, draw, grid_of
from rlcpu.envs.toy_text.cliff_walking import State, observe
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Rng


class Params(NamedTuple):
    """Options, and the rewards of a step into the goal, into a hole and onto ice."""

    is_slippery: bool = True
    success_rate: float = 1 / 3
    goal_reward: float = 1.0
    hole_reward: float = 0.0
    frozen_reward: float = 0.0


def frozen_lake(rows: Sequence[str], slippery: bool = True, **fields: Any) -> Dynamics:
    """The environment of a map of S (starts, each as likely), F (frozen), H and G.

    Args:
        rows: of the map, as in ("SFG", "FHF"); at most 128 letters.
        slippery: the default of `is_slippery`.
        **fields: `id` and other fields of `Dynamics`.

    Raises:
        ValueError: rows are of different lengths, without an S, with other letters or too many.
    """
    width, height, letters = len(rows[0]), len(rows), "".join(rows)
    fits = {len(row) for row in rows} == {width} and len(letters) <= 128
    if not (fits and "S" in letters and set(letters) <= set("SFHG")):
        raise ValueError(f"rows={rows!r}: expected strings of one length, S, F, H, G, 128 in all")
    cells = {kind: [k for k, letter in enumerate(letters) if letter == kind] for kind in "SHG"}
    starts, count = tuple(cells["S"]), len(cells["S"])
    holes, goals = (Board(sum(1 << k for k in cells[kind])) for kind in "HG")

    def reset(rng: Rng, params: Params) -> State:
        return State(starts[rng.integers(0, count)])

    def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
        u, rate = rng.uniform(0), params.success_rate
        aside = 1 if u < rate + 0.5 * (1.0 - rate) else -1
        way = (action + (aside if params.is_slippery and u >= rate else 0)) % 4
        x = min(max(s.cell % width + (way == 2) - (way == 0), 0), width - 1)  # left, down,
        y = min(max(s.cell // width + (way == 1) - (way == 3), 0), height - 1)  # right, up
        over = (holes | goals).test(s.cell)
        here = s.cell if over else width * y + x
        won, lost = goals.test(here), holes.test(here)
        gain = params.hole_reward if lost else params.frozen_reward
        gain = params.goal_reward if won else gain
        return State(here), 0.0 if over else gain, won or lost

    def picture(s: State, params: Params) -> Picture:
        walker = Board().set(s.cell)
        return draw(grid_of((walker, holes, goals, walker), height, width))

    functions: Any = {"reset": reset, "step": step, "observe": observe, "picture": picture}
    spaces: Any = {"observation_space": Discrete(len(letters)), "action_space": Discrete(4)}
    return Dynamics(**functions, **spaces, params=Params(is_slippery=slippery), **fields)


SMALL = ("SFFF", "FHFH", "FFFH", "HFFG")
LARGE = "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG"
LARGE_LIMITS: Any = {"max_episode_steps": 200, "reward_threshold": 0.85}
DYNAMICS = frozen_lake(SMALL, id="FrozenLake-v1", max_episode_steps=100, reward_threshold=0.7)
DYNAMICS_8X8 = frozen_lake(LARGE.split("/"), id="FrozenLake8x8-v1", **LARGE_LIMITS)

"""FrozenLake-v1: cross a frozen lake from S to the goal G without falling into a hole H.

On slippery ice a step goes where it should with probability `success_rate`, else to one side.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
"""

from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import Picture, draw, grid_of
from rlcpu.envs.tasks.toy_text.cliff_walking import State, observe, walk
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Rng


class Params(NamedTuple):
    """Options, and the rewards of a step into the goal, into a hole and onto ice."""

    is_slippery: bool = True  # a step may go to one side
    success_rate: float = 1 / 3  # probability of going where the action says, on slippery ice
    goal_reward: float = 1.0  # of the step into the goal
    hole_reward: float = 0.0  # of the step into a hole
    frozen_reward: float = 0.0  # of every other step


def frozen_lake(rows: Any, slippery: bool = True, **fields: Any) -> Dynamics:
    """Make the environment of a map: strings of S, F, H and G; `fields` are of `Dynamics`."""
    letters, width, height = "".join(rows), len(rows[0]), len(rows)
    if {*map(len, rows)} != {width} or len(letters) > 128 or not {"S"} <= {*letters} <= {*"SFHG"}:
        raise ValueError(f"rows={rows!r}: expected strings of one length, S, F, H, G, 128 in all")
    starts, holes, goals = (tuple(k for k, x in enumerate(letters) if x == y) for y in "SHG")
    lost, won = (Board(sum(1 << cell for cell in cells)) for cells in (holes, goals))

    def reset(rng: Rng, params: Params) -> State:
        return State(starts[rng.integers(0, len(starts))])

    def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
        u, rate = rng.uniform(0), params.success_rate
        aside = 0 if u < rate or not params.is_slippery else 1 if u < 0.5 + 0.5 * rate else -1
        over = (lost | won).test(s.cell)
        cell = s.cell if over else walk(s.cell, (3 - action + aside) % 4, width, height)
        reward = params.hole_reward if lost.test(cell) else params.frozen_reward
        reward = params.goal_reward if won.test(cell) else reward
        return State(cell), 0.0 if over else reward, (lost | won).test(cell)

    def picture(s: State, params: Params) -> Picture:
        return draw(grid_of((Board(1 << s.cell), lost, won, Board(1 << s.cell)), height, width))

    functions: Any = {"step": step, "reset": reset, "observe": observe, "picture": picture}
    spaces: Any = {"observation_space": Discrete(len(letters)), "action_space": Discrete(4)}
    return Dynamics(**functions, **spaces, params=Params(slippery), **fields)


LARGE = "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG"
SHORT: Any = {"id": "FrozenLake-v1", "max_episode_steps": 100, "reward_threshold": 0.7}
LONG: Any = {"id": "FrozenLake8x8-v1", "max_episode_steps": 200, "reward_threshold": 0.85}
DYNAMICS = frozen_lake(("SFFF", "FHFH", "FFFH", "HFFG"), **SHORT)
DYNAMICS_8X8 = frozen_lake(LARGE.split("/"), **LONG)

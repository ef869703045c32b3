"""FrozenLake-v1: cross a frozen lake from S to the goal G without falling into a hole H.

On slippery ice a step goes where it should with probability `success_rate`, else to one side.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
"""

from typing import Any, NamedTuple

from gymnasium.spaces import Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import Picture, draw, grid_of
from rlcpu.envs.tasks.toy_text.cliff_walking import State, observe, walk
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng


class Params(NamedTuple):
    """Options, and the rewards of a step into the goal, into a hole and onto ice."""

    is_slippery: bool = True  # a step may go to one side
    success_rate: float = 1 / 3  # probability of going where the action says, on slippery ice
    goal_reward: float = 1.0  # of the step into the goal
    hole_reward: float = 0.0  # of the step into a hole
    frozen_reward: float = 0.0  # of every other step


def frozen_lake(rows: Any, slippery: bool = True, **fields: Any) -> Dynamics:
    """Return the environment of a map: strings of S, F, H and G; `fields` are of `Dynamics`.

    Its functions know from here the cells of starts, and boards of holes and goals.
    """
    letters, width, height = "".join(rows), len(rows[0]), len(rows)
    if {*map(len, rows)} != {width} or len(letters) > 128 or not {"S"} <= {*letters} <= {*"SFHG"}:
        raise ValueError(f"rows={rows!r}: expected strings of one length, S, F, H, G, 128 in all")
    starts = tuple(cell for cell, letter in enumerate(letters) if letter == "S")
    holes, goals = (
        Board(sum(1 << cell for cell, letter in enumerate(letters) if letter == kind))
        for kind in "HG"
    )

    def reset(rng: Rng, params: Params) -> State:
        return State(starts[rng.integers(0, len(starts))])

    def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
        """Walk to the left, down, right or up by actions 0 to 3, or on ice to one side of that."""
        u, rate = rng.uniform(0), params.success_rate
        # What is left by `rate` is shared by both sides.
        aside = 0 if u < rate or not params.is_slippery else 1 if u < 0.5 + 0.5 * rate else -1
        was_over = (holes | goals).test(s.cell)
        # `walk` counts its directions the other way round.
        cell = s.cell if was_over else walk(s.cell, (3 - action + aside) % 4, width, height)
        reward = params.hole_reward if holes.test(cell) else params.frozen_reward
        reward = params.goal_reward if goals.test(cell) else reward
        return State(cell), 0.0 if was_over else reward, (holes | goals).test(cell)

    def picture(s: State, params: Params) -> Picture:
        # `grid_of` gives each board the next colour, and the last board of a cell counts. One more
        # in front of the holes', here the walker's, makes these the second colour, which is blue.
        walker = Board(1 << s.cell)
        return draw(grid_of((walker, holes, goals, walker), height, width))

    functions: Any = {"step": step, "reset": reset, "observe": observe, "picture": picture}
    spaces: Any = {"observation_space": Discrete(len(letters)), "action_space": Discrete(4)}
    return Dynamics(**functions, **spaces, params=Params(slippery), **fields)


LARGE = "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG"
SHORT: Any = {"id": "FrozenLake-v1", "max_episode_steps": 100, "reward_threshold": 0.7}
LONG: Any = {"id": "FrozenLake8x8-v1", "max_episode_steps": 200, "reward_threshold": 0.85}
DYNAMICS = frozen_lake(("SFFF", "FHFH", "FFFH", "HFFG"), **SHORT)
DYNAMICS_8X8 = frozen_lake(LARGE.split("/"), **LONG)

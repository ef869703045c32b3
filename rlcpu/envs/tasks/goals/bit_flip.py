"""BitFlip-v0: flip single bits until they are those of the goal.

Every step costs 1, but for the one that reaches the goal and ends the episode. Of 40 bits a random
policy never meets it, and no reward says how near it is: hindsight replay learns it all the same.
Source: Andrychowicz et al. 2017, "Hindsight experience replay", section 3.1, where episodes take as
many steps as there are bits.
"""

from typing import Any, NamedTuple

from gymnasium.spaces import Dict, Discrete, MultiBinary

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.pictures import Picture, draw, grid_of
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.machine.boards import CELLS, Board
from rlcpu.kernels.machine.random import Rng

#: Bits that are drawn at a time.
WORD = 16
#: Parts of an observation, which are all shown as a plane of one row.
PARTS = ("observation", "achieved_goal", "desired_goal")


class State(NamedTuple):
    """The bits, and what they should be: bit k is cell k of a board."""

    bits: Board
    goal: Board


class Params(NamedTuple):
    """Rewards."""

    step_reward: float = -1.0  # of a step that does not reach the goal
    goal_reward: float = 0.0  # of the one that does


class BitsAndGoal(NamedTuple):
    """The bits, twice, and those of the goal: one plane each."""

    observation: tuple[Board]
    achieved_goal: tuple[Board]
    desired_goal: tuple[Board]


def compute_reward(
    achieved_goal: tuple[Board], desired_goal: tuple[Board], params: Params
) -> tuple[float, bool]:
    """Return the reward of bits, and whether they are those of the goal."""
    is_reached = achieved_goal[0] == desired_goal[0]
    return params.goal_reward if is_reached else params.step_reward, is_reached


def step(s: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Flip a bit."""
    bits = s.bits ^ (Board(1) << action)
    reward, is_reached = compute_reward((bits,), (s.goal,), params)
    return State(bits, s.goal), reward, is_reached


def observe(s: State, params: Params) -> BitsAndGoal:
    """Return the bits and the goal."""
    return BitsAndGoal((s.bits,), (s.bits,), (s.goal,))


def bit_flip(num_bits: int, **fields: Any) -> Dynamics:
    """Return the environment of so many bits, 128 at most; `fields` are of `Dynamics`.

    Its functions know the number from here.
    """
    num_bits = check_count("num_bits", num_bits, limit=CELLS + 1)
    num_words, mask = -(-num_bits // WORD), Board((1 << num_bits) - 1)
    size = 1 << WORD

    def draw_bits(rng: Rng, first: int) -> Board:
        """Return random bits, of the random numbers from `first` on."""
        bits = Board(0)
        for k in range(num_words):
            bits = (bits << WORD) | Board(rng.integers(first + k, size))
        return bits & mask

    def reset(rng: Rng, params: Params) -> State:
        """Draw the bits and the goal."""
        return State(draw_bits(rng, 0), draw_bits(rng, num_words))

    def picture(s: State, params: Params) -> Picture:
        # The bits above those of the goal; the last board counts, where a cell has several.
        shown = s.bits | s.goal << num_bits if 2 * num_bits <= CELLS else s.bits
        return draw(grid_of((shown,), 2 if 2 * num_bits <= CELLS else 1, num_bits), 16)

    plane = MultiBinary((1, 1, num_bits))
    return Dynamics(
        step=step,
        reset=reset,
        observe=observe,
        picture=picture,
        compute_reward=compute_reward,
        observation_space=Dict(dict.fromkeys(PARTS, plane)),
        action_space=Discrete(num_bits),
        params=Params(),
        **{"max_episode_steps": num_bits, **fields},
    )


DYNAMICS = bit_flip(40, id="BitFlip-v0", reward_threshold=-20.0)

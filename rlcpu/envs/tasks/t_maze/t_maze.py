"""TMaze-v0: see at the beginning of a corridor where to turn at its end.

The right way is worth 4, and a step that leads nowhere costs 0.1: 4 is the best return.
Source: Bakker (2001), "Reinforcement learning with long short-term memory", NIPS, section 4.1, for
corridors without noise; there, episodes have no limit.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.kernels.machine.random import Rng

FORWARD, LEFT, RIGHT, BACK = range(4)


class State(NamedTuple):
    """The cell of the corridor, and the way that is right at its end."""

    place: float  # cells from the beginning
    left: float  # 1 if the right way is to the left, else 0


class Params(NamedTuple):
    """Length of the corridor."""

    length: int = 10  # cells from the beginning to the end


def reset(rng: Rng, params: Params) -> State:
    """Return the beginning of the corridor, and draw which way is right."""
    return State(0.0, 1.0 if rng.uniform(0) < 0.5 else 0.0)


def step(s: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Walk forward (0) or back (3), or turn to the left (1) or right (2), which ends an episode."""
    way = 1.0 if action == FORWARD else -1.0 if action == BACK else 0.0
    place = min(max(s.place + way, 0.0), params.length)
    turned = s.place >= params.length and action != FORWARD and action != BACK
    right_way = LEFT if s.left == 1.0 else RIGHT
    reward = 4.0 if turned and action == right_way else -0.1 if place == s.place else 0.0
    return State(place, s.left), reward, turned


def observe(s: State, params: Params) -> tuple[float, float, float]:
    """Return 011 or 110 at the beginning, 101 in the corridor, 010 at its end."""
    at_start, at_end = s.place == 0.0, s.place >= params.length
    return (
        0.0 if at_end or (at_start and s.left == 1.0) else 1.0,
        1.0 if at_start or at_end else 0.0,
        0.0 if at_end or (at_start and s.left == 0.0) else 1.0,
    )


DYNAMICS = Dynamics(
    id="TMaze-v0",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=Box(0.0, 1.0, (3,), np.float32),
    action_space=Discrete(4),
    params=Params(),
    max_episode_steps=300,
)

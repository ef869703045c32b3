"""Environments that want memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.dynamics import Dynamics


class Maze(NamedTuple):
    """Length of the corridor."""

    length: float = 10.0


FORWARD, LEFT, RIGHT, BACK = range(4)


def maze_reset(uniforms, params):
    """Where it stands in the corridor, and whether the goal is to the left."""
    return 0.0, 1.0 if uniforms[0] < 0.5 else 0.0


def maze_step(state, action, params):
    place, left = state
    at_end = place >= params.length
    turned = (action == LEFT) | (action == RIGHT)
    right_way = (action == LEFT) == (left == 1.0)
    moved = place + (1.0 if action == FORWARD else 0.0) - (1.0 if action == BACK else 0.0)
    new = min(max(moved, 0.0), params.length)
    reward = 4.0 if at_end and turned and right_way else -0.1 if new == place else 0.0
    return (new, left), reward, at_end and turned


def maze_observe(state, params):
    """011 or 110 at the start, 101 in the corridor, 010 at its end."""
    place, left = state
    at_start, at_end = place == 0.0, place >= params.length
    return (
        0.0 if at_end or (at_start and left == 1.0) else 1.0,
        1.0 if at_start or at_end else 0.0,
        0.0 if at_end or (at_start and left == 0.0) else 1.0,
    )


#: Bakker 2001, "Reinforcement learning with long short-term memory": the best return is 4.
T_MAZE = Dynamics(
    id="TMaze-v0",
    step=maze_step,
    reset=maze_reset,
    observe=maze_observe,
    observation_space=Box(0.0, 1.0, (3,), np.float32),
    action_space=Discrete(4),
    params=Maze(),
    reset_draws=1,
    max_episode_steps=60,
)

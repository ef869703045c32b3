"""MountainCar-v0: an engine too weak for the hill has to gain height by swinging.

Source: Moore (1990), "Efficient memory-based learning for robot control", PhD thesis, University of
Cambridge.

float64 is bit for bit Gymnasium's step. One float32 step errs by at most 1.2e-7 in position and
8e-9 in velocity from the same state, wherever a random policy goes.
"""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics

#: Limits of the state, which are those of the observation space.
MIN_POSITION = -1.2
MAX_POSITION = 0.6
MAX_SPEED = 0.07

State = tuple[float, float]


class Params(NamedTuple):
    """Physics, goal and reset bounds; units are those of the valley: lengths, and steps of time."""

    force: float = 0.001  # velocity that the engine adds in one step
    gravity: float = 0.0025  # velocity that the steepest slope adds in one step
    goal_position: float = 0.5  # where an episode ends
    goal_velocity: float = 0.0  # least velocity at the goal
    reset_low: float = -0.6  # lower bound of the position of a new state
    reset_high: float = -0.4  # the upper bound


def reset(uniforms: tuple[float], params: Params) -> State:
    """Return a car at rest in [reset_low, reset_high)."""
    return (params.reset_low + (params.reset_high - params.reset_low) * uniforms[0], 0.0)


def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Make one step.

    Args:
        state: position and velocity of the car.
        action: 0 accelerates to the left, 1 not at all, 2 to the right.
        params: see `Params`.
    """
    position, velocity = state
    push = params.force if action == 2 else (-params.force if action == 0 else 0.0)
    velocity = velocity + (push + math.cos(3.0 * position) * -params.gravity)
    velocity = min(max(velocity, -MAX_SPEED), MAX_SPEED)
    position = min(max(position + velocity, MIN_POSITION), MAX_POSITION)
    # The wall on the left takes the speed of a car that runs into it.
    velocity = 0.0 if (position == MIN_POSITION) & (velocity < 0.0) else velocity
    terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
    return (position, velocity), -1.0, terminated


DYNAMICS = Dynamics(
    id="MountainCar-v0",
    step=step,
    reset=reset,
    observation_space=Box(
        np.array([MIN_POSITION, -MAX_SPEED], dtype=np.float32),
        np.array([MAX_POSITION, MAX_SPEED], dtype=np.float32),
        dtype=np.float32,
    ),
    action_space=Discrete(3),
    params=Params(),
    reset_draws=1,
    max_episode_steps=200,
    reward_threshold=-110.0,
    reset_options={"low": ("reset_low",), "high": ("reset_high",)},
    original="MountainCar-v0",
)

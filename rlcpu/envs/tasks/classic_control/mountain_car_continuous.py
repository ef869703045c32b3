"""MountainCarContinuous-v0: the mountain car with an engine that can be throttled.

Source: Moore (1990), "Efficient memory-based learning for robot control", PhD thesis, University of
Cambridge; the continuous action as in Gymnasium.

Gymnasium keeps this state in float32 after the first step and receives float32 actions, so that
NumPy 2 rounds most of its intermediate results to float32. In float64 these functions round at the
same places and nowhere else, and give the same bits; in float32 the rounding costs nothing. One
float32 step errs by at most 2.4e-7 in position, 1.6e-8 in velocity and 4e-6 in reward (half an ulp
of 100) from the same state, wherever a random policy goes.
"""

import math
from typing import NamedTuple

from gymnasium.spaces import Box

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.classic_control import mountain_car
from rlcpu.envs.tasks.classic_control.mountain_car import (
    MAX_POSITION,
    MAX_SPEED,
    MIN_POSITION,
    State,
    reset,
)
from rlcpu.kernels.compiler.maths import round_to_single

MAX_ACTION = 1.0  # limit of the action, which is that of its space


class Params(NamedTuple):
    """Physics, goal and reset bounds; units are those of the valley: lengths, and steps of time."""

    power: float = 0.0015  # velocity that the engine adds in one step at full throttle
    gravity: float = 0.0025  # velocity that the steepest slope adds in one step
    goal_position: float = 0.45  # where an episode ends
    goal_velocity: float = 0.0  # least velocity at the goal
    reset_low: float = -0.6  # lower bound of the position of a new state
    reset_high: float = -0.4  # the upper bound


def round_if(single: bool, x: float) -> float:
    """Return `x` rounded to float32 if `single`."""
    return round_to_single(x) if single else x


def was_rounded(position: float, velocity: float) -> bool:
    """Tell whether a step has led to this state: Gymnasium keeps new states in float64.

    A new position is a float32 by chance, or because `reset(options=...)` gives one; but it is at
    rest. A car that has moved is at rest only at the left wall, or by a chance of 1e-7 where it
    turns round.
    """
    rounded = (position == round_to_single(position)) & (velocity == round_to_single(velocity))
    return rounded & ((velocity != 0.0) | (position == round_to_single(MIN_POSITION)))


def accelerate(single: bool, position: float, throttle: float, params: Params) -> float:
    """Return the change of velocity by engine and slope in one step.

    `single` tells whether the state is of float32, see `was_rounded`. A float32 throttle makes the
    sum a float32; one that had to be clipped became a Python float.
    """
    force = min(max(throttle, -MAX_ACTION), MAX_ACTION)
    slope = params.gravity * math.cos(round_if(single, 3.0 * position))
    engine = round_to_single(force * round_to_single(params.power))
    unclipped = round_to_single(engine - round_to_single(slope))
    return unclipped if force == throttle else force * params.power - slope


def step(state: State, action: tuple[float], params: Params) -> tuple[State, float, bool]:
    """Make one step.

    Args:
        state: position and velocity of the car.
        action: throttle in [-1, 1]; values beyond are clipped, but paid for in full.
        params: see `Params`.
    """
    position, velocity = state
    single = was_rounded(position, velocity)
    push = round_if(single, accelerate(single, position, action[0], params))
    velocity = round_if(single, velocity + push)
    limit = round_if(single, MAX_SPEED)
    velocity = min(max(velocity, -limit), limit)
    position = round_if(single, position + velocity)
    left, right = round_if(single, MIN_POSITION), round_if(single, MAX_POSITION)
    position = min(max(position, left), right)
    # The wall on the left takes the speed of a car that runs into it.
    velocity = 0.0 if (position == left) & (velocity < 0.0) else velocity
    terminated = (position >= round_if(single, params.goal_position)) & (
        velocity >= round_if(single, params.goal_velocity)
    )
    reward = (100.0 if terminated else 0.0) - action[0] * action[0] * 0.1
    return (round_to_single(position), round_to_single(velocity)), reward, terminated


DYNAMICS = Dynamics(
    id="MountainCarContinuous-v0",
    step=step,
    reset=reset,
    observation_space=mountain_car.DYNAMICS.observation_space,
    action_space=Box(-MAX_ACTION, MAX_ACTION, shape=(1,)),
    params=Params(),
    reset_draws=1,
    max_episode_steps=999,
    reward_threshold=90.0,
    reset_options={"low": ("reset_low",), "high": ("reset_high",)},
    original="MountainCarContinuous-v0",
)

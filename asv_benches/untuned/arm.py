"""An arm of two links follows a point: angles without bounds that add up, costs of distance."""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from asv_benches.untuned import Task
from rlcpu import Dynamics


class Params(NamedTuple):
    upper: float = 0.6  # m
    lower: float = 0.4  # m
    seconds: float = 0.05  # of a step


def step(state, action, params):
    """Turn shoulder and elbow by speeds in rad/s."""
    shoulder, elbow, x, y = state
    shoulder = shoulder + params.seconds * action[0]
    elbow = elbow + params.seconds * action[1]
    hand_x = params.upper * math.cos(shoulder) + params.lower * math.cos(shoulder + elbow)
    hand_y = params.upper * math.sin(shoulder) + params.lower * math.sin(shoulder + elbow)
    distance = math.sqrt((hand_x - x) ** 2 + (hand_y - y) ** 2)
    return (shoulder, elbow, x, y), -distance, False


def reset(rng, params):
    angle, radius = 6.28 * rng.uniform(2), 0.4 + 0.5 * rng.uniform(3)
    x, y = radius * math.cos(angle), radius * math.sin(angle)
    return 6.28 * rng.uniform(0) - 3.14, 2.0 * rng.uniform(1) - 1.0, x, y


def act(observation, params, uniforms):
    """Follow the gradient of the squared distance."""
    shoulder, elbow, x, y = observation
    lower_x, lower_y = 0.4 * math.cos(shoulder + elbow), 0.4 * math.sin(shoulder + elbow)
    hand_x, hand_y = 0.6 * math.cos(shoulder) + lower_x, 0.6 * math.sin(shoulder) + lower_y
    off_x, off_y = x - hand_x, y - hand_y
    turn = 40.0 * (off_y * hand_x - off_x * hand_y)
    bend = 40.0 * (off_y * lower_x - off_x * lower_y)
    return (min(max(turn, -2.0), 2.0), min(max(bend, -2.0), 2.0)), 0.0, 0.0


DYNAMICS = Dynamics(
    id="Untuned/Arm-v0",
    step=step,
    reset=reset,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (4,), np.float32),
    action_space=Box(-2.0, 2.0, (2,), np.float32),
    max_episode_steps=80,
)
TASK = Task(
    DYNAMICS,
    act,
    chance=-85.9,
    good=-11.3,
    steps=50_000,
)

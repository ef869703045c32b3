"""CartPole as a user would define it: one plain Python file, registered with one call."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import Dynamics

State = tuple[float, float, float, float]


class Params(NamedTuple):
    """Masses in kg, lengths in m, force in N, time in s, angles in rad."""

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    half_length: float = 0.5
    force: float = 10.0
    tau: float = 0.02
    x_limit: float = 2.4
    theta_limit: float = 12 * 2 * math.pi / 360


def reset(uniforms: State, params: Params) -> State:
    """Every coordinate uniform in [-0.05, 0.05)."""
    a, b, c, d = uniforms
    return 0.1 * a - 0.05, 0.1 * b - 0.05, 0.1 * c - 0.05, 0.1 * d - 0.05


def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Barto, Sutton & Anderson (1983), explicit Euler."""
    x, x_dot, theta, theta_dot = state
    force = params.force if action == 1 else -params.force
    sin, cos = math.sin(theta), math.cos(theta)
    mass = params.cart_mass + params.pole_mass
    moment = params.pole_mass * params.half_length
    push = (force + moment * theta_dot * theta_dot * sin) / mass
    theta_acc = (params.gravity * sin - cos * push) / (
        params.half_length * (4.0 / 3.0 - params.pole_mass * cos * cos / mass)
    )
    x_acc = push - moment * theta_acc * cos / mass
    x, theta = x + params.tau * x_dot, theta + params.tau * theta_dot
    x_dot, theta_dot = x_dot + params.tau * x_acc, theta_dot + params.tau * theta_acc
    fell = abs(x) > params.x_limit or abs(theta) > params.theta_limit
    return (x, x_dot, theta, theta_dot), 1.0, fell


HIGH = np.array([4.8, np.inf, 0.42, np.inf], np.float32)

DYNAMICS = Dynamics(
    id="UserCartPole-v0",
    step=step,
    reset=reset,
    observation_space=Box(-HIGH, HIGH),
    action_space=Discrete(2),
    params=Params(),
    reset_draws=4,
    max_episode_steps=500,
)
rlcpu.register(DYNAMICS)

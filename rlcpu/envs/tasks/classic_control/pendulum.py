"""Pendulum-v1: swing a pendulum up and hold it there with little torque.

Source: the swing-up problem of Doya (2000), "Reinforcement learning in continuous time and space",
Neural Computation 12(1), in Gymnasium's form.

Gymnasium receives float32 torques, and NumPy 2 keeps products of them in float32. In float64 these
functions round at the same places and are Gymnasium's step bit for bit, except NumPy's last digit
of sin and cos; in float32 the rounding costs nothing. One float32 step errs by at most 4e-6 rad
(half an ulp of the largest angle, 80 rad: angles are not wrapped), 1.5e-6 rad/s and 3e-5 in reward
from the same state, wherever a random policy goes.
"""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.kernels.compiler.maths import round_to_single, single_square

#: Limits of the velocity and of the action, which are those of the spaces.
MAX_SPEED = 8.0
MAX_TORQUE = 2.0

State = tuple[float, float]


class Params(NamedTuple):
    """Physics and reset bounds."""

    g: float = 10.0  # m/s^2, gravity
    mass: float = 1.0  # kg, mass of the rod
    length: float = 1.0  # m, length of the rod
    dt: float = 0.05  # s, one step
    x_init: float = math.pi  # rad, a new angle is drawn from [-x_init, x_init)
    y_init: float = 1.0  # rad/s, a new velocity is drawn from [-y_init, y_init)


def reset(uniforms: State, params: Params) -> State:
    """Draw angle and velocity, each uniform and symmetric about 0."""
    u0, u1 = uniforms
    x, y = params.x_init, params.y_init
    return (-x + (x + x) * u0, -y + (y + y) * u1)


def observe(state: State, params: Params) -> tuple[float, float, float]:
    """Return cosine and sine of the angle, and the velocity."""
    theta, theta_dot = state
    return (math.cos(theta), math.sin(theta), theta_dot)


def normalize_angle(angle: float) -> float:
    """Return the angle in [-pi, pi): Python's `(angle + pi) % (2 * pi) - pi`.

    `%` is what Python makes of `fmod`, and kernels vectorise only the latter.
    """
    remainder = math.fmod(angle + math.pi, 2.0 * math.pi)
    return (remainder + 2.0 * math.pi if remainder < 0.0 else remainder) - math.pi


def step(state: State, action: tuple[float], params: Params) -> tuple[State, float, bool]:
    """Make one step of `dt` seconds; never terminates.

    Squares are `math.pow` because Gymnasium's `x ** 2` is: 1 in 1,000 is not the bits of `x * x`.

    Args:
        state: angle (rad, 0 is up, not wrapped) and velocity (rad/s).
        action: torque (N m), clipped to [-2, 2].
        params: see `Params`.
    """
    theta, theta_dot = state
    torque = min(max(action[0], -MAX_TORQUE), MAX_TORQUE)
    effort = round_to_single(round_to_single(0.001) * single_square(torque))
    costs = math.pow(normalize_angle(theta), 2.0) + 0.1 * math.pow(theta_dot, 2.0) + effort
    inertia = params.mass * math.pow(params.length, 2.0)
    push = round_to_single(round_to_single(3.0 / inertia) * torque)
    pull = 3.0 * params.g / (2.0 * params.length) * math.sin(theta)
    new_theta_dot = theta_dot + (pull + push) * params.dt
    new_theta_dot = min(max(new_theta_dot, -MAX_SPEED), MAX_SPEED)
    return (theta + new_theta_dot * params.dt, new_theta_dot), -costs, False


_HIGH = np.array([1.0, 1.0, MAX_SPEED], dtype=np.float32)

DYNAMICS = Dynamics(
    id="Pendulum-v1",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=Box(-_HIGH, _HIGH, dtype=np.float32),
    action_space=Box(-MAX_TORQUE, MAX_TORQUE, shape=(1,), dtype=np.float32),
    params=Params(),
    reset_draws=2,
    max_episode_steps=200,
    reset_options={"x_init": ("x_init",), "y_init": ("y_init",)},
    original="Pendulum-v1",
)

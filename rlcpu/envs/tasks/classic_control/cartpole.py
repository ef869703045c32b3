"""CartPole-v1: keep a pole upright on a cart that is pushed left or right.

Source: Barto, Sutton & Anderson (1983), "Neuronlike adaptive elements that can solve difficult
learning control problems", IEEE Transactions on Systems, Man, and Cybernetics 13(5); equations as
corrected by Florian (2007), "Correct equations for the dynamics of the cart-pole system".

float64 is Gymnasium's step bit for bit, except NumPy's last digit of sin and cos. One float32 step
errs by at most 6e-8 m, 3e-7 m/s, 4e-8 rad and 5e-7 rad/s from the same state, wherever a random
policy goes.
"""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics

#: The episode ends beyond these; the observation space, twice as wide, depends on them.
X_THRESHOLD = 2.4
THETA_THRESHOLD = 12 * 2 * math.pi / 360
THETA_THRESHOLD_RADIANS = THETA_THRESHOLD  # Gymnasium's name

State = tuple[float, float, float, float]


class Params(NamedTuple):
    """Physics, options and reset bounds."""

    gravity: float = 9.8  # m/s^2
    masscart: float = 1.0  # kg, mass of the cart
    masspole: float = 0.1  # kg, mass of the pole
    length: float = 0.5  # m, half the pole
    force_mag: float = 10.0  # N, of a push
    tau: float = 0.02  # s, one step
    reset_low: float = -0.05  # lower bound of all four numbers of a new state
    reset_high: float = 0.05  # their upper bound
    sutton_barto_reward: bool = False  # 0, and -1 when the pole falls, in place of 1 throughout
    semi_implicit: bool = False  # positions move with the new velocities, not with the old ones


def reset(uniforms: State, params: Params) -> State:
    """Draw four numbers from [reset_low, reset_high)."""
    u0, u1, u2, u3 = uniforms
    low = params.reset_low
    width = params.reset_high - params.reset_low
    return (low + width * u0, low + width * u1, low + width * u2, low + width * u3)


def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Make one Euler step of `tau` seconds.

    Args:
        state: cart position (m) and velocity (m/s), pole angle (rad) and velocity (rad/s).
        action: 0 pushes to the left, 1 to the right.
        params: see `Params`.
    """
    x, x_dot, theta, theta_dot = state
    force = params.force_mag if action == 1 else -params.force_mag
    sine, cosine = math.sin(theta), math.cos(theta)
    total_mass = params.masspole + params.masscart
    polemass_length = params.masspole * params.length
    temp = (force + polemass_length * (theta_dot * theta_dot) * sine) / total_mass
    theta_acc = (params.gravity * sine - cosine * temp) / (
        params.length * (4.0 / 3.0 - params.masspole * (cosine * cosine) / total_mass)
    )
    x_acc = temp - polemass_length * theta_acc * cosine / total_mass
    new_x_dot = x_dot + params.tau * x_acc
    new_theta_dot = theta_dot + params.tau * theta_acc
    new_x = x + params.tau * (new_x_dot if params.semi_implicit else x_dot)
    new_theta = theta + params.tau * (new_theta_dot if params.semi_implicit else theta_dot)
    terminated = (
        (new_x < -X_THRESHOLD)
        | (new_x > X_THRESHOLD)
        | (new_theta < -THETA_THRESHOLD)
        | (new_theta > THETA_THRESHOLD)
    )
    fallen = -1.0 if terminated else 0.0
    reward = fallen if params.sutton_barto_reward else 1.0
    return (new_x, new_x_dot, new_theta, new_theta_dot), reward, terminated


_HIGH = np.array([2 * X_THRESHOLD, np.inf, 2 * THETA_THRESHOLD, np.inf], dtype=np.float32)

DYNAMICS = Dynamics(
    id="CartPole-v1",
    step=step,
    reset=reset,
    observation_space=Box(-_HIGH, _HIGH, dtype=np.float32),
    action_space=Discrete(2),
    params=Params(),
    reset_draws=4,
    max_episode_steps=500,
    reward_threshold=475.0,
    reset_options={"low": ("reset_low",), "high": ("reset_high",)},
    original="CartPole-v1",
)

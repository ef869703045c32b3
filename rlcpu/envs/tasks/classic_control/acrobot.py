"""Acrobot-v1: swing the tip of a two-link robot up with a motor at the joint between the links.

Source: Sutton (1996), "Generalization in reinforcement learning: successful examples using sparse
coarse coding", NIPS 8 (the `nips` equations); Sutton & Barto (2018), "Reinforcement learning: an
introduction", section 11.3 of the first edition (the equations used by default).

float64 is Gymnasium's step bit for bit, except NumPy's last digit of sin and cos; only the first
observation of an episode, which Gymnasium computes from float32 angles, may be a float32 ulp off.
One float32 step errs by at most 7e-7 rad, 1e-6 rad, 2e-6 rad/s and 4e-6 rad/s from the same state,
wherever a random policy goes.
"""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.kernels.compiler.maths import round_to_single

#: Limits of the velocities (rad/s), which are those of the observation space.
MAX_VELOCITY_1 = 4 * math.pi
MAX_VELOCITY_2 = 9 * math.pi

State = tuple[float, float, float, float]


class Params(NamedTuple):
    """Physics, options and reset bounds."""

    gravity: float = 9.8  # m/s^2
    link_length_1: float = 1.0  # m, length of the first link
    link_mass_1: float = 1.0  # kg, mass of the first link
    link_mass_2: float = 1.0  # kg, mass of the second link
    link_com_1: float = 0.5  # m, from the first link's upper end to its centre of mass
    link_com_2: float = 0.5  # m, likewise of the second link
    link_moi: float = 1.0  # kg m^2, moment of inertia of either link
    torque: float = 1.0  # N m, of the motor
    torque_noise_max: float = 0.0  # N m, uniform noise in [-max, max) on the torque
    dt: float = 0.2  # s, one step
    reset_low: float = -0.1  # lower bound of all four numbers of a new state
    reset_high: float = 0.1  # their upper bound
    nips: bool = False  # equations of the NIPS paper, not those of the book


def reset(uniforms: State, params: Params) -> State:
    """Draw four numbers from [reset_low, reset_high), rounded to float32 as Gymnasium's are."""
    u0, u1, u2, u3 = uniforms
    low = params.reset_low
    width = params.reset_high - params.reset_low
    return (
        round_to_single(low + width * u0),
        round_to_single(low + width * u1),
        round_to_single(low + width * u2),
        round_to_single(low + width * u3),
    )


def observe(state: State, params: Params) -> tuple[float, float, float, float, float, float]:
    """Return cosine and sine of both angles, and both velocities."""
    theta1, theta2, dtheta1, dtheta2 = state
    return (
        math.cos(theta1),
        math.sin(theta1),
        math.cos(theta2),
        math.sin(theta2),
        dtheta1,
        dtheta2,
    )


def derivatives(state: State, torque: float, params: Params) -> State:
    """Return the time derivative of the state: equations of motion of the two links.

    Squares are `math.pow` because Gymnasium's `x ** 2` is: 1 in 1,000 is not the bits of `x * x`.
    """
    theta1, theta2, dtheta1, dtheta2 = state
    m1, m2, inertia = params.link_mass_1, params.link_mass_2, params.link_moi
    l1, lc1, lc2, g = params.link_length_1, params.link_com_1, params.link_com_2, params.gravity
    sine, cosine = math.sin(theta2), math.cos(theta2)
    reach = math.pow(l1, 2.0) + math.pow(lc2, 2.0) + 2.0 * l1 * lc2 * cosine
    d1 = m1 * math.pow(lc1, 2.0) + m2 * reach + inertia + inertia
    d2 = m2 * (math.pow(lc2, 2.0) + l1 * lc2 * cosine) + inertia
    phi2 = m2 * lc2 * g * math.cos(theta1 + theta2 - math.pi / 2.0)
    phi1 = (
        -m2 * l1 * lc2 * math.pow(dtheta2, 2.0) * sine
        - 2.0 * m2 * l1 * lc2 * dtheta2 * dtheta1 * sine
        + (m1 * lc1 + m2 * l1) * g * math.cos(theta1 - math.pi / 2.0)
        + phi2
    )
    drive = torque + d2 / d1 * phi1
    if not params.nips:
        drive = drive - m2 * l1 * lc2 * math.pow(dtheta1, 2.0) * sine
    ddtheta2 = (drive - phi2) / (m2 * math.pow(lc2, 2.0) + inertia - math.pow(d2, 2.0) / d1)
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return (dtheta1, dtheta2, ddtheta1, ddtheta2)


def move(state: State, time: float, slope: State) -> State:
    """Return `state + time * slope`."""
    return (
        state[0] + time * slope[0],
        state[1] + time * slope[1],
        state[2] + time * slope[2],
        state[3] + time * slope[3],
    )


def wrap(angle: float) -> float:
    """Return the angle in [-pi, pi], turn by turn, which rounds as Gymnasium's `while` loops do.

    A step from within the limits ends at 9.47 pi at most, which is five turns away, and a loop of
    constant length vectorises.
    """
    whole_turn = 2.0 * math.pi if angle > 0.0 else -2.0 * math.pi
    for _ in range(5):
        angle = angle - whole_turn if abs(angle) > math.pi else angle
    return angle


def step(
    state: State, action: int, params: Params, uniforms: tuple[float]
) -> tuple[State, float, bool]:
    """Make one step of `dt` seconds, fourth-order Runge-Kutta.

    Args:
        state: angle of the first link (rad, 0 hangs down), of the second relative to the first,
            and their velocities (rad/s).
        action: torque on the joint: 0 negative, 1 none, 2 positive.
        params: see `Params`.
        uniforms: one random number in [0, 1) for the noise on the torque.
    """
    torque = params.torque if action == 2 else (-params.torque if action == 0 else 0.0)
    noise = params.torque_noise_max
    torque = torque + (-noise + (noise + noise) * uniforms[0])
    k1 = derivatives(state, torque, params)
    k2 = derivatives(move(state, params.dt / 2.0, k1), torque, params)
    k3 = derivatives(move(state, params.dt / 2.0, k2), torque, params)
    k4 = derivatives(move(state, params.dt, k3), torque, params)
    total = move(move(move(k1, 2.0, k2), 2.0, k3), 1.0, k4)  # k1 + 2 k2 + 2 k3 + k4
    theta1, theta2, dtheta1, dtheta2 = move(state, params.dt / 6.0, total)
    theta1, theta2 = wrap(theta1), wrap(theta2)
    dtheta1 = min(max(dtheta1, -MAX_VELOCITY_1), MAX_VELOCITY_1)
    dtheta2 = min(max(dtheta2, -MAX_VELOCITY_2), MAX_VELOCITY_2)
    terminated = -math.cos(theta1) - math.cos(theta2 + theta1) > 1.0
    return (theta1, theta2, dtheta1, dtheta2), 0.0 if terminated else -1.0, terminated


_HIGH = np.array([1.0, 1.0, 1.0, 1.0, MAX_VELOCITY_1, MAX_VELOCITY_2], dtype=np.float32)

DYNAMICS = Dynamics(
    id="Acrobot-v1",
    step=step,
    reset=reset,
    observe=observe,
    observation_space=Box(-_HIGH, _HIGH, dtype=np.float32),
    action_space=Discrete(3),
    params=Params(),
    reset_draws=4,
    step_draws=1,
    max_episode_steps=500,
    reward_threshold=-100.0,
    reset_options={"low": ("reset_low",), "high": ("reset_high",)},
    original="Acrobot-v1",
)

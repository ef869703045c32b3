"""Classic control whose velocities are not shown: a policy has to remember what it saw before.

All but the observation is that of the environment without "NoVel" in its name: it has zeros in the
place of velocities, as rl-baselines3-zoo's `MaskVelocityWrapper` makes it.
"""

import dataclasses
import math
from typing import Any

from rlcpu.envs.tasks.classic_control import cartpole, mountain_car_continuous, pendulum


def observe_cartpole(state: cartpole.State, params: Any) -> tuple[float, float, float, float]:
    """Return where the cart is (m), and the angle of the pole (rad)."""
    return state[0], 0.0, state[2], 0.0


def observe_car(state: tuple[float, float], params: Any) -> tuple[float, float]:
    """Return where the car is."""
    return state[0], 0.0


def observe_pendulum(state: pendulum.State, params: Any) -> tuple[float, float, float]:
    """Return cosine and sine of the angle."""
    return math.cos(state[0]), math.sin(state[0]), 0.0


ALL = [
    dataclasses.replace(shown.DYNAMICS, id=id, observe=observe, original=None)
    for shown, id, observe in (
        (cartpole, "CartPoleNoVel-v1", observe_cartpole),
        (mountain_car_continuous, "MountainCarContinuousNoVel-v0", observe_car),
        (pendulum, "PendulumNoVel-v1", observe_pendulum),
    )
]

"""POPGym/PositionOnlyCartPole and -Pendulum, and their Noisy forms: velocities are not seen.

The physics are Gymnasium's; rewards are scaled, so that an episode's return is at most 1. The
Noisy forms add normal noise to what is seen, within the bounds of the space.
Source: see `rlcpu.envs.tasks.popgym`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.classic_control import cartpole, pendulum
from rlcpu.kernels.machine.random import Rng

CARTPOLE, PENDULUM = cartpole.Params(), pendulum.Params()
LEAST_REWARD = -16.2736044  # of Gymnasium's pendulum
X_HIGH, THETA_HIGH = 2.0 * cartpole.X_THRESHOLD, 2.0 * cartpole.THETA_THRESHOLD


class CartPole(NamedTuple):
    """CartPole's state, and the noise in what is seen of it."""

    cartpole: tuple[float, float, float, float]  # position, velocity, angle, velocity: m, rad and s
    noise: tuple[float, float]  # of position and angle


class Pendulum(NamedTuple):
    """Pendulum's state, and the noise in what is seen of it."""

    pendulum: tuple[float, float]  # angle, 0 is up, and velocity: rad and s
    noise: tuple[float, float]  # of the angle's cosine and sine


class Params(NamedTuple):
    """Scales of noise and rewards."""

    scale: float  # steps of an episode, by which rewards are divided
    noise: float  # standard deviation
    noisy: bool  # whether there is any noise


def draw_noise(rng: Rng, params: Params) -> tuple[float, float]:
    """Draw the noise of both numbers that are seen."""
    if not params.noisy:
        return 0.0, 0.0
    return params.noise * rng.normal(), params.noise * rng.normal()


def reset_cartpole(rng: Rng, params: Params) -> CartPole:
    """Draw a state near the upright one."""
    uniforms = (rng.uniform(), rng.uniform(), rng.uniform(), rng.uniform())
    return CartPole(cartpole.reset(uniforms, CARTPOLE), draw_noise(rng, params))


def step_cartpole(
    s: CartPole, action: int, params: Params, rng: Rng
) -> tuple[CartPole, float, bool]:
    """Push the cart to the left (0) or to the right (1)."""
    after, _, terminated = cartpole.step(s.cartpole, action, CARTPOLE)
    return CartPole(after, draw_noise(rng, params)), 1.0 / params.scale, terminated


def observe_cartpole(s: CartPole, params: Params) -> tuple[float, float]:
    """Return position of the cart and angle of the pole."""
    x, theta = s.cartpole[0] + s.noise[0], s.cartpole[2] + s.noise[1]
    if not params.noisy:
        return x, theta
    return min(max(x, -X_HIGH), X_HIGH), min(max(theta, -THETA_HIGH), THETA_HIGH)


def reset_pendulum(rng: Rng, params: Params) -> Pendulum:
    """Draw an angle and a velocity."""
    uniforms = (rng.uniform(), rng.uniform())
    return Pendulum(pendulum.reset(uniforms, PENDULUM), draw_noise(rng, params))


def step_pendulum(
    s: Pendulum, action: tuple[float], params: Params, rng: Rng
) -> tuple[Pendulum, float, bool]:
    """Turn the pendulum with a torque (N m); the reward is -1 at worst, 1 at best, over `scale`."""
    after, reward, terminated = pendulum.step(s.pendulum, action, PENDULUM)
    half = -0.5 * LEAST_REWARD
    reward = (reward + half) / half / params.scale
    return Pendulum(after, draw_noise(rng, params)), reward, terminated


def observe_pendulum(s: Pendulum, params: Params) -> tuple[float, float]:
    """Return cosine and sine of the angle."""
    theta, _ = s.pendulum
    cosine, sine = math.cos(theta) + s.noise[0], math.sin(theta) + s.noise[1]
    if not params.noisy:
        return cosine, sine
    return min(max(cosine, -1.0), 1.0), min(max(sine, -1.0), 1.0)


_HIGH = np.array([X_HIGH, THETA_HIGH], np.float32)
_TASKS: dict[str, dict[str, Any]] = {
    "CartPole": {
        "step": step_cartpole,
        "reset": reset_cartpole,
        "observe": observe_cartpole,
        "observation_space": Box(-_HIGH, _HIGH),
        "action_space": cartpole.DYNAMICS.action_space,
    },
    "Pendulum": {
        "step": step_pendulum,
        "reset": reset_pendulum,
        "observe": observe_pendulum,
        "observation_space": Box(-1.0, 1.0, (2,)),
        "action_space": pendulum.DYNAMICS.action_space,
    },
}
#: Task, and steps and noise of the three levels.
_LEVELS = (
    ("", "CartPole", (200, 400, 600), (0.0, 0.0, 0.0)),
    ("", "Pendulum", (200, 150, 100), (0.0, 0.0, 0.0)),
    ("Noisy", "CartPole", (200, 200, 200), (0.1, 0.2, 0.3)),
    ("Noisy", "Pendulum", (200, 200, 200), (0.1, 0.2, 0.3)),
)
LEVELS = tuple(
    Dynamics(
        id=f"POPGym/{start}PositionOnly{task}{level}-v0",
        params=Params(float(steps), noise, noise > 0.0),
        max_episode_steps=steps,
        **_TASKS[task],
    )
    for start, task, *levels in _LEVELS
    for level, steps, noise in zip(("Easy", "Medium", "Hard"), *levels, strict=True)
)

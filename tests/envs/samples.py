"""Environments that tests of several files use: small, and each with one thing that others lack."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rlcpu.envs import Dynamics


class NoParams(NamedTuple):
    """Parameters of an environment without any."""


# ---------------------------------------------------------------- floats, of which kernels make all


def falling(width: int) -> Dynamics:
    """A number that falls by the first of `width` numbers of an action."""
    return Dynamics(
        id="Falling-v0",
        step=lambda state, action, params: ((state[0] - action[0],), state[0], False),
        reset=lambda uniforms, params: (uniforms[0],),
        observation_space=Box(-math.inf, math.inf, (1,), np.float32),
        action_space=Box(-1.0, 1.0, (width,), np.float32),
        params=NoParams(),
        reset_draws=1,
    )


class Worth(NamedTuple):
    """What the numbers of an action are worth."""

    one: float = 1.0
    ten: float = 10.0
    hundred: float = 100.0


def _levers_step(state: Any, action: Any, params: Any) -> Any:
    one, ten, hundred = action
    number = params.one * float(one) + params.ten * float(ten) + params.hundred * float(hundred)
    return (state[0] + 1.0, 0.1 * float(one)), number, False


#: Three choices in an action, which the reward tells, digit by digit.
LEVERS = Dynamics(
    id="Levers-v0",
    step=_levers_step,
    reset=lambda uniforms, params: (uniforms[0], 0.0),
    reset_draws=1,
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=MultiDiscrete([3, 2, 4]),
    params=Worth(),
    max_episode_steps=5,
)


def _drift_step(state: Any, action: int, params: Any, uniforms: Any) -> Any:
    position = state[0] + 0.1 * (1.0 if action == 2 else -1.0) + uniforms[0]
    return (position, state[1] + 1.0), position, position > 3.0


#: A position that drifts at random until it is above 3, and the steps so far.
DRIFT = Dynamics(
    id="Drift-v0",
    step=_drift_step,
    reset=lambda uniforms, params: (uniforms[0] + uniforms[1], 0.0),
    observation_space=Box(-math.inf, math.inf, (2,), np.float32),
    action_space=Discrete(3),
    params=NoParams(),
    reset_draws=2,
    step_draws=1,
)


def _step_of_whole_numbers(state: Any, action: int, params: Any) -> Any:
    speed = max(2 * state[1], 0) + math.sin(int(state[0])) - action / 2
    return (state[0] + speed / 10, speed if action == 1 else 0), 1 if speed > 1 else 0.5, speed > 3


#: Whole numbers beside real ones, each of which numba alone takes for float64.
WHOLE = Dynamics(
    id="Whole-v0",
    step=_step_of_whole_numbers,
    reset=lambda uniforms, params: (uniforms[0], 0),
    observation_space=Box(-math.inf, math.inf, (2,), np.float32),
    action_space=Discrete(3),
    params=NoParams(),
    reset_draws=1,
)


# ---------------------------------------------------------------- MuJoCo

#: A pole on a cart, and a force that no solver survives if it is let.
POLE_XML = """
<mujoco>
  <option timestep="0.02" integrator="Euler"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" limited="false"/>
      <geom type="box" size="0.1 0.1 0.1" mass="1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" limited="false"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.05" mass="0.1"/>
        <site name="tip" pos="0 0 0.6"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="slide" gear="10" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


class PoleParams(NamedTuple):
    """Parameters of `pole`."""

    noise: float = 0.01
    bounds: tuple[float, float] = (-1.0, 1.0)


def _reset_pole(data, uniforms, params):
    for k in range(2):
        data.qpos[k] += params.noise * (2.0 * uniforms[k] - 1.0)


def _observe_pole(data, observation, params):
    observation[:2] = data.qpos
    observation[2:] = data.qvel


def _reward_height(data, action, before, after, params):
    return after[0] - before[0]


def _measure_tip(data, params):
    return (data.site_xpos[data.tip, 2],)


def _is_beyond(data, params):
    return data.qpos[0] < params.bounds[0] or data.qpos[0] > params.bounds[1]


def pole(**changes: Any) -> Any:
    """The task of the pole, with other arguments of `MuJoCoDynamics`; it needs MuJoCo."""
    from rlcpu.envs.mujoco import MuJoCoDynamics

    arguments: dict[str, Any] = {
        "id": "Pole-v0",
        "xml": POLE_XML,
        "frame_skip": 2,
        "fields": ("qpos", "qvel", "site_xpos"),
        "names": {"tip": "site:tip"},
        "params": PoleParams(),
        "reset": _reset_pole,
        "reset_draws": 2,
        "observe": _observe_pole,
        "observation_size": 4,
        "reward": _reward_height,
        "measure": _measure_tip,
        "terminated": _is_beyond,
        "max_episode_steps": 50,
    }
    return MuJoCoDynamics(**{**arguments, **changes})

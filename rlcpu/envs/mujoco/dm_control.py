"""Two tasks of dm_control's suite: with `current=True` what is seen is of after the step.

Their models are those of the installed package `dm_control`, of which nothing else is used. States,
observations and rewards are its own from equal states and actions; observations are in one row, in
its order.

Sources: `dm_control.suite.cartpole`, `dm_control.suite.cheetah`, `dm_control.utils.rewards`
(Tassa et al. 2018, "DeepMind Control Suite").
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.numerics import between, normal, put


def find_suite(file: str) -> str:
    """Return the path of one of the suite's models.

    Raises:
        ImportError: dm_control is not installed.
    """
    spec = importlib.util.find_spec("dm_control")
    if spec is None or spec.origin is None:
        raise ImportError(
            f"{file} is a model of dm_control, which is missing: pip install dm_control"
        )
    return os.path.join(os.path.dirname(spec.origin), "suite", file)


def near_zero(x: float, margin: float) -> float:
    """`rewards.tolerance(x, margin=margin)`: 1 at 0, a tenth at the margin, as a Gaussian."""
    scaled = abs(x) / margin * math.sqrt(-2.0 * math.log(0.1))
    return math.exp(-0.5 * (scaled * scaled))


# ---------------------------------------------------------------- cartpole, swingup


def reset_swingup(data: Any, uniforms: Any, params: Any) -> None:
    """Return the pole hangs, nearly at rest."""
    data.qpos[0] = 0.01 * normal(uniforms[0], uniforms[1])
    data.qpos[1] = math.pi + 0.01 * normal(uniforms[2], uniforms[3])
    data.qvel[0] = 0.01 * normal(uniforms[4], uniforms[5])
    data.qvel[1] = 0.01 * normal(uniforms[6], uniforms[7])


def observe_swingup(data: Any, observation: Any, params: Any) -> None:
    """Return the cart's position, cosine and sine of the pole's angle, and velocities."""
    observation[0] = data.qpos[0]
    observation[1] = data.xmat[data.pole, 8]
    observation[2] = data.xmat[data.pole, 2]
    put(observation, 3, data.qvel)


def reward_swingup(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """1 where the pole is upright in the middle, at rest and without control."""
    upright = (data.xmat[data.pole, 8] + 1.0) / 2.0
    centered = (1.0 + near_zero(data.qpos[0], 2.0)) / 2.0
    push = abs(data.ctrl[0])
    small_control = (4.0 + (1.0 - push * push if push < 1.0 else 0.0)) / 5.0
    small_velocity = (1.0 + near_zero(data.qvel[1], 5.0)) / 2.0
    return upright * small_control * small_velocity * centered


def make_swingup() -> MuJoCoDynamics:
    """dm_control's cartpole, task swingup."""
    return MuJoCoDynamics(
        id="dm_control/cartpole-swingup-v0",
        xml=find_suite("cartpole.xml"),
        frame_skip=1,
        fields=("qpos", "qvel", "ctrl", "xmat"),
        names={"pole": "body:pole_1"},
        reset=reset_swingup,
        reset_draws=8,
        reward=reward_swingup,
        observe=observe_swingup,
        observation_size=5,
        current=True,
        max_episode_steps=1000,
    )


# ---------------------------------------------------------------- cheetah, run


def reset_run(data: Any, uniforms: Any, params: Any) -> None:
    """Joints anywhere in their ranges; the first three, which have none, are the torso's."""
    for k in range(3, data.qpos.size):
        data.qpos[k] = between(uniforms[k - 3], data.jnt_range[k, 0], data.jnt_range[k, 1])


def observe_run(data: Any, observation: Any, params: Any) -> None:
    """Return positions but the first, and velocities."""
    put(observation, put(observation, 0, data.qpos[1:]), data.qvel)


def reward_run(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Forward speed of the centre of mass, 1 from 10 m/s on."""
    speed = data.sensordata[data.velocity]
    away = (10.0 - speed) / 10.0
    return 1.0 if speed >= 10.0 else 1.0 - away if away < 1.0 else 0.0


def make_run() -> MuJoCoDynamics:
    """dm_control's cheetah, task run."""
    return MuJoCoDynamics(
        id="dm_control/cheetah-run-v0",
        xml=find_suite("cheetah.xml"),
        frame_skip=1,
        fields=("qpos", "qvel", "sensordata", "jnt_range"),
        names={"velocity": "sensor:torso_subtreelinvel"},
        reset=reset_run,
        reset_draws=6,
        settle_steps=200,
        reward=reward_run,
        observe=observe_run,
        observation_size=17,
        current=True,
        max_episode_steps=1000,
    )


TASKS: dict[str, Callable[[], MuJoCoDynamics]] = {
    "dm_control/cartpole-swingup-v0": make_swingup,
    "dm_control/cheetah-run-v0": make_run,
}

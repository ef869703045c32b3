"""Gymnasium's -v5 tasks: observations and rewards are the same bits in float64.

That takes the order of Gymnasium's operations, NumPy's order of summation, and float32 where it
squares float32 actions. Sources: `gymnasium.envs.mujoco`, one module a task.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics, find_model

single = np.float32


def sum_of_squares(x: Any, zero: Any) -> Any:
    """np.sum(np.square(x)) of at most 128 numbers, in the dtype of zero and in NumPy's order.

    NumPy adds every eighth number, in eight sums, and the rest one by one.
    """
    full = x.size - x.size % 8
    a = b = c = d = e = f = g = h = zero
    for k in range(0, full, 8):
        a += x[k] * x[k]
        b += x[k + 1] * x[k + 1]
        c += x[k + 2] * x[k + 2]
        d += x[k + 3] * x[k + 3]
        e += x[k + 4] * x[k + 4]
        f += x[k + 5] * x[k + 5]
        g += x[k + 6] * x[k + 6]
        h += x[k + 7] * x[k + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for k in range(full, x.size):
        total += x[k] * x[k]
    return total


def control_cost(action: Any, weight: float) -> Any:
    """NumPy's weight * np.sum(np.square(action)), which stays in the actions' float32."""
    return float(single(weight) * sum_of_squares(action, single(0)))


def put(observation: Any, begin: int, numbers: Any) -> int:
    """Write numbers from `begin` on, and return where the next ones begin.

    A loop compiles in a fifth of the time of `observation[begin:end] = numbers`.
    """
    for k in range(numbers.size):
        observation[begin + k] = numbers[k]
    return begin + numbers.size


def normal(u: float, v: float) -> float:
    """A standard normal number from two numbers in [0, 1) (Box and Muller 1958)."""
    return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v)


def add_uniform(target: Any, uniforms: Any, first: int, scale: float) -> None:
    """Add numbers from [-scale, scale) to all of `target`."""
    for k in range(target.size):
        target[k] += scale * (2.0 * uniforms[first + k] - 1.0)


def add_normal(target: Any, uniforms: Any, first: int, scale: float) -> None:
    """Add normal numbers of deviation `scale` to all of `target`."""
    for k in range(target.size):
        target[k] += scale * normal(uniforms[first + 2 * k], uniforms[first + 2 * k + 1])


def reset_with_normal_velocities(data: Any, uniforms: Any, params: Any) -> None:
    """Uniform noise on positions, normal noise on velocities."""
    add_uniform(data.qpos, uniforms, 0, params.reset_noise_scale)
    add_normal(data.qvel, uniforms, data.qpos.size, params.reset_noise_scale)


def draws_with_normal_velocities(model: Any, params: Any) -> int:
    """Numbers that `reset_with_normal_velocities` draws."""
    return int(model.nq + 2 * model.nv)


def measure_x(data: Any, params: Any) -> tuple[float, ...]:
    """The first position."""
    return (data.qpos[0],)


# ---------------------------------------------------------------- HalfCheetah


class HalfCheetah(NamedTuple):
    """Parameters of HalfCheetah-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


def reward_half_cheetah(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Forward speed, less the control's cost."""
    speed = (after[0] - before[0]) / data.dt
    return params.forward_reward_weight * speed - control_cost(action, params.ctrl_cost_weight)


def observe_half_cheetah(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first, and velocities."""
    skipped = 1 if params.exclude_current_positions_from_observation else 0
    place = put(observation, 0, data.qpos[skipped:])
    put(observation, place, data.qvel)


def size_half_cheetah(model: Any, params: HalfCheetah) -> int:
    """Numbers in an observation."""
    return int(model.nq + model.nv) - params.exclude_current_positions_from_observation


def make_half_cheetah() -> MuJoCoDynamics:
    """HalfCheetah-v5 (Wawrzynski 2009, "A cat-like robot real-time learning to run")."""
    return _make(
        "HalfCheetah-v5",
        xml="half_cheetah.xml",
        frame_skip=5,
        fields=("qpos", "qvel"),
        params=HalfCheetah(),
        reset=reset_with_normal_velocities,
        reset_draws=draws_with_normal_velocities,
        measure=measure_x,
        reward=reward_half_cheetah,
        observe=observe_half_cheetah,
        observation_size=size_half_cheetah,
    )


# ---------------------------------------------------------------- all of them


def _make(id: str, *, xml: str, **task: Any) -> MuJoCoDynamics:
    """A task with the limits that Gymnasium gives it."""
    spec = gymnasium.spec(id)
    return MuJoCoDynamics(
        id=id,
        xml=find_model(xml),
        max_episode_steps=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
        **task,
    )


TASKS = {"HalfCheetah-v5": make_half_cheetah}

"""Functions of Gymnasium's tasks of reaching, pushing and balancing.

They are plain Python, in Gymnasium's order of operations; see `rlcpu.envs.mujoco.tasks`. In all of
them `data` has the fields of MuJoCo and the ids of bodies that the task names, `params` is one of
the NamedTuples here, with the names and defaults of Gymnasium's arguments; `action` is float32;
`before` and `after` are what the task's `measure` returned before and after the step. `reset`
changes `data`, which has MuJoCo's defaults; `observe` writes into `observation`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlcpu.envs.mujoco.numerics import (
    add_uniform,
    between,
    clip,
    control_cost,
    distance,
    put,
    put_clipped,
)


class Reacher(NamedTuple):
    """Bring the tip of a two-link arm to a target."""

    reward_dist_weight: float = 1.0  # weight of the distance to the target
    reward_control_weight: float = 1.0  # weight of the sum of squared actions, a cost


class Pusher(NamedTuple):
    """Push an object to a target with a robot arm."""

    reward_near_weight: float = 0.5  # weight of the distance from hand to object
    reward_dist_weight: float = 1.0  # weight of the distance to the target
    reward_control_weight: float = 0.1  # weight of the sum of squared actions, a cost


def reset_reacher(data: Any, uniforms: Any, params: Any) -> None:
    """Draw noise on the arm, and a target anywhere in a circle of 0.2 m around the base."""
    first = add_uniform(data.qpos, uniforms, 0, 0.1)
    after_noise = add_uniform(data.qvel, uniforms, first, 0.005)
    radius = 0.2 * math.sqrt(uniforms[after_noise])
    angle = 2.0 * math.pi * uniforms[after_noise + 1]
    # The last two coordinates are the target's, which rests.
    data.qpos[data.qpos.size - 2] = radius * math.cos(angle)
    data.qpos[data.qpos.size - 1] = radius * math.sin(angle)
    data.qvel[data.qvel.size - 2] = 0.0
    data.qvel[data.qvel.size - 1] = 0.0


def draws_reacher(model: Any, params: Any) -> int:
    """Return how many uniforms `reset_reacher` takes."""
    return int(model.nq + model.nv + 2)


def reward_reacher(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the negative distance from finger to target, less the control's cost."""
    far = distance(data.xpos[data.fingertip], data.xpos[data.target])
    return -far * params.reward_dist_weight - control_cost(action, params.reward_control_weight)


def observe_reacher(data: Any, observation: Any, params: Any) -> None:
    """Write cosines and sines of angles, the target, velocities, and finger minus target."""
    for k in range(2):
        observation[k] = math.cos(data.qpos[k])
        observation[2 + k] = math.sin(data.qpos[k])
        observation[4 + k] = data.qpos[2 + k]
        observation[6 + k] = data.qvel[k]
        observation[8 + k] = data.xpos[data.fingertip, k] - data.xpos[data.target, k]


#: Places that a reset of Pusher tries for the object: that none is free has a chance of 1e-14.
_TRIES = 32


def reset_pusher(data: Any, uniforms: Any, params: Any) -> None:
    """Put the object anywhere in a rectangle, but not within 0.17 m of the goal.

    The first of `_TRIES` random places that is free counts.
    """
    first = add_uniform(data.qvel, uniforms, 0, 0.005)
    is_free = False
    # The last four coordinates are x and y of object and goal, from the goal's place; both rest.
    for k in range(_TRIES):
        x = between(uniforms[first + 2 * k], -0.3, 0.0)
        y = between(uniforms[first + 2 * k + 1], -0.2, 0.2)
        if not is_free:
            data.qpos[data.qpos.size - 4], data.qpos[data.qpos.size - 3] = x, y
            is_free = x * x + y * y > 0.17 * 0.17
    data.qpos[data.qpos.size - 2] = 0.0
    data.qpos[data.qpos.size - 1] = 0.0
    for k in range(data.qvel.size - 4, data.qvel.size):
        data.qvel[k] = 0.0


def draws_pusher(model: Any, params: Any) -> int:
    """Return how many uniforms `reset_pusher` takes."""
    return int(model.nv) + 2 * _TRIES


def reward_pusher(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return minus the weighted distances of object to arm and goal, less the control's cost."""
    thing = data.xpos[data.object]
    near = -distance(thing, data.xpos[data.tips_arm]) * params.reward_near_weight
    far = -distance(thing, data.xpos[data.goal]) * params.reward_dist_weight
    return far - control_cost(action, params.reward_control_weight) + near


def observe_pusher(data: Any, observation: Any, params: Any) -> None:
    """Write the arm's positions and velocities, and the places of arm, object and goal."""
    place = put(observation, 0, data.qpos[:7])
    place = put(observation, place, data.qvel[:7])
    place = put(observation, place, data.xpos[data.tips_arm])
    place = put(observation, place, data.xpos[data.object])
    put(observation, place, data.xpos[data.goal])


# ---------------------------------------------------------------- the inverted pendulums


class InvertedPendulum(NamedTuple):
    """Keep a pole upright on a cart that is pushed left or right."""

    reset_noise_scale: float = 0.01  # size of the noise on a new episode's state


class InvertedDoublePendulum(NamedTuple):
    """Keep two linked poles upright on a cart."""

    healthy_reward: float = 10.0  # reward of each step before a fall
    reset_noise_scale: float = 0.1  # size of the noise on a new episode's state


def pendulum_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the pole leans by more than 0.2 rad."""
    return not (abs(data.qpos[1]) <= 0.2)


def reward_pendulum(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return 1 as long as the pole stands."""
    return 0.0 if pendulum_has_fallen(data, params) else 1.0


def observe_pendulum(data: Any, observation: Any, params: Any) -> None:
    """Write positions and velocities."""
    put(observation, put(observation, 0, data.qpos), data.qvel)


def double_pendulum_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the tip is at a height of 1 m or below."""
    return data.site_xpos[0, 2] <= 1.0


def reward_double_pendulum(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the reward for standing, less the costs of distance from upright and of velocities."""
    x, y = data.site_xpos[0, 0], data.site_xpos[0, 2]
    v, w = data.qvel[1], data.qvel[2]
    distance_cost = 0.01 * (x * x) + (y - 2.0) * (y - 2.0)
    velocity_cost = 1e-3 * (v * v) + 5e-3 * (w * w)
    healthy_reward = 0.0 if double_pendulum_has_fallen(data, params) else params.healthy_reward
    return healthy_reward - distance_cost - velocity_cost


def observe_double_pendulum(data: Any, observation: Any, params: Any) -> None:
    """Write position, sines and cosines of angles, velocities, and the cart's constraint force."""
    observation[0] = data.qpos[0]
    for k in range(2):
        observation[1 + k] = math.sin(data.qpos[1 + k])
        observation[3 + k] = math.cos(data.qpos[1 + k])
    put_clipped(observation, 5, data.qvel, -10.0, 10.0)
    observation[8] = clip(data.qfrc_constraint[0], -10.0, 10.0)

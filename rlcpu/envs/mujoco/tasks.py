"""Gymnasium's -v5 tasks: observations and rewards are the same bits in float64.

That takes the order of Gymnasium's operations, NumPy's order of summation, and float32 where it
squares float32 actions. NumPy's sines and cosines and BLAS's norms are not libm's: where a task
uses them (InvertedDoublePendulum, Reacher, Pusher), each may differ in the last bit.

Sources: `gymnasium.envs.mujoco`, one module a task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium

from rlcpu.envs.mujoco import arms
from rlcpu.envs.mujoco import locomotion as gait
from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics
from rlcpu.envs.mujoco.models import find_model
from rlcpu.envs.mujoco.numerics import (
    draws_with_normal_velocities,
    num_coordinates,
    reset_uniformly,
    reset_with_normal_velocities,
)

#: Noise on positions and velocities of a new episode.
_UNIFORM: dict[str, Any] = {"reset": reset_uniformly, "reset_draws": num_coordinates}
_NORMAL: dict[str, Any] = {
    "reset": reset_with_normal_velocities,
    "reset_draws": draws_with_normal_velocities,
}
#: What tasks have in common.
_PLANAR: dict[str, Any] = {"fields": ("qpos", "qvel"), "measure": gait.measure_x}
_WALKER: dict[str, Any] = {
    **_PLANAR,
    **_UNIFORM,
    "frame_skip": 4,
    "observe": gait.observe_walker,
    "observation_size": gait.size_half_cheetah,
}
_INERTIA = ("qpos", "qvel", "ctrl", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
_HUMANOID: dict[str, Any] = {
    **_UNIFORM,
    "frame_skip": 5,
    "observe": gait.observe_humanoid,
    "observation_size": gait.size_humanoid,
}

_TASKS: dict[str, dict[str, Any]] = {
    # Schulman et al. 2015, "High-dimensional continuous control".
    "Ant-v5": {
        **_NORMAL,
        "xml": "ant.xml",
        "frame_skip": 5,
        "fields": ("qpos", "qvel", "xpos", "cfrc_ext"),
        "params": gait.Ant(),
        "measure": gait.measure_ant,
        "reward": gait.reward_ant,
        "terminated": gait.ant_has_fallen,
        "observe": gait.observe_ant,
        "observation_size": gait.size_ant,
    },
    # Wawrzynski 2009, "A cat-like robot real-time learning to run".
    "HalfCheetah-v5": {
        **_PLANAR,
        **_NORMAL,
        "xml": "half_cheetah.xml",
        "frame_skip": 5,
        "params": gait.HalfCheetah(),
        "reward": gait.reward_speed,
        "observe": gait.observe_half_cheetah,
        "observation_size": gait.size_half_cheetah,
    },
    # Erez, Tassa & Todorov 2012, "Infinite-horizon model predictive control".
    "Hopper-v5": {
        **_WALKER,
        "xml": "hopper.xml",
        "params": gait.Hopper(),
        "reward": gait.reward_hopper,
        "terminated": gait.hopper_has_fallen,
    },
    # Tassa, Erez & Todorov 2012, "Synthesis of complex behaviors".
    "Humanoid-v5": {
        **_HUMANOID,
        "xml": "humanoid.xml",
        "fields": (*_INERTIA, "xipos", "body_mass"),
        "params": gait.Humanoid(),
        "measure": gait.measure_humanoid,
        "reward": gait.reward_humanoid,
        "terminated": gait.humanoid_has_fallen,
    },
    # The humanoid that begins on the ground.
    "HumanoidStandup-v5": {
        **_HUMANOID,
        "xml": "humanoidstandup.xml",
        "fields": _INERTIA,
        "params": gait.HumanoidStandup(),
        "reward": gait.reward_standup,
    },
    # The pendulum below with a second pole on the first.
    "InvertedDoublePendulum-v5": {
        **_NORMAL,
        "xml": "inverted_double_pendulum.xml",
        "frame_skip": 5,
        "fields": ("qpos", "qvel", "site_xpos", "qfrc_constraint"),
        "params": arms.InvertedDoublePendulum(),
        "reward": arms.reward_double_pendulum,
        "terminated": arms.double_pendulum_has_fallen,
        "observe": arms.observe_double_pendulum,
        "observation_size": 9,
    },
    # The cart and pole of Barto, Sutton & Anderson (1983).
    "InvertedPendulum-v5": {
        **_UNIFORM,
        "xml": "inverted_pendulum.xml",
        "frame_skip": 2,
        "fields": ("qpos", "qvel"),
        "params": arms.InvertedPendulum(),
        "reward": arms.reward_pendulum,
        "terminated": arms.pendulum_has_fallen,
        "observe": arms.observe_pendulum,
        "observation_size": num_coordinates,
    },
    # An arm of seven joints and a cylinder.
    "Pusher-v5": {
        "xml": "pusher_v5.xml",
        "frame_skip": 5,
        "fields": ("qpos", "qvel", "xpos"),
        "names": {name: f"body:{name}" for name in ("tips_arm", "object", "goal")},
        "params": arms.Pusher(),
        "reset": arms.reset_pusher,
        "reset_draws": arms.draws_pusher,
        "reward": arms.reward_pusher,
        "observe": arms.observe_pusher,
        "observation_size": 23,
    },
    # An arm of two joints.
    "Reacher-v5": {
        "xml": "reacher.xml",
        "frame_skip": 2,
        "fields": ("qpos", "qvel", "xpos"),
        "names": {"fingertip": "body:fingertip", "target": "body:target"},
        "params": arms.Reacher(),
        "reset": arms.reset_reacher,
        "reset_draws": arms.draws_reacher,
        "reward": arms.reward_reacher,
        "observe": arms.observe_reacher,
        "observation_size": 10,
    },
    # Coulom 2002, "Reinforcement learning using neural networks".
    "Swimmer-v5": {
        **_PLANAR,
        **_UNIFORM,
        "xml": "swimmer.xml",
        "frame_skip": 4,
        "params": gait.Swimmer(),
        "reward": gait.reward_speed,
        "observe": gait.observe_swimmer,
        "observation_size": gait.size_swimmer,
    },
    # The hopper with a second leg.
    "Walker2d-v5": {
        **_WALKER,
        "xml": "walker2d_v5.xml",
        "params": gait.Walker2d(),
        "reward": gait.reward_walker,
        "terminated": gait.walker_has_fallen,
    },
}


def make(id: str) -> MuJoCoDynamics:
    """Return a task, with the limits that Gymnasium gives it."""
    spec, task = gymnasium.spec(id), dict(_TASKS[id])
    return MuJoCoDynamics(
        id=id,
        xml=find_model(task.pop("xml")),
        max_episode_steps=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
        **task,
    )


TASKS: dict[str, Callable[[], MuJoCoDynamics]] = {id: functools.partial(make, id) for id in _TASKS}

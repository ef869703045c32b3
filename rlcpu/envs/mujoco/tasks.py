"""Gymnasium's -v5 tasks: observations and rewards are the same bits in float64.

That takes the order of Gymnasium's operations, NumPy's order of summation, and float32 where it
squares float32 actions. NumPy's sines and cosines and BLAS's norms are not libm's: where a task
uses them (InvertedDoublePendulum, Reacher, Pusher), each may differ in the last bit. Parameters
have the names and defaults of Gymnasium's arguments; `main_body` is a number.

Sources: `gymnasium.envs.mujoco`, one module a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from rlcpu.envs.mujoco.dynamics import MuJoCoDynamics, find_model
from rlcpu.envs.mujoco.numerics import (
    add_normal,
    add_uniform,
    between,
    clip,
    control_cost,
    distance,
    put,
    put_clipped,
    put_rows,
    single,
    sum_of_action,
    sum_of_few,
    sum_of_squares,
)

inf = float("inf")


def skipped(params: Any, count: int) -> int:
    """Positions that observations leave out."""
    return count if params.exclude_current_positions_from_observation else 0


def reset_with_normal_velocities(data: Any, uniforms: Any, params: Any) -> None:
    """Uniform noise on positions, normal noise on velocities."""
    first = add_uniform(data.qpos, uniforms, 0, params.reset_noise_scale)
    add_normal(data.qvel, uniforms, first, params.reset_noise_scale)


def draws_with_normal_velocities(model: Any, params: Any) -> int:
    """Numbers that `reset_with_normal_velocities` draws."""
    return int(model.nq + 2 * model.nv)


def reset_uniformly(data: Any, uniforms: Any, params: Any) -> None:
    """Uniform noise on positions and velocities."""
    first = add_uniform(data.qpos, uniforms, 0, params.reset_noise_scale)
    add_uniform(data.qvel, uniforms, first, params.reset_noise_scale)


def draws_uniformly(model: Any, params: Any) -> int:
    """Numbers that `reset_uniformly` draws."""
    return int(model.nq + model.nv)


def measure_x(data: Any, params: Any) -> tuple[float, ...]:
    """The first position."""
    return (data.qpos[0],)


# ---------------------------------------------------------------- HalfCheetah and Swimmer


class HalfCheetah(NamedTuple):
    """Parameters of HalfCheetah-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


class Swimmer(NamedTuple):
    """Parameters of Swimmer-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


def reward_speed(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Forward speed, less the control's cost."""
    speed = (after[0] - before[0]) / data.dt
    return params.forward_reward_weight * speed - control_cost(action, params.ctrl_cost_weight)


def observe_half_cheetah(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first, and velocities."""
    place = put(observation, 0, data.qpos[skipped(params, 1) :])
    put(observation, place, data.qvel)


def size_half_cheetah(model: Any, params: Any) -> int:
    """Numbers in an observation."""
    return int(model.nq + model.nv) - skipped(params, 1)


def observe_swimmer(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first two, and velocities."""
    place = put(observation, 0, data.qpos[skipped(params, 2) :])
    put(observation, place, data.qvel)


def size_swimmer(model: Any, params: Any) -> int:
    """Numbers in an observation."""
    return int(model.nq + model.nv) - skipped(params, 2)


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
        reward=reward_speed,
        observe=observe_half_cheetah,
        observation_size=size_half_cheetah,
    )


def make_swimmer() -> MuJoCoDynamics:
    """Swimmer-v5 (Coulom 2002, "Reinforcement learning using neural networks")."""
    return _make(
        "Swimmer-v5",
        xml="swimmer.xml",
        frame_skip=4,
        fields=("qpos", "qvel"),
        params=Swimmer(),
        reset=reset_uniformly,
        reset_draws=draws_uniformly,
        measure=measure_x,
        reward=reward_speed,
        observe=observe_swimmer,
        observation_size=size_swimmer,
    )


# ---------------------------------------------------------------- Hopper and Walker2d


class Hopper(NamedTuple):
    """Parameters of Hopper-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, inf)
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


class Walker2d(NamedTuple):
    """Parameters of Walker2d-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


def is_within(x: float, bounds: tuple[float, float]) -> bool:
    """Whether a number lies between bounds, and is none of them."""
    return bounds[0] < x and x < bounds[1]


def walker_is_healthy(data: Any, params: Any) -> bool:
    """Whether the torso is as high and as upright as it has to be."""
    height = is_within(data.qpos[1], params.healthy_z_range)
    return height and is_within(data.qpos[2], params.healthy_angle_range)


def hopper_is_healthy(data: Any, params: Any) -> bool:
    """The same, and whether all positions and velocities are within their range."""
    healthy = walker_is_healthy(data, params)
    for k in range(2, data.qpos.size):
        healthy = healthy and is_within(data.qpos[k], params.healthy_state_range)
    for k in range(data.qvel.size):
        healthy = healthy and is_within(data.qvel[k], params.healthy_state_range)
    return healthy


def reward_alive(data: Any, action: Any, alive: bool, speed: float, params: Any) -> float:
    """Forward speed and being healthy, less the control's cost."""
    forward = params.forward_reward_weight * speed
    return (forward + (params.healthy_reward if alive else 0.0)) - control_cost(
        action, params.ctrl_cost_weight
    )


def reward_hopper(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """See `reward_alive`."""
    speed = (after[0] - before[0]) / data.dt
    return reward_alive(data, action, hopper_is_healthy(data, params), speed, params)


def hopper_has_fallen(data: Any, params: Any) -> bool:
    """Whether the episode terminates."""
    return params.terminate_when_unhealthy and not hopper_is_healthy(data, params)


def reward_walker(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """See `reward_alive`."""
    speed = (after[0] - before[0]) / data.dt
    return reward_alive(data, action, walker_is_healthy(data, params), speed, params)


def walker_has_fallen(data: Any, params: Any) -> bool:
    """Whether the episode terminates."""
    return params.terminate_when_unhealthy and not walker_is_healthy(data, params)


def observe_walker(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first, and velocities, within +-10."""
    place = put(observation, 0, data.qpos[skipped(params, 1) :])
    put_clipped(observation, place, data.qvel, -10.0, 10.0)


def _walker(id: str, **task: Any) -> MuJoCoDynamics:
    return _make(
        id,
        frame_skip=4,
        fields=("qpos", "qvel"),
        reset=reset_uniformly,
        reset_draws=draws_uniformly,
        measure=measure_x,
        observe=observe_walker,
        observation_size=size_half_cheetah,
        **task,
    )


def make_hopper() -> MuJoCoDynamics:
    """Hopper-v5 (Erez, Tassa & Todorov 2012, "Infinite-horizon model predictive control")."""
    return _walker(
        "Hopper-v5",
        xml="hopper.xml",
        params=Hopper(),
        reward=reward_hopper,
        terminated=hopper_has_fallen,
    )


def make_walker2d() -> MuJoCoDynamics:
    """Walker2d-v5, the hopper with a second leg."""
    return _walker(
        "Walker2d-v5",
        xml="walker2d_v5.xml",
        params=Walker2d(),
        reward=reward_walker,
        terminated=walker_has_fallen,
    )


# ---------------------------------------------------------------- Ant


class Ant(NamedTuple):
    """Parameters of Ant-v5."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


def ant_is_healthy(data: Any, params: Any) -> bool:
    """Whether the torso is within its height, and everything is finite."""
    total = 0.0
    for k in range(data.qpos.size):
        total += data.qpos[k] * 0.0
    for k in range(data.qvel.size):
        total += data.qvel[k] * 0.0
    height, bounds = data.qpos[2], params.healthy_z_range
    return total == 0.0 and bounds[0] <= height and height <= bounds[1]


def measure_ant(data: Any, params: Any) -> tuple[float, ...]:
    """Where the main body is along x."""
    return (data.xpos[int(params.main_body), 0],)


def reward_ant(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Forward speed and being healthy, less what the control and contacts cost."""
    speed = (after[0] - before[0]) / data.dt
    forward = speed * params.forward_reward_weight
    alive = params.healthy_reward if ant_is_healthy(data, params) else 0.0
    low, high = params.contact_force_range
    contact = params.contact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), low, high)
    return (forward + alive) - (control_cost(action, params.ctrl_cost_weight) + contact)


def ant_has_fallen(data: Any, params: Any) -> bool:
    """Whether the episode terminates."""
    return params.terminate_when_unhealthy and not ant_is_healthy(data, params)


def observe_ant(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first two, velocities and contact forces."""
    place = put(observation, 0, data.qpos[skipped(params, 2) :])
    place = put(observation, place, data.qvel)
    if params.include_cfrc_ext_in_observation:
        low, high = params.contact_force_range
        put_clipped(observation, place, data.cfrc_ext.ravel()[6:], low, high)


def size_ant(model: Any, params: Ant) -> int:
    """Numbers in an observation."""
    forces = 6 * (model.nbody - 1) * params.include_cfrc_ext_in_observation
    return int(model.nq + model.nv + forces) - skipped(params, 2)


def make_ant() -> MuJoCoDynamics:
    """Ant-v5 (Schulman et al. 2015, "High-dimensional continuous control")."""
    return _make(
        "Ant-v5",
        xml="ant.xml",
        frame_skip=5,
        fields=("qpos", "qvel", "xpos", "cfrc_ext"),
        params=Ant(),
        reset=reset_with_normal_velocities,
        reset_draws=draws_with_normal_velocities,
        measure=measure_ant,
        reward=reward_ant,
        terminated=ant_has_fallen,
        observe=observe_ant,
        observation_size=size_ant,
    )


# ---------------------------------------------------------------- Humanoid, HumanoidStandup


class Humanoid(NamedTuple):
    """Parameters of Humanoid-v5."""

    forward_reward_weight: float = 1.25
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (-inf, 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


class HumanoidStandup(NamedTuple):
    """Parameters of HumanoidStandup-v5; as in Gymnasium, `uph_cost_weight` weighs nothing."""

    uph_cost_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: tuple[float, float] = (-inf, 10.0)
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


def measure_humanoid(data: Any, params: Any) -> tuple[float, ...]:
    """Where the centre of mass is along x."""
    total = 0.0
    for body in range(data.body_mass.size):
        total += data.body_mass[body] * data.xipos[body, 0]
    return (total / sum_of_few(data.body_mass),)


def humanoid_is_healthy(data: Any, params: Any) -> bool:
    """Whether the torso is within its height."""
    return is_within(data.qpos[2], params.healthy_z_range)


def reward_humanoid(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Forward speed and being healthy, less what the control and contacts cost."""
    forward = params.forward_reward_weight * ((after[0] - before[0]) / data.dt)
    alive = params.healthy_reward if humanoid_is_healthy(data, params) else 0.0
    control = params.ctrl_cost_weight * sum_of_squares(data.ctrl, -inf, inf)
    contact = params.contact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), -inf, inf)
    low, high = params.contact_cost_range
    return (forward + alive) - (control + clip(contact, low, high))


def humanoid_has_fallen(data: Any, params: Any) -> bool:
    """Whether the episode terminates."""
    return params.terminate_when_unhealthy and not humanoid_is_healthy(data, params)


def reward_standup(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Height, less what the control and impacts cost."""
    control = params.ctrl_cost_weight * sum_of_squares(data.ctrl, -inf, inf)
    impact = params.impact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), -inf, inf)
    low, high = params.impact_cost_range
    return data.qpos[2] / data.timestep - control - clip(impact, low, high) + 1.0


def observe_humanoid(data: Any, observation: Any, params: Any) -> None:
    """Positions but the first two, velocities, inertia, actuators' and contact forces."""
    place = put(observation, 0, data.qpos[skipped(params, 2) :])
    place = put(observation, place, data.qvel)
    if params.include_cinert_in_observation:
        place = put_rows(observation, place, data.cinert)
    if params.include_cvel_in_observation:
        place = put_rows(observation, place, data.cvel)
    if params.include_qfrc_actuator_in_observation:
        place = put(observation, place, data.qfrc_actuator[6:])
    if params.include_cfrc_ext_in_observation:
        put_rows(observation, place, data.cfrc_ext)


def size_humanoid(model: Any, params: Any) -> int:
    """Numbers in an observation."""
    bodies = model.nbody - 1
    size = model.nq + model.nv - skipped(params, 2)
    size += 10 * bodies * params.include_cinert_in_observation
    size += 6 * bodies * params.include_cvel_in_observation
    size += (model.nv - 6) * params.include_qfrc_actuator_in_observation
    return int(size + 6 * bodies * params.include_cfrc_ext_in_observation)


def _humanoid(id: str, fields: tuple[str, ...] = (), **task: Any) -> MuJoCoDynamics:
    return _make(
        id,
        frame_skip=5,
        fields=("qpos", "qvel", "ctrl", "cinert", "cvel", "qfrc_actuator", "cfrc_ext", *fields),
        reset=reset_uniformly,
        reset_draws=draws_uniformly,
        observe=observe_humanoid,
        observation_size=size_humanoid,
        **task,
    )


def make_humanoid() -> MuJoCoDynamics:
    """Humanoid-v5 (Tassa, Erez & Todorov 2012, "Synthesis of complex behaviors")."""
    return _humanoid(
        "Humanoid-v5",
        xml="humanoid.xml",
        fields=("xipos", "body_mass"),
        params=Humanoid(),
        measure=measure_humanoid,
        reward=reward_humanoid,
        terminated=humanoid_has_fallen,
    )


def make_humanoid_standup() -> MuJoCoDynamics:
    """HumanoidStandup-v5, the humanoid that begins on the ground."""
    return _humanoid(
        "HumanoidStandup-v5",
        xml="humanoidstandup.xml",
        params=HumanoidStandup(),
        reward=reward_standup,
    )


# ---------------------------------------------------------------- Reacher and Pusher


class Reacher(NamedTuple):
    """Parameters of Reacher-v5."""

    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0


class Pusher(NamedTuple):
    """Parameters of Pusher-v5."""

    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1


def reset_reacher(data: Any, uniforms: Any, params: Any) -> None:
    """Noise on the arm, and a target anywhere in a circle of 0.2 around the base."""
    first = add_uniform(data.qpos, uniforms, 0, 0.1)
    last = add_uniform(data.qvel, uniforms, first, 0.005)
    radius = 0.2 * math.sqrt(uniforms[last])
    angle = 2.0 * math.pi * uniforms[last + 1]
    data.qpos[data.qpos.size - 2] = radius * math.cos(angle)
    data.qpos[data.qpos.size - 1] = radius * math.sin(angle)
    data.qvel[data.qvel.size - 2] = 0.0
    data.qvel[data.qvel.size - 1] = 0.0


def draws_reacher(model: Any, params: Any) -> int:
    """Numbers that `reset_reacher` draws."""
    return int(model.nq + model.nv + 2)


def reward_reacher(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """How near the finger is to the target, less the control's cost."""
    far = distance(data.xpos[data.fingertip], data.xpos[data.target])
    control = float(-sum_of_action(action) * single(params.reward_control_weight))
    return -far * params.reward_dist_weight + control


def observe_reacher(data: Any, observation: Any, params: Any) -> None:
    """Angles, the target, velocities, and from the target to the finger."""
    for k in range(2):
        observation[k] = math.cos(data.qpos[k])
        observation[2 + k] = math.sin(data.qpos[k])
        observation[4 + k] = data.qpos[2 + k]
        observation[6 + k] = data.qvel[k]
        observation[8 + k] = data.xpos[data.fingertip, k] - data.xpos[data.target, k]


#: Pairs of numbers that a reset of Pusher may need: that none fits has a chance of 1e-14.
_TRIES = 32


def reset_pusher(data: Any, uniforms: Any, params: Any) -> None:
    """An object anywhere in a rectangle, but for a circle of 0.17 around the goal."""
    first = add_uniform(data.qvel, uniforms, 0, 0.005)
    found = False
    for k in range(_TRIES):
        x = between(uniforms[first + 2 * k], -0.3, 0.0)
        y = between(uniforms[first + 2 * k + 1], -0.2, 0.2)
        if not found:
            data.qpos[data.qpos.size - 4], data.qpos[data.qpos.size - 3] = x, y
            found = x * x + y * y > 0.17 * 0.17
    data.qpos[data.qpos.size - 2] = 0.0
    data.qpos[data.qpos.size - 1] = 0.0
    for k in range(data.qvel.size - 4, data.qvel.size):
        data.qvel[k] = 0.0


def draws_pusher(model: Any, params: Any) -> int:
    """Numbers that `reset_pusher` draws."""
    return int(model.nv) + 2 * _TRIES


def reward_pusher(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """How near arm and goal are to the object, less the control's cost."""
    thing = data.xpos[data.object]
    near = -distance(thing, data.xpos[data.tips_arm]) * params.reward_near_weight
    far = -distance(thing, data.xpos[data.goal]) * params.reward_dist_weight
    control = float(-sum_of_action(action) * single(params.reward_control_weight))
    return far + control + near


def observe_pusher(data: Any, observation: Any, params: Any) -> None:
    """The arm's positions and velocities, and where arm, object and goal are."""
    place = put(observation, 0, data.qpos[:7])
    place = put(observation, place, data.qvel[:7])
    place = put(observation, place, data.xpos[data.tips_arm])
    place = put(observation, place, data.xpos[data.object])
    put(observation, place, data.xpos[data.goal])


def make_reacher() -> MuJoCoDynamics:
    """Reacher-v5, an arm of two joints."""
    return _make(
        "Reacher-v5",
        xml="reacher.xml",
        frame_skip=2,
        fields=("qpos", "qvel", "xpos"),
        names={"fingertip": "body:fingertip", "target": "body:target"},
        params=Reacher(),
        reset=reset_reacher,
        reset_draws=draws_reacher,
        reward=reward_reacher,
        observe=observe_reacher,
        observation_size=10,
    )


def make_pusher() -> MuJoCoDynamics:
    """Pusher-v5, an arm of seven joints and a cylinder."""
    return _make(
        "Pusher-v5",
        xml="pusher_v5.xml",
        frame_skip=5,
        fields=("qpos", "qvel", "xpos"),
        names={name: f"body:{name}" for name in ("tips_arm", "object", "goal")},
        params=Pusher(),
        reset=reset_pusher,
        reset_draws=draws_pusher,
        reward=reward_pusher,
        observe=observe_pusher,
        observation_size=23,
    )


# ---------------------------------------------------------------- the inverted pendulums


class InvertedPendulum(NamedTuple):
    """Parameters of InvertedPendulum-v5."""

    reset_noise_scale: float = 0.01


class InvertedDoublePendulum(NamedTuple):
    """Parameters of InvertedDoublePendulum-v5."""

    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1


def pendulum_has_fallen(data: Any, params: Any) -> bool:
    """Whether the pole leans by more than 0.2 rad."""
    return not (abs(data.qpos[1]) <= 0.2)


def reward_pendulum(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """1 as long as the pole stands."""
    return 0.0 if pendulum_has_fallen(data, params) else 1.0


def observe_pendulum(data: Any, observation: Any, params: Any) -> None:
    """Positions and velocities."""
    put(observation, put(observation, 0, data.qpos), data.qvel)


def size_pendulum(model: Any, params: Any) -> int:
    """Numbers in an observation."""
    return int(model.nq + model.nv)


def double_pendulum_has_fallen(data: Any, params: Any) -> bool:
    """Whether the tip is at 1 or below."""
    return data.site_xpos[0, 2] <= 1.0


def reward_double_pendulum(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Standing, less what distance from upright and velocities cost."""
    x, y = data.site_xpos[0, 0], data.site_xpos[0, 2]
    v, w = data.qvel[1], data.qvel[2]
    away = 0.01 * (x * x) + (y - 2.0) * (y - 2.0)
    quick = 1e-3 * (v * v) + 5e-3 * (w * w)
    alive = 0.0 if double_pendulum_has_fallen(data, params) else params.healthy_reward
    return alive - away - quick


def observe_double_pendulum(data: Any, observation: Any, params: Any) -> None:
    """The cart's position, sines and cosines of angles, velocities, and the cart's constraint."""
    observation[0] = data.qpos[0]
    for k in range(2):
        observation[1 + k] = math.sin(data.qpos[1 + k])
        observation[3 + k] = math.cos(data.qpos[1 + k])
    put_clipped(observation, 5, data.qvel, -10.0, 10.0)
    observation[8] = clip(data.qfrc_constraint[0], -10.0, 10.0)


def make_inverted_pendulum() -> MuJoCoDynamics:
    """InvertedPendulum-v5, the cart and pole of Barto, Sutton & Anderson (1983)."""
    return _make(
        "InvertedPendulum-v5",
        xml="inverted_pendulum.xml",
        frame_skip=2,
        fields=("qpos", "qvel"),
        params=InvertedPendulum(),
        reset=reset_uniformly,
        reset_draws=draws_uniformly,
        reward=reward_pendulum,
        terminated=pendulum_has_fallen,
        observe=observe_pendulum,
        observation_size=size_pendulum,
    )


def make_inverted_double_pendulum() -> MuJoCoDynamics:
    """InvertedDoublePendulum-v5, with a second pole on the first."""
    return _make(
        "InvertedDoublePendulum-v5",
        xml="inverted_double_pendulum.xml",
        frame_skip=5,
        fields=("qpos", "qvel", "site_xpos", "qfrc_constraint"),
        params=InvertedDoublePendulum(),
        reset=reset_with_normal_velocities,
        reset_draws=draws_with_normal_velocities,
        reward=reward_double_pendulum,
        terminated=double_pendulum_has_fallen,
        observe=observe_double_pendulum,
        observation_size=9,
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


TASKS: dict[str, Callable[[], MuJoCoDynamics]] = {
    "Ant-v5": make_ant,
    "HalfCheetah-v5": make_half_cheetah,
    "Hopper-v5": make_hopper,
    "Humanoid-v5": make_humanoid,
    "HumanoidStandup-v5": make_humanoid_standup,
    "InvertedDoublePendulum-v5": make_inverted_double_pendulum,
    "InvertedPendulum-v5": make_inverted_pendulum,
    "Pusher-v5": make_pusher,
    "Reacher-v5": make_reacher,
    "Swimmer-v5": make_swimmer,
    "Walker2d-v5": make_walker2d,
}

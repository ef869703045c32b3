"""Functions of Gymnasium's tasks of walking: cheetah, swimmer, hopper, walker, ant and humanoid.

They are plain Python, in Gymnasium's order of operations; see `rlcpu.envs.mujoco.tasks`. In all of
them `data` has the fields of MuJoCo that the task names, and `dt`, the seconds of a step; `params`
is one of the NamedTuples here, with the names and defaults of Gymnasium's arguments; `action` is
float32; `before` and `after` are what the task's `measure` returned before and after the step.
`observe` writes into `observation`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.envs.mujoco.numerics import (
    clip,
    control_cost,
    put,
    put_clipped,
    put_rows,
    sum_of_few,
    sum_of_squares,
)

inf = float("inf")


def num_hidden_positions(params: Any, count: int) -> int:
    """Return `count` if observations leave out that many first positions, else 0."""
    return count if params.exclude_current_positions_from_observation else 0


def measure_x(data: Any, params: Any) -> tuple[float, ...]:
    """Return the first position, along x."""
    return (data.qpos[0],)


# ---------------------------------------------------------------- HalfCheetah and Swimmer


class HalfCheetah(NamedTuple):
    """Run forward on two legs, in a plane."""

    forward_reward_weight: float = 1.0  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 0.1  # weight of the sum of squared actions, a cost
    reset_noise_scale: float = 0.1  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is


class Swimmer(NamedTuple):
    """Swim forward as a chain of three links."""

    forward_reward_weight: float = 1.0  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 1e-4  # weight of the sum of squared actions, a cost
    reset_noise_scale: float = 0.1  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is


def reward_speed(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the forward speed, less the control's cost."""
    speed = (after[0] - before[0]) / data.dt
    return params.forward_reward_weight * speed - control_cost(action, params.ctrl_cost_weight)


def observe_half_cheetah(data: Any, observation: Any, params: Any) -> None:
    """Write positions but the first, and velocities."""
    place = put(observation, 0, data.qpos[num_hidden_positions(params, 1) :])
    put(observation, place, data.qvel)


def size_half_cheetah(model: Any, params: Any) -> int:
    """Return how many numbers `observe_half_cheetah` writes."""
    return int(model.nq + model.nv) - num_hidden_positions(params, 1)


def observe_swimmer(data: Any, observation: Any, params: Any) -> None:
    """Write positions but the first two, and velocities."""
    place = put(observation, 0, data.qpos[num_hidden_positions(params, 2) :])
    put(observation, place, data.qvel)


def size_swimmer(model: Any, params: Any) -> int:
    """Return how many numbers `observe_swimmer` writes."""
    return int(model.nq + model.nv) - num_hidden_positions(params, 2)


# ---------------------------------------------------------------- Hopper and Walker2d


class Hopper(NamedTuple):
    """Hop forward on one leg, in a plane."""

    forward_reward_weight: float = 1.0  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 1e-3  # weight of the sum of squared actions, a cost
    healthy_reward: float = 1.0  # reward of each step before a fall
    terminate_when_unhealthy: bool = True  # a fall ends the episode
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)  # of all other numbers
    healthy_z_range: tuple[float, float] = (0.7, inf)  # m, heights before a fall
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)  # rad, angles before a fall
    reset_noise_scale: float = 5e-3  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is


class Walker2d(NamedTuple):
    """Walk forward on two legs, in a plane."""

    forward_reward_weight: float = 1.0  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 1e-3  # weight of the sum of squared actions, a cost
    healthy_reward: float = 1.0  # reward of each step before a fall
    terminate_when_unhealthy: bool = True  # a fall ends the episode
    healthy_z_range: tuple[float, float] = (0.8, 2.0)  # m, heights before a fall
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)  # rad, angles before a fall
    reset_noise_scale: float = 5e-3  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is


def is_within(x: float, bounds: tuple[float, float]) -> bool:
    """Tell whether a number lies between bounds, and is neither of them."""
    return bounds[0] < x and x < bounds[1]


def walker_is_healthy(data: Any, params: Any) -> bool:
    """Tell whether height and angle of the torso are within their ranges."""
    height = is_within(data.qpos[1], params.healthy_z_range)
    return height and is_within(data.qpos[2], params.healthy_angle_range)


def hopper_is_healthy(data: Any, params: Any) -> bool:
    """Tell whether the torso is healthy, and all other numbers are within a range."""
    healthy = walker_is_healthy(data, params)
    for k in range(2, data.qpos.size):
        healthy = healthy and is_within(data.qpos[k], params.healthy_state_range)
    for k in range(data.qvel.size):
        healthy = healthy and is_within(data.qvel[k], params.healthy_state_range)
    return healthy


def reward_alive(action: Any, alive: bool, speed: float, params: Any) -> float:
    """Return the reward for forward speed and, if `alive`, for health, less the control's cost."""
    forward = params.forward_reward_weight * speed
    return (forward + (params.healthy_reward if alive else 0.0)) - control_cost(
        action, params.ctrl_cost_weight
    )


def reward_hopper(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the reward of the hopper; see `reward_alive`."""
    speed = (after[0] - before[0]) / data.dt
    return reward_alive(action, hopper_is_healthy(data, params), speed, params)


def hopper_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the episode terminates."""
    return params.terminate_when_unhealthy and not hopper_is_healthy(data, params)


def reward_walker(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the reward of the walker; see `reward_alive`."""
    speed = (after[0] - before[0]) / data.dt
    return reward_alive(action, walker_is_healthy(data, params), speed, params)


def walker_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the episode terminates."""
    return params.terminate_when_unhealthy and not walker_is_healthy(data, params)


def observe_walker(data: Any, observation: Any, params: Any) -> None:
    """Write positions but the first, and velocities, clipped to +-10."""
    place = put(observation, 0, data.qpos[num_hidden_positions(params, 1) :])
    put_clipped(observation, place, data.qvel, -10.0, 10.0)


# ---------------------------------------------------------------- Ant


class Ant(NamedTuple):
    """Run forward on four legs."""

    forward_reward_weight: float = 1.0  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 0.5  # weight of the sum of squared actions, a cost
    contact_cost_weight: float = 5e-4  # weight of the sum of squared contact forces, a cost
    healthy_reward: float = 1.0  # reward of each step before a fall
    main_body: float = 1.0  # number of the body whose movement counts
    terminate_when_unhealthy: bool = True  # a fall ends the episode
    healthy_z_range: tuple[float, float] = (0.2, 1.0)  # m, heights before a fall
    contact_force_range: tuple[float, float] = (-1.0, 1.0)  # bounds of contact forces
    reset_noise_scale: float = 0.1  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is
    include_cfrc_ext_in_observation: bool = True  # show contact forces


def ant_is_healthy(data: Any, params: Any) -> bool:
    """Tell whether the torso's height is within its range, and all numbers are finite."""
    total = 0.0  # stays so unless a number is infinite or NaN
    for k in range(data.qpos.size):
        total += data.qpos[k] * 0.0
    for k in range(data.qvel.size):
        total += data.qvel[k] * 0.0
    height, bounds = data.qpos[2], params.healthy_z_range
    return total == 0.0 and bounds[0] <= height and height <= bounds[1]


def measure_ant(data: Any, params: Any) -> tuple[float, ...]:
    """Return the main body's place along x."""
    return (data.xpos[int(params.main_body), 0],)


def reward_ant(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the reward for forward speed and health, less the costs of control and contacts."""
    speed = (after[0] - before[0]) / data.dt
    forward = speed * params.forward_reward_weight
    alive = params.healthy_reward if ant_is_healthy(data, params) else 0.0
    low, high = params.contact_force_range
    contact = params.contact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), low, high)
    return (forward + alive) - (control_cost(action, params.ctrl_cost_weight) + contact)


def ant_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the episode terminates."""
    return params.terminate_when_unhealthy and not ant_is_healthy(data, params)


def observe_ant(data: Any, observation: Any, params: Any) -> None:
    """Write positions but the first two, velocities and contact forces."""
    place = put(observation, 0, data.qpos[num_hidden_positions(params, 2) :])
    place = put(observation, place, data.qvel)
    if params.include_cfrc_ext_in_observation:
        low, high = params.contact_force_range
        # Six numbers of each body, of which the first is the world.
        put_clipped(observation, place, data.cfrc_ext.ravel()[6:], low, high)


def size_ant(model: Any, params: Ant) -> int:
    """Return how many numbers `observe_ant` writes."""
    forces = 6 * (model.nbody - 1) * params.include_cfrc_ext_in_observation
    return int(model.nq + model.nv + forces) - num_hidden_positions(params, 2)


# ---------------------------------------------------------------- Humanoid, HumanoidStandup


class Humanoid(NamedTuple):
    """Walk forward on two legs, without falling."""

    forward_reward_weight: float = 1.25  # weight of the forward speed (m/s) in the reward
    ctrl_cost_weight: float = 0.1  # weight of the sum of squared actions, a cost
    contact_cost_weight: float = 5e-7  # weight of the sum of squared contact forces, a cost
    contact_cost_range: tuple[float, float] = (-inf, 10.0)  # bounds of that cost
    healthy_reward: float = 5.0  # reward of each step before a fall
    terminate_when_unhealthy: bool = True  # a fall ends the episode
    healthy_z_range: tuple[float, float] = (1.0, 2.0)  # m, heights before a fall
    reset_noise_scale: float = 1e-2  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is
    include_cinert_in_observation: bool = True  # show masses and inertias
    include_cvel_in_observation: bool = True  # show velocities of centres of mass
    include_qfrc_actuator_in_observation: bool = True  # show actuator forces
    include_cfrc_ext_in_observation: bool = True  # show contact forces


class HumanoidStandup(NamedTuple):
    """Stand up from the ground."""

    uph_cost_weight: float = 1.0  # without effect, as in Gymnasium
    ctrl_cost_weight: float = 0.1  # weight of the sum of squared actions, a cost
    impact_cost_weight: float = 0.5e-6  # weight of the sum of squared contact forces, a cost
    impact_cost_range: tuple[float, float] = (-inf, 10.0)  # bounds of that cost
    reset_noise_scale: float = 1e-2  # size of the noise on a new episode's state
    exclude_current_positions_from_observation: bool = True  # leave out where the body is
    include_cinert_in_observation: bool = True  # show masses and inertias
    include_cvel_in_observation: bool = True  # show velocities of centres of mass
    include_qfrc_actuator_in_observation: bool = True  # show actuator forces
    include_cfrc_ext_in_observation: bool = True  # show contact forces


def measure_humanoid(data: Any, params: Any) -> tuple[float, ...]:
    """Return the centre of mass along x, in Gymnasium's order of operations."""
    total = 0.0
    for body in range(data.body_mass.size):
        total += data.body_mass[body] * data.xipos[body, 0]
    return (total / sum_of_few(data.body_mass),)


def humanoid_is_healthy(data: Any, params: Any) -> bool:
    """Tell whether the torso's height is within its range."""
    return is_within(data.qpos[2], params.healthy_z_range)


def reward_humanoid(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the reward for forward speed and health, less the costs of control and contacts."""
    forward = params.forward_reward_weight * ((after[0] - before[0]) / data.dt)
    alive = params.healthy_reward if humanoid_is_healthy(data, params) else 0.0
    control = params.ctrl_cost_weight * sum_of_squares(data.ctrl, -inf, inf)
    contact = params.contact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), -inf, inf)
    low, high = params.contact_cost_range
    return (forward + alive) - (control + clip(contact, low, high))


def humanoid_has_fallen(data: Any, params: Any) -> bool:
    """Tell whether the episode terminates."""
    return params.terminate_when_unhealthy and not humanoid_is_healthy(data, params)


def reward_standup(data: Any, action: Any, before: Any, after: Any, params: Any) -> float:
    """Return the height over MuJoCo's time step, plus 1, less the costs of control and impacts."""
    control = params.ctrl_cost_weight * sum_of_squares(data.ctrl, -inf, inf)
    impact = params.impact_cost_weight * sum_of_squares(data.cfrc_ext.ravel(), -inf, inf)
    low, high = params.impact_cost_range
    return data.qpos[2] / data.timestep - control - clip(impact, low, high) + 1.0


def observe_humanoid(data: Any, observation: Any, params: Any) -> None:
    """Write positions but the first two, velocities, inertia, actuators' and contact forces."""
    place = put(observation, 0, data.qpos[num_hidden_positions(params, 2) :])
    place = put(observation, place, data.qvel)
    if params.include_cinert_in_observation:
        place = put_rows(observation, place, data.cinert)
    if params.include_cvel_in_observation:
        place = put_rows(observation, place, data.cvel)
    if params.include_qfrc_actuator_in_observation:
        # No actuator moves the six coordinates in which the torso is free.
        place = put(observation, place, data.qfrc_actuator[6:])
    if params.include_cfrc_ext_in_observation:
        put_rows(observation, place, data.cfrc_ext)


def size_humanoid(model: Any, params: Any) -> int:
    """Return how many numbers `observe_humanoid` writes."""
    bodies = model.nbody - 1
    size = model.nq + model.nv - num_hidden_positions(params, 2)
    size += 10 * bodies * params.include_cinert_in_observation
    size += 6 * bodies * params.include_cvel_in_observation
    size += (model.nv - 6) * params.include_qfrc_actuator_in_observation
    return int(size + 6 * bodies * params.include_cfrc_ext_in_observation)

"""The contract of an environment: what it derives, and every way to break it."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any, NamedTuple

import gymnasium
import numba
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.utils import seeding

from rlcpu.envs.contract.dynamics import Dynamics, identity
from rlcpu.envs.tasks.classic_control import (
    acrobot,
    cartpole,
    mountain_car,
    mountain_car_continuous,
    pendulum,
)


class Params(NamedTuple):
    """A number written as an int, a real number and an option."""

    push: float = 1
    friction: float = 0.5
    wall: bool = False


def reset(uniforms, params):
    return (uniforms[0] - 0.5, 0.0)


def step(state, action, params):
    position, velocity = state
    velocity = velocity + (params.push if action == 1 else -params.push)
    return (position + velocity, velocity), 1.0, position > 10.0


def describe(**changes: Any) -> dict[str, Any]:
    """Arguments of a valid `Dynamics`, but for the changes."""
    fields: dict[str, Any] = {
        "id": "Toy-v0",
        "step": step,
        "reset": reset,
        "observation_space": Box(-np.inf, np.inf, (2,), np.float32),
        "action_space": Discrete(2),
        "params": Params(),
        "reset_draws": 1,
    }
    return fields | changes


def test_derived_properties() -> None:
    toy = Dynamics(**describe())
    assert (toy.state_size, toy.observation_size) == (2, 2)
    assert (toy.is_discrete, toy.num_actions, toy.action_size) == (True, 2, 0)
    assert toy.observe is identity
    car = mountain_car_continuous.DYNAMICS
    assert (car.is_discrete, car.num_actions, car.action_size) == (False, 0, 1)
    assert pendulum.DYNAMICS.observation_size == 3
    assert pendulum.DYNAMICS.state_size == 2


def test_is_frozen_and_compares_by_identity() -> None:
    toy = Dynamics(**describe())
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy.id = "Other-v0"  # type: ignore[misc]
    assert toy == toy
    assert toy != Dynamics(**describe())
    assert len({toy, Dynamics(**describe())}) == 2


def test_numbers_become_floats_and_bools_stay() -> None:
    params = Dynamics(**describe(params=Params(push=np.float32(2), wall=np.True_))).params
    assert params == Params(2.0, 0.5, True)
    assert [type(value) for value in params] == [float, float, bool]


def test_with_params_changes_a_copy() -> None:
    moon = cartpole.DYNAMICS.with_params(gravity=2, sutton_barto_reward=True)
    assert moon.params.gravity == 2.0
    assert type(moon.params.gravity) is float
    assert moon.params.sutton_barto_reward is True
    assert moon.params.masspole == cartpole.DYNAMICS.params.masspole
    assert cartpole.DYNAMICS.params.gravity == 9.8
    assert (moon.id, moon.state_size) == ("CartPole-v1", 4)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"gravty": 1.0}, TypeError, "CartPole-v1 has no parameter gravty; it has: gravity, "),
        ({"gravity": "9.8"}, TypeError, "gravity='9.8' has to be a number"),
        ({"gravity": None}, TypeError, "gravity=None has to be a number"),
        ({"gravity": True}, TypeError, "gravity=True has to be a number"),
        ({"semi_implicit": 1}, TypeError, "semi_implicit=1 has to be True or False"),
        ({"semi_implicit": "no"}, TypeError, "semi_implicit='no' has to be True or False"),
        ({"tau": math.nan}, ValueError, "tau=nan has to be a number, not NaN"),
        ({"length": 0.0}, ValueError, "step raised ZeroDivisionError"),
        ({"tau": math.inf}, ValueError, "has to return new_state as a tuple of 4 floats, finite"),
    ],
)
def test_bad_params(params: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cartpole.DYNAMICS.with_params(**params)


BAD_DESCRIPTIONS = [
    ({"id": "Toy"}, ValueError, "id='Toy' has to be a name and a version"),
    ({"id": 3}, ValueError, "id=3 has to be"),
    ({"reset_draws": -1}, ValueError, "reset_draws=-1: expected at least 0"),
    ({"reset_draws": 1.5}, TypeError, "reset_draws=1.5: expected an int"),
    ({"step_draws": True}, TypeError, "step_draws=True: expected an int"),
    ({"max_episode_steps": 0}, ValueError, "max_episode_steps=0: expected at least 1"),
    ({"reward_threshold": "9"}, TypeError, "reward_threshold='9' has to be a number or None"),
    ({"original": 1}, TypeError, "original=1 has to be an id of Gymnasium or None"),
    ({"observation_space": MultiDiscrete([2])}, TypeError, "observation_space=.* a float32 Box"),
    (
        {"observation_space": Box(-1.0, 1.0, (2,), np.float64)},
        TypeError,
        "observation_space=.*float64.* has to be a float32 Box of one dimension",
    ),
    (
        {"observation_space": Box(-1.0, 1.0, (2, 1), np.float32)},
        TypeError,
        "observation_space=.* has to be a float32 Box of one dimension",
    ),
    ({"action_space": MultiBinary(2)}, TypeError, "action_space=.* has to be .* or MultiDiscrete"),
    ({"action_space": Discrete(2, start=1)}, ValueError, "action_space=.* has to start at 0"),
    ({"params": Params}, TypeError, "params=.* has to be an instance of a NamedTuple class"),
    ({"params": {"push": 1.0}}, TypeError, "params=.* has to be .*, got dict"),
    ({"params": Params(push="1")}, TypeError, "push='1' has to be a number, True or False"),
    (
        {"params": Params(push=(1.0, 2.0))},
        TypeError,
        r"False, each of its items a field of its own",
    ),
    ({"params": Params(push=math.nan)}, ValueError, "push=nan has to be a number, not NaN"),
    ({"reset_options": "low"}, TypeError, "reset_options='low' has to be a dict"),
    ({"reset_options": {"low": "push"}}, ValueError, r"reset_options\['low'\]='push' has to be"),
    ({"reset_options": {"low": ("wall",)}}, ValueError, r"has to be .* \(push, friction\)"),
]
BAD_FUNCTIONS = [
    ({"step": numba.njit(step)}, TypeError, "step=.* has to be a plain Python function.*py_func"),
    ({"step": math.sin}, TypeError, "step=.* has to be a plain Python function, got builtin"),
    ({"reset": "reset"}, TypeError, "reset='reset' has to be a plain Python function, got str"),
    ({"observe": None}, TypeError, "observe=None has to be a plain Python function"),
    ({"step": lambda s, a: 0}, TypeError, r"step has to take \(state, action, params\) with step_"),
    ({"step_draws": 1}, TypeError, r"step has to take \(state, action, params, uniforms\) with"),
    ({"reset": lambda p: 0}, TypeError, r"reset has to take \(uniforms, params\)"),
    ({"observe": lambda s: s}, TypeError, r"observe has to take \(state, params\).*takes \(s\)"),
    ({"reset_draws": 0}, ValueError, r"reset raised IndexError.* for uniforms=\(\), params="),
    (
        {"reset": lambda u, p: [0.0]},
        TypeError,
        "line .*, in <lambda>: .* makes a list, and kernels",
    ),
    ({"reset": lambda u, p: u[0]}, TypeError, "reset has to return state as .*returned 0.0"),
    ({"reset": lambda u, p: ()}, ValueError, "reset has to return state as a tuple of 1 floats"),
    ({"reset": lambda u, p: ("0", 0.0)}, TypeError, r"2 floats; returned \('0', 0.0\)"),
    ({"reset": lambda u, p: (math.nan, 0.0)}, ValueError, "reset has to return .* floats, finite"),
    ({"reset": lambda u, p: (0.0, 0.0, 0.0)}, ValueError, "observe has to return .*returned 3"),
    ({"observe": lambda s, p: s[:1]}, ValueError, "observe has to return observation as .* 2 floa"),
    ({"observe": lambda s, p: s[0]}, TypeError, "observe has to return observation as a tuple"),
    ({"step": lambda s, a, p: s}, TypeError, r"step has to return \(new_state, reward, terminated"),
    ({"step": lambda s, a, p: None}, TypeError, r"step has to return .*; returned None"),
    ({"step": lambda s, a, p: (s[:1], 1.0, False)}, ValueError, "step has to return new_state as"),
    ({"step": lambda s, a, p: (s, "1", False)}, TypeError, "step has to return reward as a number"),
    ({"step": lambda s, a, p: (s, math.inf, False)}, ValueError, "step has to return a finite rew"),
    ({"step": lambda s, a, p: (s, 1.0, 0)}, TypeError, "step has to return terminated as a bool"),
    ({"step": lambda s, a, p: (s, p.x, False)}, ValueError, "step raised AttributeError"),
    ({"step": lambda s, a, p: (s, math.one, False)}, TypeError, "math.one, which is defined nowhe"),
    ({"observe": lambda s, p: (random.random(), s[1])}, TypeError, "uses random.*step_draws"),
    ({"reset": lambda u, p: endless(u)}, ValueError, "reset does not end: .* in endless: `"),
]


def endless(uniforms):
    while len(uniforms):
        pass
    return uniforms


@pytest.mark.parametrize(("changes", "error", "message"), BAD_DESCRIPTIONS + BAD_FUNCTIONS)
def test_bad_dynamics(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Dynamics(**describe(**changes))


def test_second_of_two_branches_is_tried() -> None:
    """A fault that only the last action shows is found at construction."""

    def faulty(state, action, params):
        return (state if action == 0 else (*state, 0.0)), 1.0, False

    with pytest.raises(ValueError, match="returned 3"):
        Dynamics(**describe(step=faulty))


def test_step_with_draws_and_box_actions() -> None:
    def noisy(state, action, params, uniforms):
        return (state[0] + action[0] * action[1] + uniforms[2], state[1]), 0.0, False

    space = Box(np.array([-1, -np.inf], np.float32), np.inf, (2,), np.float32)
    toy = Dynamics(**describe(step=noisy, step_draws=3, action_space=space))
    assert toy.action_size == 2


BUILT_IN = [
    module.DYNAMICS
    for module in (cartpole, mountain_car, mountain_car_continuous, pendulum, acrobot)
]
built_in = pytest.mark.parametrize("dynamics", BUILT_IN, ids=lambda dynamics: dynamics.id)


@built_in
def test_description_is_gymnasiums(dynamics: Dynamics) -> None:
    env, spec = gymnasium.make(dynamics.original), gymnasium.spec(dynamics.original)
    assert dynamics.id == spec.id
    assert dynamics.max_episode_steps == spec.max_episode_steps
    assert dynamics.reward_threshold == spec.reward_threshold
    assert dynamics.observation_space == env.observation_space
    assert dynamics.action_space == env.action_space


@built_in
@pytest.mark.parametrize("options", [{}, {"low": -0.3, "high": 0.2, "x_init": 1.5, "y_init": 2.0}])
def test_reset_scales_uniforms_as_gymnasium(dynamics: Dynamics, options: dict[str, float]) -> None:
    """The same random numbers make the same state, bit for bit, with and without options."""
    options = {k: v for k, v in options.items() if k in dynamics.reset_options}
    fields = {field: v for k, v in options.items() for field in dynamics.reset_options[k]}
    params = dynamics.params._replace(**fields)
    env = gymnasium.make(dynamics.original).unwrapped
    for seed in range(200):
        theirs, _ = env.reset(seed=seed, options=options or None)
        uniforms = seeding.np_random(seed)[0].random(dynamics.reset_draws)
        state = dynamics.reset(tuple(uniforms.tolist()), params)
        np.testing.assert_array_equal(state, np.array(env.state, dtype=np.float64))
        ours = np.array(dynamics.observe(state, params), dtype=np.float32)
        # Acrobot's first observation is made of float32 sines and cosines: within an ulp of 1.
        error = 2.0**-23 if dynamics.id == "Acrobot-v1" else 0.0
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=error)

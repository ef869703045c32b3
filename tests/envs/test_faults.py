"""NaN and infinity in rollouts: named, with environment, field and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.policies import Scalar, Uniform
from tests.envs.rollouts import Lean, lean, make

CASES = ["CartPole-v1 tanh", "CartPole-v1 uniform", "CartPole-v1 exact own"]


def break_velocity(env: rlcpu.VectorEnv, i: int, value: float) -> None:
    """Make the second number of a state one that `env.state = ` refuses."""
    env.engine.real[i // 64, 64 + i % 64] = value


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", CASES)
def test_collect_names_an_observation(case: str, value: float) -> None:
    env, policy = make(case)
    break_velocity(env, 67, value)
    message = rf"CartPole-v1: environment 67 has observation\[1\]={value} in step 0 \(1 of 70"
    with pytest.raises(FloatingPointError, match=message):
        rlcpu.collect(env, policy, 5)


@pytest.mark.parametrize("case", CASES)
def test_the_environment_starts_a_new_episode(case: str) -> None:
    env, policy = make(case)
    for run in (rlcpu.collect, rlcpu.simulate):
        break_velocity(env, 67, np.nan)
        with pytest.raises(FloatingPointError):
            run(env, policy, 2)
        run(env, policy, 2)
    assert np.isfinite(env.state).all()


@pytest.mark.parametrize(
    ("angle", "message"),
    [
        (
            0.2,
            r"environment 0 has observation\[1\]=-?(inf|nan) in step 1 after the action [01] \(70",
        ),
        (1.0, r"environment 0 has final observation\[1\]=-?(inf|nan) in step 0 after the action"),
    ],
)
def test_collect_names_what_a_step_led_to(angle: float, message: str) -> None:
    env, policy = make("CartPole-v1 tanh", gravity=3e38, length=0.1)
    env.state = np.tile([0.0, 0.0, angle, 0.0], (env.num_envs, 1))
    with pytest.raises(FloatingPointError, match=message):
        rlcpu.collect(env, policy, 1)


def test_collect_names_a_reward() -> None:
    env, policy = make("Pendulum-v1 tanh")
    state = env.state
    state[66, 1] = 3e19  # its square overflows, the next velocity is within its limits
    env.state = state
    message = r"environment 66 has reward=-inf in step 0 after the action \[.*\] \(1 of 70"
    with pytest.raises(FloatingPointError, match=message):
        rlcpu.collect(env, policy, 5)


@pytest.mark.parametrize("case", ["CartPole-v1 tanh", "CartPole-v1 relu", "Pendulum-v1 tanh"])
@pytest.mark.parametrize(
    "name", ["parameters", "value_parameters", "log_std", "observation_mean", "observation_scale"]
)
@pytest.mark.parametrize("run", [rlcpu.collect, rlcpu.simulate])
def test_an_array_of_the_policy_is_named(run: Callable[..., Any], case: str, name: str) -> None:
    env, policy = make(case)
    array = getattr(policy, name)
    if not array.size:
        return
    array[-1] = np.nan
    seen = "values" if name == "value_parameters" else "actions"
    message = rf"MLP returned .*policy.{name}\[{array.size - 1}\] is nan.*1 of {array.size} numbers"
    if run is rlcpu.collect or seen == "actions":
        with pytest.raises(FloatingPointError, match=message):
            run(env, policy, 3)
    compute = policy.evaluate if seen == "values" else policy.outputs
    with pytest.raises(FloatingPointError, match=rf"policy.{name}"):
        compute(np.zeros((2, policy.sizes[0])))


def test_the_layer_of_a_parameter_is_named() -> None:
    env, policy = make("CartPole-v1 tanh")  # 4, 20, 7, 2
    for index, layer in (
        (0, "weight of layer 0"),
        (99, "bias of layer 0"),
        (-1, "bias of layer 2"),
    ):
        kept, policy.parameters[index] = policy.parameters[index], np.nan
        with pytest.raises(FloatingPointError, match=layer):
            rlcpu.collect(env, policy, 1)
        policy.parameters[index] = kept
    rlcpu.collect(env, policy, 1)


@pytest.mark.parametrize("case", ["CartPole-v1 tanh", "Pendulum-v1 tanh"])
def test_a_network_that_overflows_is_named(case: str) -> None:
    env, policy = make(case)
    policy.parameters[:] = 3e38
    with pytest.raises(FloatingPointError, match="the network overflows"):
        rlcpu.collect(env, policy, 3)
    with pytest.raises(FloatingPointError, match="an action or a return that was not finite"):
        rlcpu.simulate(make(case)[0], policy, 3)
    with pytest.raises(FloatingPointError, match="the network overflows"):
        policy.outputs(env.observe())


def test_a_policy_of_ones_own_is_named() -> None:
    env, _ = make("CartPole-v1 own")
    with pytest.raises(FloatingPointError, match=r"Scalar returned log_prob=-inf in step 0"):
        rlcpu.collect(env, Scalar(lean, Lean(gain=1e30), 2), 3)


def test_observations_of_a_policy_are_named() -> None:
    _, policy = make("CartPole-v1 tanh")
    seen = np.zeros((3, 4), np.float32)
    seen[2, 1] = np.nan
    with pytest.raises(FloatingPointError, match=r"observations\[2, 1\]=nan: expected finite"):
        policy.outputs(seen)


def test_simulate_names_environments() -> None:
    env, policy = make("CartPole-v1 uniform", max_episode_steps=100)
    break_velocity(env, 67, np.nan)
    with pytest.raises(FloatingPointError, match=r"environment 67 has the state .*nan"):
        rlcpu.simulate(env, policy, 5)
    env, policy = make("Pendulum-v1 tanh")
    state = env.state
    state[66, 1] = 3e19
    env.state = state
    with pytest.raises(FloatingPointError, match=r"environments 64 to 69 .* return .* not finite"):
        rlcpu.simulate(env, policy, 20)


def test_large_numbers_are_no_faults() -> None:
    env, _ = make("Pendulum-v1 uniform")
    state = env.state
    state[:, 1] = 1.5e19  # rewards of -2e37, all of them together beyond float32
    env.state = state
    assert np.isfinite(rlcpu.collect(env, Uniform(), 5).rewards).all()

"""Whatever an argument is: one exception, a TypeError or ValueError, that names it."""

from __future__ import annotations

import decimal
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.policies import MLP, Linear, Scalar, Uniform

HUGE = 10**400
MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
ODD: list[Any] = [
    *(None, True, -1, 2**64, HUGE, -HUGE, 1.5, np.nan, np.inf, 1e308, 1j, "", "x", b"x"),
    *([], [HUGE], (HUGE,), (2**40,), (1.5,), ("a",), [[1, 2], [3]], {}, {"a": 1}, set(), object()),
    *(np.array(3), np.array([1, 2]), np.array(["a"]), np.array([None]), np.zeros((2, 2))),
    *(MASKED, np.zeros(3, [("a", float)]), np.array([1], "datetime64[s]"), np.datetime64("2020")),
    *(decimal.Decimal("NaN"), fractions.Fraction(1, 2), int, len, lambda x: x, slice(1), ...),
]
SPACES = Box(-1.0, 1.0, (4,), np.float32), Discrete(2)


def lean(observation: Any, params: Any, uniforms: Any) -> Any:
    return 1, 0.0, 0.0


def env() -> rlcpu.VectorEnv:
    return rlcpu.make_vec("CartPole-v1", 3)


def changed(name: str) -> Callable[[Any], Any]:
    """Use a network after one of its attributes was replaced."""

    def use(value: Any) -> None:
        policy = MLP(*SPACES, hidden=(8,))
        setattr(policy, name, value)
        policy.code(env().dynamics)
        policy.arrays(env().dynamics)
        policy.evaluate(np.zeros((2, 4)))
        policy.outputs(np.zeros((2, 4)))

    return use


def changed_function(name: str) -> Callable[[Any], Any]:
    def use(value: Any) -> None:
        policy = Scalar(lean)
        setattr(policy, name, value)
        policy.code(env().dynamics)
        policy.arrays(env().dynamics)

    return use


def given(call: Callable[..., Any], name: str, **others: Any) -> Callable[[Any], Any]:
    return lambda value: call(**{**others, name: value})


SPACED = {"observation_space": SPACES[0], "action_space": SPACES[1]}
CARTPOLE = {"environment": "CartPole-v1", "num_envs": 3}
ATTACKS: list[tuple[str, Callable[[Any], Any]]] = [
    *((name, given(MLP, name, **SPACED)) for name in (*SPACED, "hidden", "activation", "value")),
    *((name, given(Linear, name, **SPACED)) for name in (*SPACED, "value", "seed")),
    *((name, given(Scalar, name, act=lean)) for name in ("act", "params", "draws")),
    *(
        (name, given(rlcpu.make_vec, name, **CARTPOLE))
        for name in ("environment", "num_envs", "device", "dtype", "autoreset_mode", "gravity")
    ),
    *(
        (name, given(rlcpu.make_vec, name, **CARTPOLE))
        for name in ("max_episode_steps", "num_threads", "render_mode", "sutton_barto_reward")
    ),
    *(
        (name, given(rlcpu.simulate, name, env=env(), policy=Uniform(), num_steps=1))
        for name in ("env", "policy", "num_steps")
    ),
    ("out", given(rlcpu.collect, "out", env=env(), policy=Uniform(), num_steps=1)),
    ("state", lambda value: setattr(env(), "state", value)),
    ("seed", lambda value: env().reset(seed=value)),
    *((n, lambda value, n=n: env().reset(options={n: value})) for n in ("low", "reset_mask")),
    ("options", lambda value: env().reset(options=value)),
    *(
        (name, changed(name))
        for name in ("parameters", "value_parameters", "observation_mean", "observation_scale")
    ),
    *((name, changed(name)) for name in ("activation", "value", "deterministic", "hidden")),
    *((name, changed(name)) for name in ("sizes", "value_sizes")),
    *((name, changed_function(name)) for name in ("act", "params", "draws")),
    ("observations", MLP(*SPACES).outputs),
    ("observations", MLP(*SPACES).evaluate),
]


@pytest.mark.parametrize(("name", "use"), ATTACKS)
def test_an_odd_argument_is_named(name: str, use: Callable[[Any], Any]) -> None:
    messages = []
    for value in ODD:
        try:
            use(value)
        except (TypeError, ValueError, FloatingPointError) as error:
            messages.append(str(error))
    assert [message for message in messages if name not in message] == []
    assert len(messages) >= 20


def test_sizes_cannot_be_changed_in_place() -> None:
    policy = MLP(*SPACES, hidden=(8,))
    for sizes in (policy.sizes, policy.value_sizes):
        with pytest.raises(ValueError, match="read-only"):
            sizes[1] = 64
    assert policy.outputs(np.zeros((1, 4))).shape == (1, 2)


def test_a_layer_of_any_size_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"hidden=\(70000, 70000\): .* at most 2\*\*28"):
        MLP(*SPACES, hidden=(70_000, 70_000))


def test_a_parameter_with_which_a_step_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"floats, finite; .* \(with gravity=inf\)"):
        rlcpu.make_vec("CartPole-v1", gravity=np.inf)

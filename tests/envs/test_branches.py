"""Branches that no trial enters, whose results are of another kind than those of other branches.

Numba gives a result of two kinds one type, or compiles a None beside a number: the compiler's check
of each branch names the line.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import check
from rlcpu.envs.contract.dynamics import identity
from rlcpu.envs.gymnasium.env import GymnasiumEnv
from rlcpu.policies import Scalar, Uniform
from tests.envs import array_envs
from tests.envs.gymnasium_cases import Book

FAR = 1e6  # nothing gets there in a trial


class State(NamedTuple):
    place: float
    turn: int
    open: bool
    pair: tuple[int, int]


def reset(rng: Any, params: Any) -> State:
    return State(rng.uniform(0), 1, True, (1, 2))


def make(**functions: Any) -> rlcpu.Dynamics:
    settings: dict[str, Any] = {
        "step": lambda state, action, params: (state, 1.0, False),
        "reset": reset,
        "observe": lambda state, params: (state.place,),
        "observation_space": Box(-np.inf, np.inf, (1,)),
    }
    return rlcpu.Dynamics(id="Branch-v0", action_space=Discrete(2), **settings | functions)


def line_in(function: Any, line: int) -> str:
    """The end of a message on a line of a function, the first being 0."""
    code = function.__code__
    return f" in {code.co_filename}, line {code.co_firstlineno + line}, in {code.co_name}: `"


def refused(function: Any, expected: str, line: int, **functions: Any) -> None:
    env = rlcpu.make_vec(make(**functions), 3)
    with pytest.raises(TypeError) as caught:
        env.reset(seed=0)
    assert str(caught.value).startswith(f"Branch-v0: {expected}{line_in(function, line)}")


def result_step(state, action, params):
    return (state, 1.0, False) if state.place < FAR else None


def reward_step(state, action, params):
    return state, 1.0 if state.place < FAR else None, False


def float_step(state, action, params):
    return state, 1.0, (False if state.place < FAR else 1.0)


def whole_step(state, action, params):
    if state.place > FAR:
        return state, 0.0, 1
    return state, 1.0, state.place > 9.0


def truncated_step(state, action, params):
    return state, 1.0, False, math.floor(state.place) if state.place > FAR else False


def turn_step(state, action, params):
    turn = state.turn
    if state.place > FAR:
        turn = 2.5
    return State(state.place, turn, state.open, state.pair), 1.0, False


def open_step(state, action, params):
    is_open = 1 if state.place > FAR else state.open
    return State(state.place, state.turn, is_open, state.pair), 1.0, False


def pair_step(state, action, params):
    pair = state.pair if state.place < FAR else (1, None)
    return State(state.place, state.turn, state.open, pair), 1.0, False


@pytest.mark.parametrize(
    ("step", "line", "message"),
    [
        (result_step, 1, "(new_state, reward, terminated); returned None"),
        (reward_step, 1, "reward as a number; returned None"),
        (float_step, 1, "terminated as a bool; returned 1.0"),
        (whole_step, 2, "terminated as a bool; returned 1"),
        (truncated_step, 1, "truncated as a bool; returned a number"),
        (turn_step, 3, "new_state as State.turn as an int; returned 2.5"),
        (open_step, 2, "new_state as State.open as a bool (True, not 1); returned 1"),
        (pair_step, 1, "new_state as State.pair as a tuple of 2 ints; returned (1, None)"),
    ],
)
def test_a_branch_of_a_step_is_refused(step: Any, line: int, message: str) -> None:
    refused(step, f"step has to return {message}", line, step=step)


def test_a_refused_kernel_is_forgotten_and_refused_again() -> None:
    env = rlcpu.make_vec(make(step=float_step), 3)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"returned 1\.0 in "):
            rlcpu.simulate(env, Uniform(), 2)


def test_branches_of_other_functions_are_refused() -> None:
    def drawn(rng, params):
        return State(0.5, 1 if rng.uniform(0) < 2.0 else 1.5, True, (1, 2))

    def seen(state, params):
        return state.turn if state.place < FAR else 1.0

    def allowed(state, params):
        return True, True if state.place < FAR else 1

    refused(
        drawn, "reset has to return state as State.turn as an int; returned 1.5", 1, reset=drawn
    )
    refused(
        seen,
        "observe has to return observation as an int; returned 1.0",
        1,
        observe=seen,
        observation_space=Discrete(3),
    )
    text = "action_mask has to return a tuple of 2 bools (True, not 1); returned (True, 1)"
    refused(allowed, text, 1, action_mask=allowed)


def test_numbers_of_other_kinds_are_taken_where_they_lose_nothing() -> None:
    """`math.floor` of a float32 is a float in kernels, and a whole number in Python."""

    def step(state, action, params):
        turn = state.turn if state.place < FAR else math.floor(state.place)
        reward = 1 if state.place < FAR else True
        place = 0.5 * state.place if state.place > 0.0 else 3
        return State(place, turn, state.open, state.pair), reward, max(state.open, turn > 3)

    env = rlcpu.make_vec(make(step=step), 3)
    env.reset(seed=0)
    _, rewards, terminated, _, _ = env.step(np.zeros(3, np.int64))
    np.testing.assert_array_equal(rewards, 1.0)
    assert terminated.all()


class Place(NamedTuple):
    place: float


def test_environments_may_have_a_function_in_common() -> None:
    """Each compiles it for a state of its own."""

    def seen(state, params):
        return state[0], 1.0

    space = Box(-np.inf, np.inf, (2,))
    for start in (State(0.5, 1, True, (1, 2)), Place(0.5), (0.5, 2.0), (0.5, 2.0, 3.0)):
        functions = {"reset": lambda rng, params, start=start: start, "observe": seen}
        rlcpu.make_vec(make(observation_space=space, **functions), 2).reset(seed=0)
    for plain in ((0.5, 2.0), (0.5, 2.0, 3.0)):  # by default the state is the observation
        functions = {"reset": lambda rng, params, start=plain: start, "observe": identity}
        space = Box(-np.inf, np.inf, (len(plain),))
        env = rlcpu.make_vec(make(observation_space=space, **functions), 2)
        np.testing.assert_array_equal(env.reset(seed=0)[0], [plain] * 2)


def unlike(state, action, params):
    moved = state
    if state.place > FAR:
        moved = (1.0, 2, True, (1, 2))
    return moved, 1.0, False


def longer(state, action, params):
    if state.place > FAR:
        return state, 1.0, False, True
    return state, 1.0, False


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            unlike,
            "moved is State(float, int, bool, (int, int)) in one branch and (float, 2, True, ",
        ),
        (
            longer,
            "its branches return (State(float, int, bool, (int, int)), float, False), (",
        ),
    ],
)
def test_branches_without_a_type_in_common_are_told_in_plain_words(step: Any, message: str) -> None:
    env = rlcpu.make_vec(make(step=step), 3)
    with pytest.raises(TypeError) as caught:
        env.reset(seed=0)
    text = str(caught.value)
    assert re.match(
        rf"{re.escape(__file__)}, line \d+, in {step.__name__}: `.*` cannot be compile", text
    )
    assert f"cannot be compiled: {message}" in text


def test_the_check_tells_it_once() -> None:
    report = check(make(step=float_step), steps=20)
    (error,) = (message for level, message in report.findings if level == "error")
    assert error.startswith(
        "kernels of float64: TypeError: Branch-v0: step has to return terminated"
    )
    assert line_in(float_step, 1) in error


def test_steps_of_states_with_arrays_are_looked_at_too() -> None:
    def step(state, action, params, rng):
        return 1.0, False if state.stock < FAR else 1.0, False

    env = rlcpu.make_vec(dataclasses.replace(array_envs.inventory, step=step), 2)
    with pytest.raises(TypeError) as caught:
        env.reset(seed=0)
    assert f"terminated as a bool; returned 1.0{line_in(step, 1)}" in str(caught.value)


# ---------------------------------------------------------------- policies


def none(observation, params, uniforms):
    return (1, 0.0, 0.0) if observation[0] < FAR else None


def half(observation, params, uniforms):
    return 1 if observation[0] < FAR else 0.5, 0.0, 0.0


def valueless(observation, params, uniforms):
    return 1, 0.0, 0.0 if observation[0] < FAR else None


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (none, "(action, log_prob, value); returned None"),
        (half, "an action, an int from 0 to {}; returned 0.5"),
        (valueless, "log_prob and value as floats; returned (1, 0.0, None)"),
    ],
)
def test_a_branch_of_a_policy_is_refused(act: Any, message: str) -> None:
    """In `collect` some had no error, and read what was not there."""
    cartpole, book = rlcpu.make_vec("CartPole-v1", 3), GymnasiumEnv(Book([3]))
    runs = [
        (lambda: rlcpu.simulate(cartpole, Scalar(act), 2), 1),
        (lambda: rlcpu.collect(cartpole, Scalar(act), 2), 1),
        (lambda: rlcpu.collect(book, Scalar(act), 2), 2),
    ]
    for run, last in runs:
        with pytest.raises(TypeError) as caught:
            run()
        text = f"act has to return {message.format(last)}{line_in(act, 1)}"
        assert str(caught.value).startswith(text)

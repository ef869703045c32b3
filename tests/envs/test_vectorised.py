"""Whether a step runs in vectors, what users are told of it, and what once kept steps from them."""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import cli
from rlcpu.envs import Dynamics, Rng
from rlcpu.envs.checks.vectorised import Driver, find_driver, lanes_of
from rlcpu.envs.engine.steps import step_kernels


class Params(NamedTuple):
    push: float = 0.5


class State(NamedTuple):
    place: float
    turn: int


def reset(rng: Rng, params: Params) -> State:
    return State(rng.uniform(0), rng.integers(1, 100))


def counted(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Comparisons beside differences, which LLVM makes overflow intrinsics of."""
    turn = 99 if state.turn == 0 else state.turn - 1
    left = turn - 64 if turn >= 64 else turn
    place = state.place * params.push + (1.0 if action == 1 else -1.0)
    return State(place, turn), place + float(left), place * place > 3.9


def chained(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    turn = (state.turn + 1) % 8
    if turn == 0:
        place = state.place * params.push
    elif turn == 1:
        place = abs(state.place) + 1.0
    elif turn == 2:
        place = -state.place
    elif turn == 3:
        place = state.place / (1.0 + abs(state.place))
    elif turn == 4:
        place = state.place - params.push
    else:
        place = state.place + params.push
    while place > 1.0:
        place = place * 0.5 - 0.25
    return State(place, turn), place, place < -3.0


def slope(y: Any, params: Params) -> Any:
    a, b, c, d = y
    return b, -params.push * math.sin(a) + 0.1 * math.cos(c), d, math.sin(c) * math.cos(a) - 0.1 * d


def moved(y: Any, h: float, by: Any) -> Any:
    return y[0] + h * by[0], y[1] + h * by[1], y[2] + h * by[2], y[3] + h * by[3]


def advance(y: Any, params: Params) -> Any:
    """Return the state after one step of Runge and Kutta."""
    a = slope(y, params)
    b = slope(moved(y, 0.05, a), params)
    c = slope(moved(y, 0.05, b), params)
    d = slope(moved(y, 0.1, c), params)
    return moved(moved(moved(moved(y, 0.02, a), 0.03, b), 0.03, c), 0.02, d)


def with_long_body(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    y = (state.place, 0.0, 1.0, 0.0)
    for _ in range(6):
        a = slope(y, params)
        b = slope(moved(y, 0.05, a), params)
        c = slope(moved(y, 0.05, b), params)
        d = slope(moved(y, 0.1, c), params)
        y = moved(moved(moved(moved(y, 0.02, a), 0.03, b), 0.03, c), 0.02, d)
    return State(y[0], state.turn), y[2], abs(y[0]) > 3.9


def with_function(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    y = (state.place, 0.0, 1.0, 0.0)
    for _ in range(6):
        y = advance(y, params)
    return State(y[0], state.turn), y[2], abs(y[0]) > 3.9


def make(step: Any) -> Dynamics:
    return Dynamics(
        id=f"{step.__name__.title()}-v0",
        step=step,
        reset=reset,
        observe=lambda state, params: (state.place, float(state.turn)),
        observation_space=Box(-np.inf, np.inf, (2,), np.float32),
        action_space=Discrete(2),
        params=Params(),
        max_episode_steps=20,
    )


def driver_of(dynamics: Dynamics) -> Driver:
    env = rlcpu.make_vec(dynamics, num_threads=1)
    env.reset(seed=0)
    env.step(np.array([1]))
    found = find_driver(step_kernels(env.engine.code, np.float32, False).function, dynamics.step)
    assert found is not None
    return found


def test_comparisons_beside_differences_compute_in_vectors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = driver_of(make(counted))
    assert found.lanes > 1
    assert str(found) == f"in vectors of {found.lanes} lanes"
    assert not caplog.records


def test_a_step_in_single_lanes_is_told_once_and_explained(
    caplog: pytest.LogCaptureFixture, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcpu.kernels.cache.cache_folder", lambda: None)  # out of it comes no word
    dynamics = make(chained)
    found = driver_of(dynamics)
    rlcpu.simulate(rlcpu.make_vec(dynamics, 3), rlcpu.policies.Uniform(), 2)
    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert record.name == "rlcpu"
    assert record.getMessage().startswith("Chained-v0: step runs one lane at a time: ")
    first = chained.__code__.co_firstlineno
    for text in (str(found), record.getMessage()):
        assert f"an `elif` chain, instead of ternaries ({__file__}:{first + 2})" in text
        assert f"differs from lane to lane ({__file__}:{first + 14})" in text


def test_lanes_are_those_of_the_clocks() -> None:
    lines = [
        "  store <16 x float> %x, ptr %p, align 4, !alias.scope !7, !noalias !8",
        "  store <8 x i32> %x, ptr %p, align 4, !alias.scope !9, !noalias !8",
        '!5 = !{!"words", !1}',
        '!6 = !{!"state", !1}',
        "!7 = !{!6}",
        "!9 = !{!5, !11}",
        f"!8 = !{{{', '.join(f'!{k}' for k in range(2, 40))}}}",
    ]
    assert lanes_of("\n".join(lines)) == 8
    assert lanes_of("\n".join(lines).replace("<8 x i32>", "i32")) == 1
    assert lanes_of("\n".join(lines[:1] + lines[3:5])) is None
    assert str(Driver(8, ("a call",))) == "in vectors of 8 lanes, but a call"
    assert str(Driver(1, ())).startswith("one lane at a time: none of the usual")


def test_info_tells_how_an_environment_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--env", "CartPole-v1"]) == 0
    assert capsys.readouterr().out.startswith("CartPole-v1: step runs in vectors of ")


def test_a_long_body_of_a_loop_is_unrolled_as_a_function() -> None:
    slow, fast = driver_of(make(with_long_body)), driver_of(make(with_function))
    line = with_long_body.__code__.co_firstlineno + 2
    assert slow.lanes == 1
    assert f"make a function of its body ({__file__}:{line})" in str(slow)
    assert fast.lanes > 1
    assert not fast.reasons

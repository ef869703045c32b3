"""Whether a step runs in vectors, what users are told of it, and what once kept steps from them."""

from __future__ import annotations

import dataclasses
import logging
import math
import platform
import re
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import cli
from rlcpu.envs import Dynamics, Rng
from rlcpu.envs.checks.checker import vectorisation_findings
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.engine.structure import structure
from rlcpu.envs.engine.vectorised import Driver, find_driver, lanes_of
from rlcpu.envs.rollout.compiled import simulate_kernels
from rlcpu.envs.tasks.t_maze import t_maze
from tests.envs import connect_four
from tests.envs.trials import try_kernels
from tests.kernels.processes import LAPTOP, run_python
from tests.machine_code import needs_avx512

GAINS = np.linspace(-1.0, 1.0, 8)
#: Of each column: whole numbers of 64, 32 and 8 bits, and real ones.
WIND = np.array((0, 0, 1, 1, 2, 1, 0, 0))
SHORT, BYTE, REAL = (WIND.astype(dtype) for dtype in (np.int32, np.uint8, np.float64))
MAP = np.array([WIND, 2 * WIND])
PAIRS = ((0.0, 1.0), (1.0, 0.0))
this = sys.modules[__name__]


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


def halving(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    place = state.place + params.push
    while place > 1.0:
        place = place * 0.5 - 0.25
    return State(place, state.turn), place, place < -3.0


def returning(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    if state.place > 3.0:
        return State(0.0, 0), 1.0, True
    place = state.place + math.cos(state.place)
    return State(place, state.turn), place, False


def counting(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    place = state.place
    for _ in range(action):
        place = place + 0.01 * math.sin(place)
    return State(place, state.turn), place, False


def breaking(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    place = state.place
    for k in range(4):
        if k == action:
            break
        place = place + 0.01 * math.sin(place)
    return State(place, state.turn), place, False


def advised(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """What is advised against `halving`, `returning`, `counting`, `breaking`, `with_many_turns`."""
    place = state.place + params.push
    for _ in range(6):
        place = place * 0.5 - 0.25 if place > 1.0 else place
    for k in range(4):
        place = place + (0.01 * math.sin(place) if k < action else 0.0)
    y = (place, 0.0, 1.0, 0.0)
    for _ in range(4):
        for _ in range(6):
            y = moved(y, 0.1, slope(y, params))
    is_over = state.place > 3.0
    reached = 0.0 if is_over else y[0] + math.cos(state.place)
    return State(reached, 0 if is_over else state.turn), 1.0 if is_over else y[0], is_over


def slope(y: Any, params: Params) -> Any:
    a, b, c, d = y
    return b, -params.push * math.sin(a) + 0.1 * math.cos(c), d, math.sin(c) * math.cos(a) - 0.1 * d


def moved(y: Any, h: float, by: Any) -> Any:
    return y[0] + h * by[0], y[1] + h * by[1], y[2] + h * by[2], y[3] + h * by[3]


def with_long_body(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    y = (state.place, 0.0, 1.0, 0.0)
    for _ in range(6):
        a = slope(y, params)
        b = slope(moved(y, 0.05, a), params)
        c = slope(moved(y, 0.05, b), params)
        d = slope(moved(y, 0.1, c), params)
        y = moved(moved(moved(moved(y, 0.02, a), 0.03, b), 0.03, c), 0.02, d)
    return State(y[0], state.turn), y[2], abs(y[0]) > 3.9


def with_many_turns(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    y = (state.place, 0.0, 1.0, 0.0)
    for _ in range(24):
        a = slope(y, params)
        b = slope(moved(y, 0.05, a), params)
        y = moved(moved(y, 0.05, a), 0.05, b)
    return State(y[0], state.turn), y[2], abs(y[0]) > 3.9


def powered(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """A power of two keeps it from vectors, and its `return` does not."""
    if state.turn == 50:
        return state, 0.0, False
    turn = (state.turn + 1) % 8
    gain = 2.0**turn if state.place > params.push else 0.0
    return State(0.5 * state.place + gain, turn), gain, False


def powered_as_advised(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    if state.turn == 50:
        return state, 0.0, False
    turn = (state.turn + 1) % 8
    gain = float(1 << turn) if state.place > params.push else 0.0
    return State(0.5 * state.place + gain, turn), gain, False


def chosen(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    """Choices that compute in vectors as they are: `elif`, `else`, ternaries, tables."""
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
        place = state.place + GAINS[turn]
    gain = (1.0 if turn == 0 else 0.0) + (2.0 if turn == 1 else 0.0)
    gain = gain + (3.5 if turn == 2 else 0.0) + (4.0 if turn == 3 else 0.0)
    if place > 0.3:
        place = math.sin(gain) * params.push
    else:
        place = place + math.cos(gain)
        gain = 0.0
    return State(place + gain, turn), place, place < -3.0


def blown(state: State, action: int, params: Params, table: Any = WIND) -> Any:
    """Tables of all kinds: of globals, of a module, and of a default."""
    turn = (state.turn + 1) % 8
    wind = WIND[turn] + SHORT[turn] - BYTE[turn] + this.WIND[turn] + MAP[action, turn]
    place = 0.5 * state.place + params.push * (REAL[turn] + PAIRS[action][1] + float(wind))
    return State(place, turn + table[turn] - MAP[1][turn]), GAINS[turn], place > 3.9


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


def driver_of(dynamics: Dynamics, dtype: type = np.float32) -> Driver:
    kernel = step_kernels(structure(dynamics), dtype).function
    (compiled,) = kernel.overloads.values()
    found = find_driver(compiled, dynamics.step)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "step",
    [
        counted,
        pytest.param(chosen, marks=needs_avx512),
        with_long_body,
        advised,
        powered_as_advised,
    ],
)
def test_what_vectorises(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Comparisons beside differences, choices of all kinds, loops that are unrolled, and advice."""
    found = driver_of(make(step))
    assert found.lanes > 1
    assert str(found) == f"in vectors of {found.lanes} lanes"
    assert not caplog.records


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reads_of_tables_gather_in_steps_and_in_rollouts(dtype: type) -> None:
    """A read without an alias scope kept `simulate` from vectors, and `step` had them."""
    dynamics = make(blown)
    assert driver_of(dynamics, dtype).lanes > 1
    assert driver_of_simulate(dynamics, dtype).lanes > 1
    try_kernels(dynamics, steps=50)


@pytest.mark.parametrize(
    ("step", "line", "what"),
    [
        (halving, 2, "a `while`: write a `for` of constant turns, with a ternary for those too"),
        (returning, 2, "a `return` before the end: compute all, and choose by ternaries"),
        (counting, 2, "a loop whose number of turns is known at run time only: give it a constant"),
        (breaking, 4, "a `break`: choose by a ternary in each turn"),
        (
            powered,
            5,
            "`**` with a whole exponent that is known at run time only, a loop: write flo",
        ),
        (with_many_turns, 2, "a loop of 24 turns: write two of at most 16, one in the other"),
    ],
)
def test_what_does_not_is_named_with_what_to_write(step: Any, line: int, what: str) -> None:
    """`advised` does what is said."""
    found = driver_of(make(step))
    assert found.lanes == 1
    (reason,) = found.reasons
    assert reason.startswith(what)
    assert reason.endswith(f"({__file__}:{step.__code__.co_firstlineno + line})")


def guarded(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    turn = (state.turn + 1) % 8
    place = state.place + GAINS[turn] if action == 1 else 0.5 * state.place
    return State(place, turn), place, place < -3.0


def unguarded(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    turn = (state.turn + 1) % 8
    gain = GAINS[turn]
    place = state.place + gain if action == 1 else 0.5 * state.place
    return State(place, turn), place, place < -3.0


ON_LAPTOPS = """
import json
from tests.envs.test_vectorised import driver_of, guarded, make, unguarded
print(json.dumps([str(driver_of(make(step))) for step in (guarded, unguarded)]))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names one of Intel's")
def test_items_of_tables_in_a_branch_are_named_where_vectors_have_32_bytes() -> None:
    """As on most laptops, which have AVX2 alone."""
    told, advised = run_python("-c", ON_LAPTOPS, **LAPTOP)
    what = "an item of a table in one branch: read it before, and choose by a ternary"
    line = guarded.__code__.co_firstlineno + 2
    assert told == f"one lane at a time: {what} ({__file__}:{line})"
    assert advised == "in vectors of 8 lanes"


NEXT_TURN = np.array([3, 5, 1, 7, 0, 2, 4, 6], np.int8)


def following(turn: int) -> int:
    return NEXT_TURN[turn]


def guarded_byte(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    turn = NEXT_TURN[state.turn % 8] if action == 1 else state.turn
    return State(state.place + 1.0, turn), state.place, state.place > 3.0


def guarded_call(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    turn = following(state.turn % 8) if action == 1 else state.turn
    return State(state.place + 1.0, turn), state.place, state.place > 3.0


def unguarded_byte(state: State, action: int, params: Params) -> tuple[State, float, bool]:
    after = following(state.turn % 8)
    turn = after if action == 1 else state.turn
    return State(state.place + 1.0, turn), state.place, state.place > 3.0


def test_items_of_tables_of_bytes_in_a_branch_are_named() -> None:
    """Whatever the vectors, and also where a function that is called there reads them."""
    what = "an item of a table in one branch: read it before, and choose by a ternary"
    for step in (guarded_byte, guarded_call):
        (reason,) = driver_of(make(step)).reasons
        assert reason == f"{what} ({__file__}:{step.__code__.co_firstlineno + 1})"
    assert driver_of(make(unguarded_byte)).lanes > 1


@needs_avx512
def test_a_loop_over_pairs_becomes_vectors_in_rollouts() -> None:
    for four in (connect_four.four_of_pairs, connect_four.four):
        assert driver_of_simulate(connect_four.make(four)).lanes > 1


def turning(
    s: t_maze.State, action: int, params: t_maze.Params
) -> tuple[t_maze.State, float, bool]:
    turned = s.place >= params.length and action in (t_maze.LEFT, t_maze.RIGHT)
    way = 1.0 if action == t_maze.FORWARD else -1.0 if action == t_maze.BACK else 0.0
    place = min(max(s.place + way, 0.0), params.length)
    return t_maze.State(place, s.left), 4.0 if turned else 0.0, turned


@needs_avx512
def test_in_a_tuple_becomes_vectors_in_rollouts() -> None:
    """The maze compares with each item."""
    maze = t_maze.DYNAMICS
    for dynamics in (maze, dataclasses.replace(maze, id="Turning-v0", step=turning)):
        assert driver_of_simulate(dynamics).lanes > 1


def driver_of_simulate(dynamics: Dynamics, dtype: type = np.float32) -> Driver:
    code, policy = structure(dynamics), rlcpu.policies.Uniform().code(dynamics)
    kernel = simulate_kernels(code, dtype, policy).function
    (compiled,) = kernel.overloads.values()
    found = find_driver(compiled, dynamics.step)
    assert found is not None
    return found


def test_a_step_in_single_lanes_is_told_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Out of the cache comes no word.
    monkeypatch.setattr("rlcpu.kernels.compiler.cache.cache_folder", lambda: None)

    def again(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        return halving(state, action, params)

    dynamics = make(again)
    found = driver_of(dynamics)
    rlcpu.simulate(rlcpu.make_vec(dynamics, 3), rlcpu.policies.Uniform(), 2)
    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert record.name == "rlcpu"
    text = "Again-v0: step and collect run one lane at a time: a `while`: "
    assert record.getMessage().startswith(text)
    assert str(found) in record.getMessage()


@needs_avx512
@needs_avx512
def test_a_report_on_vectors_warns_of_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcpu.kernels.compiler.cache.cache_folder", lambda: None)

    def within(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        moved = 0.5 * state.place + (params.push if state.turn in (1, 4, 9) else 0.25)
        return State(moved, (state.turn + 1) % 12), moved, moved > 3.9

    for level, message in vectorisation_findings(make(within)):
        assert level == "note"
        assert re.search(r"runs? in vectors of \d+ lanes", message)
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


def test_powers_of_whole_numbers_keep_vectors_where_actions_are_drawn(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba's own power is a loop, which LLVM unrolls in `step` and not in `simulate`."""
    monkeypatch.setattr("rlcpu.kernels.compiler.cache.cache_folder", lambda: None)

    def growing(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        place = state.place + (params.push**2 / 2.0 - params.push) * 0.01
        reward = math.exp(-params.push * float(state.turn)) * max(1.0 - place**3, 0.0)
        return State(place, state.turn + 1), reward, action == 1 or state.turn == 50

    rlcpu.simulate(rlcpu.make_vec(make(growing), 3), rlcpu.policies.Uniform(), 2)
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


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
    """One line, or two where registers of 512 bits are worth it in `simulate` alone."""
    assert cli.main(["info", "--env", "CartPole-v1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    wide = ["step and collect run", "simulate runs"]
    kernels = wide if len(lines) == 2 else ["step, simulate and collect run"]
    for line, kernel in zip(lines, kernels, strict=True):
        assert re.fullmatch(rf"CartPole-v1: {kernel} in vectors of \d+ lanes", line)

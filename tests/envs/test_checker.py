"""`rlcpu.envs.check` finds each kind of defect in a user's own environment."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcpu import cli
from rlcpu.envs import Dynamics, Rng, check
from rlcpu.envs.checks.compiled import compare_kernels
from rlcpu.envs.checks.findings import Finding
from rlcpu.envs.checks.player import Player
from rlcpu.envs.contract import registry
from tests.envs.trials import assert_step_vectorises, try_kernels

TABLE = np.arange(7.0)
PAIRS = ((1.0, 2.0), (3.0, 4.0))
STATES = [(1.0, 0.0)]
calls = itertools.count()


class Params(NamedTuple):
    gain: float = 1.0
    noisy: bool = False


def reset(uniforms: Any, params: Params) -> Any:
    return (10.0 * uniforms[0], 0.0)


def drift(state: Any, action: int, params: Params, uniforms: Any) -> Any:
    """A step without a fault."""
    speed = (
        0.9 * state[1] + (params.gain if action > 1 else -0.5) + 0.1 * (uniforms[0] - uniforms[9])
    )
    place = min(max(state[0] + 0.1 * speed, 0.0), 10.0)
    return (place, speed), -abs(place - 5.0), place < 0.1


def nan(state, action, params, uniforms):
    return state, math.nan if 7.0 < state[0] < 9.0 else 0.0, False


def missed(state, action, params, uniforms):
    return state, TABLE[int(state[0]) if state[0] < 9.0 else 0], False


def wrapped(state, action, params, uniforms):
    return state, TABLE[int(state[0]) - 4] if state[0] < 7.0 else TABLE[-1], False


def pair(state, action, params, uniforms):
    return (state[0], PAIRS[action - 1][0]), 0.0, False


def escaped(state, action, params, uniforms):
    return (state[0] + 1.0, 0.0), 0.0, False


def impure(state, action, params, uniforms):
    return (state[0], float(next(calls) % 5)), 0.0, False


def divided(state, action, params, uniforms):
    return (state[0], 1.0 / (action - 1.0)), 0.0, False


def double(state, action, params, uniforms):
    return (state[0], state[1] + np.float64(action)), 0.0, False


def looped(state, action, params, uniforms):
    """Neither the reward's product nor its factor is a float32, and the loop becomes no vector."""
    large, total = 1e30 * state[0], state[1]
    for _ in range(int(state[0])):
        total = math.sin(total + 1.0) if total < 1.0 else math.tan(total)
    return (state[0], min(total, 9.0)), 1e-60 * large * large, False


def jumped(state, action, params, uniforms):
    """Where rounding decides, kernels of float32 may land on the other side."""
    place = math.floor(7.0 * state[0]) / 7.0
    return (place, state[1] + 0.3), 0.0, place > 9.0


def make(step: Callable[..., Any], name: str = "Drift-v0", draws: int = 10) -> Dynamics:
    return Dynamics(
        id=name,
        step=step,
        reset=reset,
        observation_space=Box(-60.0, 60.0, (2,), np.float32),
        action_space=Discrete(3),
        params=Params(),
        reset_draws=1,
        step_draws=draws,
        max_episode_steps=60,
    )


def line_of(step: Any) -> str:
    return f"{__file__}:{step.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])  # one of each kind of action
def test_built_in_environments_pass(name: str) -> None:
    report = check(name, steps=300)
    assert report.ok, report
    assert not any(level == "warning" for level, _ in report.findings), report
    assert not any("last bits" in message for _, message in report.findings), report
    assert report.steps == 300


def test_an_environment_of_ones_own_passes(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (check(make(drift), steps=200, seed=3) for _ in range(2))
    assert first.ok, first
    assert {level for level, _ in first.findings} == {"note"}
    assert re.search(r"step,? (simulate )?and collect run in vectors", str(first))
    assert str(first) == str(second)
    assert capsys.readouterr().out == ""


def assert_found(findings: list[Finding], level: str, parts: list[str]) -> None:
    found = [message for each, message in findings if each == level]
    assert any(all(part in message for part in parts) for message in found), findings


@pytest.mark.parametrize(
    ("step", "level", "parts"),
    [
        (nan, "error", ["step((", "has to return a finite reward; returned nan (", "times)"]),
        (missed, "error", [line_of(missed), "TABLE[int(state[0])", "IndexError", "in step(("]),
        (wrapped, "warning", [f"{line_of(wrapped)}: `return", "reads TABLE[-", "end of the table"]),
        (pair, "warning", [line_of(pair), "reads PAIRS[-1]"]),
        (escaped, "error", ["observation[0]=6", "expected -60.0 to 60.0 of observation_space"]),
        (impure, "error", ["it depends on something else"]),
        (divided, "error", [line_of(divided), "ZeroDivisionError", "in step(("]),
        (escaped, "note", ["terminated was never True"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_defects_of_plain_python_are_found(step: Any, level: str, parts: list[str]) -> None:
    player = Player(make(step))
    player.play(200, np.random.default_rng(0))
    assert_found(player.findings.sorted(), level, parts)


def test_defects_of_kernels_are_found() -> None:
    report = check(make(double), steps=100)
    parts = ["kernels of float32: TypeError", "float64", "np.float64(action)"]
    assert_found(report.findings, "error", parts)
    assert not report.ok
    report = check(make(looped), steps=100)
    parts = ["step((", "gives reward=", "kernel of float32", "in plain Python"]
    assert_found(report.findings, "error", parts)
    parts = ["tanf of the C library", "a loop whose number of turns is known at run time only"]
    assert_found(report.findings, "warning", ["and collect run one lane", *parts, __file__])
    assert not report.ok
    warnings = [finding for finding in report.findings if finding.level == "warning"]
    assert dataclasses.replace(report, findings=warnings).ok


def test_a_result_that_rounding_decides_is_no_defect() -> None:
    try_kernels(make(jumped), steps=400)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dynamics": "CartPol-v1"}, ValueError, "did you mean 'CartPole-v1'"),
        ({"steps": 0}, ValueError, "steps=0: expected at least 1"),
        ({"steps": "1"}, TypeError, "steps='1'"),
        ({"seed": -1}, ValueError, "seed=-1"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check(**{"dynamics": "CartPole-v1", **arguments})


@pytest.mark.parametrize(("step", "code"), [(drift, 0), (looped, 1)])
def test_the_command(
    step: Any, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.made, "Tried-v0", make(step, "Tried-v0"))
    states = f"{__name__}:STATES"
    assert cli.main(["check", "Tried-v0", "--steps", "100", "--states", states]) == code
    printed = capsys.readouterr().out
    assert printed.startswith("Tried-v0: ")
    assert ("error    step((" in printed) == bool(code)


def noisy(state: Any, action: Any, params: Any, rng: Rng) -> Any:
    jump = rng.normal() if rng.uniform() < 0.1 else 0.0
    moved = state[0] + 0.1 * rng.normal() + jump + 0.01 * (rng.uniform() - 0.5)
    return (moved, state[1] + 1.0), 0.0, abs(moved) > 3.0


def test_draws_without_numbers_are_those_of_plain_python_and_vectorise() -> None:
    player = Player(make(noisy, draws=0))
    cases = player.play(200, np.random.default_rng(0))
    assert compare_kernels(player, cases, np.float32, 0)
    assert compare_kernels(player, cases, np.float64, 0)
    assert {level for level, _ in player.findings.sorted()} == {"note"}
    assert_step_vectorises(player.dynamics)


def helper(rng: Rng) -> float:
    return rng.uniform(0)


def shared(state: Any, action: Any, params: Any, rng: Rng) -> Any:
    pushed = state[0] + 0.1 * helper(rng)
    return (pushed, state[1] + rng.integers(0, 2)), 0.0, False


def repeated(state: Any, action: Any, params: Any, rng: Rng) -> Any:
    return (rng.uniform(1), 0.5 + rng.uniform() + rng.uniform(1)), 0.0, False


@pytest.mark.parametrize(("step", "level"), [(shared, "warning"), (repeated, "note")])
def test_a_number_that_is_drawn_twice_is_found(step: Any, level: str) -> None:
    player = Player(make(step, draws=0))
    player.play(50, np.random.default_rng(0))
    number = 0 if step is shared else 1
    assert_found(
        player.findings.sorted(), level, [f"takes number {number} again, after", "rng.uniform("]
    )


def often(state: Any, action: Any, params: Any, rng: Rng) -> Any:
    k, total = int(state[0]), 0.0
    total += TABLE[k % 7 - 4] + PAIRS[k % 3 - 1][k % 2 - 1]
    for j in range(3):
        total += rng.uniform(j)
    for j in range(3):
        total += rng.uniform(j)
    return ((state[0] + 1.7) % 10.0, 0.0), total, False


def test_a_line_is_told_once_whichever_numbers_it_reads() -> None:
    player = Player(make(often, draws=0))
    player.play(100, np.random.default_rng(0))
    findings = player.findings.sorted()
    first = f"{__file__}:{often.__code__.co_firstlineno + 2}: `"
    warnings = [message for level, message in findings if level == "warning"]
    assert sorted(message.partition(" reads ")[2][:5] for message in warnings) == ["PAIRS", "TABLE"]
    assert all(message.startswith(first) and "times)" in message for message in warnings)
    (again,) = (message for _, message in findings if " again, after " in message)
    assert again.endswith("(300 times)")


def far(place: float) -> float:
    return 2.0 * place


def branching(state: Any, action: Any, params: Any, rng: Rng) -> Any:
    speed = 1.0 if action == 2 else 0.5 if action < 3 else 0.25
    if state[0] > 50.0:
        speed = far(speed)
        speed -= 0.1
    return (state[0], speed), 0.0, False


def test_what_random_play_never_reaches_is_named() -> None:
    environment, first = make(branching, draws=0), branching.__code__.co_firstlineno
    player = Player(environment)
    player.play(130, np.random.default_rng(0))
    told = [message for _, message in player.findings.sorted()]
    assert told[0].startswith("130 steps of 3 episodes were played, with actions drawn uniformly")
    never = [message for message in told if message.startswith("never ran: ")]
    assert never == [
        f"never ran: `0.25` in {__file__}:{first + 1}: "
        "`speed = 1.0 if action == 2 else 0.5 if action < 3 else 0.25`",
        f"never ran: {__file__}:{first + 3}: `speed = far(speed)`, to line {first + 4}",
        f"never ran: {__file__}:{first - 4}: `def far(place: float) -> float:`, all of it",
    ]
    player = Player(environment, policy=lambda seen: int(seen[1] > 0.7), states=[(55.0, 0.0)])
    player.play(130, np.random.default_rng(0))
    told = [message for _, message in player.findings.sorted()]
    assert told[0].startswith("130 steps of 3 episodes were played, with actions of the policy")
    assert [m for m in told if m.startswith("never ran: ")] == [
        never[0].replace("`0.25` in", "`1.0` in"), never[0]
    ]  # fmt: skip


def test_a_policy_or_a_state_that_does_not_fit_is_refused() -> None:
    environment = make(branching, draws=0)
    with pytest.raises(TypeError, match=r"states\[1\]=.*reset has to return state as a tuple of 2"):
        check(environment, states=[(1.0, 0.0), [1.0, 0.0]])
    with pytest.raises(TypeError, match="policy=7: expected a function of an observation"):
        check(environment, policy=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"returned 3: expected an action of Discrete\(3\)"):
        check(environment, policy=lambda seen: 3)


def costly(state: Any, action: Any, params: Any) -> Any:
    return (state[0], state[1] + 1.0), -2000.0 * state[1], False


@pytest.mark.parametrize("limit", [None, 200])
def test_what_learning_will_meet_is_told(limit: int | None) -> None:
    player = Player(dataclasses.replace(make(costly, draws=0), max_episode_steps=limit))
    player.play(150, np.random.default_rng(0))
    findings = player.findings.sorted()
    assert_found(findings, "note", ["rewards are up to", "reward_scale=1e-05", "normalize_rewards"])
    assert_found(findings, "note", ["observation[1] is up to 149", "normalize_observations=True"])
    warned = any("no episode ended in 150 steps" in message for _, message in findings)
    assert warned == (limit is None)


def test_the_share_of_masked_actions_is_told() -> None:
    masked = dataclasses.replace(make(drift), action_mask=lambda s, p: (True, s[0] > 100.0, False))
    player = Player(masked)
    player.play(50, np.random.default_rng(0))
    assert_found(player.findings.sorted(), "note", ["67% of actions were masked"])

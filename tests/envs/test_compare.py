"""`rlcpu.envs.compare` finds what differs between two implementations, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import cli
from rlcpu.envs import Dynamics, Rng, compare, registry
from rlcpu.envs.checks.against import ks_chance


class Params(NamedTuple):
    drift: float = 0.3


class State(NamedTuple):
    place: float
    speed: float


def reset(rng: Rng, params: Params) -> State:
    return State(rng.uniform(0) - 0.5, 0.0)


def step(state: State, action: int, params: Params, rng: Rng) -> Any:
    push = float(action - 1)
    wind = params.drift * (2.0 * rng.uniform(0) - 1.0)
    speed = 0.9 * state.speed + 0.1 * (push + wind)
    place = state.place + 0.1 * speed
    terminated = abs(place) > 0.6
    return State(place, speed), -1.0 if terminated else 1.0 - abs(place), terminated


patrol = Dynamics(
    id="Patrol-v0",
    step=step,
    reset=reset,
    observe=lambda state, params: (state.place, state.speed),
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(3),
    max_episode_steps=40,
)


class Patrol(gymnasium.Env[Any, Any]):
    """The same as a class; the drag, the wall and the start can be wrong."""

    drag, wall, start = 0.9, 0.6, 0.5
    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-self.start, self.start), 0.0
        self.steps = 0
        return self.observe(), {}

    def observe(self) -> Any:
        return np.array([self.place, self.speed], np.float32)

    def step(self, action: Any) -> Any:
        wind = 0.3 * self.np_random.uniform(-1.0, 1.0)
        self.speed = self.drag * self.speed + 0.1 * (int(action) - 1 + wind)
        self.place += 0.1 * self.speed
        self.steps += 1
        terminated = abs(self.place) > self.wall
        reward = -1.0 if terminated else 1.0 - abs(self.place)
        return self.observe(), reward, terminated, self.steps >= 40, {}


class Planted(NamedTuple):
    rng: Rng

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.uniform(0)


def set_state(env: Any, state: State, rng: Rng) -> None:
    env.place, env.speed = state
    env.np_random = Planted(rng)


def told(report: Any) -> str:
    return "\n".join(str(finding) for finding in report.findings)


def test_steps_with_the_same_random_numbers_agree() -> None:
    report = compare(patrol, Patrol, set_state, steps=300)
    assert report.ok, report
    assert report.steps == 300
    assert "300 steps from equal states agree, 300 of them in all bits" in told(report)
    assert "of 200 episodes are alike" in told(report)
    assert str(report) == str(compare(patrol, Patrol(), set_state, steps=300))


@pytest.mark.parametrize(
    ("attribute", "value", "parts"),
    [
        (
            "drag",
            0.899,
            ["error", "step 1, action", "observation[1]=", "here and", "from state=St"],
        ),
        ("wall", 0.45, ["error", "reward=0.5", "here and -1.0 there"]),
        ("start", 0.2, ["error", "returns of 200 random episodes differ", "mean ", "chance of"]),
    ],
)
def test_the_first_difference_is_named(attribute: str, value: float, parts: list[str]) -> None:
    other = type("Other", (Patrol,), {attribute: value})
    report = compare(patrol, other, set_state, steps=300)
    assert not report.ok
    assert any(all(part in str(finding) for part in parts) for finding in report.findings), report
    assert ("differ:" in told(report)) == (attribute == "start") or attribute == "wall"


def test_distributions_alone_where_no_state_can_be_set() -> None:
    report = compare(patrol, Patrol, episodes=300, seed=1)
    assert (report.ok, report.steps) == (True, 0), report
    assert "single steps were not compared: step draws random numbers" in told(report)
    wrong = patrol.with_params(drift=8.0)
    report = compare(wrong, Patrol, episodes=300, seed=1)
    assert not report.ok
    assert "lengths of 300 random episodes differ" in told(report)


def test_bits_of_gymnasiums_own_agree() -> None:
    report = compare("CartPole-v1", "gymnasium:CartPole-v1", steps=400, episodes=100)
    assert report.ok, report
    assert "400 steps from equal states agree, 400 of them in all bits" in told(report)
    heavier = rlcpu.envs.find("CartPole-v1").with_params(masspole=0.11)
    report = compare(heavier, "CartPole-v1", steps=50, episodes=50)
    assert "episode 0, step 0, action" in told(report)
    assert "observation[1]=" in told(report)


def still(state: Any, action: int, params: Params) -> Any:
    speed = 0.9 * state[1] + 0.1 * float(action - 1)
    place = state[0] + 0.1 * speed
    terminated = abs(place) > 0.6
    return (place, speed), -1.0 if terminated else 1.0 - abs(place), terminated


class Drifting(Patrol):
    """It has no wind, and its speed grows by less than what rounding explains."""

    @property
    def state(self) -> Any:
        return self.place, self.speed

    @state.setter
    def state(self, state: Any) -> None:
        self.place, self.speed = state

    def step(self, action: Any) -> Any:
        (self.place, self.speed), reward, terminated = still(self.state, action, Params())
        self.speed += 2e-7
        self.steps += 1
        return self.observe(), reward, terminated, self.steps >= 40, {}


def test_differences_that_add_up_are_told_apart() -> None:
    calm = dataclasses.replace(
        patrol, step=still, reset=lambda rng, params: (0.0, 0.3), observe=lambda s, p: s
    )
    report = compare(calm, Drifting, steps=60, episodes=2)
    assert "the step agrees if it begins in the same state" in told(report), report


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"against": "CartPole-v9"}, gymnasium.error.Error, "CartPole"),
        ({"against": "math:nothing"}, ValueError, "against='math:nothing': math has no nothing"),
        ({"against": math.floor}, TypeError, "."),
        ({"against": dict}, TypeError, "expected an environment of Gymnasium, got {}"),
        ({"set_state": 3}, TypeError, "set_state=3"),
        ({"steps": 0}, ValueError, "steps=0"),
        ({"episodes": 1}, ValueError, "episodes=1: expected at least 2"),
        ({"environment": "nothing"}, ValueError, "unknown"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compare(**{"environment": patrol, "against": Patrol, **arguments})


def test_spaces_that_differ_are_told() -> None:
    wider = type("Wider", (Patrol,), {"action_space": Discrete(4)})
    report = compare(patrol, wider)
    assert told(report).count("action_space is Discrete(3) here and Discrete(4) there") == 1
    assert not report.ok


def test_the_test_of_two_samples_is_the_one_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.1, 0.3):
        a, b = rng.normal(size=200), rng.normal(size=150) + shift
        expected = stats.ks_2samp(a, b, method="asymp").pvalue
        assert ks_chance(a, b) == pytest.approx(expected, rel=0.2, abs=0.02)
    assert ks_chance(a, a) == 1.0


def test_alarms_are_as_rare_as_stated() -> None:
    rng = np.random.default_rng(1)
    chances = [ks_chance(*rng.normal(size=(2, 200))) for _ in range(2000)]
    assert abs(np.mean(np.array(chances) < 0.05) - 0.05) < 0.015


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.made, "Patrol-v0", patrol)
    call = ["check", "Patrol-v0", "--against", f"{__name__}:Patrol", "--steps", "50"]
    assert cli.main([*call, "--set-state", f"{__name__}:set_state", "--episodes", "100"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Patrol-v0 against Patrol: 0 errors")
    assert "50 steps from equal states agree" in printed
    for wrong in (["--set-state", "nowhere:f"], ["--against", "CartPole-v77"]):
        with pytest.raises(SystemExit) as left:
            cli.main([*call, *wrong])
        assert left.value.code == 2

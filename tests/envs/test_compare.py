"""`rlcpu.envs.compare` finds what differs between two implementations, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import rlcpu
from rlcpu import cli
from rlcpu.envs import Array, Dynamics, Rng, compare
from rlcpu.envs.checks.against import ks_chance
from rlcpu.envs.contract import registry
from rlcpu.envs.contract.trial import call_function
from rlcpu.envs.layout.groups import fault_of_value
from tests.envs import grouped


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


class Twin(gymnasium.Env[Any, Any]):
    """The plain functions of an environment as a class, which shows observations in its own way.

    Args:
        dynamics: the environment.
        space: of what it shows.
        show: what `observe` returns, or wrote -> an observation.
        first: its smallest action.
    """

    def __init__(self, dynamics: Dynamics, space: Any, show: Any, first: int = 0) -> None:
        self.dynamics, self.observation_space, self.show = dynamics, space, show
        self.action_space = Discrete(3, start=first)
        self.draws: Any = None
        self.kept: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, draws = 0, Rng.of_seed(int(self.np_random.integers(2**62)))
        self.now = call_function(self.dynamics, "reset", self.dynamics.reset, draws, NO_PARAMS)
        return self.observe(), self.infos()

    def infos(self) -> dict[str, Any]:
        mask = self.dynamics.action_mask
        return {"action_mask": np.array(mask(self.now, NO_PARAMS), np.int8)} if mask else {}

    def observe(self) -> Any:
        observe = self.dynamics.observe
        return self.show(call_function(self.dynamics, "observe", observe, self.now, NO_PARAMS))

    def step(self, action: Any) -> Any:
        draws = self.draws or Rng.of_seed(int(self.np_random.integers(2**62)))
        inputs = self.now, int(action) - int(self.action_space.start), NO_PARAMS, draws
        step = self.dynamics.step
        self.now, reward, ended = call_function(self.dynamics, "step", step, *inputs)[:3]
        self.steps += 1
        is_cut = self.steps == self.dynamics.max_episode_steps
        return self.observe(), reward, bool(ended), is_cut, self.infos()


NO_PARAMS = grouped.Nothing()


def put(env: Any, state: Any, rng: Rng) -> None:
    env.now, env.draws = state, rng


def show_cart(seen: Any) -> Any:
    """Parts as a class has them: boards with their planes last, a choice as a number."""
    cells = [[board >> k & 1 for k in range(9)] for board in seen.walls]
    walls = np.array(cells, np.int8).reshape(2, 3, 3).transpose(1, 2, 0)
    place = np.array(seen.place, np.float32)
    return {"goal": seen.goal, "pair": np.array(seen.pair), "place": place, "walls": walls}


CART_SPACE = Dict(
    {
        "goal": Box(1, 3, (), np.int64),
        "pair": MultiDiscrete([2, 3], start=[0, 2]),
        "place": Box(-np.inf, np.inf, (2,), np.float32),
        "walls": MultiBinary((3, 3, 2)),
    }
)


def show_camera(out: Any) -> Any:
    return {
        "age": int(out.age),
        "depth": np.array(out.depth, np.float32),
        "flags": np.array(out.flags, np.int8),
        "near": np.array(out.near),
        "picture": np.array(out.picture),
    }


@pytest.mark.parametrize(
    ("ours", "space", "show", "part"),
    [
        (grouped.cart, CART_SPACE, show_cart, "goal"),
        (grouped.camera, grouped.camera.observation_space, show_camera, "near"),
    ],
    ids=["returned", "written"],
)
def test_observations_of_several_parts(ours: Dynamics, space: Any, show: Any, part: str) -> None:
    """Choices, whole numbers, boards, images, masks, and states with arrays."""
    report = compare(ours, Twin(ours, space, show), put, steps=60, episodes=50)
    assert report.ok, report
    assert "60 steps from equal states agree, 60 of them in all bits" in told(report)

    def wrong(seen: Any) -> Any:
        shown = show(seen)
        return {**shown, part: shown[part] + 4}

    report = compare(ours, Twin(ours, space, wrong), put, steps=60, episodes=50)
    assert f"observation[{part!r}][0]=" in told(report)
    assert f"first observation[{part!r}][0] of 50 random episodes differ" in told(report)
    fewer = Dict({name: each for name, each in space.items() if name != part})
    assert "observation_space is Dict(" in told(compare(ours, Twin(ours, fewer, show)))


class Tally(rlcpu.envs.State):
    """A count that jumps, and what is drawn of it."""

    cells: Array[np.int32, 2, 3]
    count: int


def start_tally(state: Any, rng: Rng, params: Any) -> None:
    state.count = rng.integers(0, 100)


def step_tally(state: Any, action: int, params: Any, rng: Rng) -> Any:
    state.count += action + rng.integers(0, 2)
    state.cells[action % 2, state.count % 3] += 1
    return 0.5 * action, state.count % 17 == 0


def draw_numbers(state: Any, params: Any, out: Any) -> None:
    out[0] = state.cells[0]
    out[1] = 2**24 + state.count


def draw_picture(state: Any, params: Any, out: Any) -> None:
    out[:] = state.cells
    out[1, 2] = state.count % 250


def draw_parts(state: Any, params: Any, out: Any) -> None:
    out.view_image[:] = state.cells
    out.view_level = state.count % 4
    out.age[0] = 0.25 * float(state.count)


VIEW = {"image": Box(0, 255, (2, 3), np.uint8), "level": Discrete(4)}
AGE = Box(-np.inf, np.inf, (1,), np.float32)


def show_parts(out: Any) -> Any:
    view = {"image": np.array(out.view_image), "level": int(out.view_level)}
    return {"age": np.array(out.age, np.float32), "view": view}


@pytest.mark.parametrize(
    ("observe", "ours", "theirs", "show", "label"),
    [
        (
            draw_numbers,
            (whole := Box(-(2**31), 2**31 - 1, (2, 3), np.int32)),
            whole,
            lambda out: np.array(out.image),
            "observation[3]",
        ),
        (draw_picture, (image := VIEW["image"]), image, lambda out: out.image, "observation["),
        (
            draw_parts,
            Dict({"view_image": VIEW["image"], "view_level": VIEW["level"], "age": AGE}),
            Dict({"view": Dict(VIEW), "age": AGE}),
            show_parts,
            "observation['age'][0]",
        ),
    ],
    ids=["int32", "uint8", "nested"],
)
def test_whole_numbers_and_parts_of_parts(
    observe: Any, ours: Any, theirs: Any, show: Any, label: str
) -> None:
    """A number more is a difference, also where a float32 cannot tell: at 2**24."""
    tally = Dynamics(
        id="Tally-v0",
        state=Tally,
        step=step_tally,
        reset=start_tally,
        observe=observe,
        observation_space=ours,
        action_space=Discrete(3),
        params=NO_PARAMS,
        max_episode_steps=9,
    )
    twin = Twin(tally, theirs, show, first=2)  # its actions are 2, 3 and 4
    assert compare(tally, twin, put, steps=60, episodes=50).ok

    def more(env: Any, state: Any, rng: Rng) -> None:
        state.count += 1  # of a copy
        put(env, state, rng)

    report = compare(tally, twin, more, steps=20, episodes=50)
    assert "error" in told(report)
    assert f": {label}" in told(report)


class Single(Patrol):
    """It computes in float32; its reward is 0 somewhere."""

    def step(self, action: Any) -> Any:
        single = np.float32
        self.speed = single(0.9) * self.speed + single(0.1) * single(int(action) - 1)
        self.place = self.place + single(0.1) * self.speed
        terminated = bool(abs(self.place) > single(0.6))
        return self.observe(), self.place - single(0.1), terminated, False, {}


def small(state: Any, action: int, params: Params) -> Any:
    (place, speed), _, terminated = still(state, action, params)
    return (place, speed), place - 0.1, terminated


def test_numbers_near_0_of_a_class_that_computes_in_float32() -> None:
    """Its rewards are 1e-8 in the place of 0: as exact as the places that they are made of."""
    calm = dataclasses.replace(
        patrol, step=small, reset=lambda rng, params: (rng.uniform(0), 0.3), observe=lambda s, p: s
    )

    def place(env: Any, state: Any) -> None:
        env.place, env.speed = map(np.float32, state)

    report = compare(calm, Single, place, steps=300, episodes=20)
    assert "300 steps from equal states agree, " in told(report)
    report = compare(calm, Single, place, steps=300, episodes=20, tolerance=0.0)
    assert "observation[0]=" in told(report)


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
        ({"tolerance": "1"}, TypeError, "tolerance='1': expected a number"),
        ({"tolerance": -1.0}, ValueError, r"tolerance=-1\.0: expected a number of at least 0"),
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


def test_bounds_of_the_largest_float32_are_compared_without_a_warning() -> None:
    most = float(np.finfo(np.float32).max)
    wide, wider = (Box(-most, high, (2,), np.float32) for high in (most, np.inf))
    ours = dataclasses.replace(patrol, observation_space=wide)
    for space, level in ((wide, 0), (wider, 1)):
        report = compare(ours, type("Wide", (Patrol,), {"observation_space": space}), episodes=50)
        assert sum(each == "warning" for each, _ in report.findings) == level
    assert fault_of_value(wide, (1.0, 2.0), slack=1e-6) == ""


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
    call += ["--tolerance", "1e-5"]
    assert cli.main([*call, "--set-state", f"{__name__}:set_state", "--episodes", "100"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Patrol-v0 against Patrol: 0 errors")
    assert "50 steps from equal states agree" in printed
    for wrong in (["--set-state", "nowhere:f"], ["--against", "CartPole-v77"]):
        with pytest.raises(SystemExit) as left:
            cli.main([*call, *wrong])
        assert left.value.code == 2

"""Parameters that differ from environment to environment, and those drawn anew at each reset."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs import Dynamics, Rng
from rlcpu.envs.checks.player import Player
from rlcpu.envs.engine.observations import ObservationView
from rlcpu.envs.engine.structure import structure
from rlcpu.envs.tasks.classic_control import cartpole
from rlcpu.policies import MLP, Scalar
from rlcpu.train import PPO
from tests import naive
from tests.envs.trials import assert_step_vectorises, try_kernels


class Params(NamedTuple):
    """All of which a function of the environment reads."""

    stiffness: float = 0.5
    start: float = 1.0
    damped: bool = True
    scale: float = 2.0
    patience: float = 4.0


class Drawn(NamedTuple):
    """What an episode draws, not in the order of the params."""

    scale: float
    start: float


def randomize(rng: Rng, params: Params) -> Drawn:
    return Drawn(params.scale * (0.5 + rng.uniform(0)), params.start + float(rng.integers(1, 5)))


def reset(rng: Rng, params: Params) -> tuple[float, float]:
    return params.start + rng.uniform(0), 0.0


def step(
    state: tuple[float, float], action: int, params: Params, rng: Rng
) -> tuple[tuple[float, float], float, bool]:
    place, age = state
    push = params.stiffness if params.damped else 0.0
    place = place - push * place + params.scale * (float(action) - 1.0) + rng.uniform(0)
    return (place, age + 1.0), params.start, (age + 1.0 > params.patience) | (place > 6.0)


def observe(state: tuple[float, float], params: Params) -> tuple[float, float]:
    return state[0] / params.scale, params.stiffness


SPRING = Dynamics(
    id="Spring-v0",
    step=step,
    reset=reset,
    observe=observe,
    randomize=randomize,
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Discrete(3),
    params=Params(),
    max_episode_steps=7,
)
N = 70
STIFFNESS = np.linspace(0.1, 0.9, N)
PATIENCE = np.arange(N) % 5 + 2


def lean(observation: Any, params: Any, uniforms: Any) -> tuple[int, float, float]:
    return (0 if observation[0] > 1.0 or uniforms[0] < 0.2 else 2), observation[1], 0.0


def make(num_envs: int = N, **options: Any) -> Any:
    varied = {"stiffness": STIFFNESS[:num_envs], "patience": PATIENCE[:num_envs].tolist()}
    return rlcpu.make_vec(SPRING, num_envs, **varied, **options)


POLICIES: dict[str, Any] = {
    "float64": lambda space: Scalar(lean, draws=1),
    "float32": lambda space: MLP(space, Discrete(3), (16,), seed=1),
}


@pytest.mark.parametrize("dtype", POLICIES)
def test_rollouts_are_those_of_plain_python(dtype: str) -> None:
    env = make(dtype=dtype)
    env.reset(seed=5)
    policy = POLICIES[dtype](env.single_observation_space)
    if dtype == "float64":
        # Draws come from an `Rng`: a policy's are the first of the `uniforms`.
        assert SPRING.reset_draws == SPRING.step_draws == 0
    rollout = rlcpu.collect(env, policy, 25)
    expected = naive.collect(env, policy, 25, range(5, 5 + N))
    tolerance = 0.0 if dtype == "float64" else 2e-5
    for name in ("actions", "terminated", "truncated", "final_indices"):
        np.testing.assert_array_equal(getattr(rollout, name), expected[name], name)
    for name in ("observations", "final_observations", "last_observations", "rewards"):
        found = getattr(rollout, name)
        np.testing.assert_allclose(found, expected[name], tolerance, tolerance, err_msg=name)
    assert rollout.terminated.any()
    assert rollout.truncated.any()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_steps_are_those_of_plain_python(mode: str) -> None:
    env = make(autoreset_mode=mode, dtype="float64")
    seen, _ = env.reset(seed=9)
    lanes = [naive.Lane(env, 9 + n, n) for n in range(N)]
    waits, rng, ends = np.zeros(N, bool), np.random.default_rng(0), 0
    for _ in range(20):
        np.testing.assert_array_equal(seen, [lane.observe() for lane in lanes])
        for name in ("scale", "start", "stiffness", "patience"):
            held = [getattr(lane.params, name) for lane in lanes]
            np.testing.assert_array_equal(getattr(env.params, name), held, name)
            np.testing.assert_array_equal(getattr(env, name), held, name)
        actions = rng.integers(0, 3, N)
        seen, rewards, terminated, truncated, infos = env.step(actions)
        ended = terminated | truncated
        ends += ended.sum()
        for n, lane in enumerate(lanes):
            if waits[n]:
                lane.start(lane.draws)
                lane.draws.advance()
                assert rewards[n] == 0.0
                assert not ended[n]
                continue
            before = copy.copy(lane)
            result = lane.step(actions[n])
            assert rewards[n] == result["rewards"]
            assert terminated[n] == result["terminated"]
            assert truncated[n] == result["truncated"]
            if ended[n] and mode == "SameStep":
                np.testing.assert_array_equal(infos["final_obs"][n], result["final"][0])
            elif ended[n]:  # `naive` has begun a new episode already
                lane.params = before.params
                lane.state = tuple(env.state[n].tolist())
                np.testing.assert_array_equal(np.float32(lane.observe()), result["final"][0])
        waits = ended if mode == "NextStep" else np.zeros(N, bool)
        if mode == "Disabled" and ended.any():
            seen, _ = env.reset(options={"reset_mask": ended})
            for n in np.flatnonzero(ended):
                lane = lanes[n]
                lane.draws.key = tuple(env.engine.words.reshape(-1, 3, 64)[n // 64, :2, n % 64])
                lane.draws.counter = int(env.engine.clock[0]) - 1
                lane.start(lane.draws)
                lane.draws.advance()
            for lane in np.array(lanes, object)[~ended]:
                low, high = lane.draws.key
                with np.errstate(over="ignore"):
                    lane.draws.key = low - np.uint32(0x9E3779B9), high
                lane.draws.counter += 1
    assert ends > 100


def test_collect_simulate_and_steps_draw_the_same_on_any_number_of_threads() -> None:
    n, held, policy = 8192, [], POLICIES["float64"](SPRING.observation_space)
    for threads, way in ((1, "collect"), (2, "simulate"), (1, "step")):
        env = rlcpu.make_vec(
            SPRING, n, dtype="float64", num_threads=threads, autoreset_mode="SameStep"
        )
        env.reset(seed=3)
        if way == "collect":
            actions = rlcpu.collect(env, policy, 12).actions
        elif way == "simulate":
            rlcpu.simulate(env, policy, 12)
        else:
            for chosen in actions:
                env.step(chosen)
        held.append((way, env.params, env.state))
    for way, params, state in held:
        np.testing.assert_array_equal(params.scale, held[0][1].scale, way)
        np.testing.assert_array_equal(params.start, held[0][1].start, way)
        np.testing.assert_array_equal(state, held[0][2], way)


def test_what_is_drawn_is_uniform_and_independent_of_the_reset() -> None:
    n = 20_000
    env = rlcpu.make_vec(SPRING, n)
    env.reset(seed=0)
    share = env.scale.astype(float) / 2.0 - 0.5
    beyond = env.state[:, 0] - env.start
    for values in (share, beyond):
        assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n)
        assert abs(values.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)
    counts = np.bincount(env.start.astype(int) - 1, minlength=5)
    assert ((counts - n / 5) ** 2 / (n / 5)).sum() < 25.0  # chi-squared, 4 degrees: p = 5e-5
    for other in (beyond, env.start):
        assert abs(np.corrcoef(share, other)[0, 1]) < 5 / np.sqrt(n)
    assert len(np.unique(share)) > 0.99 * n


def test_equal_numbers_give_the_results_of_one_number() -> None:
    same = rlcpu.make_vec("CartPole-v1", N, gravity=np.full(N, 9.8), length=[0.5] * N)
    plain = rlcpu.make_vec("CartPole-v1", N)
    for env in (same, plain):
        env.reset(seed=1)
    for _ in range(20):
        actions = plain.action_space.sample()
        for found, expected in zip(same.step(actions)[:4], plain.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(found, expected)
    # A reset of some leaves the others as they are.
    env = make()
    env.reset(seed=0)
    before, mask = env.params, np.arange(N) % 3 == 0
    env.reset(options={"reset_mask": mask})
    assert (env.scale[mask] != before.scale[mask]).all()
    assert (env.scale[~mask] == before.scale[~mask]).all()
    assert (env.stiffness == np.float32(STIFFNESS)).all()


def test_environments_that_do_not_vary_have_the_memory_and_structure_of_before() -> None:
    plain = dataclasses.replace(SPRING, randomize=None)
    code = structure(plain)
    assert (code.varied, code.randomized, code.randomize) == ((), (), None)
    assert rlcpu.make_vec(plain, 3).engine.real.shape == (1, 3 * 64)
    assert structure(SPRING).varied == ("start", "scale")
    assert make().engine.code.varied == ("stiffness", "start", "scale", "patience")
    assert rlcpu.make_vec(plain, 3).params == Params()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_and_snapshots_go_on(copied: Any) -> None:
    env = make()
    policy = POLICIES["float32"](env.single_observation_space)
    env.reset(seed=2)
    rlcpu.collect(env, policy, 5)
    snapshot, other = env.snapshot(), make()
    other.restore(snapshot)
    twins = [other, copied(env), copied(other)]
    rlcpu.collect(env, policy, 15)
    for twin in twins:
        rlcpu.collect(twin, policy, 15)
        np.testing.assert_array_equal(twin.state, env.state)
        for found, expected in zip(twin.params, env.params, strict=True):
            np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="'real'"):
        rlcpu.make_vec(SPRING, N).restore(snapshot)


def test_single_environments_draw_too() -> None:
    rlcpu.register(SPRING)
    try:
        env: Any = gymnasium.make("rlcpu/Spring-v0").unwrapped
        env.reset(seed=4)
        first = naive.Lane(make(1, dtype="float64"), 4)
        assert env.scale == np.float32(first.params.scale)
        assert env.params == first.params._replace(stiffness=0.5, patience=4.0, scale=env.scale)
        env.reset()
        assert env.scale != np.float32(first.params.scale)
        with pytest.raises(AttributeError, match="scale cannot be set"):
            env.scale = 1.0
        spec = rlcpu.make_vec("Spring-v0", 2, patience=np.array([3.0, 4.0])).spec
        same = gymnasium.make_vec(type(spec).from_json(spec.to_json()))
        assert same.unwrapped.patience.tolist() == [3.0, 4.0]  # type: ignore[attr-defined]
        assert "patience=varied, scale=randomized, start=randomized" in repr(same.unwrapped)
    finally:
        del gymnasium.registry["rlcpu/Spring-v0"]
        rlcpu.envs.contract.registry.made.pop("Spring-v0")


class Wrong(NamedTuple):
    """No field of `Params`."""

    speed: float


class Option(NamedTuple):
    """A constant of the machine code."""

    damped: bool


class Stiff(NamedTuple):
    """A number."""

    stiffness: Any


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: make(gravity=[1.0] * N), TypeError, "no parameter gravity"),
    (lambda: rlcpu.make_vec(SPRING, 3, patience=[1.0, 2.0]), ValueError,
     r"Spring-v0: patience has shape \(2,\): expected \(3,\), one for each environment"),
    (lambda: SPRING.with_params(patience=np.ones((2, 2))), ValueError, r"shape \(2, 2\)"),
    (lambda: SPRING.with_params(patience=[]), ValueError, r"expected \(num_envs,\)"),
    (lambda: SPRING.with_params(patience=[2.0, np.nan]), ValueError, r"patience\[1\]=nan"),
    (lambda: SPRING.with_params(patience=["2"]), TypeError, "patience has dtype <U1"),
    (lambda: SPRING.with_params(patience=[True]), TypeError, "patience has dtype bool"),
    (lambda: SPRING.with_params(damped=[True, False]), TypeError, "damped has to be True or Fal"),
    (lambda: SPRING.with_params(scale=[1.0, 2.0]), TypeError, "randomize draws scale, which is"),
    (lambda: dataclasses.replace(SPRING, varied=[1.0]), TypeError, "has to be a dict"),
    (lambda: dataclasses.replace(SPRING, varied={"no": [1.0]}), TypeError, "no parameter no;"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng: 1), TypeError, r"\(rng, params\)"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda u, params: 1), TypeError, r"\(rng, par"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: (1.0,)), TypeError,
     "randomize has to return a NamedTuple of numbers of params"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: Wrong(1.0)), TypeError,
     r"\(stiffness, start, scale, patience\); returned speed=1.0"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: Option(True)), TypeError,
     "returned damped=True"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: Stiff(np.nan)), TypeError,
     "not NaN; returned stiffness=nan"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: Stiff(True)), TypeError,
     "returned stiffness=True"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: (
        Stiff(1.0) if rng.uniform(0) < 0.4 else randomize(rng, params))), TypeError,
     "the same names each time; returned scale, start after stiffness"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, p: p._replace(stifness=1.0)),
     ValueError, r"randomize raised .*Got unexpected field names: .'stifness'.* params=Params"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, p: p._replace(scale="1")),
     TypeError, r"returned scale='1', which is of type str"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, p: p._replace(damped=False)),
     TypeError, "randomize sets damped=False: it has to stay True"),
    (lambda: dataclasses.replace(SPRING, randomize=lambda rng, params: Stiff(1.0 / rng.uniform(0))),
     ValueError, "randomize raised ZeroDivisionError"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "error", "message"), BAD)
def test_bad_parameters(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_all_numbers_may_be_drawn_and_the_lowest_and_highest_are_tried() -> None:
    whole = dataclasses.replace(
        SPRING, randomize=lambda rng, params: params._replace(scale=1.0 + rng.uniform(0))
    )
    assert whole.randomized == ("stiffness", "start", "scale", "patience")
    assert whole.with_params(patience=[1.0, 2.0]).randomized == ("stiffness", "start", "scale")
    with pytest.raises(ValueError, match="observe raised ZeroDivisionError"):
        dataclasses.replace(SPRING, randomize=None).with_params(scale=[1.0, 0.0, 2.0])
    half = cartpole.DYNAMICS.with_params(reset_low=np.full(3, -0.2))
    env = rlcpu.make_vec(half, 3)
    with pytest.raises(ValueError, match="reset_low for one reset, which varies"):
        env.reset(options={"low": -0.1})
    assert env.reset(options={"high": 0.1})[0].shape == (3, 4)
    assert half.with_params(reset_low=-0.1).varied == {}
    assert len(half.resized(5).varied["reset_low"]) == 5
    given = cartpole.DYNAMICS.with_params(length=[0.3, 0.4, 0.5])
    assert given.resized(4, first=2).varied["length"].tolist() == [0.5, 0.3, 0.4, 0.5]


class Length(NamedTuple):
    """Of the pole."""

    length: float


def any_length(rng: Rng, params: Any) -> Length:
    return Length(0.25 + 0.5 * rng.uniform(0))


POLES = dataclasses.replace(cartpole.DYNAMICS, id="Poles-v0", randomize=any_length)


def test_check_and_vectors() -> None:
    poles = POLES.with_params(gravity=np.linspace(5.0, 15.0, 9))
    try_kernels(poles)
    assert_step_vectorises(poles)


def test_check_finds_what_randomize_does_wrong() -> None:
    def rarely(rng: Rng, params: Any) -> Length:
        part = rng.uniform(0)
        return Length(params.length / (0.0 if 0.6 < part < 0.9 else 1.0))

    calls = iter(range(10_000))
    wrong = {
        "ZeroDivisionError": rarely,
        "it depends on something else": lambda rng, params: Length(1.0 + next(calls)),
        "not NaN; returned length=nan": lambda rng, params: Length(
            np.nan if 0.6 < rng.uniform(0) < 0.9 else 0.5
        ),
    }
    for message, randomize in wrong.items():
        player = Player(dataclasses.replace(POLES, randomize=randomize))
        player.play(400, np.random.default_rng(0))
        told = "\n".join(finding.message for finding in player.findings.sorted())
        assert message in told


def test_ppo_balances_poles_of_any_length() -> None:
    agent = PPO(POLES, seed=0)
    agent.learn(60_000)
    assert agent.evaluate(100).mean() > 150.0


def test_devices_refuse_parameters_that_vary() -> None:
    engine = pytest.importorskip("rlcpu.cuda.engine")
    poles, dtype = cartpole.DYNAMICS.with_params(gravity=[5.0, 9.8]), np.dtype(np.float32)
    view, mode = ObservationView.of(poles, "uint8", dtype), AutoresetMode.NEXT_STEP
    with pytest.raises(TypeError, match=r"CartPole-v1: .*vary \(gravity\): not on a CUDA"):
        engine.CudaEngine(poles, 2, dtype=dtype, view=view, autoreset_mode=mode)

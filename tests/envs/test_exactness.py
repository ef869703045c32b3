"""Every environment against Gymnasium's: float64 bit for bit, float32 within its stated bound."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import types
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from numba.np.unsafe.ndarray import to_fixed_tuple

import rlcpu
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.tasks.classic_control import (
    acrobot,
    cartpole,
    mountain_car,
    mountain_car_continuous,
    pendulum,
)
from rlcpu.kernels.compiler.compile import EXACT, inline, kernel, specialise

NUM_STEPS = 3000
NUM_RESETS = 100

#: What Gymnasium calls where it calls NumPy, on scalars.
NUMPY_MATHS = types.SimpleNamespace(
    sin=np.sin, cos=np.cos, fmod=np.fmod, pi=math.pi, pow=lambda x, y: np.float64(x) ** y
)


class Case(NamedTuple):
    """An environment with some of its options.

    Attributes:
        dynamics: the environment.
        bounds: of the float32 error of one step: each number of the state, the worst of the
            observation, the reward, over the states that a random policy visits.
        edges: states at the limits, from which every action is tried.
        params: options of ours.
        original: Gymnasium's words for them, arguments of the constructor or attributes.
    """

    dynamics: Dynamics
    bounds: tuple[tuple[float, ...], float, float]
    edges: list[tuple[float, ...]]
    params: Any = None
    original: Any = None


def above(x: float) -> float:
    return math.nextafter(x, math.inf)


PI, ANGLE = math.pi, cartpole.THETA_THRESHOLD
CARTPOLE = Case(
    cartpole.DYNAMICS,
    ((6e-8, 3e-7, 4e-8, 5e-7), 5e-7, 0.0),
    [(x, 0.0, a, 0.0) for x in (0.0, 2.4, above(2.4), -2.4) for a in (0.0, ANGLE, above(ANGLE))],
)
CAR = Case(
    mountain_car.DYNAMICS,
    ((1.2e-7, 8e-9), 1.2e-7, 0.0),
    [(-1.2, -0.07), (-1.2, 0.0), (-1.13, -0.07), (0.5, 0.0), (0.43, 0.07), (0.6, 0.07)],
)
THROTTLED = Case(
    mountain_car_continuous.DYNAMICS,
    ((2.4e-7, 1.6e-8), 2.4e-7, 4e-6),
    # Nowhere at rest but at the wall: that is a new state, which Gymnasium has in float64.
    [(-1.2, -0.07), (-1.2, 0.0), (-1.13, -0.07), (0.45, 1e-9), (0.38, 0.07), (0.6, 0.07)],
)
PENDULUM = Case(
    pendulum.DYNAMICS,
    ((4e-6, 1.5e-6), 4e-6, 3e-5),
    [(PI, 8.0), (-PI, -8.0), (above(PI), 0.0), (3.0 * PI, 8.0), (-80.0, 8.0), (0.0, 0.0)],
)
# From the last of its edges, a step of the acrobot turns by 9.46 pi, the most there is.
ACROBOT = Case(
    acrobot.DYNAMICS,
    ((7e-7, 1e-6, 2e-6, 4e-6), 4e-6, 0.0),
    [(0.0, 0.0, 0.0, 0.0), (PI, 0.0, 4 * PI, 9 * PI), (-PI, -1.95, -4 * PI, -9 * PI)],
)
HEAVY = {"masspole": 0.3, "total_mass": 1.3, "polemass_length": 0.15, "gravity": 3.7}
LINKS = {"LINK_LENGTH_1": 0.9, "LINK_MASS_2": 0.8, "LINK_COM_POS_2": 0.4, "LINK_MOI": 1.2}
OUR_LINKS = {"link_length_1": 0.9, "link_mass_2": 0.8, "link_com_2": 0.4, "link_moi": 1.2}
#: Case, options of ours, and Gymnasium's words for them where they are others.
TABLE: list[tuple[Case, dict[str, Any], dict[str, Any] | None]] = [
    (CARTPOLE, {}, None),
    (CARTPOLE, {"sutton_barto_reward": True}, None),
    (CARTPOLE, {"semi_implicit": True}, {"kinematics_integrator": "semi-implicit"}),
    (CARTPOLE, {"masspole": 0.3, "gravity": 3.7}, HEAVY),
    (CAR, {}, None),
    (CAR, {"goal_velocity": 0.02}, None),
    (THROTTLED, {}, None),
    (THROTTLED, {"goal_velocity": 0.02}, None),
    (PENDULUM, {}, None),
    (PENDULUM, {"g": 9.81}, None),
    (PENDULUM, {"mass": 0.7, "length": 1.3}, {"m": 0.7, "l": 1.3}),
    (ACROBOT, {}, None),
    (ACROBOT, {"nips": True}, {"book_or_nips": "nips"}),
    (ACROBOT, {"torque_noise_max": 0.5}, None),
    (ACROBOT, OUR_LINKS, LINKS),
]
CASES = {
    " ".join([case.dynamics.id, *ours]): case._replace(params=ours, original=theirs or ours)
    for case, ours, theirs in TABLE
}
#: Gymnasium calls `math`, not NumPy, in these.
CALLS_LIBM = {"MountainCar-v0", "MountainCarContinuous-v0"}
every_case = pytest.mark.parametrize("name", CASES)


class Steps(NamedTuple):
    """M steps, one a row; `uniforms` (M, 1) are the numbers that the environment drew."""

    states: np.ndarray
    actions: np.ndarray
    uniforms: np.ndarray
    new_states: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray


class Draws:
    """Stands in for Gymnasium's generator and draws what it is told, as NumPy scales it."""

    value = 0.0

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.value


def make_original(case: Case) -> Any:
    kind = type(gymnasium.make(case.dynamics.original).unwrapped)
    names = inspect.signature(kind).parameters
    env = kind(**{key: value for key, value in case.original.items() if key in names})
    for key, value in case.original.items():
        if key not in names:
            assert hasattr(env, key)
            setattr(env, key, value)
    return env


def actions_of(dynamics: Dynamics) -> list[Any]:
    """Every action of a `Discrete`; of a `Box` the limits, both sides beyond, and 50 between."""
    if dynamics.is_discrete:
        return list(range(dynamics.num_actions))
    scales = np.concatenate([[-1.5, -1.0, 0.0, 1.0, 1.5], np.linspace(-0.99, 0.97, 50)])
    return list((scales[:, None] * dynamics.action_space.high).astype(np.float32))


@functools.cache
def gymnasium_steps(name: str) -> Steps:
    """Steps of Gymnasium's environment: episodes, first steps, and steps from the edges."""
    case, rng, rows = CASES[name], np.random.default_rng(7), []
    env, draws, choices = make_original(case), Draws(), actions_of(case.dynamics)

    def record(action: Any) -> bool:
        state, draws.value = np.array(env.state, dtype=np.float64), rng.random()
        env.np_random, generator = draws, env.np_random
        env.steps_beyond_terminated = None
        observation, reward, terminated, _, _ = env.step(action)
        env.np_random = generator
        new_state = np.array(env.state, dtype=np.float64)
        rows.append((state, action, [draws.value], new_state, observation, reward, terminated))
        return terminated

    env.reset(seed=7)
    elapsed, action = 0, choices[0]
    record(action)
    kind = np.asarray(env.state).dtype
    for _ in range(NUM_STEPS):
        # An action is kept for some steps: a restless car never leaves the valley.
        action = choices[rng.integers(len(choices))] if rng.random() < 0.3 else action
        elapsed += 1
        if record(action) or elapsed == case.dynamics.max_episode_steps:
            env.reset()
            elapsed = 0
    for _ in range(NUM_RESETS):
        env.reset()
        record(choices[rng.integers(len(choices))])
    for edge in case.edges:
        for action in choices:
            env.state = np.array(edge, dtype=kind)
            record(action)
    return Steps(*(np.array(column) for column in zip(*rows, strict=True)))


def our_steps(name: str, steps: Steps) -> Steps:
    """The plain Python functions on the same states, actions and random numbers."""
    case, rows = CASES[name], []
    dynamics = case.dynamics.with_params(**case.params)
    for state, action, uniforms in zip(*map(np.ndarray.tolist, steps[:3]), strict=True):
        action = action if dynamics.is_discrete else tuple(action)
        draws = [tuple(uniforms)] if dynamics.step_draws else []
        new_state, *rest = dynamics.step(tuple(state), action, dynamics.params, *draws)
        rows.append((new_state, dynamics.observe(new_state, dynamics.params), *rest))
    outputs = map(np.array, zip(*rows, strict=True))
    return Steps(*steps[:3], *outputs)


@functools.cache
def compiled(dynamics: Dynamics, dtype: type) -> Any:
    """Kernel (*steps, params) that fills the last four arrays of `Steps`."""
    exact = dtype is np.float64
    step = specialise(dynamics.step, dtype, exact)
    observe = specialise(dynamics.observe, dtype, exact)
    state_size, action_size = dynamics.state_size, dynamics.action_size
    step_draws, discrete = dynamics.step_draws, dynamics.is_discrete

    @inline
    def advance(state, action, uniforms, params):
        if step_draws:
            return step(state, action, params, to_fixed_tuple(uniforms, step_draws))
        return step(state, action, params)

    @inline
    def choose(actions, i):
        if discrete:
            return actions[i]
        return to_fixed_tuple(actions[i], action_size)

    @kernel(fastmath=EXACT, scalars=() if exact else (step, observe))
    def run(states, actions, uniforms, new_states, observations, rewards, terminated, params):
        for i in range(len(states)):
            state = to_fixed_tuple(states[i], state_size)
            action = choose(actions, i)
            state, rewards[i], terminated[i] = advance(state, action, uniforms[i], params)
            observation = observe(state, params)
            for j in range(len(state)):
                new_states[i, j] = state[j]
            for j in range(len(observation)):
                observations[i, j] = observation[j]

    return run


def kernel_steps(name: str, steps: Steps, dtype: type) -> Steps:
    """The compiled functions on the same states, actions and random numbers."""
    case = CASES[name]
    params = case.dynamics.with_params(**case.params).params
    params = type(params)(*(v if isinstance(v, bool) else dtype(v) for v in params))
    actions = steps.actions if case.dynamics.is_discrete else steps.actions.astype(dtype)
    inputs = (steps.states.astype(dtype), actions, steps.uniforms.astype(dtype))
    kinds = (bool if field.dtype == bool else dtype for field in steps[3:])
    outputs = map(np.zeros, map(np.shape, steps[3:]), kinds)
    results = Steps(*inputs, *outputs)
    compiled(case.dynamics, dtype)(*results, params)
    return results


def assert_same_bits(ours: Steps, theirs: Steps) -> None:
    for field in ("new_states", "rewards", "terminated"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
    np.testing.assert_array_equal(*(s.observations.astype(np.float32) for s in (ours, theirs)))


@every_case
def test_operations_are_gymnasiums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NumPy's sine and cosine every bit is Gymnasium's, whatever the machine."""
    theirs = gymnasium_steps(name)
    dynamics = CASES[name].dynamics
    if dynamics.id not in CALLS_LIBM:
        monkeypatch.setattr(sys.modules[dynamics.step.__module__], "math", NUMPY_MATHS)
    assert_same_bits(our_steps(name, theirs), theirs)


@every_case
def test_float64_kernel_is_gymnasium(name: str) -> None:
    """With libm, each sine and cosine may be one ulp off NumPy's; here they hardly ever are."""
    theirs = gymnasium_steps(name)
    ours = kernel_steps(name, theirs, np.float64)
    assert_same_bits(ours, our_steps(name, theirs))
    same = (ours.new_states == theirs.new_states).all(axis=1) & (ours.rewards == theirs.rewards)
    assert same.mean() >= (1.0 if libm_is_numpy() else 0.9)
    np.testing.assert_allclose(ours.new_states, theirs.new_states, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(ours.rewards, theirs.rewards, rtol=1e-13, atol=1e-13)


def libm_is_numpy() -> bool:
    angles = np.random.default_rng(0).uniform(-10.0, 10.0, 5000)
    pairs = [(np.sin, math.sin), (np.cos, math.cos)]
    return all(theirs(x) == ours(float(x)) for x in angles for theirs, ours in pairs)


@every_case
def test_float32_stays_within_its_bound(name: str) -> None:
    """One float32 step against float64 from the same state, where a random policy goes."""
    steps = Steps(*(field[:NUM_STEPS] for field in gymnasium_steps(name)))
    steps = steps._replace(
        states=steps.states.astype(np.float32), uniforms=steps.uniforms.astype(np.float32)
    )
    ours, exact = kernel_steps(name, steps, np.float32), our_steps(name, steps)
    state_bounds, observation_bound, reward_bound = CASES[name].bounds
    errors = np.abs(ours.new_states - exact.new_states)
    if CASES[name].dynamics.id == "Acrobot-v1":
        errors[:, :2] = np.minimum(errors[:, :2], np.abs(errors[:, :2] - 2 * np.pi))
    assert (errors.max(axis=0) <= state_bounds).all(), errors.max(axis=0)
    assert np.abs(ours.observations - exact.observations).max() <= observation_bound
    agree = ours.terminated == exact.terminated
    assert agree.mean() >= 0.999
    assert np.abs(ours.rewards - exact.rewards)[agree].max() <= reward_bound


def test_first_steps_from_a_given_position_are_gymnasiums() -> None:
    """Gymnasium computes them in float64, also where the position is a float32."""
    ours = rlcpu.make_vec("MountainCarContinuous-v0", 1, dtype="float64")
    theirs = gymnasium.make("MountainCarContinuous-v0").unwrapped
    rng = np.random.default_rng(0)
    for position in rng.uniform(-0.6, -0.4, 50).astype(np.float32).tolist():
        action = rng.uniform(-1.2, 1.2, 1).astype(np.float32)
        for env in (ours, theirs):
            env.reset(seed=0, options={"low": position, "high": position})
        reward = ours.step(action[None])[1][0]
        assert theirs.step(action)[1] == reward
        assert theirs.state.tolist() == ours.state[0].tolist()

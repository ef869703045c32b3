"""Resets: seeds, masks, bounds, and the distributions that they draw from."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

import rlcpu
from rlcpu.envs.engine.vector_env import VectorEnv
from tests.envs.rollouts import CLASSIC

NUM_ENVS = 70
#: Kolmogorov-Smirnov tests with fixed seeds: a sound generator fails one in a million of them.
SIGNIFICANCE = 1e-6
every_environment = pytest.mark.parametrize("name", CLASSIC)


def trajectory(env: VectorEnv, num_steps: int = 40) -> np.ndarray:
    """States (num_steps, num_envs, state_size) after each step; env i acts by i alone."""
    states = []
    for step in range(num_steps):
        wave = np.sin(0.3 * step + np.arange(NUM_ENVS))[: env.num_envs]
        if env.dynamics.is_discrete:
            actions = (wave > 0).astype(np.int64)
        else:
            actions = np.repeat(wave[:, None], env.dynamics.action_size, axis=1)
        env.step(actions.astype(env.action_space.dtype))
        states.append(env.state)
    return np.array(states)


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize("mode", list(AutoresetMode)[:2], ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])  # one of each kind of action
def test_stream_of_an_environment_is_its_seeds_alone(name: str, mode: AutoresetMode) -> None:
    """It is the same in a batch and in a smaller one, through all autoresets."""
    options = {"autoreset_mode": mode, "max_episode_steps": 7, "dtype": "float64"}
    batch, part = rlcpu.make_vec(name, NUM_ENVS, **options), rlcpu.make_vec(name, 3, **options)
    batch.reset(seed=5)
    first = batch.state[:3]
    states = trajectory(batch)[:, :3]
    part.reset(seed=5)
    np.testing.assert_array_equal(part.state, first)
    np.testing.assert_array_equal(trajectory(part), states)
    part.reset(seed=[5, 6, 7])
    np.testing.assert_array_equal(part.state, first)


def test_seeds_differ_and_streams_go_on() -> None:
    env = rlcpu.make_vec("CartPole-v1", NUM_ENVS)
    env.reset(seed=5)
    first = env.state
    assert len(np.unique(first)) > 270  # of 280 numbers
    env.reset()
    second = env.state
    assert (second != first).all()
    env.reset(seed=6)
    np.testing.assert_array_equal(env.state[:-1], first[1:])
    env.reset(seed=5)
    np.testing.assert_array_equal(env.state, first)
    env.reset()
    np.testing.assert_array_equal(env.state, second)


def test_without_a_seed_every_environment_is_another() -> None:
    first, second = (rlcpu.make_vec("CartPole-v1", NUM_ENVS) for _ in range(2))
    first.reset()
    second.reset()
    assert len(np.unique(np.concatenate([first.state, second.state]))) > 550  # of 560


def test_list_with_none_keeps_those_streams() -> None:
    env, twin = (rlcpu.make_vec("CartPole-v1", 3) for _ in range(2))
    for each in (env, twin):
        each.reset(seed=[1, 2, 3])
    env.reset(seed=[None, 7, None])
    state = env.state
    twin.reset()
    np.testing.assert_array_equal(state[[0, 2]], twin.state[[0, 2]])
    twin.reset(seed=[7, 7, 7])
    np.testing.assert_array_equal(state[1], twin.state[1])


@pytest.mark.parametrize("seed", [(1, 2, 3), np.array([1, 2, 3]), range(1, 4), np.int32(1)])
def test_kinds_of_seeds(seed: Any) -> None:
    env, twin = (rlcpu.make_vec("CartPole-v1", 3) for _ in range(2))
    env.reset(seed=seed)
    twin.reset(seed=[1, 2, 3])
    np.testing.assert_array_equal(env.state, twin.state)


def test_the_largest_seed_is_gymnasiums() -> None:
    """It seeds Gymnasium's generator too, of which environments of one and spaces draw."""
    env, twin, other = (rlcpu.make_vec("CartPole-v1", 3) for _ in range(3))
    env.reset(seed=2**128 - 1)
    twin.reset(seed=[2**128 - 1, None, None])
    other.reset(seed=2**128 - 2)
    np.testing.assert_array_equal(env.state[0], twin.state[0])
    assert len({*env.state[:, 0], *other.state[:, 0]}) == 6
    assert env.np_random_seed == 2**128 - 1


@every_environment
def test_both_dtypes_draw_the_same_states(name: str) -> None:
    """float32 takes the upper 24 bits of float64's 32."""
    single, double = (rlcpu.make_vec(name, NUM_ENVS, dtype=d) for d in ("float32", "float64"))
    single.reset(seed=9)
    double.reset(seed=9)
    np.testing.assert_allclose(single.state, double.state, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "seed=-1: expected 0 to"),
        (2**128, ValueError, f"seed={2**128}: expected 0 to"),
        (1.5, TypeError, "seed=1.5: expected an int or a list of 3"),
        (True, TypeError, "seed=True: expected an int"),
        ("7", TypeError, "seed='7': expected an int or a list of 3"),
        ([1, 2], ValueError, "seed has 2 entries: expected one int or a list of 3"),
        ([1, 2, None, 4], ValueError, "seed has 4 entries: expected one int or a list of 3"),
        ([1, 2, -3], ValueError, "seed=-3: expected 0 to"),
        ([1, 2, 3.0], TypeError, "seed=3.0: expected an int"),
        ([1, "2", None], TypeError, "seed='2': expected an int"),
    ],
)
def test_bad_seeds_change_nothing(seed: Any, error: type[Exception], message: str) -> None:
    assert_refused(error, message, seed=seed)


def assert_refused(error: type[Exception], message: str, **arguments: Any) -> None:
    """A reset that fails leaves states and streams as they were."""
    env, twin = (rlcpu.make_vec("CartPole-v1", 3, max_episode_steps=4) for _ in range(2))
    for each in (env, twin):
        each.reset(seed=4)
    with pytest.raises(error, match=message):
        env.reset(**arguments)
    np.testing.assert_array_equal(env.state, twin.state)
    np.testing.assert_array_equal(trajectory(env), trajectory(twin))


# ---------------------------------------------------------------- masks


@settings(max_examples=30)
@given(st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS).filter(any))
def test_mask_resets_its_environments_and_no_other(mask: list[bool]) -> None:
    """The others keep state, clock and stream, as if there had been no reset."""
    chosen = np.array(mask)
    env, twin = (rlcpu.make_vec("CartPole-v1", NUM_ENVS, max_episode_steps=7) for _ in range(2))
    for each in (env, twin):
        each.reset(seed=1)
        trajectory(each, 3)
    before = env.state
    observations, _ = env.reset(options={"reset_mask": chosen})
    np.testing.assert_array_equal(env.state[~chosen], before[~chosen])
    assert (env.state[chosen] != before[chosen]).all()
    np.testing.assert_array_equal(observations, env.state)
    np.testing.assert_array_equal(trajectory(env)[:, ~chosen], trajectory(twin)[:, ~chosen])


def test_masked_seeds_are_those_of_the_mask() -> None:
    env, twin = (rlcpu.make_vec("CartPole-v1", 3) for _ in range(2))
    env.reset(seed=0)
    twin.reset(seed=40)
    mask = np.array([False, True, False])
    before = env.state
    env.reset(seed=40, options={"reset_mask": mask})
    np.testing.assert_array_equal(env.state, np.where(mask[:, None], twin.state, before))


def test_first_reset_has_to_be_of_all() -> None:
    env = rlcpu.make_vec("CartPole-v1", 3)
    with pytest.raises(ResetNeeded, match="first reset"):
        env.reset(options={"reset_mask": np.array([True, False, True])})
    env.reset(options={"reset_mask": np.ones(3, np.bool_)})
    assert env.state.all()


# ---------------------------------------------------------------- options


BOUNDS = [
    ("CartPole-v1", {"low": -0.2, "high": 0.1}, [-0.2] * 4, [0.1] * 4),
    ("CartPole-v1", {"low": np.float32(-0.2)}, [-0.2] * 4, [0.05] * 4),
    ("Acrobot-v1", {"low": 1.0, "high": 2}, [1.0] * 4, [2.0] * 4),
    ("MountainCar-v0", {"low": -0.9, "high": -0.8}, [-0.9, 0.0], [-0.8, 0.0]),
    ("MountainCarContinuous-v0", {"high": 0.3}, [-0.6, 0.0], [0.3, 0.0]),
    ("Pendulum-v1", {"x_init": 0.5}, [-0.5, -1.0], [0.5, 1.0]),
    ("Pendulum-v1", {"x_init": 0.5, "y_init": 0.0}, [-0.5, 0.0], [0.5, 0.0]),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options", "low", "high"), BOUNDS)
def test_bounds_hold_for_one_reset(
    name: str, options: dict[str, Any], low: list[float], high: list[float], dtype: str
) -> None:
    env = rlcpu.make_vec(name, 2000, dtype=dtype, max_episode_steps=1, autoreset_mode="SameStep")
    env.reset(seed=0, options=options)
    lowest, highest = env.state.min(axis=0), env.state.max(axis=0)
    width = np.subtract(high, low)
    assert (lowest >= np.array(low, env.dtype)).all()
    assert (highest <= np.array(high, env.dtype)).all()
    assert (lowest <= low + 0.01 * width).all()
    assert (highest >= high - 0.01 * width).all()
    env.reset(seed=0)
    default = env.state
    twin = rlcpu.make_vec(name, 2000, dtype=dtype)
    twin.reset(seed=0)
    np.testing.assert_array_equal(default, twin.state)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("low", TypeError, "options='low': expected a dict or None"),
        ({"lowest": 0}, ValueError, r"options\['lowest'\] is unknown to CartPole-v1: expected re"),
        ({"x_init": 0}, ValueError, r"options\['x_init'\] is unknown .* expected reset_mask, low,"),
        ({"low": "wide"}, ValueError, r"options\['low'\]='wide': expected a number"),
        ({"low": None}, ValueError, r"options\['low'\]=None: expected a number"),
        ({"low": np.nan}, ValueError, r"options\['low'\]=nan: expected a finite number"),
        ({"high": np.inf}, ValueError, r"options\['high'\]=inf: expected a finite number"),
        ({"low": 0.2, "high": 0.1}, ValueError, r'options\["low"\]=0.2 is above .*"high"\]=0.1'),
        ({"low": 0.06}, ValueError, r'options\["low"\]=0.06 is above options\["high"\]=0.05'),
        ({"reset_mask": [True] * 3}, TypeError, "reset_mask.* is of list: expected a NumPy"),
        ({"reset_mask": np.ones(3)}, TypeError, "reset_mask.* is of float64: expected"),
        ({"reset_mask": np.ones(2, bool)}, ValueError, r"reset_mask.* has shape \(2,\): expected"),
        ({"reset_mask": np.zeros(3, bool)}, ValueError, "reset_mask.* is all False: expected"),
    ],
)
def test_bad_options_change_nothing(options: Any, error: type[Exception], message: str) -> None:
    assert_refused(error, message, options=options, seed=1)


# ---------------------------------------------------------------- distributions


def gymnasiums_states(name: str, count: int, **options: Any) -> np.ndarray:
    env = gymnasium.make(name)
    states = []
    for i in range(count):
        env.reset(seed=0 if i == 0 else None, options=options or None)
        states.append(np.array(env.unwrapped.state, dtype=np.float64))
    return np.array(states)


def assert_same_distribution(ours: np.ndarray, theirs: np.ndarray) -> None:
    for mine, other in zip(ours.T, theirs.T, strict=True):
        assert ks_2samp(mine.astype(np.float64), other).pvalue > SIGNIFICANCE
    # The numbers of one state are independent: no two of them are correlated.
    moving = ours[:, ours.std(axis=0) > 0].astype(np.float64)
    correlation = np.corrcoef(moving.T).reshape(moving.shape[1], -1) - np.eye(moving.shape[1])
    assert np.abs(correlation).max() < 5.0 / np.sqrt(len(ours))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_environment
def test_resets_draw_gymnasiums_distribution(name: str, dtype: str) -> None:
    env = rlcpu.make_vec(name, 5000, dtype=dtype)
    env.reset(seed=1)
    theirs = gymnasiums_states(env.dynamics.original, 2000)
    assert_same_distribution(env.state, theirs)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, options, *_ in BOUNDS if "low" in options or "x_init" in options],
)
def test_bounds_draw_gymnasiums_distribution(name: str, options: dict[str, Any]) -> None:
    env = rlcpu.make_vec(name, 5000)
    env.reset(seed=2, options=options)
    assert_same_distribution(env.state, gymnasiums_states(name, 1000, **options))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, AutoresetMode.NEXT_STEP) for name in CLASSIC),
        ("CartPole-v1", AutoresetMode.SAME_STEP),  # whatever the environment is
    ],
)
def test_autoresets_draw_gymnasiums_distribution(name: str, mode: AutoresetMode) -> None:
    """States that new episodes begin with, and those of one environment one after the other."""
    env = rlcpu.make_vec(name, 100, autoreset_mode=mode, max_episode_steps=1)
    env.reset(seed=3)
    num_steps = 2 if mode is AutoresetMode.NEXT_STEP else 1
    states = trajectory_of_resets(env, 50 * num_steps)[num_steps - 1 :: num_steps]
    theirs = gymnasiums_states(env.dynamics.original, 2000)
    assert_same_distribution(states.reshape(-1, states.shape[-1]), theirs)
    moving = states[..., 0].astype(np.float64) - states[..., 0].mean()
    lag = (moving[1:] * moving[:-1]).mean() / moving.var()
    assert abs(lag) < 5.0 / np.sqrt(moving.size)


def trajectory_of_resets(env: VectorEnv, num_steps: int) -> np.ndarray:
    """States after each step, with actions of zero."""
    actions = np.zeros(env.action_space.shape, env.action_space.dtype)
    states = []
    for _ in range(num_steps):
        env.step(actions)
        states.append(env.state)
    return np.array(states)

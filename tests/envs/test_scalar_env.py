"""One environment under `gymnasium.make`."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlcpu
from rlcpu.envs import find
from rlcpu.envs.engine.episode import PENDING
from tests.envs.rollouts import CLASSIC

every_environment = pytest.mark.parametrize("name", CLASSIC)


def warnings_of_the_checker(env: gymnasium.Env) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"render_mode": "rgb_array"}])
@every_environment
def test_gymnasiums_checker_is_content(name: str, options: dict[str, Any]) -> None:
    """It warns of spaces that are unbounded or not normalised, as of the original's, only."""
    ours = warnings_of_the_checker(gymnasium.make(f"rlcpu/{name}", **options))
    theirs = warnings_of_the_checker(gymnasium.make(find(name).original, render_mode="rgb_array"))
    assert ours == theirs
    assert all(" space" in message for message in ours)


@every_environment
def test_is_gymnasiums_environment_step_by_step(name: str) -> None:
    """float64 from the same state: the same bits, up to an ulp of NumPy's sine and cosine."""
    ours = gymnasium.make(f"rlcpu/{name}", dtype="float64", max_episode_steps=30)
    theirs = gymnasium.make(find(name).original, max_episode_steps=30)
    ours.action_space.seed(0)
    ours.reset(seed=0)
    theirs.reset(seed=0)
    kind = np.asarray(theirs.unwrapped.state).dtype
    theirs.unwrapped.state = ours.unwrapped.state.astype(kind)
    for _ in range(30):
        action = ours.action_space.sample()
        mine, other = ours.step(action), theirs.step(action)
        np.testing.assert_allclose(mine[0], other[0], rtol=1e-12, atol=1e-12)
        assert mine[0].dtype == other[0].dtype
        assert mine[1] == pytest.approx(other[1], rel=1e-12)
        assert mine[2:] == other[2:]
        assert [type(each) for each in mine[1:4]] == [float, bool, bool]
        if mine[2] or mine[3]:
            break
    assert mine[2] or mine[3]


def test_seed_is_that_of_the_vector_environment() -> None:
    single, batch = gymnasium.make("rlcpu/CartPole-v1"), rlcpu.make_vec("CartPole-v1", 3)
    observation, info = single.reset(seed=2)
    np.testing.assert_array_equal(observation, batch.reset(seed=0)[0][2])
    assert info == {}
    assert (single.reset()[0] != observation).all()
    low = single.reset(options={"low": 0.01, "high": 0.02})[0]
    assert (low >= 0.01).all()
    assert (low <= 0.02).all()


def test_time_limit_is_gymnasiums() -> None:
    env = gymnasium.make("rlcpu/Pendulum-v1", max_episode_steps=3)
    env.reset(seed=0)
    steps = [env.step(np.zeros(1, np.float32)) for _ in range(3)]
    assert [step[3] for step in steps] == [False, False, True]
    assert isinstance(env.spec, gymnasium.envs.registration.EnvSpec)
    assert env.spec.max_episode_steps == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_environment
def test_steps_are_those_of_the_vector_environment(name: str, dtype: str) -> None:
    """Bit for bit, through resets, whatever the kind of action."""
    single = gymnasium.make(f"rlcpu/{name}", dtype=dtype, max_episode_steps=7).unwrapped
    batch = rlcpu.make_vec(name, 3, dtype=dtype, autoreset_mode="Disabled")
    np.testing.assert_array_equal(single.reset(seed=2)[0], batch.reset(seed=0)[0][2])
    batch.action_space.seed(0)
    kinds = [lambda a: a, np.asarray, lambda a: np.asarray(a).tolist()]
    for step in range(60):
        actions = batch.action_space.sample()
        mine = single.step(kinds[step % 3](actions[2]))
        others = [each[2] for each in batch.step(actions)[:4]]
        np.testing.assert_array_equal(mine[0], others[0])
        assert mine[1:4] == tuple(others[1:])
        np.testing.assert_array_equal(single.state, batch.state[2])
        if mine[2] or step % 20 == 19:
            batch.reset()
            np.testing.assert_array_equal(single.reset()[0], batch.observe()[2])
        elif (ended := batch.engine.elapsed() == PENDING).any():
            batch.reset(options={"reset_mask": ended})


def test_observations_are_new_arrays() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    first = env.reset(seed=0)[0]
    before, second = first.copy(), env.step(0)[0]
    third = env.step(0)[0]
    assert not np.shares_memory(second, third)
    np.testing.assert_array_equal(first, before)


def test_a_step_after_the_end_warns_once_and_goes_on() -> None:
    """As Gymnasium's CartPole does."""
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = [5.0, 1.0, 0.0, 0.0]
    assert env.step(0)[2] is True
    ended = env.state
    with pytest.warns(UserWarning, match="after the end of an episode of CartPole-v1: call reset"):
        observation, _, terminated, _, _ = env.step(0)
    assert terminated is True
    assert observation[0] == np.float32(ended[0] + np.float32(0.02) * ended[1])
    env.state = [0.0, 0.0, 0.0, 1e38]
    env.step(0)
    with pytest.warns(UserWarning, match="after the end"):
        env.step(0)
    assert not np.isfinite(env.step(0)[0]).all()
    env.reset()
    assert env.step(0)[2] is False


def test_setting_the_state_begins_an_episode_that_had_ended() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = [5.0, 0.0, 0.0, 0.0]
    env.step(0)
    env.state = np.zeros(4)
    assert env.step(0)[2] is False


def test_step_before_the_first_reset() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(0)


def test_spaces_are_its_own() -> None:
    """Seeding those of one environment does not change the samples of another."""
    one, other = (gymnasium.make("rlcpu/Pendulum-v1") for _ in range(2))
    one.action_space.seed(1)
    other.action_space.seed(2)
    twin = gymnasium.make("rlcpu/Pendulum-v1")
    twin.action_space.seed(1)
    np.testing.assert_array_equal(one.action_space.sample(), twin.action_space.sample())


@pytest.mark.parametrize(
    "make", [lambda *a, **k: gymnasium.make(*a, **k).unwrapped, rlcpu.make_vec]
)
def test_parameters_are_attributes(make: Any) -> None:
    """As those of Gymnasium's environments are, but that they cannot be set."""
    env, original = make("rlcpu/CartPole-v1", tau=0.01), gymnasium.make("CartPole-v1").unwrapped
    names = ("gravity", "masscart", "masspole", "length", "force_mag", "x_threshold")
    for name in (*names, "theta_threshold_radians"):
        assert getattr(env, name) == getattr(original, name)
        assert name in dir(env)
    assert env.tau == 0.01
    with pytest.raises(AttributeError, match=r"gravity cannot be set: .* with gravity=1.6"):
        env.gravity = 1.6
    with pytest.raises(AttributeError, match="no attribute 'gravty'"):
        _ = env.gravty
    env.my_own_mark = 3
    assert env.my_own_mark == 3


def test_repr_says_what_differs_from_the_defaults() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1", gravity=1.6, dtype="float64")
    assert repr(env.unwrapped) == "ScalarEnv(CartPole-v1, dtype=float64, gravity=1.6)"
    assert f"<{env.unwrapped!r}>" in str(env)
    batch = rlcpu.make_vec("Acrobot-v1", 2, nips=True, autoreset_mode="SameStep")
    text = "VectorEnv(Acrobot-v1, num_envs=2, dtype=float32, autoreset_mode=SameStep, nips=True)"
    assert repr(batch) == text


def test_state_can_be_set() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.state = np.arange(4) / 100
    np.testing.assert_array_equal(env.state, np.float32([0.0, 0.01, 0.02, 0.03]))
    with pytest.raises(ValueError, match=r"state has shape \(1, 3\)"):
        env.state = np.zeros(3)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (np.array([np.nan], np.float32), ValueError, r"actions\[0\]=\[nan\] of Pendulum-v1"),
        (np.zeros(2, np.float32), ValueError, r"actions have shape \(1, 2\): expected \(1, 1\)"),
        (np.array([True]), TypeError, "actions have dtype bool: expected a real"),
        (0.5, ValueError, r"actions have shape \(1,\): expected \(1, 1\)"),
    ],
)
def test_bad_actions_of_a_box(action: Any, error: type[Exception], message: str) -> None:
    env = gymnasium.make("rlcpu/Pendulum-v1").unwrapped
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.state, before)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (2, ValueError, r"actions\[0\]=2 of CartPole-v1"),
        (-1, ValueError, r"actions\[0\]=-1 of CartPole-v1"),
        (np.int64(2**62), ValueError, r"actions\[0\]=4611686018427387904 of CartPole-v1"),
        (2**70, TypeError, "actions have dtype object: expected an integer"),
        (True, TypeError, "actions have dtype bool: expected an integer"),
        (0.5, TypeError, "actions have dtype float64: expected an integer"),
        ([0, 1], ValueError, r"actions have shape \(1, 2\): expected \(1,\)"),
    ],
)
def test_bad_actions(action: Any, error: type[Exception], message: str) -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.state, before)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gravty": 1.0}, TypeError, "CartPole-v1 has no parameter gravty"),
        ({"dtype": "int8"}, ValueError, "dtype='int8': expected"),
        ({"num_threads": 2}, TypeError, "num_threads"),
    ],
)
def test_bad_construction(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gymnasium.make("rlcpu/CartPole-v1", **options)

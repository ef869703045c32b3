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

every_environment = pytest.mark.parametrize("name", rlcpu.registered())


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


def test_finished_episode_needs_a_reset() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = [5.0, 0.0, 0.0, 0.0]
    assert env.step(0)[2] is True
    with pytest.raises(gymnasium.error.ResetNeeded, match="finished"):
        env.step(0)
    env.reset()
    assert env.step(0)[2] is False


def test_state_can_be_set() -> None:
    env = gymnasium.make("rlcpu/CartPole-v1").unwrapped
    env.state = np.arange(4) / 100
    np.testing.assert_array_equal(env.state, np.float32([0.0, 0.01, 0.02, 0.03]))
    with pytest.raises(ValueError, match=r"state has shape \(1, 3\)"):
        env.state = np.zeros(3)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (2, ValueError, r"actions\[0\]=2 of CartPole-v1"),
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
        ({"render_mode": "human"}, ValueError, "render_mode='human': CartPole-v1 can be rendered"),
        ({"num_threads": 2}, TypeError, "num_threads"),
    ],
)
def test_bad_construction(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gymnasium.make("rlcpu/CartPole-v1", **options)

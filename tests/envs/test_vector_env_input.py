"""What a user may assign and pass to a vector environment, and every way to get it wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import rlcpu
from rlcpu.envs.engine.vector_env import VectorEnv

#: More than a block of 64, and the last block is not full.
NUM_ENVS = 70
LIMIT = 6


def make(name: str, **options: Any) -> VectorEnv:
    return rlcpu.make_vec(name, **{"num_envs": NUM_ENVS, **options})


def random_actions(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    if env.dynamics.is_discrete:
        return rng.integers(env.dynamics.num_actions, size=env.num_envs)
    return rng.uniform(-3.0, 3.0, env.action_space.shape).astype(np.float32)


# ---------------------------------------------------------------- state


def test_setting_the_state_starts_from_there() -> None:
    env = make("Pendulum-v1", num_envs=3, dtype="float64")
    env.state = [[0.1, 0.0], [0.2, 0.0], [0.3, -1.0]]
    np.testing.assert_array_equal(env.state, [[0.1, 0.0], [0.2, 0.0], [0.3, -1.0]])
    assert env.state.dtype == np.float64
    assert env.step(np.zeros((3, 1), np.float32))[3].dtype == np.bool_


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_setting_the_state_revives_finished_environments(mode: AutoresetMode) -> None:
    """A new clock and a new return begin; running episodes keep theirs."""
    env = rlcpu.make_vec("CartPole-v1", 3, max_episode_steps=4, autoreset_mode=mode)
    env.reset(seed=0)
    actions = np.zeros(3, np.int64)
    for _ in range(2):
        env.step(actions)
    state = env.state
    state[0, 0] = 5.0  # outside: the next step ends the first episode
    env.state = state
    assert env.step(actions)[2].tolist() == [True, False, False]
    env.state = np.zeros((3, 4))
    rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 4)
    assert rollout.final_indices.tolist() == [[0, 1], [0, 2], [3, 0]]
    assert rollout.episode_lengths.tolist() == [4, 4, 4]
    assert rollout.episode_returns.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (np.zeros((2, 4)), ValueError, r"state has shape \(2, 4\): expected \(3, 4\)"),
        (np.full((3, 4), np.nan), ValueError, "state holds NaN or infinity"),
        (np.full((3, 4), np.inf), ValueError, "state holds NaN or infinity"),
        (np.full((3, 4), 1e300), ValueError, "state holds NaN or infinity in float32"),
        ("upright", TypeError, "state has dtype <U7: expected real numbers"),
        (None, TypeError, "state has dtype object: expected real numbers"),
        (np.zeros((3, 4), complex), TypeError, "state has dtype complex128: expected real"),
    ],
)
def test_bad_state(state: Any, error: type[Exception], message: str) -> None:
    env = make("CartPole-v1", num_envs=3)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        env.state = state
    np.testing.assert_array_equal(env.state, before)


def test_unset_state() -> None:
    env = make("CartPole-v1", num_envs=3)
    with pytest.raises(ResetNeeded, match="state is unset"):
        _ = env.state
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros(3, np.int64))


# ---------------------------------------------------------------- actions


def assert_unchanged_by(env: VectorEnv, actions: Any, error: type[Exception], message: str) -> None:
    """The actions are refused, and the next steps are those of an environment that saw none."""
    twin = make(env.dynamics.id, num_envs=env.num_envs)
    for each in (env, twin):
        each.reset(seed=3)
    with pytest.raises(error, match=message):
        env.step(actions)
    rng = np.random.default_rng(0)
    for _ in range(2 * LIMIT):
        good = random_actions(env, rng)
        for ours, theirs in zip(env.step(good), twin.step(good), strict=True):
            np.testing.assert_array_equal(ours, theirs)


BAD_DISCRETE = [
    (np.zeros(4, np.int64), ValueError, r"actions have shape \(4,\): expected \(3,\)"),
    (np.zeros((3, 1), np.int64), ValueError, r"actions have shape \(3, 1\): expected \(3,\)"),
    (0, ValueError, r"actions have shape \(\): expected \(3,\)"),
    (np.zeros(3), TypeError, "actions have dtype float64: expected an integer"),
    (np.zeros(3, np.bool_), TypeError, "actions have dtype bool: expected an integer"),
    (["left"] * 3, TypeError, "actions have dtype <U4: expected an integer"),
    (None, TypeError, "actions have dtype object: expected an integer"),
    ([0, 2, 1], ValueError, r"actions\[1\]=2 of CartPole-v1 .*: expected 0 to 1"),
    ([0, 1, -1], ValueError, r"actions\[2\]=-1 of CartPole-v1"),
    (np.array([0, 1, 2**63], np.uint64), ValueError, r"actions\[2\]=9223372036854775808 of"),
    ([2**32, 0, 0], ValueError, r"actions\[0\]=4294967296 of"),
]
BAD_BOX = [
    (np.zeros(3, np.float32), ValueError, r"actions have shape \(3,\): expected \(3, 1\)"),
    (np.zeros((3, 2), np.float32), ValueError, r"actions have shape \(3, 2\): expected \(3, 1\)"),
    (np.zeros((3, 1), complex), TypeError, "actions have dtype complex128: expected a real"),
    (
        [[0.0], [np.nan], [0.0]],
        ValueError,
        r"actions\[1\]=\[nan\] of Pendulum-v1 .*: expected a nu",
    ),
]


@pytest.mark.parametrize(("actions", "error", "message"), BAD_DISCRETE)
def test_bad_discrete_actions(actions: Any, error: type[Exception], message: str) -> None:
    assert_unchanged_by(make("CartPole-v1", num_envs=3), actions, error, message)


@pytest.mark.parametrize(("actions", "error", "message"), BAD_BOX)
def test_bad_box_actions(actions: Any, error: type[Exception], message: str) -> None:
    assert_unchanged_by(make("Pendulum-v1", num_envs=3), actions, error, message)


@given(
    index=st.integers(0, NUM_ENVS - 1),
    action=st.integers(-(2**63), 2**63 - 1).filter(lambda action: not 0 <= action < 2),
)
def test_one_bad_action_anywhere_is_found(index: int, action: int) -> None:
    env = make("CartPole-v1")
    env.reset(seed=0)
    before = env.state
    actions = np.zeros(NUM_ENVS, np.int64)
    actions[index] = action
    with pytest.raises(ValueError, match=rf"actions\[{index}\]={action} of CartPole-v1 \(1 such\)"):
        env.step(actions)
    np.testing.assert_array_equal(env.state, before)


@pytest.mark.parametrize(
    "convert",
    [list, tuple, np.int8, np.uint16, lambda a: np.stack([a, a], axis=1)[:, 0], np.uint64],
)
def test_integer_actions_of_every_kind(convert: Any) -> None:
    """Lists, other widths, and arrays that are not contiguous."""
    env, twin = make("CartPole-v1"), make("CartPole-v1")
    actions = random_actions(env, np.random.default_rng(5))
    for each in (env, twin):
        each.reset(seed=3)
    for ours, theirs in zip(env.step(convert(actions)), twin.step(actions), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bad_action_beside_one_that_is_ignored() -> None:
    """Only the action of an environment that waits for its reset is ignored."""
    env = make("CartPole-v1", num_envs=3, max_episode_steps=1)
    env.reset(seed=0)
    env.step(np.zeros(3, np.int64))
    env.reset(options={"reset_mask": np.array([True, True, False])})
    before = env.state
    with pytest.raises(ValueError, match=r"actions\[1\]=7 of CartPole-v1 \(1 such\)"):
        env.step([0, 7, 9])
    np.testing.assert_array_equal(env.state, before)
    assert env.step([0, 1, 9])[3].tolist() == [True, True, False]


def test_finished_environment_must_not_be_stepped() -> None:
    env = make("CartPole-v1", max_episode_steps=2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    actions = np.zeros(NUM_ENVS, np.int64)
    mask = np.zeros(NUM_ENVS, np.bool_)
    mask[5:] = True
    env.step(actions)
    env.reset(options={"reset_mask": mask})
    assert env.step(actions)[3].nonzero()[0].tolist() == [0, 1, 2, 3, 4]
    before = env.state
    with pytest.raises(ResetNeeded, match=r"5 environments have finished \(first: 0\)"):
        env.step(actions)
    with pytest.raises(ResetNeeded, match="5 environments have finished"):
        rlcpu.collect(env, rlcpu.policies.Uniform(), 1)
    np.testing.assert_array_equal(env.state, before)
    env.reset(options={"reset_mask": ~mask})
    assert env.step(actions)[3].nonzero()[0].tolist() == list(range(5, NUM_ENVS))


# ---------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs=0: expected at least 1"),
        ({"num_envs": -3}, ValueError, "num_envs=-3: expected at least 1"),
        ({"num_envs": 2.5}, TypeError, "num_envs=2.5: expected an int"),
        ({"num_envs": True}, TypeError, "num_envs=True: expected an int"),
        ({"num_envs": "4"}, TypeError, "num_envs='4': expected an int"),
        ({"dtype": "float16"}, ValueError, 'dtype=\'float16\': expected "float32" or "float64"'),
        ({"dtype": "single precision"}, ValueError, "dtype='single precision': expected"),
        ({"dtype": 3}, ValueError, "dtype=3: expected"),
        ({"autoreset_mode": "never"}, ValueError, "autoreset_mode='never': expected"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps=0: expected at least 1"),
        ({"max_episode_steps": 1.5}, TypeError, "max_episode_steps=1.5: expected an int"),
        ({"max_episode_steps": 2**40}, ValueError, "max_episode_steps=1099511627776: expected"),
        ({"num_threads": 0}, ValueError, "num_threads=0: expected 1 to"),
        ({"num_threads": 10**6}, ValueError, "num_threads=1000000: expected 1 to"),
        ({"num_threads": 1.0}, TypeError, "num_threads=1.0: expected an int or None"),
        ({"render_mode": "human"}, ValueError, "render_mode='human': CartPole-v1 can be rendered"),
        ({"gravty": 1.0}, TypeError, "CartPole-v1 has no parameter gravty; it has: gravity"),
        ({"gravity": "low"}, TypeError, "gravity='low' has to be a number"),
    ],
)
def test_bad_construction(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make("CartPole-v1", **options)


def test_dynamics_has_to_be_one() -> None:
    with pytest.raises(TypeError, match="dynamics='CartPole-v1': expected a Dynamics"):
        VectorEnv("CartPole-v1")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_modes_and_dtypes_have_names(mode: str) -> None:
    env = make("CartPole-v1", autoreset_mode=mode, dtype=np.float64)
    assert env.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert env.dtype == np.float64


def test_options_of_the_environment_are_taken() -> None:
    """CartPole-v0 is CartPole-v1 with another limit; a changed number compiles nothing."""
    env = make("CartPole-v1", max_episode_steps=200, sutton_barto_reward=True, gravity=3.0)
    assert env.max_episode_steps == 200
    assert env.dynamics.params.gravity == 3.0
    env.reset(seed=0)
    rewards = env.step(np.zeros(NUM_ENVS, np.int64))[1]
    assert (rewards <= 0.0).all()

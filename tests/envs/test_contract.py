"""Every registered environment beside Gymnasium's SyncVectorEnv of the original, in every mode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs import find

NUM_ENVS, NUM_STEPS, LIMIT = 5, 60, 17
ORIGINALS = [name for name in rlcpu.registered() if find(name).original]
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def make_pair(name: str, mode: AutoresetMode) -> tuple[rlcpu.VectorEnv, Any]:
    ours = rlcpu.make_vec(
        name, NUM_ENVS, dtype="float64", autoreset_mode=mode, max_episode_steps=LIMIT
    )
    reference = gymnasium.make_vec(
        find(name).original,
        num_envs=NUM_ENVS,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=LIMIT,
    )
    ours.reset(seed=3)
    reference.reset(seed=4)
    copy_states(ours, reference, np.ones(NUM_ENVS, bool))
    return ours, reference


def copy_states(ours: rlcpu.VectorEnv, reference: Any, which: np.ndarray) -> None:
    """Give the reference our new states: resets draw other numbers from the same distribution."""
    for i in np.flatnonzero(which):
        env = reference.envs[i].unwrapped
        env.state = ours.state[i].astype(np.asarray(env.state).dtype)


def assert_close(ours: Any, reference: Any) -> None:
    """Equal, but for the last bit of Gymnasium's sin and cos, which depends on the machine."""
    np.testing.assert_allclose(ours, reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ORIGINALS)
def test_steps_as_sync_vector_env(name: str, mode: AutoresetMode) -> None:
    ours, reference = make_pair(name, mode)
    done = np.zeros(NUM_ENVS, bool)
    ends = 0
    for step in range(NUM_STEPS):
        if mode is AutoresetMode.DISABLED and done.any():
            observations, infos = ours.reset(options={"reset_mask": done})
            reference.reset(options={"reset_mask": done.copy()})
            copy_states(ours, reference, done)
            assert observations.shape == reference.observation_space.shape
            assert infos == {}
        reference.action_space.seed(step)
        actions = reference.action_space.sample()
        mine, theirs = ours.step(actions), reference.step(actions)
        for a, b in zip(mine[:4], theirs[:4], strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
        renewed = done if mode is AutoresetMode.NEXT_STEP else np.zeros(NUM_ENVS, bool)
        np.testing.assert_array_equal(mine[2], theirs[2])
        np.testing.assert_array_equal(mine[3], theirs[3])
        assert_close(mine[1], theirs[1])
        done = mine[2] | mine[3]
        if mode is AutoresetMode.SAME_STEP:
            renewed = done
            assert_same_infos(mine[4], theirs[4], done)
        else:
            assert mine[4] == {}
        assert_close(mine[0][~renewed], theirs[0][~renewed])
        copy_states(ours, reference, renewed)
        ends += int(done.sum())
    assert ends >= NUM_ENVS


def assert_same_infos(mine: dict[str, Any], theirs: dict[str, Any], done: np.ndarray) -> None:
    assert mine.keys() == theirs.keys()
    if not done.any():
        return
    for mask in ("_final_obs", "_final_info"):
        np.testing.assert_array_equal(mine[mask], theirs[mask])
    assert mine["final_info"] == theirs["final_info"]
    for i, (a, b) in enumerate(zip(mine["final_obs"], theirs["final_obs"], strict=True)):
        assert (a is None) == (b is None) == (not done[i])
        if a is not None:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert_close(a, b)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ORIGINALS)
def test_describes_itself_as_sync_vector_env(name: str, mode: AutoresetMode) -> None:
    ours, reference = make_pair(name, mode)
    assert ours.single_observation_space == reference.single_observation_space
    assert ours.single_action_space == reference.single_action_space
    assert ours.observation_space == reference.observation_space
    assert ours.action_space == reference.action_space
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.metadata["render_fps"] == reference.metadata["render_fps"]
    assert ours.spec is not None
    assert ours.spec.id == f"rlcpu/{name}"
    ours.close()
    ours.close()
    reference.close()


@pytest.mark.parametrize("num_envs", [1, 63, 64, 70, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_environment_does_not_depend_on_its_batch(num_envs: int, dtype: str) -> None:
    env = rlcpu.make_vec("MountainCar-v0", num_envs, dtype=dtype, max_episode_steps=9)
    alone = rlcpu.make_vec("MountainCar-v0", 1, dtype=dtype, max_episode_steps=9)
    last = num_envs - 1
    first, _ = env.reset(seed=100)
    np.testing.assert_array_equal(first[last], alone.reset(seed=100 + last)[0][0])
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.integers(0, 3, num_envs)
        many, one = env.step(actions), alone.step(actions[last:])
        for a, b in zip(many[:4], one[:4], strict=True):
            np.testing.assert_array_equal(a[last], b[0])


def test_a_finished_environment_has_to_be_reset_when_autoreset_is_disabled() -> None:
    env = rlcpu.make_vec(
        "MountainCar-v0", 3, autoreset_mode=AutoresetMode.DISABLED, max_episode_steps=2
    )
    env.reset(seed=0)
    actions = np.ones(3, np.int64)
    env.step(actions)
    env.step(actions)
    before = env.state
    with pytest.raises(ResetNeeded, match="3 environments have finished"):
        env.step(actions)
    np.testing.assert_array_equal(env.state, before)
    env.reset(options={"reset_mask": np.array([True, False, True])})
    np.testing.assert_array_equal(env.state[1], before[1])
    with pytest.raises(ResetNeeded, match="1 environments"):
        env.step(actions)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.array([0, 1, 3]), ValueError, r"actions\[2\]=3 of MountainCar-v0.*expected 0 to 2"),
        (np.array([0, -1, 2]), ValueError, r"actions\[1\]=-1"),
        (np.array([0, 1]), ValueError, r"shape \(2,\): expected \(3,\)"),
        (np.array([0.0, 1.0, 2.0]), TypeError, "dtype float64: expected an integer"),
        (None, TypeError, "object"),
    ],
)
def test_bad_actions_change_nothing(actions: Any, error: type[Exception], message: str) -> None:
    env = rlcpu.make_vec("MountainCar-v0", 3)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        env.step(actions)
    np.testing.assert_array_equal(env.state, before)
    twin = rlcpu.make_vec("MountainCar-v0", 3)
    twin.reset(seed=0)
    good = np.array([0, 1, 2])
    np.testing.assert_array_equal(env.step(good)[0], twin.step(good)[0])


def test_nan_actions_change_nothing() -> None:
    env = rlcpu.make_vec("Pendulum-v1", 2)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(ValueError, match=r"actions\[1\]=.*nan.*expected a number"):
        env.step(np.array([[0.0], [np.nan]], np.float32))
    np.testing.assert_array_equal(env.state, before)


def test_an_unset_state_is_an_error() -> None:
    env = rlcpu.make_vec("MountainCar-v0", 2)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match="reset"):
        _ = env.state


@pytest.mark.parametrize("num_envs", [70, 4096])
def test_kernels_of_all_sizes_are_exact(num_envs: int) -> None:
    """Serial and parallel float64 kernels give the bits of the plain Python function."""
    dynamics = find("CartPole-v1")
    env = rlcpu.make_vec("CartPole-v1", num_envs, dtype="float64")
    rng = np.random.default_rng(5)
    states = rng.uniform(-0.2, 0.2, (num_envs, 4))
    actions = rng.integers(0, 2, num_envs)
    env.state = states
    env.step(actions)
    moves = zip(states.tolist(), actions.tolist(), strict=True)
    expected = [dynamics.step(tuple(s), a, dynamics.params)[0] for s, a in moves]
    np.testing.assert_array_equal(env.state, expected)

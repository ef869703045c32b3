"""MuJoCo's tasks against Gymnasium's own, and the interface that every environment has."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.mujoco.tasks import TASKS  # noqa: E402

CHEETAH = "HalfCheetah-v5"


def make(name: str = CHEETAH, num_envs: int = 3, **options: Any) -> Any:
    return rlcpu.make_vec(name, num_envs, **{"dtype": "float64", **options})


def part(env: Any, name: str) -> Any:
    """A part of the states, such as QPOS, (num_envs, size)."""
    everything = mujoco.mjtState.mjSTATE_INTEGRATION
    bit, model = getattr(mujoco.mjtState, f"mjSTATE_{name}"), env.dynamics.model
    begin = mujoco.mj_stateSize(model, int(everything) & (int(bit) - 1))
    return env.state[:, begin : begin + mujoco.mj_stateSize(model, bit)]


def take_over(other: Any, env: Any) -> None:
    """Put Gymnasium's environment where ours is after a reset."""
    other.reset()
    mujoco.mj_resetData(other.model, other.data)
    other.set_state(part(env, "QPOS")[0], part(env, "QVEL")[0])


def compare(name: str, steps: int = 3000, **options: Any) -> int:
    """Step beside Gymnasium with the same actions; returns how many episodes began."""
    env = make(name, 1, autoreset_mode=AutoresetMode.SAME_STEP, **options)
    other: Any = gymnasium.make(name, **options).unwrapped
    assert env.single_observation_space == other.observation_space
    assert env.single_action_space == other.action_space
    rng, episodes = np.random.default_rng(0), 0
    ours, _ = env.reset(seed=0)
    ended = True
    for _ in range(steps):
        if ended:
            take_over(other, env)
            np.testing.assert_array_equal(other._get_obs(), ours[0])
            episodes += 1
        space = env.single_action_space
        action = rng.uniform(space.low, space.high).astype(np.float32)
        ours, rewards, terminated, truncated, infos = env.step(action[None])
        theirs, reward, their_end, _, _ = other.step(action)
        ended = bool(terminated[0] or truncated[0])
        reached = infos["final_obs"][0] if ended else ours[0]
        np.testing.assert_array_equal(reached, theirs)
        assert rewards[0] == reward
        assert terminated[0] == their_end
    return episodes


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_those_of_gymnasium_bit_for_bit(name: str) -> None:
    assert compare(name) >= 3


def test_options_of_half_cheetah() -> None:
    options: dict[str, Any] = {"forward_reward_weight": 1.5, "ctrl_cost_weight": 0.3}
    options |= {"exclude_current_positions_from_observation": False, "frame_skip": 3}
    assert compare(CHEETAH, 100, **options) == 1
    env = make(reset_noise_scale=0.0)
    env.reset(seed=0)
    np.testing.assert_array_equal(part(env, "QPOS"), np.zeros((3, 9)))


# ---------------------------------------------------------------- the interface of Gymnasium


def test_next_step_mode_resets_in_the_step_after_the_end() -> None:
    env = make(max_episode_steps=2)
    env.reset(seed=1)
    action = np.full((3, 6), 0.5, np.float32)
    _, _, _, truncated, _ = env.step(action)
    assert not truncated.any()
    reached, _, _, truncated, infos = env.step(action)
    assert truncated.all()
    assert not infos
    fresh, rewards, terminated, truncated, _ = env.step(action)
    assert [x.any() for x in (rewards, terminated, truncated)] == [False] * 3
    assert np.abs(fresh - reached).min(axis=0).max() > 0
    assert np.abs(part(env, "QPOS")).max() <= 0.1


def test_same_step_mode_shows_both_ends() -> None:
    envs = [make(max_episode_steps=2, autoreset_mode=mode) for mode in ("NextStep", "SameStep")]
    for env in envs:
        env.reset(seed=1)
    action = np.full((3, 6), 0.5, np.float32)
    for _ in range(2):
        (reached, *_), (fresh, *_, infos) = (env.step(action) for env in envs)
    np.testing.assert_array_equal(np.stack(infos["final_obs"]), reached)
    np.testing.assert_array_equal(envs[0].step(action)[0], fresh)


def test_disabled_mode_wants_a_reset() -> None:
    env = make(max_episode_steps=1, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=1)
    action = np.zeros((3, 6), np.float32)
    env.step(action)
    with pytest.raises(ResetNeeded, match="3 environments have finished"):
        env.step(action)
    mask = np.array([True, False, True])
    before = env.observe()
    after, _ = env.reset(options={"reset_mask": mask})
    assert (after != before).any(axis=1).tolist() == mask.tolist()


def test_an_environment_depends_on_its_seed_alone() -> None:
    many, one = make(num_envs=4, num_threads=2), make(num_envs=1, num_threads=1)
    many.reset(seed=10)
    one.reset(seed=12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.uniform(-1, 1, (4, 6)).astype(np.float32)
        np.testing.assert_array_equal(many.step(actions)[0][2], one.step(actions[2:3])[0][0])


def test_float32_is_float64_rounded() -> None:
    exact, single = make(), make(dtype="float32")
    seen = exact.reset(seed=0)[0], single.reset(seed=0)[0]
    assert single.single_observation_space.dtype == seen[1].dtype == np.float32
    np.testing.assert_array_equal(seen[0].astype(np.float32), seen[1])
    actions = np.full((3, 6), 0.3, np.float32)
    for _ in range(10):
        a, b = exact.step(actions), single.step(actions)
        np.testing.assert_array_equal(a[0].astype(np.float32), b[0])
        np.testing.assert_array_equal(a[1].astype(np.float32), b[1])


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        (np.full((3, 6), np.nan, np.float32), r"actions\[0\]=\[nan"),
        (np.zeros((3, 5), np.float32), r"shape \(3, 5\): expected \(3, 6\)"),
    ],
)
def test_bad_actions_change_nothing(actions: Any, text: str) -> None:
    env = make()
    env.reset(seed=0)
    before = env.state
    with pytest.raises(ValueError, match=text):
        env.step(actions)
    np.testing.assert_array_equal(env.state, before)


def test_it_is_gymnasiums_vector_environment_too() -> None:
    env = gymnasium.make_vec("rlcpu/HalfCheetah-v5", num_envs=2)
    assert isinstance(env.unwrapped, rlcpu.VectorEnv)
    assert env.spec is not None
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1].dtype == np.float32


def test_nothing_is_imported_without_need_and_a_second_process_compiles_nothing() -> None:
    code = (
        "import logging, sys, rlcpu, numpy as np\n"
        "assert 'mujoco' not in sys.modules\n"
        "logging.basicConfig(level='INFO', stream=sys.stdout)\n"
        "env = rlcpu.make_vec('HalfCheetah-v5', 2, dtype='float64')\n"
        "env.reset(seed=0)\n"
        "print(env.step(np.zeros((2, 6), np.float32))[1].tolist())\n"
    )
    env = make(num_envs=2)
    env.reset(seed=0)
    rewards = env.step(np.zeros((2, 6), np.float32))[1].tolist()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    assert done.stdout == f"{rewards}\n"

"""MuJoCo's tasks against Gymnasium's own, and the interface that every environment has."""

from __future__ import annotations

import copy
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.stats
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.mujoco.simulations import without_islands  # noqa: E402
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


#: Tasks in which NumPy's sine and cosine or BLAS's norm take part: units in the last place.
INEXACT = {"InvertedDoublePendulum-v5": 4, "Pusher-v5": 4, "Reacher-v5": 4}


def compare(name: str, steps: int, **options: Any) -> int:
    """Step beside Gymnasium with the same actions; returns how many episodes began."""
    env = make(name, 1, autoreset_mode=AutoresetMode.SAME_STEP, **options)
    other: Any = gymnasium.make(name, **options).unwrapped
    assert env.single_observation_space == other.observation_space
    assert env.single_action_space == other.action_space
    rng, episodes, space = np.random.default_rng(0), 0, env.single_action_space

    def same(a: Any, b: Any) -> None:
        np.testing.assert_array_max_ulp(np.asarray(a), np.asarray(b), INEXACT.get(name, 0))

    ours, _ = env.reset(seed=0)
    ended = True
    for _ in range(steps):
        if ended:
            take_over(other, env)
            same(other._get_obs(), ours[0])
            episodes += 1
        action = rng.uniform(space.low, space.high).astype(np.float32)
        ours, rewards, terminated, truncated, infos = env.step(action[None])
        theirs, reward, their_end, _, _ = other.step(action)
        ended = bool(terminated[0] or truncated[0])
        same(infos["final_obs"][0] if ended else ours[0], theirs)
        same(rewards[0], float(reward))
        assert terminated[0] == their_end
    return episodes


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_those_of_gymnasium_bit_for_bit(name: str) -> None:
    """Through whole episodes, and those that a limit of steps ends."""
    assert compare(name, 1200, max_episode_steps=500) >= 3
    assert rlcpu.envs.find(name).max_episode_steps == gymnasium.spec(name).max_episode_steps


def test_islands_are_not_looked_for_where_there_is_one() -> None:
    flag, sleep = mujoco.mjtDisableBit.mjDSBL_ISLAND, mujoco.mjtEnableBit.mjENBL_SLEEP
    for name, one_tree in ((CHEETAH, True), ("Pusher-v5", False)):
        model = rlcpu.envs.find(name).model
        assert bool(without_islands(model).opt.disableflags & flag) == one_tree
        assert not model.opt.disableflags & flag
    model = copy.copy(rlcpu.envs.find(CHEETAH).model)
    model.opt.enableflags |= sleep
    assert not without_islands(model).opt.disableflags & flag


OPTIONS: dict[str, dict[str, Any]] = {
    CHEETAH: {
        "forward_reward_weight": 1.5, "ctrl_cost_weight": 0.3, "frame_skip": 3,
        "exclude_current_positions_from_observation": False,
    },
    "Ant-v5": {
        "forward_reward_weight": 0.7, "ctrl_cost_weight": 0.3, "contact_cost_weight": 1e-3,
        "healthy_reward": 0.5, "main_body": 3, "healthy_z_range": (0.3, 0.8),
        "contact_force_range": (-0.5, 0.2), "include_cfrc_ext_in_observation": False,
        "exclude_current_positions_from_observation": False,
    },
    "Hopper-v5": {
        "healthy_state_range": (-5.0, 5.0), "healthy_z_range": (0.9, 1.4), "healthy_reward": 2.0,
        "healthy_angle_range": (-0.1, 0.1), "terminate_when_unhealthy": False,
    },
    "Walker2d-v5": {"healthy_z_range": (1.0, 1.5), "healthy_angle_range": (-0.5, 0.5)},
    "Humanoid-v5": {
        "contact_cost_weight": 1e-3, "contact_cost_range": (0.1, 2.0), "ctrl_cost_weight": 0.2,
        "include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False,
        "include_cvel_in_observation": False, "include_qfrc_actuator_in_observation": False,
    },
    "Reacher-v5": {"reward_dist_weight": 2.0, "reward_control_weight": 0.3},
    "Pusher-v5": {"reward_near_weight": 1.0, "reward_control_weight": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_gymnasium(name: str) -> None:
    compare(name, 200, **OPTIONS[name])


def test_parameters_are_those_of_gymnasium() -> None:
    unknown = ("self", "kwargs", "default_camera_config", "xml_file", "frame_skip")
    for name in TASKS:
        entry: Any = gymnasium.spec(name).entry_point
        kind: Any = gymnasium.envs.registration.load_env_creator(entry)
        theirs = inspect.signature(kind.__init__).parameters
        expected = {k: v.default for k, v in theirs.items() if k not in unknown}
        dynamics: Any = rlcpu.envs.find(name)
        assert dynamics.params._asdict() == expected
        assert dynamics.frame_skip == theirs["frame_skip"].default


def test_models_of_ones_own(tmp_path: Path) -> None:
    text = Path(rlcpu.envs.mujoco.models.ASSETS, "hopper.xml").read_text()
    path = tmp_path / "heavy.xml"
    path.write_text(text.replace('friction="2.0"', 'friction="1.2"'))
    assert path.read_text() != text
    compare("Hopper-v5", 100, xml_file=str(path))


@pytest.mark.parametrize("name", TASKS)
def test_resets_are_distributed_as_gymnasiums(name: str) -> None:
    """Two samples of each number; with some 400 of them, 1e-6 is a chance of 1 in 2,500."""
    env = make(name, 4000)
    env.reset(seed=0)
    other: Any = gymnasium.make(name).unwrapped
    other.reset(seed=0)
    states = []
    for _ in range(500):
        other.reset()
        states.append(np.concatenate((other.data.qpos, other.data.qvel)))
    theirs, ours = np.array(states), np.hstack((part(env, "QPOS"), part(env, "QVEL")))
    for a, b in zip(ours.T, theirs.T, strict=True):
        if np.ptp(b) == 0:
            assert set(a) == set(b)
        else:
            assert scipy.stats.ks_2samp(a, b).pvalue > 1e-6
    varied = ours[:, np.ptp(ours, axis=0) > 0]
    correlations = np.corrcoef(varied.T) - np.eye(varied.shape[1])
    # In Pusher no object lies on the goal: x and y depend on each other, and do not correlate.
    assert np.abs(correlations).max() < 6 / np.sqrt(len(ours))


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
    # Tests of pictures set it, and then MuJoCo loads what logs.
    environ = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    done = subprocess.run(
        command, check=True, timeout=300, capture_output=True, text=True, env=environ
    )
    assert done.stdout == f"{rewards}\n"

"""What goes wrong in MuJoCo: simulations that blow up, its errors, forks, and bad descriptions."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.engine.scalar_env import ScalarEnv  # noqa: E402
from tests.envs.samples import POLE_XML, pole  # noqa: E402


def make(num_envs: int = 4, **options: Any) -> Any:
    changes = options.pop("changes", {})
    env = rlcpu.make_vec(pole(**changes), num_envs, **{"dtype": "float64", **options})
    env.reset(seed=0)
    return env


def test_a_simulation_that_blows_up_is_truncated_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = make(autoreset_mode=AutoresetMode.SAME_STEP)
    state = env.state
    velocities = env.dynamics.model.nq + 1  # behind the time
    state[2, velocities] = 1e200
    env.state = state
    seen = env.observe()
    fresh, rewards, terminated, truncated, infos = env.step(np.zeros((4, 1), np.float32))
    assert truncated.tolist() == [False, False, True, False]
    assert not terminated.any()
    assert rewards[2] == 0.0
    assert infos["unstable"].tolist() == truncated.tolist()
    np.testing.assert_array_equal(infos["final_obs"][2], seen[2])
    assert np.abs(fresh[2]).max() <= 0.01
    env.step(np.zeros((4, 1), np.float32))
    assert not list(tmp_path.iterdir())  # where MuJoCo would write a log


def test_warnings_of_mujoco_are_logged_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    model = pole().model
    data = mujoco.MjData(model)
    data.qvel[0] = 1e200
    mujoco.mj_step(model, data)  # as one's own code does, or Gymnasium's
    assert [record.name for record in caplog.records] == ["rlcpu.mujoco"]
    assert "huge value in QVEL" in caplog.text
    assert not list(tmp_path.iterdir())


def test_an_error_of_mujoco_is_named_and_ends_the_episode() -> None:
    broken = pole()
    broken.model.opt.integrator = 99  # which every step looks at, and nothing before
    env = rlcpu.make_vec(broken, 4)
    env.reset(seed=0)
    text = r"Pole-v0: MuJoCo failed in environment 0 \(4 of 4 environments\): .*integrator"
    with pytest.raises(RuntimeError, match=text):
        env.step(np.zeros((4, 1), np.float32))
    assert env.engine.finished().all()
    model = mujoco.MjModel.from_xml_string(POLE_XML)
    model.opt.integrator = 99
    with pytest.raises(ValueError, match=r"Pole-v0: MuJoCo failed: .*integrator"):
        pole(xml=model)


def child(env: Any, actions: Any) -> None:
    """Step in a forked child, and leave without what pytest would do."""
    status = 1
    try:
        env.step(actions)
        status = 0
    finally:
        os._exit(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_batch_of_its_own() -> None:
    env = make(num_threads=2)
    actions = np.full((4, 1), 0.5, np.float32)
    env.step(actions)
    process = os.fork()
    if process == 0:
        child(env, actions)
    assert os.waitpid(process, 0)[1] == 0
    env.step(actions)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_independently_and_alike(duplicate: Any) -> None:
    env = make(max_episode_steps=7)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (20, 4, 1)).astype(np.float32)
    for action in actions[:5]:
        env.step(action)
    other = duplicate(env)
    for action in actions[5:]:
        for a, b in zip(env.step(action)[:4], other.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_state_that_is_set_goes_on_as_before() -> None:
    env, other = make(), make()
    actions = np.full((4, 1), 0.5, np.float32)
    for _ in range(5):
        env.step(actions)
    other.state = env.state
    np.testing.assert_array_equal(other.observe(), env.observe())
    np.testing.assert_array_equal(other.state, env.state)
    for _ in range(5):
        np.testing.assert_array_equal(env.step(actions)[0], other.step(actions)[0])


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"fields": ("qpos", "colour")}, ValueError, "'colour' is no array of mjData or mjModel"),
        ({"fields": ("qpos", "qvel", "act")}, ValueError, "'act' has 0 numbers"),
        ({"names": {"tip": "site:top"}}, ValueError, "no such site, it has tip"),
        ({"names": {"tip": "top"}}, ValueError, 'expected "kind:name"'),
        ({"xml": POLE_XML.replace("</worldbody>", "")}, ValueError, "the given XML does not load"),
        ({"xml": "nowhere.xml"}, ValueError, "'nowhere.xml' does not load"),
        ({"xml": 3}, TypeError, "expected a path, XML or a mujoco.MjModel"),
        ({"observation_size": 5}, ValueError, r"could not broadcast|observation\[4\]"),
        ({"observation_size": 3}, ValueError, "could not broadcast"),
        ({"frame_skip": 0}, ValueError, "frame_skip=0"),
        ({"frame_skip": 2**40}, ValueError, "frame_skip=1099511627776: expected less than 131072"),
        ({"reset_draws": 1}, ValueError, "IndexError"),
        ({"reward": lambda data: 0.0}, TypeError, r"reward has to take \(data, action, before"),
        ({"measure": lambda data, params: 1.0}, TypeError, "measure has to return a tuple"),
        ({"terminated": lambda data, params: 1}, TypeError, "terminated has to return a bool"),
        ({"params": {"a": 1}}, TypeError, "NamedTuple"),
        ({"id": "Pole"}, ValueError, "a name and a version"),
    ],
)
def test_bad_descriptions_are_refused(changes: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        pole(**changes)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_actions_that_are_not_finite_are_refused(number: float) -> None:
    """MuJoCo clips them, but a reward of theirs is infinite, and the state cannot be set again."""
    env, actions = make(), np.zeros((4, 1), np.float32)
    actions[2] = number
    before = env.state
    text = r"actions\[2\]=\[.*\] of Pole-v0 \(1 such\): expected finite numbers"
    with pytest.raises(ValueError, match=text):
        env.step(actions)
    np.testing.assert_array_equal(env.state, before)
    env.state = before
    single = ScalarEnv(pole())
    single.reset(seed=0)
    with pytest.raises(ValueError, match=r"Pole-v0.*expected finite numbers"):
        single.step(actions[2])


@pytest.mark.parametrize("shape", [(3,), (4, 3)])
def test_numbers_of_the_model_are_checked(shape: tuple[int, ...]) -> None:
    """The message names the environment once."""
    size = pole().model.nbody
    with pytest.raises(ValueError, match=rf"^Pole-v0: body_mass has shape \({size + 1},\)"):
        pole().with_params(body_mass=np.ones(size + 1))
    masses = -np.ones((*shape[:-1], size))
    with pytest.raises(
        ValueError, match=r"^Pole-v0: body_mass holds -1\.0: expected numbers that are"
    ):
        pole().with_params(body_mass=masses)
    with pytest.raises(TypeError, match=r"^Pole-v0: body_mass"):
        pole().with_params(body_mass="heavy")


def raise_always(data, params):
    raise ValueError


def test_none_in_one_branch_is_refused() -> None:
    def reward(data, action, before, after, params):
        return 1.0 if data.qpos[0] < 100.0 else None

    def terminated(data, params):
        return False if data.qpos[0] < 100.0 else 1.0

    line = r" in .*test_mujoco_faults.py, line \d+, in {}: `return"
    text = "^Pole-v0: reward has to return a finite float; returned None" + line.format("reward")
    with pytest.raises(TypeError, match=text):
        make(changes={"reward": reward})
    text = "^Pole-v0: terminated has to return a bool; returned 1.0" + line.format("terminated")
    with pytest.raises(TypeError, match=text):
        make(changes={"terminated": terminated})


def test_what_no_kernel_can_do_is_refused() -> None:
    with pytest.raises(TypeError, match="raises, and other environments"):
        pole(terminated=raise_always)


def test_parameters_are_checked() -> None:
    assert pole().with_params(bounds=[-2, 2]).params.bounds == (-2.0, 2.0)
    with pytest.raises(TypeError, match="it has: noise, bounds, frame_skip"):
        pole().with_params(speed=1.0)
    with pytest.raises(TypeError, match="bounds=3 has to be 2 numbers"):
        pole().with_params(bounds=3)
    with pytest.raises(ValueError, match="not NaN"):
        pole().with_params(noise=float("nan"))
    with pytest.raises(ValueError, match="there is no file"):
        pole().with_params(xml_file="./nowhere.xml")
    with pytest.raises(ValueError, match='runs on the "cpu" alone'):
        rlcpu.make_vec(pole(), 2, device="cuda")

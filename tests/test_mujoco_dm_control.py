"""Tasks of dm_control against its own: `current=True` at work."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import rlcpu
from rlcpu.envs.tasks.mujoco import DM_CONTROL

mujoco = pytest.importorskip("mujoco")
pytest.importorskip("dm_control", reason="dm_control, whose models these are, is not installed")


#: What dm_control 1.0.38 with MuJoCo 3.6 observed, and its reward, after a step from each of eight
#: states: it does not run with the newest MuJoCo.
REFERENCE = json.loads((Path(__file__).parent / "dm_control.json").read_text())


@pytest.mark.parametrize("id", DM_CONTROL.limits)
def test_observations_and_rewards_are_those_of_dm_control(id: str) -> None:
    expected = np.array(REFERENCE[id])
    env = rlcpu.make_vec(id, len(expected), dtype="float64")
    env.reset(seed=0)
    model, states, rng = env.dynamics.model, [], np.random.default_rng(0)
    actions = np.zeros((len(expected), model.nu), np.float32)
    for action in actions:
        data = mujoco.MjData(model)
        data.qpos[:] = rng.uniform(-0.5, 0.5, model.nq)
        data.qvel[:] = rng.uniform(-4, 4, model.nv)
        action[:] = rng.uniform(-1, 1, model.nu)
        states.append(np.empty(env.state.shape[1]))
        mujoco.mj_getState(model, data, states[-1], mujoco.mjtState.mjSTATE_INTEGRATION)
    env.state = np.stack(states)
    seen, rewards, _, _, _ = env.step(actions)
    np.testing.assert_allclose(seen, expected[:, :-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rewards, expected[:, -1], rtol=1e-9)
    assert rewards.max() > 0.2


def test_a_cheetah_settles_before_its_episode() -> None:
    env = rlcpu.make_vec("dm_control/cheetah-run-v0", 3, dtype="float64")
    seen = env.reset(seed=0)[0]
    task = env.dynamics
    data = mujoco.MjData(task.model)
    for row, uniforms in zip(seen, env.engine.uniforms, strict=True):
        mujoco.mj_resetData(task.model, data)
        task.reset(task.look(task.model, data), uniforms, task.params)
        lower, upper = task.model.jnt_range[3:].T
        assert ((data.qpos[3:] >= lower) & (data.qpos[3:] <= upper)).all()
        mujoco.mj_step(task.model, data, 200)
        np.testing.assert_array_equal(row, [*data.qpos[1:], *data.qvel])


def test_without_the_package_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcpu.envs.mujoco.dm_control import find_suite

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install dm_control"):
        find_suite("cheetah.xml")

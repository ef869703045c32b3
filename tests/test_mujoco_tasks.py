"""A task of one's own: what kernels compute is what its functions compute in plain Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.mujoco import MuJoCoDynamics  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs" / "mujoco.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the example of the documentation defines."""
    return example(tmp_path_factory.mktemp("page"))


def example(folder: Path) -> dict[str, Any]:
    """See `page`."""
    (source,) = re.findall(r"```python\n(# upswing.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = folder / "upswing.py"
    file.write_text(source)
    scope: dict[str, Any] = {"__name__": "upswing"}
    exec(compile(source, str(file), "exec"), scope)
    return scope


def measure(data, params):
    return data.site_xpos[data.tip, 0], data.qvel[0]


def reward(data, action, before, after, params):
    return (after[0] - before[0]) / data.dt + before[1] - 0.1 * float(action[0]) * data.timestep


def truncated(data, params):
    return data.qvel[0] > 0.7


def variant(page: dict[str, Any], **changes: Any) -> MuJoCoDynamics:
    names = ("reset", "reset_draws", "observe", "observation_size", "frame_skip", "fields")
    given = {name: getattr(page["upswing"], name) for name in names}
    given |= {"id": "Variant-v0", "xml": page["CART"], "names": {"tip": "site:tip"}}
    given |= {"reward": reward, "measure": measure, "truncated": truncated}
    return MuJoCoDynamics(**{**given, **changes})


@pytest.mark.parametrize("current", [False, True])
def test_kernels_compute_what_plain_python_does(page: dict[str, Any], current: bool) -> None:
    task = variant(page, current=current)
    env = rlcpu.make_vec(task, 1, dtype="float64", autoreset_mode="Disabled")
    observation, _ = env.reset(seed=0)
    data = mujoco.MjData(task.model)
    mujoco.mj_setState(task.model, data, env.state[0], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(task.model, data)
    before = task.measure(task.view_in_python(task.model, data), task.params)
    rng, row, ends = np.random.default_rng(0), np.empty(5), 0
    for _ in range(300):
        task.observe(task.view_in_python(task.model, data), row, task.params)
        np.testing.assert_array_equal(observation[0], row)
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        task.advance(data, action)
        seen = task.view_in_python(task.model, data)
        after = task.measure(seen, task.params)
        observation, rewards, terminated, cut, _ = env.step(action[None])
        assert rewards[0] == task.reward(seen, action, before, after, task.params)
        assert not terminated[0]
        assert cut[0] == task.truncated(seen, task.params)
        before = after
        if cut[0]:
            ends += 1
            env.state = env.state  # goes on from there
            mujoco.mj_setState(task.model, data, env.state[0], mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(task.model, data)
            before = task.measure(task.view_in_python(task.model, data), task.params)
    assert ends > 0


def test_current_fields_are_those_of_the_present_positions(page: dict[str, Any]) -> None:
    envs = [
        rlcpu.make_vec(variant(page, current=current), 1, dtype="float64")
        for current in (True, False)
    ]
    for env in envs:
        env.reset(seed=0)
        env.step(np.ones((1, 1), np.float32))
        data = mujoco.MjData(env.dynamics.model)
        integration = mujoco.mjtState.mjSTATE_INTEGRATION
        mujoco.mj_setState(env.dynamics.model, data, env.state[0], integration)
        mujoco.mj_kinematics(env.dynamics.model, data)
        is_current = env.engine.measured[0, 0] == data.site_xpos[0, 0]
        assert is_current == env.dynamics.current


def test_an_edited_function_is_compiled_anew(page: dict[str, Any]) -> None:
    def pay(amount: float) -> Any:
        def reward(data, action, before, after, params):
            return amount

        return reward

    for amount in (1.5, 2.5):
        env = rlcpu.make_vec(variant(page, reward=pay(amount)), 2)
        env.reset(seed=0)
        assert env.step(np.zeros((2, 1), np.float32))[1].tolist() == [amount] * 2

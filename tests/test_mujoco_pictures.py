"""Pictures and single environments of MuJoCo's tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.mujoco.render import MuJoCoRenderer  # noqa: E402

CHEETAH = "HalfCheetah-v5"


@pytest.fixture(scope="module")
def screenless() -> None:
    """A way to draw without a screen, or the test is skipped."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    code = "from mujoco.egl import GLContext; GLContext(10, 10).make_current()"
    if subprocess.run([sys.executable, "-c", code], capture_output=True).returncode:
        pytest.skip("EGL draws nothing here")


@pytest.mark.usefixtures("screenless")
def test_pictures_are_gymnasiums() -> None:
    env = rlcpu.make_vec(CHEETAH, 2, render_mode="rgb_array", reset_noise_scale=0.0)
    env.reset(seed=0)
    pictures: Any = env.render()
    options: dict[str, Any] = {"reset_noise_scale": 0.0, "camera_name": "track"}
    other: Any = gymnasium.make(CHEETAH, render_mode="rgb_array", **options)
    other.reset()
    np.testing.assert_array_equal(pictures[0], other.render())
    env.step(np.ones((2, 6), np.float32))
    later: Any = env.render()
    assert (later[0] != pictures[0]).any()
    env.close()
    other.close()


@pytest.mark.usefixtures("screenless")
def test_what_runs_stays_in_the_picture() -> None:
    env = rlcpu.make_vec(CHEETAH, 2, render_mode="rgb_array", reset_noise_scale=0.0)
    env.reset(seed=0)
    state = env.state
    state[1, 1] += 20.0  # m
    env.state = state
    for picture in env.render():  # the cheetah is what is neither black, grey nor greenish
        red = picture[..., 0].astype(int) - picture[..., 2] > 60
        assert red.mean() > 0.005
    env.close()


@pytest.mark.usefixtures("screenless")
def test_pictures_show_the_fields_that_vary() -> None:
    base: Any = rlcpu.envs.find(CHEETAH)
    lower = np.stack([base.model.body_pos] * 3)
    lower[1:, base.model.body("bthigh").id, 2] -= 0.3  # m
    dynamics = base.with_params(body_pos=lower)
    params = [dynamics.shown_params({"body_pos": each}) for each in lower]
    first, second, third = MuJoCoRenderer(dynamics, "rgb_array").render(
        np.zeros((3, dynamics.state_size)), params
    )
    assert (first != second).any()
    np.testing.assert_array_equal(second, third)


def test_a_single_environment() -> None:
    env: Any = gymnasium.make(f"rlcpu/{CHEETAH}", dtype="float64", max_episode_steps=5)
    many = rlcpu.make_vec(CHEETAH, 3, dtype="float64")
    many.reset(seed=10)
    seen, _ = env.reset(seed=11)
    np.testing.assert_array_equal(many.observe()[1], seen)
    for step in range(5):
        action = env.action_space.sample()
        seen, reward, terminated, truncated, infos = env.step(action)
        observations, rewards, *_ = many.step(np.stack([action] * 3))
        np.testing.assert_array_equal(observations[1], seen)
        assert (reward, terminated, truncated, infos) == (rewards[1], False, step == 4, {})
    assert env.unwrapped.state.shape == (many.dynamics.state_size,)


def test_the_check_of_environments_says_that_it_is_for_others() -> None:
    with pytest.raises(TypeError, match="is tried when it is made"):
        rlcpu.envs.check(CHEETAH)
    with pytest.raises(ValueError, match="HalfCheetah-v5"):
        rlcpu.make_vec("HalfCheeta-v5")

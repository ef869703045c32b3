"""Agents and the command line on MuJoCo's tasks: they share kernels with other agents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.train import PPO

pytest.importorskip("mujoco")

from tests.test_mujoco_pictures import screenless  # noqa: F401 - a fixture
from tests.test_mujoco_tasks import example


def test_the_example_of_the_page_learns(tmp_path: Path) -> None:
    agent = PPO(example(tmp_path)["upswing"], seed=0)
    history = agent.learn(65536)
    assert history.episode_return > 40.0


def test_an_agent_is_saved_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "hidden": (8, 8)}
    env = rlcpu.make_vec(
        "InvertedPendulum-v5", 4, reset_noise_scale=0.02, frame_skip=3, max_episode_steps=20
    )
    agent = PPO(env, seed=1, **options)
    agent.learn(128)
    agent.save(tmp_path / "agent.npz")
    other = PPO.load(tmp_path / "agent.npz")
    assert other.env.dynamics.params == env.dynamics.params
    assert other.env.dynamics.frame_skip == 3
    agent.learn(128)
    other.learn(128)
    np.testing.assert_array_equal(agent.policy.parameters, other.policy.parameters)
    np.testing.assert_array_equal(agent.env.state, other.env.state)


def test_an_agent_learns_from_float64_too() -> None:
    agent = PPO("HalfCheetah-v5", dtype="float64", num_envs=4, num_steps=16, hidden=(8, 8))
    assert agent.learn(128).steps == 128


@pytest.mark.usefixtures("screenless")
def test_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlcpu", "train", "InvertedPendulum-v5", "--steps", "4096"]
    command += ["--save", str(tmp_path / "agent.npz"), "--episodes", "2", "--target", "-1000"]
    command += ["--plot", str(tmp_path / "curve.png"), "--video", str(tmp_path / "film.gif")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"agent.npz", "curve.png", "film.gif"}

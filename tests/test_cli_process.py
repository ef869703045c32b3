"""The `rlcpu` command in processes of its own: a whole training run, and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib.image

import rlcpu
from rlcpu import cli_train


def run_module(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`python -W error -m rlcpu ...` in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "rlcpu", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_version(tmp_path: Path) -> None:
    result = run_module("--version", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"rlcpu {rlcpu.__version__}\n")


def test_train_end_to_end(tmp_path: Path) -> None:
    argv = ["train", "CartPole-v1", "--seed", "0", "--plot", "curve.png", "--save", "agent.npz"]
    result = run_module(*argv, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "solved" in result.stdout
    assert matplotlib.image.imread(tmp_path / "curve.png").shape[:2] == (600, 1050)
    agent = rlcpu.train.PPO.load(tmp_path / "agent.npz")
    assert agent.evaluate(num_episodes=100, seed=5).mean() >= 475.0


def test_too_few_steps_end_to_end(tmp_path: Path) -> None:
    result = run_module("train", "CartPole-v1", "--steps", "100", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (cli_train.EXIT_NOT_SOLVED, "")
    assert "not solved" in result.stdout

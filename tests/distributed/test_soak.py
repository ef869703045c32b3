"""Some seconds of `tests.distributed.soak`, in a process that starts a cluster of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_agents_learn_while_their_actors_are_killed():
    command = [sys.executable, "-m", "tests.distributed.soak", "--minutes", "0.3", "--period", "2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "CartPole-v1: " in ended.stdout
    assert "Pendulum-v1: " in ended.stdout

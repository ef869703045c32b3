"""Some seconds of `tests.distributed.soak`, in a process that starts a cluster of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray")

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_an_agent_learns_while_its_actors_are_killed():
    """SAC; DQN's machine and processes are killed in `test_ray.py`."""
    command = [sys.executable, "-m", "tests.distributed.soak", "--env", "Pendulum-v1"]
    command += ["--minutes", "0.1", "--period", "2"]
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as folder:  # other tests have clusters at the same time
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=1800,
        )
    said = (ended.stdout + ended.stderr).splitlines()  # Ray tells of each process that was killed
    assert ended.returncode == 0, "\n".join(each for each in said if "(raylet)" not in each)
    assert "Pendulum-v1: " in ended.stdout

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
def test_agents_learn_while_their_actors_are_killed():
    command = [sys.executable, "-m", "tests.distributed.soak", "--minutes", "0.3", "--period", "2"]
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
    assert "CartPole-v1: " in ended.stdout
    assert "Pendulum-v1: " in ended.stdout

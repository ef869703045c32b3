"""RLtools, of a checkout that the user names: SAC in C++, compiled and run as its authors do.

    RLTOOLS=~/rl-tools .venv-peers/bin/python -m asv_benches.peers agents --only rltools

Its benchmark program makes 10,000 steps of Pendulum with an update a step on one thread, networks
of 64-64 and batches of 100, and ends. OpenBLAS has to be installed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from asv_benches.peers.cpp import run_compiler
from asv_benches.peers.harness import Job

PROGRAM = "src/rl/environments/pendulum/sac/cpu/training.cpp"
FLAGS = ("-std=c++17", "-Ofast", "-march=native")
DEFINED = (
    *("RL_TOOLS_BACKEND_ENABLE_OPENBLAS", "BENCHMARK"),
    *("RL_TOOLS_DISABLE_TENSORBOARD", "RL_TOOLS_DISABLE_HDF5"),
)
STEPS = 10_000
#: Settings of ours that are the program's.
SAME: dict[str, Any] = {
    "num_envs": 1,
    "num_steps": 1,
    "num_updates": 1,
    "learning_starts": 100,
    "batch_size": 100,
    "hidden": (64, 64),
    "learning_rate": 1e-3,
}


def rltools_sac() -> Job:
    checkout = os.environ.get("RLTOOLS")
    if not checkout:
        raise ModuleNotFoundError("RLTOOLS names no checkout of rl-tools")
    source = Path(checkout).expanduser()
    folder = tempfile.TemporaryDirectory()
    program = Path(folder.name, "training")
    defined = [f"-D{name}" for name in DEFINED]
    paths = ["-I", str(source / "include"), str(source / PROGRAM), "-o", str(program)]
    run_compiler([*FLAGS, *defined, *paths, "-lopenblas", "-lpthread"])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}

    def train(kept: Any = folder) -> None:
        subprocess.run([program], env=environment, capture_output=True, check=True)

    return Job(train, work=STEPS)


def our_sac() -> Job:
    from rlcpu.train import SAC

    agent = SAC("Pendulum-v1", seed=0, num_threads=1, **SAME)
    agent.learn(STEPS)
    return Job(lambda: agent.learn(STEPS), work=STEPS)

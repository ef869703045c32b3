"""The table `train`: from start to solved, and from start to imported."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asv_benches.peers.harness import Effort, Measurement, Outcome
from asv_benches.peers.rows import Row
from asv_benches.peers.solve import SOLVED

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0
PEER, ZOO, DEFAULT = "stable-baselines3", "rlcpu-zoo", "rlcpu-default"


class Run(NamedTuple):
    """One training run.

    Attributes:
        process_s: duration of its process, in seconds.
        seconds: duration of the learning alone.
        steps: environment steps.
        episode_return: mean of the last 100 training episodes.
    """

    process_s: float
    seconds: float
    steps: int
    episode_return: float


def rows() -> list[Row]:
    """All rows; they start processes themselves."""
    row = partial(Row, unit="s", limit_s=None)
    zoo = "PPO, rl-zoo's settings, run time to solved"
    default = "PPO, default settings, process start to solved"
    learning, whole = (PEER, "seconds"), (PEER, "process_s")
    by_zoo = partial(to_solved, (ZOO, "seconds"), learning)
    by_default, process = (partial(to_solved, (DEFAULT, "process_s"), x) for x in (learning, whole))
    return [
        row("zoo", zoo, PEER, by_zoo, 15),
        row("default", default, PEER, by_default, 10),
        row("process", default, "its process", process),
        row("import", "import rlcpu", "import numba, gymnasium", import_time, 1.15, "time"),
    ]


def to_solved(mine: tuple[str, str], peers: tuple[str, str], effort: Effort) -> Measurement:
    """Compares the medians of one field over all runs; one that did not solve counts in full.

    Args:
        mine: agent and field of `Run`.
        peers: the same of the peer.
        effort: its number of seeds.
    """
    runs = training_runs(effort.seeds)
    ours, peer = (median(runs[agent], quantity) for agent, quantity in (mine, peers))
    ratio = None if isinstance(ours, str) or isinstance(peer, str) else peer / ours
    agents = (mine[0], peers[0])
    note = "; ".join(f"{agent}: {solved(runs[agent])}" for agent in agents)
    details = {agent: [run._asdict() for run in runs[agent]] for agent in agents}
    return Measurement(ours, peer, ratio, note=note, details=details)


def median(runs: list[Run | Outcome], quantity: str) -> float | str:
    """Of one field; or the status of the first run that failed."""
    failed = [run.status for run in runs if isinstance(run, Outcome)]
    return failed[0] if failed else float(np.median([getattr(run, quantity) for run in runs]))


def solved(runs: list[Run | Outcome]) -> str:
    """How many seeds solved, or why one failed."""
    failed = [run.detail for run in runs if isinstance(run, Outcome)]
    count = sum(run.episode_return >= SOLVED for run in runs if isinstance(run, Run))
    return failed[0] if failed else f"{count} of {len(runs)} seeds solved"


@functools.cache
def training_runs(seeds: int) -> dict[str, list[Run | Outcome]]:
    """Trains every agent with every seed, the agents in turn."""
    train_once(DEFAULT, 0)  # compiles what the cache lacks
    runs: dict[str, list[Run | Outcome]] = {PEER: [], ZOO: [], DEFAULT: []}
    for seed in range(seeds):
        for agent, of_agent in runs.items():
            of_agent.append(train_once(agent, seed))
    return runs


def train_once(agent: str, seed: int) -> Run | Outcome:
    """Runs `asv_benches.peers.solve` in a process of its own."""
    # stable-baselines3's networks are so small that a second thread makes PyTorch slower: 234 us an
    # environment step in place of 174.
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if agent == PEER else {})
    command = [sys.executable, "-m", "asv_benches.peers.solve", agent, str(seed)]
    begin = time.perf_counter()
    outcome = run_process(command, environment)
    process_s = time.perf_counter() - begin
    return outcome if outcome.status else Run(process_s, **outcome.value)


def run_process(command: list[str], environment: dict[str, str]) -> Outcome:
    """The JSON that a command prints last."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, "timed out", f"no answer within {LIMIT_S:g} s")
    if done.returncode == 0:
        return Outcome(json.loads(done.stdout.splitlines()[-1]))
    detail = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
    missing = detail.startswith("ModuleNotFoundError")
    return Outcome(None, "not installed" if missing else "failed", detail)


def import_time(effort: Effort) -> Measurement:
    """Times both imports in fresh processes, in turn, without the interpreter's own start."""
    statements = ("import rlcpu", "import numba, gymnasium")
    seconds = np.empty((effort.starts + 1, 2))
    for start, column in np.ndindex(seconds.shape):
        timed = f"t = time.perf_counter(); {statements[column]}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", f"import time; {timed}"]
        outcome = run_process(command, dict(os.environ))
        if outcome.status:
            return Measurement(outcome.status, "-", note=f"{statements[column]}: {outcome.detail}")
        seconds[start, column] = outcome.value
    seconds = seconds[1:]  # the first start writes the bytecode
    ours, peer = np.median(seconds, axis=0).tolist()
    low, ratio, high = np.percentile(seconds[:, 0] / seconds[:, 1], (25, 50, 75)).tolist()
    return Measurement(ours, peer, ratio, (low, high), f"{effort.starts} processes each")

"""The table `train`: from start to solved, and from start to imported.

CartPole-v1 counts as solved when the last 100 training episodes return 475 on average.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.agents import PEER, stable_ppo_agent
from asv_benches.peers.harness import Effort, Measurement, Outcome, isolated
from asv_benches.peers.rows import Row

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0
ZOO, DEFAULT, COLD = "rlcpu-zoo", "rlcpu-default", "rlcpu-cold"
SOLVED, EPISODES, TOTAL_STEPS = 475.0, 100, 100_000


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
    """All rows; those of training start processes themselves."""
    row = partial(Row, unit="s", limit_s=None)
    zoo = "PPO, rl-zoo's settings, run time to solved"
    default = "PPO, default settings, process start to solved"
    learning, whole = (PEER, "seconds"), (PEER, "process_s")
    by_zoo = partial(to_solved, (ZOO, "seconds"), learning)
    by_default, process = (partial(to_solved, (DEFAULT, "process_s"), x) for x in (learning, whole))
    cold = partial(to_solved, (COLD, "process_s"), whole)
    imports = "import rlcpu", "import numba, gymnasium"
    return [
        row("zoo", zoo, PEER, by_zoo, 15),
        row("default", default, PEER, by_default, 10),
        row("process", default, "its process", process),
        row("cold", "PPO, default settings, first process on a machine", "its process", cold),
        row("import", *imports, partial(import_time, imports), 1.15, "time", limit_s=LIMIT_S),
    ]


# ---------------------------------------------------------------- to solved


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
    runs: dict[str, list[Run | Outcome]] = {PEER: [], ZOO: [], DEFAULT: [], COLD: []}
    for seed in range(seeds):
        for agent, of_agent in runs.items():
            if agent != COLD or seed == 0:  # compiling, most of it, does not depend on the seed
                of_agent.append(train_once(agent, seed))
    return runs


def train_once(agent: str, seed: int) -> Run | Outcome:
    """One run in a process of its own."""
    functions = {PEER: learn_theirs, ZOO: learn_zoo, DEFAULT: learn_default, COLD: learn_cold}
    begin = time.perf_counter()
    outcome = isolated(functions[agent], seed, limit_s=LIMIT_S)
    process_s = time.perf_counter() - begin
    return outcome if outcome.status else Run(process_s, *outcome.value)


def learn_theirs(seed: int) -> tuple[float, int, float]:
    """stable-baselines3's PPO with the rl-zoo's settings; seconds, steps, return."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    from rlcpu.train.ppo import ZOO_CARTPOLE

    returns: deque[float] = deque(maxlen=EPISODES)

    class StopWhenSolved(BaseCallback):
        def _on_step(self) -> bool:
            infos = self.locals["infos"]
            returns.extend(info["episode"]["r"] for info in infos if "episode" in info)
            return len(returns) < EPISODES or float(np.mean(returns)) < SOLVED

    config = ZOO_CARTPOLE
    env = make_vec_env("CartPole-v1", config.num_envs, seed=seed)
    agent = stable_ppo_agent(env, config, seed)
    begin = time.perf_counter()
    agent.learn(TOTAL_STEPS, callback=StopWhenSolved())
    return time.perf_counter() - begin, agent.num_timesteps, float(np.mean(returns))


def learn_zoo(seed: int) -> tuple[float, int, float]:
    """Ours with the same settings, compiled before."""
    from rlcpu.train import PPO
    from rlcpu.train.ppo import ZOO_CARTPOLE

    PPO("CartPole-v1", seed=seed, config=ZOO_CARTPOLE).learn(2 * 8 * 32)
    return learn(PPO("CartPole-v1", seed=seed, config=ZOO_CARTPOLE), TOTAL_STEPS)


def learn_default(seed: int) -> tuple[float, int, float]:
    """Ours with its default settings, no warm-up: the process's duration is the figure."""
    from rlcpu.train import PPO

    return learn(PPO("CartPole-v1", seed=seed), 10 * TOTAL_STEPS)


def learn_cold(seed: int) -> tuple[float, int, float]:
    """The same where no kernel is kept yet: the process compiles all that it needs."""
    import numba

    with tempfile.TemporaryDirectory() as folder:
        numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder
        return learn_default(seed)


def learn(agent: Any, total_steps: int) -> tuple[float, int, float]:
    """Learns until solved by the rule that the peer is stopped by.

    `target_return` would be stricter: it asks for 100 greedy episodes on top.
    """

    def unsolved(progress: Any) -> bool:
        return progress.episodes < EPISODES or progress.episode_return < SOLVED

    begin = time.perf_counter()
    history = agent.learn(total_steps, callback=unsolved)
    return time.perf_counter() - begin, history.steps, history.episode_return


# ---------------------------------------------------------------- to imported


def import_time(statements: tuple[str, str], effort: Effort) -> Measurement:
    """Times both in fresh processes, in turn, without the interpreter's own start."""
    seconds = np.empty((effort.starts + 1, 2))
    for start, column in np.ndindex(seconds.shape):
        timed = f"t = time.perf_counter(); {statements[column]}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", f"import time; {timed}"]
        seconds[start, column] = float(subprocess.check_output(command, cwd=ROOT, text=True))
    seconds = seconds[1:]  # the first start writes the bytecode
    ours, peer = np.median(seconds, axis=0).tolist()
    low, ratio, high = np.percentile(seconds[:, 0] / seconds[:, 1], (25, 50, 75)).tolist()
    return Measurement(ours, peer, ratio, (low, high), f"{effort.starts} processes each")

"""Agents learn while their collectors and shards are killed again and again.

Half an hour of it: `python -m tests.distributed.soak --minutes 30 --period 20`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

#: How the processes of actors are called.
TITLES = "ray::Collector", "ray::RolloutCollector", "ray::ReplayShard"
#: Kills at least. However busy the machine is, learning goes on until there were so many.
LEAST = 3
#: Seconds between two evaluations.
LOOK = 3.0
#: Updates between two kills at least.
UPDATES = 100


class Killer(threading.Thread):
    """Kills a random actor of this process's cluster, or two, again and again until it is stopped.

    However slow the machine is, the learner makes some updates between two kills: restarts that
    take longer than the period would never come to their end, and shards would hold next to
    nothing.
    """

    def __init__(self, agent: Any, period: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.agent, self.period, self.rng = agent, period, np.random.default_rng(seed)
        self.killed: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        before = 0
        while not self.done.wait(self.period * self.rng.uniform(0.5, 1.5)):
            if self.agent.num_updates > before + UPDATES:
                before = self.agent.num_updates
                found = actors()
                count = min(len(found), 2 if self.rng.random() < 0.2 else 1)
                for i in self.rng.permutation(len(found))[:count]:
                    self.kill(found[i])

    def kill(self, process: psutil.Process) -> None:
        try:
            name = process.cmdline()[0]
            os.kill(process.pid, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError, IndexError):
            return
        self.killed.append(name)


def actors() -> list[psutil.Process]:
    """Processes of collectors and shards that this process's cluster has."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = process.cmdline()
        except psutil.Error:
            continue
        if title and title[0].startswith(TITLES):
            found.append(process)
    return found


def remains() -> set[str]:
    """Name the processes and folders that a cluster of this process could leave behind.

    Another process's clusters have their folders beside ours, unless TMPDIR is ours alone.
    """
    remaining = {each for each in os.listdir(tempfile.gettempdir()) if "rlcpu-ray" in each}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                remaining.add(f"{process.pid} {process.name()}")
    return remaining


def soak(agent: Any, seconds: float, period: float, target: float, folder: Path) -> Killer:
    """Learn for so many seconds, and until the agent was killed at often enough and has learnt.

    Raises:
        AssertionError: a transition is missing, or something is left behind.
    """
    before = remains()
    killer = Killer(agent, period, seed=0)
    next_look = time.monotonic() + seconds

    def go_on(progress: Any) -> bool:
        nonlocal next_look
        now = time.monotonic()
        if now < next_look or len(killer.killed) < LEAST:
            return True
        next_look = now + LOOK
        return bool(agent.evaluate(20).mean() < target)

    killer.start()
    try:
        agent.learn(10**9, num_collectors=2, num_shards=2, replay_folder=folder, callback=go_on)
    finally:
        killer.done.set()
        killer.join()
    ledger = agent.ledger
    ledger.check()
    assert ledger.on_the_way == 0, ledger
    assert ledger.sampled == agent.num_updates * agent.config.batch_size, ledger
    assert ledger.collector_restarts + ledger.shard_restarts > 0, ledger
    end = time.monotonic() + 30.0
    while remains() - before and time.monotonic() < end:  # they were told to end
        time.sleep(0.1)
    assert remains() <= before, remains() - before
    return killer


def main() -> None:
    from rlcpu.train import DQN, SAC

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of all environments together")
    parser.add_argument("--period", type=float, default=20.0, help="seconds between two kills")
    cases = {"CartPole-v1": (DQN, 150.0), "Pendulum-v1": (SAC, -300.0)}
    parser.add_argument("--env", nargs="+", choices=cases, default=list(cases))
    args = parser.parse_args()
    for env in args.env:
        kind, target = cases[env]
        agent: Any = kind(env, seed=0)
        seconds = 60.0 * args.minutes / len(args.env)
        with tempfile.TemporaryDirectory() as folder:
            killer = soak(agent, seconds, args.period, target, Path(folder))
        print(f"{env}: {agent.evaluate().mean():.1f} after {len(killer.killed)} kills")
        print(agent.ledger, flush=True)


if __name__ == "__main__":
    main()

"""An agent learns while its collectors and shards are killed again and again.

Half an hour of it: `python -m tests.distributed.soak --seconds 1800 --period 20`.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil

#: How the processes of actors are called.
TITLES = "ray::Collector", "ray::RolloutCollector", "ray::ReplayShard"


class Killer(threading.Thread):
    """Kills a random actor of this process's cluster, again and again, until it is stopped."""

    def __init__(self, period: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.period, self.rng = period, np.random.default_rng(seed)
        self.killed: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(self.period):
            found = actors()
            if found:
                process = found[self.rng.integers(len(found))]
                try:
                    name = process.cmdline()[0]
                    os.kill(process.pid, signal.SIGKILL)
                except (psutil.Error, ProcessLookupError, IndexError):
                    continue
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


def soak(agent: Any, seconds: float, period: float, seed: int = 0) -> tuple[Any, Killer]:
    """Learn for so many seconds beside a killer; returns the ledger and the killer."""
    killer, end = Killer(period, seed), time.monotonic() + seconds
    killer.start()
    try:
        agent.learn(
            10**9,
            num_collectors=2,
            num_shards=2,
            callback=lambda progress: time.monotonic() < end,
        )
    finally:
        killer.done.set()
        killer.join()
    agent.ledger.check()
    return agent.ledger, killer


def main() -> None:
    from rlcpu.train import DQN, SAC

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--period", type=float, default=20.0)
    args = parser.parse_args()
    for kind, env in ((DQN, "CartPole-v1"), (SAC, "Pendulum-v1")):
        agent: Any = kind(env, seed=0)
        ledger, killer = soak(agent, args.seconds / 2, args.period)
        print(f"{env}: {agent.evaluate().mean():.1f} after {len(killer.killed)} kills")
        print(ledger)


if __name__ == "__main__":
    main()

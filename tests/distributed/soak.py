"""An agent learns while its collectors and shards are killed again and again.

Half an hour of it: `python -m tests.distributed.soak --minutes 30 --period 20`.
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

    def __init__(self, period: float, seed: int, most: float) -> None:
        super().__init__(daemon=True)
        self.most = most
        self.period, self.rng = period, np.random.default_rng(seed)
        self.killed: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        while len(self.killed) < self.most and not self.done.wait(self.period):
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


def soak(
    agent: Any,
    seconds: float,
    period: float,
    seed: int = 0,
    most: float = float("inf"),
    callback: Any = None,
) -> Killer:
    """Learn for so many seconds, or until the callback returns False, beside `most` kills."""
    killer, end = Killer(period, seed, most), time.monotonic() + seconds

    def go_on(progress: Any) -> bool:
        goes_on = callback is None or callback(progress) is not False
        return goes_on and time.monotonic() < end

    killer.start()
    try:
        agent.learn(10**9, num_collectors=2, num_shards=2, callback=go_on)
    finally:
        killer.done.set()
        killer.join()
    agent.ledger.check()
    return killer


def main() -> None:
    from rlcpu.train import DQN, SAC

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of both environments together")
    parser.add_argument("--period", type=float, default=20.0, help="seconds between two kills")
    args = parser.parse_args()
    for kind, env in ((DQN, "CartPole-v1"), (SAC, "Pendulum-v1")):
        agent: Any = kind(env, seed=0)
        killer = soak(agent, 30.0 * args.minutes, args.period)
        print(f"{env}: {agent.evaluate().mean():.1f} after {len(killer.killed)} kills")
        print(agent.ledger)


if __name__ == "__main__":
    main()

"""Contenders, and their interleaved timing.

Two timings taken one after the other on a shared machine differ by more than most optimisations. So
the contenders alternate: every round gives one ratio, and the median of those is the figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

Clock = Callable[[], float]

# OpenMP's idle threads spin for 3 to 5 ms after a parallel region and would take a core from the
# next contender; the pause outlasts them.
PAUSE_S = 0.02


class Effort(NamedTuple):
    """How long to measure.

    Attributes:
        rounds: repetitions of every contender.
        burst_s: least duration of one repetition, in seconds.
        seeds: training runs of every agent.
        starts: fresh processes for an import time.
    """

    rounds: int
    burst_s: float
    seeds: int
    starts: int


FULL = Effort(rounds=15, burst_s=0.05, seeds=10, starts=15)
REPORT = Effort(rounds=9, burst_s=0.04, seeds=3, starts=7)  # every table in half an hour
QUICK = Effort(rounds=3, burst_s=0.01, seeds=2, starts=3)


class Contender(Protocol):
    """One way to do the job. Cheap and picklable until `setup`, which runs where it is timed."""

    name: str

    @property
    def work(self) -> float:
        """Units of work (environment steps, or operations) in one item of `inputs`."""

    def setup(self) -> None:
        """Imports, allocates, compiles. Raises ModuleNotFoundError where it is not installed."""

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[Any]:
        """Fresh random inputs of `count` calls. Not timed."""

    def run(self, inputs: Iterable[Any]) -> None:
        """One call for each input. Timed."""


def seconds_per_unit(
    contender: Contender, rng: np.random.Generator, count: int, clock: Clock = time.perf_counter
) -> float:
    """Times one repetition of `count` calls on fresh inputs, in seconds per unit of work."""
    inputs = contender.inputs(rng, count)
    begin = clock()
    contender.run(inputs)
    return (clock() - begin) / (count * contender.work)


def calibrate(
    contender: Contender, rng: np.random.Generator, burst_s: float, clock: Clock = time.perf_counter
) -> int:
    """The number of calls that lasts at least `burst_s`; its trial runs are the warm-up."""
    seconds_per_unit(contender, rng, 2, clock)
    count = 1
    while True:
        seconds = seconds_per_unit(contender, rng, count, clock) * count * contender.work
        if seconds >= burst_s:
            return count
        # At most eightfold: a first timing that was disturbed must not decide.
        count *= min(8, max(2, int(np.ceil(burst_s / max(seconds, 1e-9)))))


def interleave(
    contenders: Sequence[Contender],
    effort: Effort,
    *,
    seed: int = 0,
    clock: Clock = time.perf_counter,
    pause_s: float = PAUSE_S,
) -> np.ndarray:
    """Times every contender once per round, a different one first each round.

    Returns:
        (rounds, contenders) float64 seconds per unit of work.
    """
    rng = np.random.default_rng(seed)
    counts = [calibrate(contender, rng, effort.burst_s, clock) for contender in contenders]
    seconds = np.empty((effort.rounds, len(contenders)))
    for round_ in range(effort.rounds):
        for turn in range(len(contenders)):
            index = (round_ + turn) % len(contenders)
            time.sleep(pause_s)
            seconds[round_, index] = seconds_per_unit(contenders[index], rng, counts[index], clock)
    return seconds

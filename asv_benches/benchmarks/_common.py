"""What the benchmarks share: they must also run on commits that lack what they measure."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asv_benches.peers.harness import Job, calibrate, seconds_per_unit

BURST_S = 0.01  # of calls that are timed together: the clock's own 50 ns are nothing in it
BURSTS_S = 0.4  # of bursts
MILESTONE_S = 1.5  # of repetitions of one call


class Quick:
    """Settings of asv: one process for each set of parameters, about half a second in it."""

    version = "3"
    rounds = 1
    repeat = (3, 10, 0.6)
    warmup_time = 0.05
    timeout = 180


def require(path: str) -> Any:
    """The object `package.module.name`; a benchmark without it has nothing to measure.

    Raises:
        NotImplementedError: this commit has none, which asv shows as "n/a".
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NotImplementedError(f"no {path} in this commit") from error


def milestone(make: Callable[[], Job]) -> Callable[[Any], float]:
    """A `track_` method: the seconds of the fastest of many calls of a job.

    Old commits are measured when there is time, on machines that others use too, where asv's
    medians of ten samples move by half. NaN, which is "n/a", where the commit lacks something.
    """

    def track(self: Any) -> float:
        try:
            return fastest(make(), 0.0, MILESTONE_S)
        except (NotImplementedError, ImportError, AttributeError):
            return float("nan")

    track.unit = "seconds"  # type: ignore[attr-defined]
    return track


def fastest(job: Job, burst_s: float, seconds: float) -> float:
    """Seconds of one call, in the fastest of three or more bursts: the minimum survives company.

    Args:
        job: calibrated first, which compiles.
        burst_s: least duration of a burst.
        seconds: of all bursts, about, with making their inputs.
    """
    rng = np.random.default_rng(0)
    count = calibrate(job, rng, burst_s)
    end, bursts = time.perf_counter() + seconds, []
    while len(bursts) < 3 or time.perf_counter() < end:
        bursts.append(seconds_per_unit(job, rng, count))
    return min(bursts) * job.work

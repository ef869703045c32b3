"""What the benchmarks share: they must also run on commits that lack what they measure."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from typing import Any

SECONDS = 1.5  # of repetitions of one call


class Quick:
    """Settings of asv: one process for each set of parameters, about half a second in it.

    The minimum of ten samples is what survives a shared machine; asv shows their median, which the
    ten make steady enough to compare within a few per cent.
    """

    version = "2"
    rounds = 1
    repeat = (3, 10, 0.6)
    warmup_time = 0.05
    sample_time = 0.01
    timeout = 180


class Milestone(Quick):
    """Settings of the benchmarks of the history, which track seconds."""

    version = "3"
    unit = "seconds"


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


def figure(track: Callable[[Any], float]) -> Callable[[Any], float]:
    """A `track_` method that is "n/a" where `require` fails in it, as it is where `setup` does."""

    @functools.wraps(track)
    def track_or_nothing(self: Any) -> float:
        try:
            return track(self)
        except NotImplementedError:
            return float("nan")

    return track_or_nothing


def fastest(call: Callable[[], Any]) -> float:
    """The duration of the fastest of many calls, in seconds; the first one compiles."""
    call()
    best = float("inf")
    end = time.perf_counter() + SECONDS
    while (begin := time.perf_counter()) < end:
        call()
        best = min(best, time.perf_counter() - begin)
    return best

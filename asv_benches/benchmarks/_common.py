"""What the benchmarks share: they must also run on commits that lack what they measure."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from typing import Any

SECONDS = 1.5  # of repetitions of one call
BURST_S = 0.01  # of calls that are timed together: the clock's own 50 ns are nothing in it
BURSTS_S = 0.4  # of bursts


class Quick:
    """Settings of asv: one process for each set of parameters, about half a second in it.

    A `time_` method is for what needs a `setup` of its own: asv runs it again before each call, so
    that the caches are cold, and a buffer of ten million filled ten times. All others are `timed`.
    """

    version = "3"
    rounds = 1
    repeat = (3, 10, 0.6)
    warmup_time = 0.05
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


def timed(call: Callable[..., None]) -> Callable[..., float]:
    """A `track_` method: the seconds of one call of what it decorates, after one that compiles."""

    @functools.wraps(call)
    def track(self: Any, *parameters: Any) -> float:
        return fastest_burst(lambda: call(self, *parameters))

    track.unit = "seconds"  # type: ignore[attr-defined]
    return track


def fastest_burst(call: Callable[[], Any]) -> float:
    """Seconds of one call, in the fastest of three or more bursts: the minimum survives company."""
    call()
    number = 1
    while (seconds := burst(call, number)) < BURST_S:
        number *= 2 if seconds > BURST_S / 16 else 8
    end = time.perf_counter() + BURSTS_S
    bursts = [burst(call, number) for _ in range(3)]
    while time.perf_counter() < end:
        bursts.append(burst(call, number))
    return min(bursts) / number


def burst(call: Callable[[], Any], number: int) -> float:
    """Seconds that `number` calls take."""
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - begin


def fastest(call: Callable[[], Any]) -> float:
    """The duration of the fastest of many calls, in seconds; the first one compiles."""
    call()
    best = float("inf")
    end = time.perf_counter() + SECONDS
    while (begin := time.perf_counter()) < end:
        call()
        best = min(best, time.perf_counter() - begin)
    return best

"""What the benchmarks share: they must also run on commits that lack what they measure."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from typing import Any

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


def benchmark(
    *names: str, timeout: float = 180, **params: list[Any]
) -> Callable[[Callable[..., Any]], type[Quick]]:
    """A class of asv, of a function that prepares what is timed.

    Args:
        names: of its `track_` methods, each the seconds of one call after one that compiles.
        timeout: in seconds.
        params: the function's parameters, and their values. It returns one call for each name.
    """

    def track(name: str) -> Callable[..., float]:
        def seconds(self: Any, *values: Any) -> float:
            return fastest(self.calls[name], BURST_S, BURSTS_S)

        seconds.unit = "seconds"  # type: ignore[attr-defined]
        return seconds

    def decorate(prepare: Callable[..., Any]) -> type[Quick]:
        def setup(self: Any, *values: Any) -> None:
            calls = prepare(*values)
            self.calls = dict(
                zip(names, calls if isinstance(calls, tuple) else (calls,), strict=True)
            )

        body = {"__doc__": prepare.__doc__, "__module__": prepare.__module__, "setup": setup}
        body |= {"timeout": timeout, "params": [*params.values()], "param_names": [*params]}
        return type(prepare.__name__, (Quick,), body | {f"track_{n}": track(n) for n in names})

    return decorate


def milestone(prepare: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], float]:
    """A `track_` method: the seconds of the fastest of many calls of what `prepare` returns.

    Old commits are measured when there is time, on machines that others use too, where asv's
    medians of ten samples move by half. NaN, which is "n/a", where `require` fails.
    """

    @functools.wraps(prepare)
    def track(self: Any) -> float:
        try:
            return fastest(prepare(self), 0.0, MILESTONE_S)
        except NotImplementedError:
            return float("nan")

    track.unit = "seconds"  # type: ignore[attr-defined]
    return track


def fastest(call: Callable[[], Any], burst_s: float, seconds: float) -> float:
    """Seconds of one call, in the fastest of three or more bursts: the minimum survives company.

    Args:
        call: called once before the clock starts.
        burst_s: least duration of a burst.
        seconds: of all bursts, about.
    """
    call()
    number = 1
    while (lasted := burst(call, number)) < burst_s:
        number *= 2 if lasted > burst_s / 16 else 8
    end = time.perf_counter() + seconds
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

"""Time on a GPU, and what the card can do."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Sizes(NamedTuple):
    """How much to measure.

    Attributes:
        burst_s: least duration of one repetition, in seconds.
        rounds: repetitions, of which the median counts.
        envs: numbers of environments of the largest step, of long simulations, of rollouts.
        steps: of long simulations and of rollouts.
        grid: exponents of two of the numbers of environments, and steps, of Figures 4 and 8.
        factors: pairs (S, C) of Figure 9.
        system: number of tridiagonal systems, and their size.
        leaves: of the sum tree; batch: of its updates and samples.
        copy_bytes: of the copy that measures the bandwidth.
    """

    burst_s: float
    rounds: int
    envs: tuple[int, int, int]
    steps: tuple[int, int]
    grid: tuple[tuple[int, ...], tuple[int, ...]]
    factors: tuple[tuple[int, int], ...]
    system: tuple[int, int]
    leaves: int
    batch: int
    copy_bytes: int


class Card(NamedTuple):
    """A device, its name and what it was measured to do.

    Attributes:
        name: such as "NVIDIA H100 80GB HBM3".
        bandwidth: bytes per second of a copy, read and written ones counted.
        flops: float32 multiplications and additions per second.
        sizes: how everything else is measured.
    """

    name: str
    bandwidth: float
    flops: float
    sizes: Sizes


@dataclasses.dataclass
class Figure:
    """What was measured of one row.

    Attributes:
        seconds: of one call.
        rate: units of work per second.
        share: of the card's limit; share_of: which limit.
        ratios: speed-up over each peer.
        note: why there is no figure, or which peers are missing.
    """

    seconds: float | None = None
    rate: float | None = None
    share: float | None = None
    share_of: str = "copy bandwidth"
    ratios: dict[str, float] = dataclasses.field(default_factory=dict)
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def seconds_per_call(call: Callable[[], Any], sizes: Sizes) -> float:
    """Median seconds of a call that is repeated until a burst lasts long enough."""
    from rlcpu.cuda import synchronize

    def burst(count: int) -> float:
        synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        synchronize()
        return time.perf_counter() - begin

    burst(2)  # compiles, and fills the pools
    count, seconds = 1, burst(1)
    while seconds < sizes.burst_s and count < 10_000:
        count *= min(8, max(2, int(sizes.burst_s / max(seconds, 1e-9)) + 1))
        seconds = burst(count)
    return statistics.median(burst(count) / count for _ in range(sizes.rounds))


def measure_card(sizes: Sizes) -> Card:
    """The present device."""
    from rlcpu.cuda import provider

    name = "simulator" if provider.SIMULATED else provider.device_name()
    return Card(name, _bandwidth(sizes), _flops(sizes), sizes)


def _bandwidth(sizes: Sizes) -> float:
    from rlcpu.cuda.arrays import empty

    source, target = (empty(sizes.copy_bytes // 4, np.float32) for _ in range(2))
    seconds = seconds_per_call(lambda: target.memory.copy_to_device(source.memory), sizes)
    return 2.0 * sizes.copy_bytes / seconds


def _flops(sizes: Sizes) -> float:
    """Eight chains of multiply-adds in every thread: enough to hide their latency."""
    from rlcpu.cuda import provider
    from rlcpu.cuda.arrays import zeros
    from rlcpu.cuda.compile import kernel
    from rlcpu.cuda.launch import launch
    from rlcpu.kernels.compile import define

    chains, steps, threads = (
        8,
        8 if provider.SIMULATED else 4096,
        2**2 if provider.SIMULATED else 2**20,
    )
    start = "".join(f"\n    a{k} = values[i] + f32({k})" for k in range(chains))
    body = "".join(f"\n        a{k} = a{k} * scale + shift" for k in range(chains))
    total = " + ".join(f"a{k}" for k in range(chains))
    source = (
        f"def multiply(values, scale, shift, steps):\n    i = cuda.grid(1){start}\n"
        f"    for step in range(steps):{body}\n    values[i] = {total}"
    )
    driver = kernel(define(source, cuda=provider.cuda, f32=np.float32))
    values, scale, shift = zeros(threads, np.float32), np.float32(0.5), np.float32(1.0)
    seconds = seconds_per_call(lambda: launch(driver, threads, values, scale, shift, steps), sizes)
    return 2.0 * chains * steps * threads / seconds

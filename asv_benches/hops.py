"""What a call to a shard in another process costs, as a model of latency and bandwidth.

`python -m asv_benches.hops` measures adding and drawing items through one call of an actor, and the
same in this process. It fits the model, draws docs/hops.svg, and measures how long a shard that was
killed takes until it serves again.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers import pictures

PICTURE = Path(__file__).parents[1] / "docs" / "hops.svg"
#: Bytes of an item, and items of a call.
ITEM_BYTES = 1024
COUNTS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
#: Items of a shard, and measurements of each size.
CAPACITY, ROUNDS = 65_536, 21
EXAMPLE = {"x": np.zeros(ITEM_BYTES // 4, np.float32)}


#: Bytes up to which Ray sends a value with the call; larger ones go through the object store.
INLINE = 100 * 1024


class Cost(NamedTuple):
    """Seconds of a call: `latency + num_bytes / bandwidth`, and `store` beyond `INLINE` bytes."""

    latency: float
    store: float
    bandwidth: float

    def __call__(self, num_bytes: float) -> float:
        return self.latency + (num_bytes > INLINE) * self.store + num_bytes / self.bandwidth

    def __str__(self) -> str:
        fixed = f"{1e3 * self.latency:.1f} ms (+ {1e3 * self.store:.1f} ms in the store)"
        return f"{fixed} + bytes / ({self.bandwidth / 1e9:.1f} GB/s)"


def fit(points: dict[float, float]) -> Cost:
    """The cost with the smallest sum of squared relative errors to (bytes: seconds)."""
    sizes, seconds = (np.array(values, float) for values in zip(*points.items(), strict=True))
    terms = np.stack([np.ones(len(sizes)), sizes > INLINE, sizes], axis=1)
    (latency, store, per_byte), *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(sizes)))
    return Cost(float(latency), float(store), float(1.0 / per_byte))


def measure(shard: Any) -> dict[str, dict[float, float]]:
    """Median seconds of adding and of drawing, by bytes; `shard` is a `Remote`."""
    life, number = shard.revive().life, 0
    blocks = {count: {"x": np.zeros((count, ITEM_BYTES // 4), np.float32)} for count in COUNTS}
    seconds: dict[str, dict[float, list[float]]] = {"add": {}, "draw": {}}
    for _ in range(ROUNDS):
        for count in COUNTS:
            begin = time.perf_counter()
            shard.result(shard.call("add", life, number, blocks[count]))
            middle = time.perf_counter()
            number += 1
            drawn = shard.result(shard.call("sample", count)[1])
            np.concatenate(drawn.leaves)  # a batch is a copy, wherever it comes from
            end = time.perf_counter()
            seconds["add"].setdefault(count * ITEM_BYTES, []).append(middle - begin)
            seconds["draw"].setdefault(count * ITEM_BYTES, []).append(end - middle)
    return {
        name: {size: float(np.median(found)) for size, found in of_size.items()}
        for name, of_size in seconds.items()
    }


class Here:
    """A shard of this process, called as those of others are."""

    def __init__(self, shard: Any) -> None:
        self.shard = shard

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.shard, method)(*arguments)

    def result(self, call: Any) -> Any:
        return call

    def revive(self) -> Any:
        return self.shard.status()


def restarts(cluster: Any, count: int) -> Iterator[tuple[float, float]]:
    """Seconds from a kill to the new process's constructor, and from there to the first batch."""
    from rlcpu.distributed import ReplayShard, ShardedReplay
    from rlcpu.replay import PrioritizedReplayBuffer
    from rlcpu.replay.structure import TransitionStructure

    with tempfile.TemporaryDirectory() as folder:
        options = {"capacity": CAPACITY, "example": EXAMPLE}
        shard = cluster.start(ReplayShard, PrioritizedReplayBuffer, options, folder=folder)
        replay = ShardedReplay([shard], TransitionStructure(EXAMPLE), prefetch=0)
        replay.add({"x": np.zeros((CAPACITY, ITEM_BYTES // 4), np.float32)})
        replay.take_answers(wait=True)
        replay.save()
        for _ in range(count):
            replay.sample(256)
            begin = time.time()
            cluster.ray.kill(shard._handle, no_restart=False)
            replay.sample(256)
            end = time.time()
            born = shard.revive().life / 1e9
            yield born - begin, end - born


def main() -> None:
    from rlcpu.distributed import Cluster, ReplayShard
    from rlcpu.replay import PrioritizedReplayBuffer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=7)
    args = parser.parse_args()
    options = {"capacity": CAPACITY, "example": EXAMPLE}
    here = measure(Here(ReplayShard(PrioritizedReplayBuffer, options)))
    with Cluster(2) as cluster:
        actor = cluster.start(ReplayShard, PrioritizedReplayBuffer, options)
        there = measure(actor)
        again = np.median(list(restarts(cluster, args.restarts)), axis=0)
    print(f"killed to constructed {again[0]:.2f} s, constructed to first batch {again[1]:.2f} s")
    show(there, here)


def show(there: dict[str, dict[float, float]], here: dict[str, dict[float, float]]) -> None:
    """Print models and points, and draw them."""
    lines, models = {}, {}
    for name, points in there.items():
        cost = fit(points)
        lines |= {f"rlcpu: {name}, a call": points, f"{name} in one process": here[name]}
        models[f"{name}: {cost}"] = {size: cost(size) for size in points}
        print(f"{name}: {cost}")
        for size, each in points.items():
            print(
                f"  {size:>12,} bytes: {1e3 * each:8.2f} ms, here {1e3 * here[name][size]:8.2f} ms"
            )
    axes = "bytes of a call", "seconds", 2
    _, _, coded = pictures.curves(lines, axes, models).partition(",")  # of a URL
    PICTURE.write_bytes(base64.b64decode(coded))


if __name__ == "__main__":
    main()

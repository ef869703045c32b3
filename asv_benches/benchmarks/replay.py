"""Storing and sampling."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from ._common import benchmark, require

CAPACITIES = [10**4, 10**5, 10**6, 10**7]
SIZES = [32, 1024, 65_536]
POOL = 64  # inputs in turn: the branch predictor learns a single one by heart
CHUNK = 10_000  # items per call, to fill a buffer


def transitions(count: int) -> dict[str, Any]:
    """Transitions of 44 bytes: ten million of them fit into memory."""
    return {
        "observation": np.ones((count, 4), np.float32),
        "next_observation": np.ones((count, 4), np.float32),
        "action": np.zeros(count, np.int32),
        "reward": np.ones(count, np.float32),
        "weight": np.ones(count, np.float32),
    }


def example() -> dict[str, Any]:
    """One of them."""
    return {name: array[0] for name, array in transitions(1).items()}


def time_steps() -> dict[str, Any]:
    """25 of each of 16 environments."""
    return {name: x.reshape(25, 16, *x.shape[1:]) for name, x in transitions(400).items()}


def fill(buffer: Any, capacity: int) -> Any:
    """The buffer, full."""
    batch = transitions(CHUNK)
    for _ in range(capacity // CHUNK):
        buffer.add(batch)
    return buffer


@benchmark("update", "sample", capacity=CAPACITIES, size=SIZES)
def Tree(capacity, size):
    """A sum tree alone; priorities of random leaves."""
    rng = np.random.default_rng(0)
    tree = require("rlcpu.replay.SumTree")(capacity, seed=0)
    tree.update(np.arange(capacity), rng.random(capacity))
    pairs = zip(rng.integers(0, capacity, (POOL, size)), rng.random((POOL, size)), strict=True)
    turns = itertools.cycle(list(pairs))
    return lambda: tree.update(*next(turns)), partial(tree.sample, size)


@benchmark("add", "sample", capacity=[10**4, 10**6, 10**7], size=SIZES, threads=[1, 2])
def Uniform(capacity, size, threads):
    """`ReplayBuffer`; samples into the same batch again."""
    if size > capacity:
        raise NotImplementedError("a batch larger than the buffer")
    make = require("rlcpu.replay.ReplayBuffer")
    buffer = fill(make(capacity, example(), seed=0, num_threads=threads), capacity)
    batch = transitions(size)
    buffer.add(batch)
    return partial(buffer.add, batch), partial(buffer.sample, size, out=buffer.sample(size))


@benchmark("sample_and_update", capacity=CAPACITIES, size=[32, 1024])
def Prioritized(capacity, size):
    """`PrioritizedReplayBuffer`: what a learner does with a batch."""
    make = require("rlcpu.replay.PrioritizedReplayBuffer")
    buffer = fill(make(capacity, example(), seed=0), capacity)
    errors, out = np.random.default_rng(0).random(size), buffer.sample(size)
    return lambda: buffer.update_priorities(buffer.sample(size, out=out).indices, errors)


@benchmark(
    *("add", "sample"),
    kind=["TrajectoryBuffer", "PrioritizedTrajectoryBuffer"],
    capacity=[10**4, 10**6],
    size=[32, 1024],
)
def Trajectories(kind, capacity, size):
    """Sequences of 11 steps of 16 environments; samples into the same batch again."""
    length, batch = capacity // 16, time_steps()
    buffer = require(f"rlcpu.replay.{kind}")(16, length, example(), 11, seed=0)
    for _ in range(length // 25 + 1):
        buffer.add(batch)
    return partial(buffer.add, batch), partial(buffer.sample, size, out=buffer.sample(size))


@benchmark("draw", capacity=CAPACITIES, size=[32, 256])
def ReturnWeighted(capacity, size):
    """One new return, then draws by return, without repetition."""
    rng, transition = np.random.default_rng(0), np.zeros((), np.float32)
    buffer = require("rlcpu.replay.ReturnWeightedBuffer")(capacity, transition, seed=0)
    buffer.add(np.zeros(capacity, np.float32), rng.normal(50, 120, capacity))
    values = itertools.cycle(rng.normal(50, 120, 1000).tolist())
    return lambda: (buffer.add(transition, next(values)), buffer.sample_indices(size))


@benchmark("add_and_sample")
def Queue():
    """`TrajectoryQueue` of 16 environments: 25 time steps in, the same out."""
    queue, batch = require("rlcpu.replay.TrajectoryQueue")(16, 1000, example(), 25), time_steps()
    return lambda: (queue.add(batch), queue.sample())


@benchmark("sample")
def Mixed():
    """`Mixer` of two buffers, 256 transitions in equal parts."""
    make = require("rlcpu.replay.ReplayBuffer")
    buffers = [fill(make(10**5, example(), seed=seed), 10**5) for seed in (0, 1)]
    return partial(require("rlcpu.replay.Mixer")(buffers, [0.5, 0.5]).sample, 256)

"""Storing, sampling and saving."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._common import Quick, benchmark, require

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


def full(kind: str, capacity: int, **options: Any) -> Any:
    """A buffer of `rlcpu.replay`, full."""
    example = {name: array[0] for name, array in transitions(1).items()}
    buffer = require(f"rlcpu.replay.{kind}")(capacity, example, seed=0, **options)
    for _ in range(capacity // CHUNK):
        buffer.add(transitions(CHUNK))
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
    buffer, batch = full("ReplayBuffer", capacity, num_threads=threads), transitions(size)
    return partial(buffer.add, batch), partial(buffer.sample, size, out=buffer.sample(size))


@benchmark("sample_and_update", capacity=CAPACITIES, size=[32, 1024])
def Prioritized(capacity, size):
    """`PrioritizedReplayBuffer`: what a learner does with a batch."""
    buffer = full("PrioritizedReplayBuffer", capacity)
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
    length = capacity // 16
    batch = {name: x.reshape(25, 16, *x.shape[1:]) for name, x in transitions(400).items()}
    example = {name: x[0, 0] for name, x in batch.items()}
    buffer = require(f"rlcpu.replay.{kind}")(16, length, example, 11, seed=0)
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


class Checkpoint(Quick):
    """A full `PrioritizedReplayBuffer`. asv runs `setup` again before each timing."""

    params, param_names = ([10**4, 10**5, 10**6],), ("capacity",)
    number = 1

    def setup(self, capacity):
        self.buffer = full("PrioritizedReplayBuffer", capacity)
        self.folder = Path(tempfile.mkdtemp())
        self.saved = self.folder / "saved"
        self.buffer.save(self.saved)
        self.batch = transitions(1000)

    def teardown(self, *_):
        shutil.rmtree(self.folder)

    def time_save(self, *_):
        """Into an empty folder."""
        self.buffer.save(self.folder / "new")

    def time_save_changes(self, *_):
        """After 1,000 new transitions, into the folder of the last time."""
        self.buffer.add(self.batch)
        self.buffer.save(self.saved)

    def time_load(self, *_):
        type(self.buffer).load(self.saved)

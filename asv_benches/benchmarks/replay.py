"""Storing and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._common import Quick, require, timed

CAPACITIES = [10**4, 10**5, 10**6, 10**7]
SIZES = [32, 1024, 65_536]
POOL = 64  # inputs in turn: the branch predictor learns a single one by heart
CHUNK = 10_000  # items per call, to fill a buffer

Arrays = dict[str, Any]


def transitions(count: int) -> Arrays:
    """Transitions of 44 bytes: ten million of them fit into memory."""
    return {
        "observation": np.ones((count, 4), np.float32),
        "next_observation": np.ones((count, 4), np.float32),
        "action": np.zeros(count, np.int32),
        "reward": np.ones(count, np.float32),
        "weight": np.ones(count, np.float32),
    }


def example() -> Arrays:
    """One of them."""
    return {name: array[0] for name, array in transitions(1).items()}


def fill(buffer: Any, capacity: int) -> Any:
    """The buffer, full."""
    batch = transitions(CHUNK)
    for _ in range(capacity // CHUNK):
        buffer.add(batch)
    return buffer


class Tree(Quick):
    """A sum tree alone."""

    params = (CAPACITIES, SIZES)
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the tree."""
        rng = np.random.default_rng(0)
        self.tree = require("rlcpu.replay.SumTree")(capacity, seed=0)
        self.tree.update(np.arange(capacity), rng.random(capacity))
        indices = rng.integers(0, capacity, (POOL, size))
        self.pairs = list(zip(indices, rng.random((POOL, size)), strict=True))
        self.calls = 0
        self.tree.sample(size)

    @timed
    def track_update(self, capacity: int, size: int) -> None:
        """New priorities of random leaves."""
        self.calls += 1
        self.tree.update(*self.pairs[self.calls % POOL])

    @timed
    def track_sample(self, capacity: int, size: int) -> None:
        """Leaves in proportion to their priorities."""
        self.tree.sample(size)


class Uniform(Quick):
    """`ReplayBuffer`."""

    params = ([10**4, 10**6, 10**7], SIZES, [1, 2])
    param_names = ("capacity", "size", "threads")

    def setup(self, capacity: int, size: int, threads: int) -> None:
        """Fills the buffer."""
        if size > capacity:
            raise NotImplementedError("a batch larger than the buffer")
        make = require("rlcpu.replay.ReplayBuffer")
        self.buffer = fill(make(capacity, example(), seed=0, num_threads=threads), capacity)
        self.batch = transitions(size)
        self.buffer.add(self.batch)
        self.out = self.buffer.sample(size)

    @timed
    def track_add(self, capacity: int, size: int, threads: int) -> None:
        """One call with `size` transitions."""
        self.buffer.add(self.batch)

    @timed
    def track_sample(self, capacity: int, size: int, threads: int) -> None:
        """Into the same batch again."""
        self.buffer.sample(size, out=self.out)


class Prioritized(Quick):
    """`PrioritizedReplayBuffer`: what a learner does with a batch."""

    params = (CAPACITIES, [32, 1024])
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the buffer."""
        make = require("rlcpu.replay.PrioritizedReplayBuffer")
        self.buffer = fill(make(capacity, example(), seed=0), capacity)
        self.errors = np.random.default_rng(0).random(size)
        self.out = self.buffer.sample(size)

    @timed
    def track_sample_and_update(self, capacity: int, size: int) -> None:
        """A batch, and its new priorities."""
        batch = self.buffer.sample(size, out=self.out)
        self.buffer.update_priorities(batch.indices, self.errors)


class Trajectories(Quick):
    """Sequences of 11 steps of 16 environments."""

    params = (["TrajectoryBuffer", "PrioritizedTrajectoryBuffer"], [10**4, 10**6], [32, 1024])
    param_names = ("kind", "capacity", "size")

    def setup(self, kind: str, capacity: int, size: int) -> None:
        """Fills the buffer."""
        length = capacity // 16
        self.buffer = require(f"rlcpu.replay.{kind}")(16, length, example(), 11, seed=0)
        self.batch = {name: x.reshape(25, 16, *x.shape[1:]) for name, x in transitions(400).items()}
        for _ in range(length // 25 + 1):
            self.buffer.add(self.batch)
        self.out = self.buffer.sample(size)

    @timed
    def track_add(self, kind: str, capacity: int, size: int) -> None:
        """25 time steps of every environment."""
        self.buffer.add(self.batch)

    @timed
    def track_sample(self, kind: str, capacity: int, size: int) -> None:
        """Into the same batch again."""
        self.buffer.sample(size, out=self.out)


class ReturnWeighted(Quick):
    """Draws by return, without repetition."""

    params = (CAPACITIES, [32, 256])
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the buffer."""
        rng = np.random.default_rng(0)
        self.transition = np.zeros((), np.float32)
        make = require("rlcpu.replay.ReturnWeightedBuffer")
        self.buffer = make(capacity, self.transition, seed=0)
        self.buffer.add(np.zeros(capacity, np.float32), rng.normal(50, 120, capacity))
        self.values = rng.normal(50, 120, 1000).tolist()
        self.calls = 0

    @timed
    def track_draw(self, capacity: int, size: int) -> None:
        """One new return, then `size` indices."""
        self.calls += 1
        self.buffer.add(self.transition, self.values[self.calls % 1000])
        self.buffer.sample_indices(size)


class Queue(Quick):
    """`TrajectoryQueue` of 16 environments: 25 time steps in, the same out."""

    def setup(self) -> None:
        """Makes the queue."""
        self.queue = require("rlcpu.replay.TrajectoryQueue")(16, 1000, example(), 25)
        self.batch = {name: x.reshape(25, 16, *x.shape[1:]) for name, x in transitions(400).items()}

    @timed
    def track_add_and_sample(self) -> None:
        """First in, first out."""
        self.queue.add(self.batch)
        self.queue.sample()


class Mixed(Quick):
    """`Mixer` of two buffers, 256 transitions in equal parts."""

    def setup(self) -> None:
        """Fills both buffers."""
        make = require("rlcpu.replay.ReplayBuffer")
        buffers = [fill(make(10**5, example(), seed=seed), 10**5) for seed in (0, 1)]
        self.mixer = require("rlcpu.replay.Mixer")(buffers, [0.5, 0.5])

    @timed
    def track_sample(self) -> None:
        """One batch."""
        self.mixer.sample(256)

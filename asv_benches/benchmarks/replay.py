"""Storing and sampling."""

from __future__ import annotations

import numpy as np

CAPACITIES = [10**4, 10**5, 10**6]
SIZES = [32, 256, 1600, 65536]
POOL = 64  # inputs in turn: the branch predictor learns a single one by heart


class Tree:
    """A sum tree alone."""

    version = "1"
    params = (CAPACITIES, SIZES)
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the tree and compiles."""
        from rlcpu.replay import SumTree  # here, so that a commit without it keeps the others

        rng = np.random.default_rng(0)
        self.tree = SumTree(capacity, seed=0)
        self.tree.update(np.arange(capacity), rng.random(capacity))
        indices = rng.integers(0, capacity, (POOL, size))
        self.pairs = list(zip(indices, rng.random((POOL, size)), strict=True))
        self.calls = 0
        self.time_update(capacity, size)
        self.tree.sample(size)

    def time_update(self, capacity: int, size: int) -> None:
        """New priorities of random leaves."""
        self.calls += 1
        self.tree.update(*self.pairs[self.calls % POOL])

    def time_sample(self, capacity: int, size: int) -> None:
        """Leaves in proportion to their priorities."""
        self.tree.sample(size)


class Buffer:
    """Transitions with two observations of 100 float32."""

    version = "1"
    params = (CAPACITIES, [32, 256, 1600])
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the buffer and compiles."""
        from rlcpu.replay import ReplayBuffer

        def batch(count: int) -> dict[str, np.ndarray]:
            return {
                "observation": np.ones((count, 100), np.float32),
                "next_observation": np.ones((count, 100), np.float32),
                "action": np.zeros(count, np.int64),
                "reward": np.ones(count, np.float32),
                "terminated": np.zeros(count, np.bool_),
            }

        example = {name: array[0] for name, array in batch(1).items()}
        self.buffer = ReplayBuffer(capacity, example, seed=0)
        for _ in range(capacity // 1000):
            self.buffer.add(batch(1000))
        self.batch = batch(size)
        self.buffer.add(self.batch)
        self.out = self.buffer.sample(size)

    def time_add(self, capacity: int, size: int) -> None:
        """One call with `size` transitions."""
        self.buffer.add(self.batch)

    def time_sample(self, capacity: int, size: int) -> None:
        """Into the same batch again."""
        self.buffer.sample(size, out=self.out)


class ReturnWeighted:
    """Draws by return, without repetition."""

    version = "1"
    params = (CAPACITIES, [32, 256])
    param_names = ("capacity", "size")

    def setup(self, capacity: int, size: int) -> None:
        """Fills the buffer and compiles."""
        from rlcpu.replay import ReturnWeightedBuffer

        rng = np.random.default_rng(0)
        self.transition = np.zeros((), np.float32)
        self.buffer = ReturnWeightedBuffer(capacity, self.transition, seed=0)
        self.buffer.add(np.zeros(capacity, np.float32), rng.normal(50, 120, capacity))
        self.values = rng.normal(50, 120, 1000).tolist()
        self.calls = 0
        self.time_draw(capacity, size)

    def time_draw(self, capacity: int, size: int) -> None:
        """One new return, then `size` indices."""
        self.calls += 1
        self.buffer.add(self.transition, self.values[self.calls % 1000])
        self.buffer.sample_indices(size)

"""Our contenders of the table `replay`, through the public API: `rlcpu.replay`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_buffers import ALPHA, BETA, BufferCalls
from asv_benches.peers.replay_calls import OBSERVATION, POOL, Arguments, Calls, cycled, transitions
from asv_benches.peers.replay_flashbax import (
    BATCH,
    CHUNK,
    LENGTH,
    NUM_ENVS,
    REFRESHES,
    SEQUENCE,
)
from asv_benches.peers.replay_post import DRAWS, PostCalls, returns
from asv_benches.peers.replay_trees import LEAVES, TreeCalls

PRELOAD = 2**16  # returns per call, to fill a buffer


@dataclass
class OurTree(TreeCalls):
    """`SumTree`."""

    def make(self) -> tuple[Callable[..., Any], Callable[[int], Any]]:
        """The tree's own methods."""
        from rlcpu.replay import SumTree

        tree = SumTree(LEAVES, seed=0)
        return tree.update, tree.sample


@dataclass
class OurBuffer(BufferCalls):
    """`ReplayBuffer` or `PrioritizedReplayBuffer`.

    Attributes:
        reuse: whether samples go into the same batch again (`out=`), as a training loop does.
    """

    reuse: bool = True

    def make(self) -> None:
        """The buffer of the same fields as the peers'."""
        from rlcpu import replay

        example = {name: x[0] for name, x in transitions(np.random.default_rng(0), 1).items()}
        if self.prioritized:
            self._buffer: Any = replay.PrioritizedReplayBuffer(
                self.capacity, example, alpha=ALPHA, beta=BETA, seed=0
            )
        else:
            self._buffer = replay.ReplayBuffer(self.capacity, example, seed=0)

    def operations(self) -> dict[str, Callable[..., Any]]:
        """The buffer's methods, `sample` with the same batch again."""
        buffer = self._buffer
        ready = self.reuse and self.operation != "add" and buffer.can_sample(self.size)
        out = buffer.sample(self.size) if ready else None

        def sample(size: int) -> Any:
            return buffer.sample(size, out=out)

        def prioritized(priorities: np.ndarray) -> None:
            batch = buffer.sample(self.size, out=out)
            buffer.update_priorities(batch.indices, priorities)

        return {"add": buffer.add, "sample": sample, "prioritized": prioritized}


@dataclass
class OurTrajectory(Calls):
    """`PrioritizedTrajectoryBuffer`: `add` of `size` time steps, or `sample` of `size` sequences.

    Attributes:
        reuse: whether samples go into the same batch again (`out=`), as a training loop does.
    """

    reuse: bool = True

    def setup(self) -> None:
        """Fills the buffer and gives some of its items other priorities."""
        from rlcpu.replay import PrioritizedTrajectoryBuffer

        buffer = PrioritizedTrajectoryBuffer(
            NUM_ENVS, LENGTH, np.zeros(OBSERVATION, np.float32), SEQUENCE, 1, alpha=0.5, seed=0
        )
        rng = np.random.default_rng(0)
        for _ in range(LENGTH // CHUNK):
            buffer.add(steps(rng, CHUNK))
        out = buffer.sample(BATCH)
        for _ in range(REFRESHES):
            buffer.sample(BATCH, out=out)
            buffer.update_priorities(out.indices, rng.random(BATCH))
        reused = out if self.reuse else None

        def sample(size: int) -> Any:
            return buffer.sample(size, out=reused)

        self.choose(add=buffer.add, sample=sample)

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Time steps, or only the number of sequences."""
        if self.operation == "sample":
            return [(self.size,)] * count
        return cycled([(steps(rng, self.size),) for _ in range(min(POOL, count))], count)


def steps(rng: np.random.Generator, count: int) -> np.ndarray:
    """(time steps, environments, observation): our order of the axes."""
    return rng.random((count, NUM_ENVS, OBSERVATION), np.float32)


@dataclass
class OurPost(PostCalls):
    """`ReturnWeightedBuffer`: a transition, here of one number, and its return; then the draw."""

    def setup(self) -> None:
        """Fills the buffer."""
        from rlcpu.replay import ReturnWeightedBuffer

        self._transition = np.zeros((), np.float32)
        self._buffer = ReturnWeightedBuffer(self.size, self._transition, seed=0)
        rng = np.random.default_rng(0)
        for begin in range(0, self.size, PRELOAD):
            count = min(PRELOAD, self.size - begin)
            self._buffer.add(rng.random(count, np.float32), returns(rng, count))
        self.choose(draw=self.draw, weigh=self.weigh, choose=self.pick)

    def draw(self, value: float) -> np.ndarray:
        """One step."""
        self.weigh(value)
        return self.pick(value)

    def weigh(self, value: float) -> None:
        """The new return, and every sum that it is part of."""
        self._buffer.add(self._transition, value)

    def pick(self, value: float) -> np.ndarray:
        """The draw by those sums."""
        return self._buffer.sample_indices(DRAWS)


@dataclass
class CopyBlocks(Calls):
    """The machine's limit: `size` time steps copied as one block to a random place of 800 MB."""

    def setup(self) -> None:
        """The array, every page of it written."""
        array = np.ones((NUM_ENVS * LENGTH, OBSERVATION), np.float32)

        def copy(begin: int, block: np.ndarray) -> None:
            np.copyto(array[begin : begin + block.shape[0]], block)

        self.choose(copy=copy)

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Fresh places, and a few blocks in turn."""
        rows = self.size * NUM_ENVS
        blocks = [rng.random((rows, OBSERVATION), np.float32) for _ in range(min(POOL, count))]
        places = rng.integers(0, NUM_ENVS * LENGTH - rows, count).tolist()
        return [(place, blocks[k % len(blocks)]) for k, place in enumerate(places)]

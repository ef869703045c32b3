"""flashbax: the work of the report that its buffer is slow on a CPU, and its sum tree.

Everything is compiled as a whole with the state donated, so that XLA may write over it; inputs are
JAX's own arrays before the clock starts. Only the last call of a repetition is waited for: the
calls overlap as XLA sees fit, which is up to twice as fast as waiting for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import OBSERVATION, POOL, Arguments, Calls, cycled
from asv_benches.peers.replay_trees import LEAVES, TreeCalls

NUM_ENVS, LENGTH = 16, 125_000  # 2 million time steps of 400 bytes
SEQUENCE, BATCH = 11, 256
CHUNK = 100  # time steps of all environments per call, to fill a buffer
REFRESHES = 64  # batches whose priorities are set before the clock starts


@dataclass
class FlashbaxTrajectory(Calls):
    """`add` of `size` time steps of 16 environments, or `sample` of 256 sequences of 11.

    Attributes:
        wait: whether every sample is waited for before the next one is asked for.
        donate: whether the state may be written over; if not, `add` copies 800 MB.
        one_by_one: whether `add` takes one time step at a time, inside one compiled function.
    """

    wait: bool = False
    donate: bool = True
    one_by_one: bool = False

    def setup(self) -> None:
        """Compiles, fills the buffer and gives some of its items other priorities."""
        import flashbax
        import jax

        self._jax = jax
        buffer = flashbax.make_prioritised_trajectory_buffer(
            add_batch_size=NUM_ENVS,
            sample_batch_size=BATCH,
            sample_sequence_length=SEQUENCE,
            period=1,
            min_length_time_axis=SEQUENCE,
            max_length_time_axis=LENGTH,
            priority_exponent=0.5,
            device="cpu",
        )
        self._add = jax.jit(buffer.add, donate_argnums=0)
        self._sample = jax.jit(buffer.sample)
        refresh = jax.jit(buffer.set_priorities, donate_argnums=0)
        self._state = buffer.init(jax.numpy.zeros(OBSERVATION, np.float32))
        rng = np.random.default_rng(0)
        for _ in range(LENGTH // CHUNK):
            self._state = self._add(self._state, self.steps(rng, CHUNK))
        for _ in range(REFRESHES):
            batch = self._sample(self._state, self.key(rng))
            priorities = jax.numpy.asarray(rng.random(BATCH, np.float32))
            self._state = refresh(self._state, batch.indices, priorities)
        if self.one_by_one:
            self._add = jax.jit(self.sequential(buffer.add), donate_argnums=0)
        elif not self.donate:
            self._add = jax.jit(buffer.add)
        self.choose(add=self.add, sample=self.sample)

    def sequential(self, add: Callable[..., Any]) -> Callable[..., Any]:
        """The issue's `buf_add_sequential`."""

        def one_by_one(state: Any, steps: Any) -> Any:
            for t in range(self.size):
                state = add(state, steps[:, t : t + 1])
            return state

        return one_by_one

    def steps(self, rng: np.random.Generator, count: int) -> Any:
        """(environments, time steps, observation): flashbax's order of the axes."""
        return self._jax.numpy.asarray(rng.random((NUM_ENVS, count, OBSERVATION), np.float32))

    def key(self, rng: np.random.Generator) -> Any:
        """A fresh key of JAX's generator."""
        return self._jax.random.key(int(rng.integers(2**32)))

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Time steps, or keys."""
        if self.operation == "sample":
            return [(self.key(rng),) for _ in range(count)]
        return cycled([(self.steps(rng, self.size),) for _ in range(POOL)], count)

    def add(self, steps: Any) -> None:
        """Adds to the buffer."""
        self._state = self._add(self._state, steps)
        self._last = self._state

    def sample(self, key: Any) -> None:
        """Draws a batch."""
        self._last = self._sample(self._state, key)
        if self.wait:
            self._jax.block_until_ready(self._last)

    def run(self, inputs: Iterable[Arguments]) -> None:
        """One call for each input; waits for the last."""
        super().run(inputs)
        self._jax.block_until_ready(self._last)


@dataclass
class FlashbaxTree(TreeCalls):
    """flashbax's functions for CPUs: `set_batch_scan`, and the one way of drawing that it has."""

    @property
    def note(self) -> str:
        """What is different about its draws."""
        return "flashbax: stratified, it has no other draw" if self.operation == "sample" else ""

    def make(self) -> Any:
        """The tree, compiled on first use."""
        import jax
        from flashbax.buffers import sum_tree

        self._jax = jax
        self._set = jax.jit(sum_tree.set_batch_scan, donate_argnums=0)
        self._draw = jax.jit(sum_tree.stratified_sample, static_argnums=1)
        self._state = sum_tree.init(LEAVES)
        return self.update, self.sample

    def convert(self, indices: np.ndarray, priorities: np.ndarray) -> Arguments:
        """JAX's arrays of 32 bits."""
        jnp = self._jax.numpy
        return jnp.asarray(indices, np.int32), jnp.asarray(priorities, np.float32)

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Also keys, which flashbax wants from the outside."""
        if self.operation == "update":
            return super().inputs(rng, count)
        numbers = rng.integers(2**32, size=count).tolist()
        return [(self.size, self._jax.random.key(number)) for number in numbers]

    def update(self, indices: Any, priorities: Any) -> None:
        """Sets leaves."""
        self._state = self._set(self._state, indices, priorities)
        self._last = self._state

    def sample(self, size: int, key: Any) -> None:
        """Draws leaves."""
        self._last = self._draw(self._state, size, key)

    def run(self, inputs: Iterable[Arguments]) -> None:
        """One call for each input; waits for the last."""
        super().run(inputs)
        self._jax.block_until_ready(self._last)

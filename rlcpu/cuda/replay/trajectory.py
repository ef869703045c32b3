"""Replay of sequences on the device: uniform and prioritised."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffer import Buffer, refuse_others
from rlcpu.cuda.replay.pairs import Pairs, check_index_array, check_real_array
from rlcpu.cuda.replay.priorities import Prioritized
from rlcpu.cuda.replay.storage import Span
from rlcpu.replay.buffer import as_structure
from rlcpu.replay.buffers import PrioritizedTrajectoryBuffer as Host
from rlcpu.replay.checks import check_count
from rlcpu.replay.ring import Items, Ring
from rlcpu.replay.samplers import MOST


@functools.cache
def raise_there_kernel() -> Any:
    """(indices, priorities, epsilon, alpha, begin, items, count, out): leaves of sequences.

    (priority + epsilon) ** alpha for those numbered `begin` to `begin + count`, of `items` places
    of each environment; 0, which their leaves are, for those that are not there. `priorities` is
    (n,) or (1,).
    """

    @kernel(dtype=np.float64, exact=True)
    def power(indices, priorities, epsilon, alpha, begin, items, count, out):
        k = cuda.grid(1)
        if k < out.size:
            leaf = 0.0
            if (indices[k] - begin) % items < count:
                priority = priorities[k if priorities.size > 1 else 0]
                leaf = math.pow(np.float64(priority) + epsilon, alpha)
            out[k] = leaf

    return power


class TrajectoryBuffer(Buffer):
    """`rlcpu.replay.TrajectoryBuffer` in the memory of a CUDA device.

    Draws the same sequences for the same seed as on the CPU. What is added may be on the host or on
    the device; what is drawn stays on the device.

    Args:
        num_envs: number of environments.
        length: steps that are kept of each; a multiple of `period`.
        example: one transition, see `ReplayBuffer`.
        sequence_length: steps of a sequence, at most `length`.
        period: steps between the beginnings of sequences.
        seed: see `ReplayBuffer`.
        **others: of the CPU's buffers, not to be used.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    _settings: tuple[str, ...] = ("num_envs", "length", "sequence_length", "period")

    def __init__(
        self,
        num_envs: int,
        length: int,
        example: Any,
        sequence_length: int,
        period: int = 1,
        *,
        seed: int | None = None,
        **others: Any,
    ) -> None:
        refuse_others(others)
        self.sequence_length = check_count("sequence_length", sequence_length)
        self.period = check_count("period", period)
        self.length = check_count("length", length, self.sequence_length)
        if self.length % self.period:
            raise ValueError(f"length={length}: expected a multiple of period={period}")
        structure = as_structure(example)
        super().__init__(structure, check_count("num_envs", num_envs), self.length, seed)
        self._items = self.length // self.period  # sequences of an environment, at most

    def _sequences(self, ring: Ring) -> tuple[int, int]:
        """Numbers of the first sequence that is there, and of the first that is not yet."""
        return Items(self._envs, self._items, self.sequence_length, self.period).numbers(ring)

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there is a whole sequence."""
        check_count("batch_size", batch_size)
        begin, end = self._sequences(self._ring)
        return end > begin

    def _refuse_short(self) -> None:
        if not self.can_sample():
            raise ValueError(
                f"sample: {self._ring.added} steps were added, expected {self.sequence_length} "
                "for a sequence"
            )

    def add(self, batch: Any) -> None:
        """Store steps of all environments; the oldest ones make room.

        Args:
            batch: structured like the example, each leaf (num_steps, num_envs, *shape), or
                (num_envs, *shape) for one step; on the host or the device, see `ReplayBuffer.add`.

        Raises:
            TypeError, ValueError: see `ReplayBuffer.add`.
        """
        fields, steps = self._storage.check(batch, self.num_envs)
        with self._lock:
            self._added(*self._write(fields, steps))

    def _added(self, before: Ring, after: Ring) -> None:
        """Called with the lock held, when steps have been stored."""

    def sample(self, batch_size: int) -> Batch:
        """Draw sequences, uniformly with replacement; returns before they are there.

        Returns:
            The sequences, leaves (sequence_length, batch_size, *shape), and their indices.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, or there is no whole
                sequence.
        """
        indices = self._room(batch_size)
        with self._lock:
            self._refuse_short()
            begin, end = self._sequences(self._ring)
            span = Span(begin % self._items, end - begin, self._items)
            self._storage.draw(self._stream, span, indices)
            return self._gather(indices)

    def _gather(self, indices: DeviceArray, *weighed: DeviceArray) -> Batch:
        # Sequence i of an environment begins at its step i * period, and so it is for all of them.
        leaves = self._storage.gather(indices, self.sequence_length, self.period)
        return Batch(self.structure.unflatten(leaves), indices, *weighed)


class PrioritizedTrajectoryBuffer(Prioritized, TrajectoryBuffer):
    """`rlcpu.replay.PrioritizedTrajectoryBuffer` in the memory of a CUDA device.

    Args:
        num_envs: see `TrajectoryBuffer`, as the arguments up to `period`.
        length: see `TrajectoryBuffer`.
        example: see `TrajectoryBuffer`.
        sequence_length: see `TrajectoryBuffer`.
        period: see `TrajectoryBuffer`.
        alpha: see `PrioritizedReplayBuffer`, as the arguments after it.
        beta: see `PrioritizedReplayBuffer`.
        epsilon: see `PrioritizedReplayBuffer`.
        **options: of `TrajectoryBuffer`.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    _settings: tuple[str, ...] = Host._settings

    def __init__(
        self,
        num_envs: int,
        length: int,
        example: Any,
        sequence_length: int,
        period: int = 1,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(num_envs, length, example, sequence_length, period, **options)
        self._prioritize(self._envs * self._items, alpha, beta, epsilon)

    def _added(self, before: Ring, after: Ring) -> None:
        period, tree = self.period, self._priorities.tree
        tree.mark(self._envs, -(-before.added // period), -(-after.added // period), 0.0)
        begin, end = self._sequences(after)
        tree.mark(self._envs, max(begin, self._sequences(before)[1]), end)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw sequences by priority, with replacement; returns before they are there.

        Args:
            batch_size: how many.
            beta: instead of the buffer's own.

        Returns:
            The sequences, leaves (sequence_length, batch_size, *shape), with indices,
            probabilities and importance weights.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, there is no whole sequence, or
                none has a priority above zero.
        """
        indices, beta = self._room(batch_size), self._priorities.check_beta(beta)
        with self._lock:
            self._refuse_short()
            weighed = self._priorities.draw(self._stream, indices, beta)
            return self._gather(indices, *weighed)

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Give sequences new priorities; of equal indices the last one counts.

        Sequences that are no longer there, or not again yet, are passed over.

        Args:
            indices: (n,), as a batch has them; int64 if on the device.
            priorities: (n,), or one for all; finite and not negative.

        Raises:
            IndexError: an index is out of range, or its sequence was never there.
            TypeError, ValueError: see `PrioritizedReplayBuffer.update_priorities`.
        """
        array = check_index_array(indices)
        numbers = check_real_array("priorities", priorities, array.size)
        leaves = arrays.empty(array.size, np.float64)
        with self._lock:
            begin, end = self._sequences(self._ring)
            if not end and array.size:
                raise IndexError(f"indices: nothing was written at {int(np.asarray(array)[0])} yet")
            there = begin, self._items, end - begin
            powers = numbers, self.epsilon, self.alpha
            launch(raise_there_kernel(), array.size, array, *powers, *there, leaves)
            filled = min(end, self._items)
            pairs = Pairs(array, numbers, leaves, MOST, self._items, filled)
            self._priorities.tree.write(pairs)

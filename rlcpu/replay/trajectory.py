"""Replay of sequences: uniform and prioritised."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffer import Buffer, as_structure
from rlcpu.replay.checks import check_count
from rlcpu.replay.lock import complete
from rlcpu.replay.priorities import Prioritized
from rlcpu.replay.prioritized import refuse_unwritten
from rlcpu.replay.ring import Ring, draw_items


def sequences(ring: Ring, sequence_length: int, period: int) -> tuple[int, int]:
    """Numbers of the first sequence that is in a ring, and of the first that is not yet."""
    begin = -(-ring.first // period)
    return begin, max((ring.added - sequence_length) // period + 1, begin)


class Sequences:
    """Which sequences a ring of steps holds, wherever its memory is.

    Attributes:
        sequence_length: steps of a sequence.
        period: steps between the beginnings of sequences.
    """

    _settings: tuple[str, ...] = ("num_envs", "length", "sequence_length", "period")
    sequence_length: int
    period: int
    _ring: Ring

    def _sequences(self, ring: Ring) -> tuple[int, int]:
        """Numbers of the first sequence that is there, and of the first that is not yet."""
        return sequences(ring, self.sequence_length, self.period)

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


class TrajectoryBuffer(Sequences, Buffer):
    """Steps of many environments side by side, from which sequences are drawn uniformly.

    A sequence begins at every `period`-th step of an environment, and is drawn only when all of it
    is there: none holds steps from both sides of the place where writing goes on. Sequences run
    across the ends of episodes.

    Args:
        num_envs: number of environments.
        length: steps that are kept of each; a multiple of `period`.
        example: one transition, see `ReplayBuffer`.
        sequence_length: steps of a sequence, at most `length`.
        period: steps between the beginnings of sequences.
        memmap: see `ReplayBuffer`, as the arguments after it.
        seed: see `ReplayBuffer`.
        num_threads: see `ReplayBuffer`.
        device: "cuda" for a `rlcpu.cuda.replay.TrajectoryBuffer`.

    Raises:
        TypeError, ValueError, FileExistsError, MemoryError: see `ReplayBuffer`.

    Example:
        >>> buffer = TrajectoryBuffer(2, 100, np.zeros(3, np.float32), sequence_length=5)
        >>> buffer.add(np.ones((7, 2, 3), np.float32))
        >>> buffer.sample(4).data.shape
        (5, 4, 3)
    """

    def __init__(
        self,
        num_envs: int,
        length: int,
        example: Any,
        sequence_length: int,
        period: int = 1,
        *,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.sequence_length = check_count("sequence_length", sequence_length)
        self.period = check_count("period", period)
        self.length = check_count("length", length, self.sequence_length)
        if self.length % self.period:
            raise ValueError(f"length={length}: expected a multiple of period={period}")
        num_envs = check_count("num_envs", num_envs)
        structure = as_structure(example)
        super().__init__(structure, num_envs, self.length, memmap, seed, num_threads)
        self._items = self.length // self.period  # sequences of an environment, at most

    def add(self, batch: Any) -> None:
        """Store steps of all environments; the oldest ones make room.

        Args:
            batch: structured like the example, each leaf (num_steps, num_envs, *shape), or
                (num_envs, *shape) for one step.

        Raises:
            TypeError, ValueError: see `ReplayBuffer.add`.
        """
        arrays = self._check(batch)
        with self.locked():
            complete(self._write, arrays, self._ring)

    def sample(self, batch_size: int, *, out: Batch | None = None) -> Batch:
        """Draw sequences, uniformly with replacement.

        Args:
            batch_size: how many.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            The sequences, copied, leaves (sequence_length, batch_size, *shape), and their indices.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, `out` is something else,
                or there is no whole sequence.
        """
        batch, indices = self._batch(batch_size, out, self.sequence_length)
        with self.locked():
            self._refuse_short()
            begin, end = self._sequences(self._ring)
            arguments = (self._envs, begin % self._items, end - begin, self._items, indices)
            draw_items(self._stream, *arguments)
            self._gather(indices, batch)
        return batch

    def _gather(self, indices: npt.NDArray[np.int64], batch: Batch) -> None:
        # Sequence i of an environment begins at its step i * period, and so it is for all of them.
        rows = indices if self.period == 1 else indices * self.period
        self._storage.gather(rows, batch.rows, self.sequence_length, self._num_threads)
        batch.indices = indices


class PrioritizedTrajectoryBuffer(Prioritized, TrajectoryBuffer):
    """Steps of many environments side by side, from which sequences are drawn by priority.

    See `TrajectoryBuffer` for the sequences and `PrioritizedReplayBuffer` for the priorities; a
    sequence gets the largest priority given so far when its last step comes.

    Args:
        num_envs: see `TrajectoryBuffer`, as the arguments up to `period`.
        length: see `TrajectoryBuffer`.
        example: see `TrajectoryBuffer`.
        sequence_length: see `TrajectoryBuffer`.
        period: see `TrajectoryBuffer`.
        alpha: see `PrioritizedReplayBuffer`, as the arguments after it.
        beta: see `PrioritizedReplayBuffer`.
        epsilon: see `PrioritizedReplayBuffer`.
        memmap: see `ReplayBuffer`.
        seed: see `ReplayBuffer`.
        num_threads: see `ReplayBuffer`.
        device: "cuda" for a `rlcpu.cuda.replay.PrioritizedTrajectoryBuffer`.

    Raises:
        TypeError, ValueError, FileExistsError, MemoryError: see `ReplayBuffer`.
    """

    _settings: tuple[str, ...] = (*TrajectoryBuffer._settings, "alpha", "beta", "epsilon")

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
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        options: dict[str, Any] = {"memmap": memmap, "seed": seed, "num_threads": num_threads}
        self.alpha, self.beta, self.epsilon = alpha, beta, epsilon
        super().__init__(num_envs, length, example, sequence_length, period, **options)

    def _added(self, before: Ring, after: Ring, *more: Any) -> None:
        period, priorities = self.period, self._priorities
        priorities.clear(self._envs, -(-before.added // period), -(-after.added // period))
        begin, end = self._sequences(after)
        priorities.mark(self._envs, max(begin, self._sequences(before)[1]), end)

    def sample(
        self, batch_size: int, *, beta: float | None = None, out: Batch | None = None
    ) -> Batch:
        """Draw sequences by priority, with replacement.

        Args:
            batch_size: how many.
            beta: instead of the buffer's own.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            The sequences, copied, leaves (sequence_length, batch_size, *shape), with indices,
            probabilities and importance weights.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, there is no whole sequence, or
                none has a priority above zero.
        """
        batch, indices = self._batch(batch_size, out, self.sequence_length)
        with self.locked():
            self._refuse_short()
            self._priorities.draw(self._stream, indices, batch, beta)
            self._gather(indices, batch)
        return batch

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give sequences new priorities; of equal indices the last one counts.

        Sequences that are no longer there, or not again yet, are passed over.

        Args:
            indices: (n,) of any integer dtype, as a batch has them.
            priorities: (n,), or one for all; finite and not negative.

        Raises:
            IndexError: an index is out of range, or its sequence was never there.
            TypeError, ValueError: see `PrioritizedReplayBuffer.update_priorities`.
        """
        array, leaves = self.check_priorities(indices, priorities)
        with self.locked():
            begin, end = self._sequences(self._ring)
            there = (array - begin) % self._items < end - begin
            whole = bool(there.all())
            self._priorities.update(*((array, leaves) if whole else (array[there], leaves[there])))

    def check_priorities(self, indices: Any, priorities: Any) -> tuple[Any, Any]:
        """Indices and leaves for `update_priorities`, or its exception."""
        array, leaves = self._priorities.check(indices, priorities)
        refuse_unwritten(array, Ring(self._items, self._sequences(self._ring)[1]))
        return array, leaves

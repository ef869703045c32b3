"""Uniform replay on the device."""

from __future__ import annotations

from typing import Any

from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffer import Buffer, refuse_others
from rlcpu.cuda.replay.n_step import gather
from rlcpu.cuda.replay.storage import Span
from rlcpu.replay.buffer import as_structure, check_envs
from rlcpu.replay.buffers import ReplayBuffer as Host
from rlcpu.replay.checks import check_count
from rlcpu.replay.n_step import NStep
from rlcpu.replay.ring import Ring


class ReplayBuffer(Buffer):
    """`rlcpu.replay.ReplayBuffer` in the memory of a CUDA device.

    Draws the same items for the same seed as on the CPU. What is added may be on the host or on the
    device; what is drawn stays on the device.

    Args:
        capacity: transitions that are kept; divided by `num_envs` and rounded down.
        example: one transition, see `rlcpu.replay.ReplayBuffer`: of numbers and bool.
        num_envs: environments that are added side by side; None if batches have no axis for it.
        n_step: steps whose rewards are added up, see `rlcpu.replay.ReplayBuffer`.
        gamma: discount factor of these sums, in [0, 1].
        seed: of the buffer's own stream of random numbers; None takes a new one.
        **others: of the CPU's buffers, not to be used.

    Raises:
        CudaUnavailableError: there is no CUDA device.
        CudaMemoryError: it has not enough memory.
        NotImplementedError: `derive_next` or `memmap` is given.
        TypeError, ValueError: an argument is of the wrong kind, or out of range.
    """

    _settings: tuple[str, ...] = Host._settings

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        num_envs: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        seed: int | None = None,
        **others: Any,
    ) -> None:
        refuse_others(others)
        num_envs = check_envs(num_envs)
        self.capacity = check_count("capacity", capacity, num_envs or 1)
        length, structure = self.capacity // (num_envs or 1), as_structure(example)
        self._n_step = NStep(structure, n_step, gamma)
        self.n_step, self.gamma = self._n_step.n, self._n_step.gamma
        super().__init__(structure, num_envs, length, seed)

    def add(self, batch: Any) -> None:
        """Store transitions; the oldest ones make room.

        Args:
            batch: structured like the example, see `rlcpu.replay.ReplayBuffer.add`; each leaf on
                the host, or C-contiguous, of the example's dtype and on the device.

        Raises:
            TypeError, ValueError: a leaf is missing, of another kind, dtype or shape. Nothing is
                stored by a call that raises.
        """
        fields, steps = self._storage.check(batch, self.num_envs)
        with self._lock:
            self._added(*self._write(fields, steps))

    def _added(self, before: Ring, after: Ring) -> None:
        """Called with the lock held, when steps have been stored."""

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there is anything to be drawn."""
        check_count("batch_size", batch_size)
        return self._ring.added > 0

    def _refuse_empty(self) -> None:
        if not self._ring.added:
            raise ValueError("sample: the buffer is empty")

    def sample(self, batch_size: int) -> Batch:
        """Draw transitions, uniformly with replacement; returns before they are there.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, or the buffer is empty.
        """
        indices = self._room(batch_size)
        with self._lock:
            self._refuse_empty()
            span = Span(0, self._ring.filled, self._ring.length)
            self._storage.draw(self._stream, span, indices)
            return self._gather(indices)

    def _gather(self, indices: DeviceArray, *weighed: DeviceArray) -> Batch:
        """The batch of some transitions, and their probabilities and weights."""
        discounts = None
        if self.n_step == 1:
            leaves = self._storage.gather(indices)
        else:
            leaves, discounts = gather(self._n_step, self._storage, self._ring, indices)
        probabilities, weights = weighed or (None, None)
        data = self.structure.unflatten(leaves)
        return Batch(data, indices, probabilities, weights, discounts)

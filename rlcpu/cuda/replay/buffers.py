"""Replay on the device: transitions drawn uniformly, or by priority."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays, provider
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import constants
from rlcpu.cuda.replay.draw import probabilities_kernel, weights_kernel
from rlcpu.cuda.replay.pairs import Pairs, check_index_array, check_real_array
from rlcpu.cuda.replay.storage import Storage
from rlcpu.cuda.replay.sum_tree import SumTree
from rlcpu.cuda.replay.upkeep import raise_kernel
from rlcpu.replay.buffer import as_structure, check_envs
from rlcpu.replay.checks import check_count, check_number
from rlcpu.replay.priorities import MOST
from rlcpu.replay.ring import Ring
from rlcpu.replay.stream import make_stream


class Batch(NamedTuple):
    """Transitions drawn from a buffer on the device.

    Attributes:
        data: structured like the buffer's example, each leaf a (batch_size, *shape) array on the
            device.
        indices: (batch_size,) int64, for `update_priorities`.
        probabilities: (batch_size,) float64, with which each was drawn; None if all were alike.
        weights: (batch_size,) float32, importance weights, at most 1; None if all are alike.
    """

    data: Any
    indices: DeviceArray
    probabilities: DeviceArray | None = None
    weights: DeviceArray | None = None

    def __getitem__(self, key: Any) -> Any:
        """Part of the data: `batch["reward"]` is `batch.data["reward"]`."""
        return self.data[key]

    def __len__(self) -> int:
        return self.indices.size


class ReplayBuffer:
    """`rlcpu.replay.ReplayBuffer` in the memory of a CUDA device.

    Draws the same items for the same seed as on the CPU. What is added may be on the host or on the
    device; what is drawn stays on the device.

    Args:
        capacity: transitions that are kept; divided by `num_envs` and rounded down.
        example: one transition, see `rlcpu.replay.ReplayBuffer`: of numbers and bool.
        num_envs: environments that are added side by side; None if batches have no axis for it.
        seed: of the buffer's own stream of random numbers; None takes a new one.
        **others: of the CPU's buffers, not to be used: `n_step` has to be 1.

    Raises:
        CudaUnavailableError: there is no CUDA device.
        CudaMemoryError: it has not enough memory.
        NotImplementedError: `n_step`, `derive_next` or `memmap` is given.
        TypeError, ValueError: an argument is of the wrong kind, or out of range.
    """

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        num_envs: int | None = None,
        seed: int | None = None,
        **others: Any,
    ) -> None:
        refuse_others(others)
        check_envs(num_envs)
        self.capacity = check_count("capacity", capacity, num_envs or 1)
        self.structure, self.num_envs = as_structure(example), num_envs
        self._stream = make_stream(seed)
        provider.require_device()
        envs = num_envs or 1
        self._ring = Ring(self.capacity // envs, 0)
        self._storage = Storage(self.structure, envs, self._ring.length)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of transitions held."""
        return self._ring.filled * self._storage.num_envs

    @property
    def num_bytes(self) -> int:
        """Bytes of the transitions, if the buffer is full."""
        return self._storage.num_bytes

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
            before = self._ring
            self._storage.write(fields, steps, before.slot)
            self._ring = Ring(before.length, before.added + steps)
            self._added(before, self._ring)

    def _added(self, before: Ring, after: Ring) -> None:
        """Called with the lock held, when steps have been stored."""

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there is anything to be drawn."""
        check_count("batch_size", batch_size)
        return self._ring.added > 0

    def sample(self, batch_size: int) -> Batch:
        """Draw transitions, uniformly with replacement; returns before they are there.

        Raises:
            TypeError, ValueError: batch_size is no whole number above 0, or the buffer is empty.
        """
        indices = self._room(batch_size)
        with self._lock:
            self._storage.draw(self._stream, self._ring, indices)
            leaves = self._storage.gather(indices)
        return Batch(self.structure.unflatten(leaves), indices)

    def _room(self, batch_size: int) -> DeviceArray:
        size = check_count("batch_size", batch_size)
        if not self._ring.added:
            raise ValueError("sample: the buffer is empty")
        return arrays.empty(size, np.int64)

    def save(self, path: Any) -> None:
        """Not on the device.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("save: buffers on the device are not saved; those of the CPU are")


class PrioritizedReplayBuffer(ReplayBuffer):
    """`rlcpu.replay.PrioritizedReplayBuffer` in the memory of a CUDA device.

    Args:
        capacity: see `ReplayBuffer`.
        example: see `ReplayBuffer`.
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct; `sample` takes another one.
        epsilon: added to each priority, so that items of priority 0 are drawn too.
        **options: of `ReplayBuffer`.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        self.alpha = check_number("alpha", alpha, 0.0, 2.0)
        self.beta = check_number("beta", beta, 0.0, 1.0)
        self.epsilon = check_number("epsilon", epsilon, 0.0, MOST)
        super().__init__(capacity, example, **options)
        self._tree = SumTree(self._storage.num_envs * self._ring.length, seed=0)

    def _added(self, before: Ring, after: Ring) -> None:
        self._tree.mark(self._storage.num_envs, before.added, after.added)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw transitions by priority, with replacement; returns before they are there.

        Args:
            batch_size: how many.
            beta: instead of the buffer's own.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or the buffer is empty, or
                no item has a priority above zero.
        """
        beta = self.beta if beta is None else check_number("beta", beta, 0.0, 1.0)
        indices = self._room(batch_size)
        probabilities = arrays.empty(indices.size, np.float64)
        weights = arrays.empty(indices.size, np.float32)
        least = arrays.empty(1, np.float64)
        least.memory.copy_to_device(constants((np.inf,), np.dtype(np.float64)).memory)
        with self._lock:
            self._tree.draw(self._stream, indices)
            numbers = self._tree.numbers
            drawn = numbers, indices, self._tree.total, probabilities, least
            launch(probabilities_kernel(), indices.size, *drawn)
            weighed = numbers, indices, np.float32(beta), least, weights
            launch(weights_kernel(), indices.size, *weighed)
            leaves = self._storage.gather(indices)
        return Batch(self.structure.unflatten(leaves), indices, probabilities, weights)

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Give transitions new priorities; of equal indices the last one counts.

        Args:
            indices: (n,), as a batch has them; int64 if on the device.
            priorities: (n,), or one for all; finite and not negative, as the size of a temporal
                difference is.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or above 1e100, or a shape is wrong. Nothing is
                changed by a call that raises.
        """
        array = check_index_array(indices)
        numbers = check_real_array("priorities", priorities, array.size)
        leaves = arrays.empty(numbers.size, np.float64)
        launch(raise_kernel(), numbers.size, numbers, self.epsilon, self.alpha, leaves)
        with self._lock:
            ring = self._ring
            if not ring.added and array.size:
                raise IndexError(f"indices: nothing was written at {int(np.asarray(array)[0])} yet")
            self._tree.write(Pairs(array, numbers, leaves, MOST, ring.length, ring.filled))


def refuse_others(others: dict[str, Any]) -> None:
    """Arguments that only the CPU's buffers have.

    Raises:
        NotImplementedError: one is given, and asks for something.
        TypeError: it is none of theirs.
    """
    idle = {"n_step": 1, "gamma": None, "derive_next": False, "memmap": None, "num_threads": None}
    for name, value in others.items():
        if name not in idle:
            raise TypeError(f"{name}={value!r}: no such argument")
        if name not in ("gamma", "num_threads") and value != idle[name]:
            raise NotImplementedError(f"{name}={value!r}: not on the device, but on the CPU")

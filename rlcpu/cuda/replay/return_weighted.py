"""Replay weighted by a value of each transition, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.replay.batch import Batch
from rlcpu.cuda.replay.buffer import Buffer, refuse_others
from rlcpu.cuda.replay.pairs import check_index_array, check_real_array
from rlcpu.cuda.replay.value_draw import draw_values
from rlcpu.cuda.replay.value_tree import ValueTree
from rlcpu.replay.buffer import as_structure
from rlcpu.replay.buffers import ReturnWeightedBuffer as Host
from rlcpu.replay.checkpoint import Reader, Section
from rlcpu.replay.checks import check_count


class ReturnWeightedBuffer(Buffer):
    """`rlcpu.replay.ReturnWeightedBuffer` in the memory of a CUDA device.

    Draws the same items for the same seed as on the CPU. What is added may be on the host or on the
    device; what is drawn stays on the device.

    Args:
        capacity: transitions that are kept, the newest ones.
        example: see `ReplayBuffer`.
        seed: see `ReplayBuffer`.
        **others: of the CPU's buffers, not to be used.

    Raises:
        CudaUnavailableError, CudaMemoryError, NotImplementedError, TypeError, ValueError: see
            `ReplayBuffer`.
    """

    _settings: tuple[str, ...] = Host._settings

    def __init__(
        self, capacity: int, example: Any, *, seed: int | None = None, **others: Any
    ) -> None:
        refuse_others(others)
        self.capacity = check_count("capacity", capacity)
        super().__init__(as_structure(example), None, self.capacity, seed)
        self._tree = ValueTree(self.capacity)

    def add(self, batch: Any, values: Any) -> None:
        """Store transitions; the oldest ones make room.

        Args:
            batch: structured like the example; each leaf (n, *shape), or (*shape) for one; on the
                host or the device, see `ReplayBuffer.add`.
            values: (n,), float32 or float64 if on the device, or one for all; finite.

        Raises:
            TypeError: a container, or a dtype that cannot be cast safely.
            ValueError: a missing or extra field, a wrong shape, a value that is NaN or infinite.
                Nothing is stored by a call that raises.
        """
        fields, steps = self._storage.check(batch, None)
        numbers = check_real_array("values", values, steps)
        with self._lock:
            self._refuse_bad(numbers)
            _, after = self._write(fields, steps)
            begin = (after.added - min(steps, self.capacity)) % self.capacity
            self._tree.write_run(numbers, steps, begin, after.filled)

    def _refuse_bad(self, numbers: DeviceArray) -> None:
        place = self._tree.check(numbers)
        if place >= 0:
            number = float(numbers.memory[place : place + 1].copy_to_host()[0])
            expected = self._tree.expected
            raise ValueError(f"values: {number} at {place}, expected {expected}")

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there are as many transitions."""
        return check_count("batch_size", batch_size) <= len(self)

    def sample(self, batch_size: int) -> Batch:
        """Draw different transitions, in proportion to their weights.

        Args:
            batch_size: how many.

        Returns:
            The transitions and their indices.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or fewer transitions than
                `batch_size` have a weight.
        """
        indices = self._room(batch_size)
        with self._lock:
            self._draw(indices)
            leaves = self._storage.gather(indices)
        return Batch(self.structure.unflatten(leaves), indices)

    def sample_indices(self, size: int) -> DeviceArray:
        """Draw different transitions as `sample` does, and return (size,) indices alone."""
        out = arrays.empty(check_count("size", size), np.int64)
        with self._lock:
            self._draw(out)
        return out

    def _draw(self, out: DeviceArray) -> None:
        if draw_values(self._tree, self._stream, out) < out.size:
            filled = len(self)
            values = self._tree.leaves.copy_to_host()[:filled]
            weighty = int((values > min(values.min(), 0.0)).sum()) if filled else 0
            raise ValueError(
                f"sample: {out.size} different transitions wanted, of {filled} there are, "
                f"{weighty} have a weight above zero"
            )

    def update_values(self, indices: Any, values: Any) -> None:
        """Give transitions new values; of equal indices the last one counts.

        Args:
            indices: (n,), as a batch has them; int64 if on the device.
            values: (n,), or one for all; finite.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError, ValueError: see `add`. Nothing is changed by a call that raises.
        """
        array = check_index_array(indices)
        numbers = check_real_array("values", values, array.size)
        with self._lock:
            self._tree.update(array, numbers)

    # ------------------------------------------------------------ files

    def _arrays(self) -> list[Section]:
        return [Section("values", self._tree.leaves.copy_to_host().view(np.uint8), None)]

    def _restore(self, state: dict[str, Any], reader: Reader) -> None:
        values = np.empty(self.capacity)
        reader.read_into("values", values.view(np.uint8))
        self._refuse_bad(arrays.from_host(values))
        self._tree.write_run(arrays.from_host(values), self.capacity, 0, len(self))

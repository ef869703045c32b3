"""Replay weighted by a value of each transition, such as the return of its episode."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.batch import Batch
from rlcpu.replay.buffer import Buffer, as_structure
from rlcpu.replay.checks import check_count, check_indices, check_numbers, refuse
from rlcpu.replay.distinct import value_kernel
from rlcpu.replay.lock import complete
from rlcpu.replay.memory import placed
from rlcpu.replay.ring import Ring
from rlcpu.replay.sections import Section
from rlcpu.replay.storage import Source
from rlcpu.replay.tree import VALUES, make_tree
from rlcpu.replay.upkeep import (
    first_offender,
    first_outside,
    rebuild_kernel,
    update_kernel,
    write_kernel,
)

Array = npt.NDArray[Any]


def largest_value(capacity: int) -> float:
    """Largest size of a value: sums of them, raised by the smallest, have to be finite."""
    return float(np.finfo(np.float64).max) / (4 * capacity + 64)


class ReturnWeightedBuffer(Buffer):
    """Transitions with a value each, drawn in proportion to it, none twice in a batch.

    The weight of a transition is its value - min(0, smallest value that is in the buffer); where
    all weights are zero, all transitions are as likely. Sums are kept of the values themselves, so
    that another smallest value changes all weights in no time, when it comes and when it goes.

    Args:
        capacity: transitions that are kept, the newest ones.
        example: see `ReplayBuffer`.
        derive_next: see `ReplayBuffer`.
        memmap: see `ReplayBuffer`.
        seed: see `ReplayBuffer`.
        num_threads: see `ReplayBuffer`.
        device: "cuda" for a `rlcpu.cuda.replay.ReturnWeightedBuffer`.

    Raises:
        TypeError, ValueError, FileExistsError, MemoryError: see `ReplayBuffer`.

    Example:
        >>> buffer = ReturnWeightedBuffer(1000, {"reward": 0.0}, seed=0)
        >>> buffer.add({"reward": np.zeros(3)}, [-5.0, 10.0, 10.0])
        >>> sorted(buffer.sample_indices(2).tolist())  # weights 0, 15 and 15
        [1, 2]
    """

    _settings: tuple[str, ...] = ("capacity", "derive_next")

    def __init__(
        self,
        capacity: int,
        example: Any,
        *,
        derive_next: bool = False,
        memmap: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        num_threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.capacity = check_count("capacity", capacity)
        structure = as_structure(example)
        super().__init__(structure, None, self.capacity, memmap, seed, num_threads, derive_next)

    def _prepare(self) -> None:
        self._numbers = make_tree(self.capacity, extremes=True)
        self._most = largest_value(self.capacity)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_numbers": placed(state["_numbers"])})

    def add(self, batch: Any, values: npt.ArrayLike) -> None:
        """Store transitions; the oldest ones make room.

        Args:
            batch: structured like the example; each leaf (n, *shape), or (*shape) for one.
            values: (n,), or one for all; finite.

        Raises:
            TypeError: a container, or a dtype that cannot be cast safely.
            ValueError: a missing or extra field, a wrong shape, a value that is NaN or infinite.
                Nothing is stored by a call that raises.
        """
        arrays = self._check(batch)
        numbers = check_numbers("values", values, len(arrays[0]))
        self._check_values(numbers)
        with self.locked():
            complete(self._write, arrays, self._ring, numbers)

    def _added(self, before: Ring, after: Ring, *more: Array) -> None:
        kept = more[0][-self.capacity :]
        begin = (after.added - kept.size) % self.capacity
        write_kernel(VALUES)(self._numbers, self.capacity, after.filled, begin, kept)

    def _check_values(self, numbers: Array, indices: Array | None = None) -> None:
        """Raise ValueError for values that are no good, IndexError for such indices."""
        limits, expected = (-self._most, self._most), f"a finite number, at most {self._most:.3g}"
        if indices is not None:
            place = first_offender(indices, numbers, self.capacity, *limits)
            if place >= 0:
                index, number = int(indices[place]), float(numbers[place])
                raise refuse("values", index, number, self.capacity, f"{expected} in size")
        elif (place := first_outside(numbers, *limits)) >= 0:
            raise ValueError(f"values: {numbers[place]} at {place}, expected {expected} in size")

    def can_sample(self, batch_size: int = 1) -> bool:
        """Whether there are as many transitions."""
        return check_count("batch_size", batch_size) <= len(self)

    def sample(self, batch_size: int, *, out: Batch | None = None) -> Batch:
        """Draw different transitions, in proportion to their weights.

        Args:
            batch_size: how many.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            The transitions, copied, and their indices.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or fewer transitions than
                `batch_size` have a weight.
        """
        batch, indices = self._batch(batch_size, out, None)
        with self.locked():
            self._draw(indices)
            self._storage.gather(indices, batch.rows, 1, self._num_threads)
        batch.indices = indices
        return batch

    def sample_indices(self, size: int) -> npt.NDArray[np.int64]:
        """Draw different transitions as `sample` does, and return (size,) indices alone."""
        out = np.empty(check_count("size", size), np.int64)
        with self.locked():
            self._draw(out)
        return out

    def _draw(self, out: Array) -> None:
        filled, before, found = len(self), self._stream[1], 0
        if out.size <= filled:
            found = value_kernel()(self._numbers, self.capacity, filled, self._stream, out)
        if found < out.size:
            self._stream[1] = before
            values = self._numbers[:filled]
            weighty = int((values > min(values.min(), 0.0)).sum()) if filled else 0
            raise ValueError(
                f"sample: {out.size} different transitions wanted, of {filled} there are, "
                f"{weighty} have a weight above zero"
            )

    def update_values(self, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Give transitions new values; of equal indices the last one counts.

        Args:
            indices: (n,) of any integer dtype, as a batch has them.
            values: (n,), or one for all; finite.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError, ValueError: see `add`. Nothing is changed by a call that raises.
        """
        array = check_indices(indices)
        numbers = check_numbers("values", values, array.size)
        self._check_values(numbers, array)
        with self.locked():
            filled = len(self)
            if array.size and array.max() >= filled:
                raise IndexError(f"indices: nothing was written at {array.max()} yet")
            update_kernel(VALUES)(self._numbers, self.capacity, filled, array, numbers)

    def _arrays(self) -> list[Section]:
        return [Section("values", self._numbers[: self.capacity].view(np.uint8), None)]

    def _restore(self, state: dict[str, Any], reader: Source) -> None:
        values = self._numbers[: self.capacity]
        reader.read_into("values", values.view(np.uint8), zeroed=True)
        self._check_values(values)
        rebuild_kernel(VALUES)(self._numbers, self.capacity, len(self))

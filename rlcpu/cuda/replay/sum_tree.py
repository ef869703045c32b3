"""The sum tree on the device: priorities that can be changed, and sampled in proportion."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import arrays, provider
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.operands import constants
from rlcpu.cuda.replay.distinct import draw_distinct
from rlcpu.cuda.replay.draw import draw_kernel, take_kernel
from rlcpu.cuda.replay.nodes import WIDTH
from rlcpu.cuda.replay.pairs import Pairs, check_index_array, check_real_array
from rlcpu.cuda.replay.upkeep import (
    GOOD,
    TOP,
    claim_kernel,
    extremes_kernel,
    fill_kernel,
    finish_kernel,
    refresh_all_kernel,
    refresh_some_kernel,
    write_kernel,
)
from rlcpu.replay.checks import check_count, refuse
from rlcpu.replay.storage import make_stream
from rlcpu.replay.tree import layout

#: Entries up to which one block recomputes a level and all above it: 8 a thread, and a launch less
#: for each level.
_FEW = 8 * TOP


def wants_all(count: int, entries: int) -> bool:
    """Whether to recompute a level as a whole, and not only above so many leaves.

    A level's entry takes 72 bytes of memory traffic, a leaf's parent found by its index 104: where
    there are 2 entries for 3 leaves the whole level takes less, on paper.
    """
    return 2 * entries <= 3 * count


class SumTree:
    """`rlcpu.replay.SumTree` in the memory of a CUDA device.

    The same numbers as on the CPU, bit for bit: sums, and what is drawn for the same seed. Indices
    and priorities may be arrays of the host or of the device; what is drawn stays on the device.

    Args:
        capacity: number of items.
        seed: of the tree's own stream of random numbers, 0 to 2**64 - 1; None takes a new one.
        num_threads: of the CPU's tree; not used.

    Raises:
        CudaUnavailableError: there is no CUDA device.
        CudaMemoryError: it has not enough memory.
        TypeError, ValueError: an argument is no whole number, or out of its range.
    """

    def __init__(
        self, capacity: int, *, seed: int | None = None, num_threads: int | None = None
    ) -> None:
        self.capacity = check_count("capacity", capacity)
        self.stream = make_stream(seed)
        provider.require_device()
        self.levels = [int(begin) for begin in layout.py_func(self.capacity)]
        self.offsets = constants(tuple(self.levels), np.dtype(np.int64))
        self.numbers = arrays.zeros(self.levels[-1], np.float64)
        self.stamps = arrays.zeros(self.capacity, np.int32)
        self._bad = arrays.from_host([GOOD], np.int64)
        self._summary = arrays.zeros(2, np.float64)
        self._zero = constants((0.0,), np.dtype(np.float64))
        #: (1,) float64, the largest leaf ever written by `update`, at first 1.
        self.largest = arrays.from_host([1.0])
        self._total = 0.0
        self._lock = threading.Lock()
        #: Priorities up to here: the sum of all of them has to be finite.
        self._most = float(np.finfo(np.float64).max) / self.levels[1]

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        return f'SumTree({self.capacity}, device="cuda")'

    @property
    def leaves(self) -> DeviceArray:
        """(capacity,) float64, the priorities themselves; `rebuild` after a change."""
        return self.numbers.view((self.capacity,))

    # ------------------------------------------------------------ reading and writing

    def __getitem__(self, indices: Any) -> DeviceArray:
        """Priorities of items, (n,) float64 on the device."""
        array = self.check_indices(indices)
        out = arrays.empty(array.shape, np.float64)
        launch(take_kernel(), array.size, self.numbers, array, out)
        return out

    def check_indices(self, indices: Any) -> DeviceArray:
        """Indices as (n,) int64 on the device, each of which is in [0, capacity).

        Raises:
            IndexError: one is not.
            TypeError, ValueError: they are no whole numbers, or have more than one axis.
        """
        array = check_index_array(indices)
        pairs = Pairs(array, self._zero, self._zero)
        with self._lock:
            self._claim(pairs)
            position = int(self._bad.copy_to_host()[0])
            # With a bad pair at position 0 nothing is written, and the stamps are taken back.
            self._write(pairs, constants((0,), np.dtype(np.int64)), self.largest)
            self._bad.memory.copy_to_device(np.array([GOOD]))
        if position != GOOD:
            raise self._refusal(pairs, position)
        return array

    def update(self, indices: Any, priorities: Any) -> None:
        """Give items new priorities; of equal indices the last one counts.

        Args:
            indices: (n,), int64 if on the device, each in [0, capacity).
            priorities: (n,), float32 or float64 if on the device, or one for all; finite, not
                negative, and below the largest float64 divided by the capacity.

        Raises:
            IndexError: an index is out of range.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or too large, or a shape is wrong. Nothing is
                changed by a call that raises.
        """
        array = check_index_array(indices)
        numbers = check_real_array("priorities", priorities, array.size)
        self.write(Pairs(array, numbers, numbers))

    def write(self, pairs: Pairs) -> None:
        """`update` with arrays of fitting shapes.

        Raises:
            IndexError, ValueError: see `update`.
        """
        if not pairs.indices.size:
            return
        with self._lock:
            self._claim(pairs)
            self._write(pairs, self._bad, self.largest)
            position = self.propagate(pairs.indices)
        if position >= 0:
            raise self._refusal(pairs, position)

    def _claim(self, pairs: Pairs) -> None:
        indices, priorities, _, most, length, filled = pairs
        bounds = self.capacity, length or self.capacity, filled or self.capacity
        limit = most or self._most
        arguments = indices, priorities, *bounds, limit, self.stamps, self._bad
        launch(claim_kernel(), indices.size, *arguments)

    def _write(self, pairs: Pairs, bad: DeviceArray, largest: DeviceArray) -> None:
        arguments = pairs.indices, pairs.leaves, self.capacity, self.stamps, bad, self.numbers
        launch(write_kernel(), pairs.indices.size, *arguments, largest)

    def _refusal(self, pairs: Pairs, position: int) -> Exception:
        """The exception for the first bad pair."""
        index = int(pairs.indices.memory[position : position + 1].copy_to_host()[0])
        at = position if pairs.priorities.size > 1 else 0
        number = float(pairs.priorities.memory[at : at + 1].copy_to_host()[0])
        most = pairs.most or self._most
        if 0 <= index < self.capacity and index % (pairs.length or 1) >= (pairs.filled or 1):
            return IndexError(f"indices: nothing was written at {index} yet")
        expected = f"a finite priority in [0, {most:.3g}]"
        return refuse("priorities", index, number, self.capacity, expected)

    def propagate(self, indices: DeviceArray | None) -> int:
        """Recompute what is above some leaves, or above all; the first bad position, or -1."""
        level, top = 1, len(self.levels) - 2
        while level < top and self._entries(level) > _FEW:
            entries = self._entries(level)
            if indices is None or wants_all(indices.size, entries):
                launch(refresh_all_kernel(), entries, self.offsets, level, self.numbers)
            else:
                some = indices, self.capacity, self.offsets, level, self.numbers
                launch(refresh_some_kernel(), indices.size, *some)
            level += 1
        threads = min(TOP, -(-self._entries(level) // 32) * 32)
        arguments = self.offsets, level, self.numbers, self._bad, self._summary
        launch_grid(finish_kernel(), 1, threads, *arguments)
        position, self._total = (float(number) for number in self._summary.copy_to_host())
        return int(position)

    def _entries(self, level: int) -> int:
        """Sums of a level, without its padding."""
        return (self.levels[level] - self.levels[level - 1]) // WIDTH

    def mark(self, num_envs: int, begin: int, end: int, priority: float | None = None) -> None:
        """Fill runs of items, of each of `num_envs` equal parts; see `rlcpu.replay.tree`.

        Without a priority they get the largest one ever given, at first 1.
        """
        items = self.capacity // num_envs
        count = min(max(end - begin, 0), items)
        if not count:
            return
        number = self.largest
        if priority is not None:
            number = constants((float(priority),), np.dtype(np.float64))
        with self._lock:
            arguments = num_envs, items, (end - count) % items, count, number, self.numbers
            launch(fill_kernel(), num_envs * count, *arguments)
            self.propagate(None)

    def rebuild(self, priorities: Any = None) -> None:
        """Set all priorities at once, or recompute all sums from those that are there.

        Args:
            priorities: (capacity,), as for `update`.

        Raises:
            TypeError, ValueError: see `update`.
        """
        if priorities is not None:
            self.update(np.arange(self.capacity), priorities)
            return
        with self._lock:
            self.propagate(None)

    # ------------------------------------------------------------ sums and extremes

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return self._total

    @property
    def min(self) -> float:
        """Smallest priority above zero; 0.0 if there is none."""
        least = float(self._extremes()[0])
        return least if np.isfinite(least) else 0.0

    @property
    def max(self) -> float:
        """Largest priority."""
        return float(self._extremes()[1])

    def _extremes(self) -> npt.NDArray[np.float64]:
        found = arrays.from_host([np.inf, 0.0])
        with self._lock:
            launch(extremes_kernel(), min(self.capacity, 2**16), self.numbers, self.capacity, found)
        return found.copy_to_host()

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        size: int,
        *,
        seed: int | None = None,
        stratified: bool = False,
        replace: bool = True,
    ) -> DeviceArray:
        """Draw items with probabilities proportional to their priorities.

        With replacement nothing is read back: the call returns before the result is there.

        Args:
            size: how many.
            seed: of this call alone; None goes on with the tree's own stream.
            stratified: cut [0, total) into `size` equal parts and draw one number from each. With
                `replace=False`, what is left to be drawn is cut again after every round.
            replace: whether an item may be drawn more than once; see `rlcpu.replay.SumTree`.

        Returns:
            (size,) int64 indices on the device, in the order of drawing.

        Raises:
            TypeError, ValueError: size or seed is no whole number, or out of its range.
            ValueError: no priority is above zero, or fewer of them than `size` without replacement.
        """
        out = arrays.empty(check_count("size", size), np.int64)
        stream = self.stream if seed is None else make_stream(seed)
        draw = self.draw if replace else functools.partial(draw_distinct, self)
        with self._lock:
            draw(stream, out, bool(stratified))
        return out

    def draw(
        self, stream: npt.NDArray[np.uint64], out: DeviceArray, stratified: bool = False
    ) -> None:
        """Fill `out`, (n,) int64, by a stream, which is moved on; the caller holds the lock."""
        if not self._total > 0.0:
            raise ValueError("sample: no item has a priority above zero, the total is 0")
        arguments = self.numbers, self.offsets, stream[0], stream[1], stratified, out
        launch(draw_kernel(), out.size, *arguments)
        stream[1] += np.uint64(out.size)

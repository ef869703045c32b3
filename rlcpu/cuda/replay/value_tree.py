"""A tree of values on the device, from which different items are drawn by weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.operands import constants
from rlcpu.cuda.replay.nodes import WIDTH
from rlcpu.cuda.replay.sum_tree import wants_all
from rlcpu.cuda.replay.upkeep import GOOD, TOP, claim_kernel, write_kernel
from rlcpu.cuda.replay.value_kernels import (
    finish_values_kernel,
    magnitudes_kernel,
    outside_kernel,
    refresh_above_kernel,
    refresh_run_kernel,
    write_run_kernel,
)
from rlcpu.replay.checks import refuse
from rlcpu.replay.samplers import largest_value
from rlcpu.replay.tree import layout, make_tree

#: Entries up to which one block recomputes a level and all above it.
_FEW = 8 * TOP


def above(begin: int, count: int, size: int) -> tuple[int, int]:
    """The first parent of `count` children from `begin` on, going round, and how many there are.

    Args:
        begin: below `size`.
        count: 1 to `size`.
        size: children in all, of which each parent has eight, the last one those that are left.
    """
    entries = -(-size // WIDTH)
    first, last = begin // WIDTH, (begin + count - 1) % size // WIDTH
    if begin + count > size and first == last:  # both ends of what goes round are in one of them
        return 0, entries
    return first, (last - first) % entries + 1


class Summary(NamedTuple):
    """What is known of a tree.

    Attributes:
        bad: first bad position of what was to be written, or -1.
        shift: added to each value.
        weight: sum of all weights.
        highest: largest weight.
    """

    bad: float
    shift: float
    weight: float
    highest: float


class ValueTree:
    """Values of the first `filled` of so many items, and what is above them.

    The same numbers as on the CPU, bit for bit. Nothing is read back but by `summary`.

    Args:
        capacity: number of items.

    Attributes:
        numbers: all levels of sums, then of smallest and of largest values.
        stamps: (capacity,) int32 of zeros, room for marks.
        most: largest size of a value.
        filled: how many items there are.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.filled = capacity, 0
        self.levels = [int(begin) for begin in layout.py_func(capacity)]
        self.offsets = constants(tuple(self.levels), np.dtype(np.int64))
        self.numbers = arrays.from_host(make_tree(capacity, extremes=True))
        self.stamps = arrays.zeros(capacity, np.int32)
        self.most = largest_value(capacity)
        self._bad = arrays.from_host([GOOD], np.int64)
        self._summary = arrays.empty(4, np.float64)
        self._largest = arrays.empty(1, np.float64)  # of values that are written: nobody's
        self._finish(len(self.levels) - 2, -1.0)

    @property
    def leaves(self) -> DeviceArray:
        """(capacity,) float64, the values."""
        return self.numbers.view((self.capacity,))

    def summary(self) -> Summary:
        """What is known; waits for what was launched."""
        return Summary(*(float(number) for number in self._summary.copy_to_host()))

    # ------------------------------------------------------------ writing

    def check(self, values: DeviceArray) -> int:
        """The first position of a value out of range, or -1."""
        launch(outside_kernel(), values.size, values, -self.most, self.most, self._bad)
        position = int(self._bad.copy_to_host()[0])
        self._bad.memory.copy_to_device(np.array([GOOD]))
        return -1 if position == GOOD else position

    def write_run(self, values: DeviceArray, count: int, begin: int, filled: int) -> None:
        """Write `count` values, of which the last ones count, so that the first goes to `begin`.

        Args:
            values: (count,) or (1,), real and checked.
            count: how many.
            begin: the item of the first one that counts.
            filled: how many items there are then.
        """
        kept = min(count, self.capacity)
        if not kept:
            return
        arguments = values, count - kept, begin, kept, self.capacity, self.numbers
        launch(write_run_kernel(), kept, *arguments)
        self.filled = filled
        self._refresh_run(begin, kept)

    def update(self, indices: DeviceArray, values: DeviceArray) -> None:
        """Write values, (n,) or (1,), to items, (n,) int64; of equal indices the last one counts.

        Raises:
            IndexError, ValueError: an item is not there, or a value out of range. Nothing is
                changed then.
        """
        if not indices.size:
            return
        sizes = arrays.empty(values.size, np.float64)
        launch(magnitudes_kernel(), values.size, values, sizes)
        bounds = self.capacity, self.capacity, self.filled, self.most
        launch(claim_kernel(), indices.size, indices, sizes, *bounds, self.stamps, self._bad)
        written = indices, values, self.capacity, self.stamps, self._bad
        launch(write_kernel(), indices.size, *written, self.numbers, self._largest)
        self.refresh(indices)
        position = int(self.summary().bad)
        if position >= 0:
            raise self._refusal(indices, values, position)

    def _refusal(self, indices: DeviceArray, values: DeviceArray, position: int) -> Exception:
        """The exception for the first bad pair."""
        index = int(indices.memory[position : position + 1].copy_to_host()[0])
        at = position if values.size > 1 else 0
        number = float(values.memory[at : at + 1].copy_to_host()[0])
        if self.filled <= index < self.capacity and abs(number) <= self.most:
            return IndexError(f"indices: nothing was written at {index} yet")
        return refuse("values", index, number, self.capacity, self.expected)

    @property
    def expected(self) -> str:
        """What a value has to be."""
        return f"a finite number, at most {self.most:.3g} in size"

    # ------------------------------------------------------------ what is above

    def _entries(self, level: int) -> int:
        """Entries of a level, without its padding."""
        return (self.levels[level] - self.levels[level - 1]) // WIDTH

    def _refresh_run(self, begin: int, count: int) -> None:
        """Recompute what is above `count` leaves from `begin` on, going round."""
        level, size = 1, self.capacity
        while self._goes_on(level):
            entries = self._entries(level)
            begin, count = above(begin, count, size)
            arguments = self.offsets, level, begin, count, float(self.filled), self.numbers
            launch(refresh_run_kernel(), count, *arguments)
            level, size = level + 1, entries
        self._finish(level, -1.0)

    def refresh(self, indices: DeviceArray, shift: float = -1.0) -> None:
        """Recompute what is above some leaves, and the summary.

        Args:
            indices: (n,) int64.
            shift: of the summary; negative for the tree's own.
        """
        level, filled = 1, float(self.filled)
        while self._goes_on(level):
            entries = self._entries(level)
            if wants_all(indices.size, entries):
                whole = self.offsets, level, 0, entries, filled, self.numbers
                launch(refresh_run_kernel(), entries, *whole)
            else:
                some = indices, self.capacity, self.offsets, level, filled, self.numbers
                launch(refresh_above_kernel(), indices.size, *some)
            level += 1
        self._finish(level, shift)

    def _goes_on(self, level: int) -> bool:
        """Whether a level is not left to the block that goes up to the top."""
        return level < len(self.levels) - 2 and self._entries(level) > _FEW

    def _finish(self, level: int, shift: float) -> None:
        threads = min(TOP, -(-self._entries(level) // 32) * 32)
        arguments = self.offsets, level, shift, float(self.filled)
        outputs = self.numbers, self._bad, self._summary
        launch_grid(finish_values_kernel(), 1, threads, *arguments, *outputs)

"""Different items drawn by value on the device: in rounds, as on the CPU.

See `rlcpu.replay.tree`. Leaves that come again are dropped, and what is missing is drawn in the
next round; where that drops half of the draws or more, what was found is taken out of the tree
until the end. Two cases without parallel work are the host's: where all weights are zero, and where
they are below the rounding errors of their sums.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.replay.distinct import (
    THREADS,
    compact_kernel,
    exchange_kernel,
    release_kernel,
)
from rlcpu.cuda.replay.value_kernels import draw_values_kernel, stamp_values_kernel
from rlcpu.cuda.replay.value_tree import ValueTree
from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.random import u64, uniform53
from rlcpu.replay.tree import GROUP, Stream, draw_uniform


@functools.cache
def uniform_kernel() -> Any:
    """(stream, filled, out): different numbers below `filled`, each as likely; the host's."""

    @kernel(fastmath=EXACT)
    def draw(stream, filled, out):
        stream[1] += u64(draw_uniform(Stream(stream[0], stream[1]), filled, out))

    return draw


def draw_values(tree: ValueTree, stream: npt.NDArray[np.uint64], out: DeviceArray) -> int:
    """Fill `out`, (n,) int64, with different items, by a stream, which is moved on.

    Returns:
        How many were found: less than n if no others have a weight. The stream is not moved then.
    """
    if out.size > tree.filled:
        return 0
    known = tree.summary()
    if known.highest <= 0.0:
        chosen = np.empty(out.size, np.int64)
        uniform_kernel()(stream, tree.filled, chosen)
        out.memory.copy_to_device(chosen)
        return out.size
    drawing = _Drawing(tree, stream, known.shift, known.weight, out)
    try:
        while drawing.goes_on():
            pass
    finally:
        found, draws = drawing.finish()
    if found == out.size:
        stream[1] += np.uint64(draws)
    return found


def scan(values: npt.NDArray[Any], shift: float, u: float) -> int:
    """Item drawn by looking at every value, or -1 if none has a weight; u is in [0, 1)."""
    weights = values + shift
    ends = np.cumsum(weights)  # one after the other, as the CPU's kernel adds
    weighty = np.flatnonzero(weights > 0.0)
    if not weighty.size:
        return -1
    begins = np.where(weighty > 0, ends[weighty - 1], 0.0)
    reached = np.flatnonzero(u * ends[-1] >= begins)
    return int(weighty[reached[-1] if reached.size else 0])


class Round(NamedTuple):
    """What came of one round.

    Attributes:
        drawn: how many were drawn.
        fresh: how many of them are new.
    """

    drawn: int
    fresh: int


class _Drawing:
    """One call: what was found so far, and what of it is out of the tree."""

    def __init__(
        self,
        tree: ValueTree,
        stream: npt.NDArray[np.uint64],
        shift: float,
        weight: float,
        out: DeviceArray,
    ) -> None:
        self.tree, self.stream, self.shift, self.out = tree, stream, shift, out
        self.weight, self.batch = weight, out.size
        self.found, self.removed, self.draws = 0, 0, 0
        self.candidates = arrays.empty(out.size, np.int64)
        self.counter = arrays.zeros(1, np.int64)
        self.values = arrays.from_host(np.full(out.size, -shift))  # of weight 0

    def _at(self) -> Any:
        """Counter of the next random number."""
        return np.uint64((int(self.stream[1]) + self.draws) % 2**64)

    def goes_on(self) -> bool:
        """Draw a round; whether there is more to be drawn."""
        count, fresh = self._draw_round()
        self.batch = max(GROUP, 2 * fresh)
        if fresh == 0 and self.removed == self.found and not self._look_at_all():
            return False
        if self.found < self.out.size and (self.removed or 2 * fresh <= count):
            self._exchange(self.removed, self.found)
            self.removed = self.found
            self.weight = self.tree.summary().weight
        return self.found < self.out.size

    def _draw_round(self) -> Round:
        """Draw leaves, and add those that are new to `out`."""
        count = min(self.out.size - self.found, self.batch) if self.weight > 0.0 else 0
        if not count:
            return Round(0, 0)
        tree, before, drawn = self.tree, self.found, self.candidates.view((count,))
        shifts = self.shift, float(tree.filled)
        arguments = *shifts, self.stream[0], self._at(), drawn
        launch(draw_values_kernel(), count, tree.numbers, tree.offsets, *arguments)
        launch(stamp_values_kernel(), count, tree.numbers, *shifts, drawn, tree.stamps)
        block = drawn, tree.stamps, self.out, self.counter
        launch_grid(compact_kernel(), 1, THREADS, *block)
        self.found = int(self.counter.copy_to_host()[0])
        self.draws += count
        return Round(count, self.found - before)

    def _look_at_all(self) -> bool:
        """Draw one leaf by looking at every one; whether there is one with a weight."""
        values = self.tree.leaves.view((self.tree.filled,)).copy_to_host()
        with np.errstate(over="ignore"):
            u = uniform53.py_func(self.stream[0], self._at())
        leaf = scan(values, self.shift, u)
        if leaf < 0:
            return False
        self.out.view((1,), self.found).memory.copy_to_device(np.array([leaf]))
        self.found, self.draws = self.found + 1, self.draws + 1
        self.counter.memory.copy_to_device(np.array([self.found]))
        return True

    def _exchange(self, begin: int, end: int) -> None:
        """Exchange the values of what was found for those that are kept, and the other way."""
        if end > begin:
            leaves, own = (a.view((end - begin,), begin) for a in (self.out, self.values))
            launch(exchange_kernel(), leaves.size, self.tree.numbers, leaves, own)
            self.tree.refresh(leaves, self.shift)

    def finish(self) -> tuple[int, int]:
        """Put everything back; how many leaves were found, and how many random numbers it took."""
        if self.removed:
            self._exchange(0, self.removed)
        if self.found:
            launch(release_kernel(), self.found, self.out.view((self.found,)), self.tree.stamps)
        return self.found, self.draws

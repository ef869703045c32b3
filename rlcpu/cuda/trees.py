"""Trees of sums on the device: drivers of the rules in `rlcpu.replay.tree`.

The same numbers as on the CPU, bit for bit: sums, and what is drawn for the same seed. Leaves are
values on the device; priorities are values with a shift of 0, and all leaves are items.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import device
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, cuda, launch, xp
from rlcpu.replay import tree_cpu
from rlcpu.replay.tree import (
    WIDTH,
    find_target,
    refresh,
    scan,
    unpack,
    walk,
    weight,
    weight_of_all,
)

#: Most threads of the block that recomputes the upper levels; the simulator starts each of them.
_TOP = 32 if SIMULATED else 512
#: Entries up to which one block recomputes a level and all above it, which saves launches.
_FEW = 8 * _TOP


# ---------------------------------------------------------------- kernels


class TreeMemory(NamedTuple):
    """A tree, as kernels take it; `levels_of` has its levels."""

    numbers: Any  # float64, the memory of all levels
    offsets: Any  # (num_levels + 1,) int64, where levels begin, see `rlcpu.replay.tree.layout`
    filled: float  # how many leaves are items


def levels_of(tree):
    """Return the `rlcpu.replay.tree.Levels` of a tree."""
    return unpack(tree.numbers, tree.offsets, tree.filled)


@kernel(exact=True)
def claim(indices, stamps):
    """Stamp each of the leaves at `indices` with 1 + the last position where it is."""
    k = cuda.grid(1)
    if k < indices.size:
        cuda.atomic.max(stamps, indices[k], np.int32(k + 1))


@kernel(exact=True)
def write(indices, leaves, stamps, numbers):
    """Write leaves, of equal indices the last one, and zeros to their stamps."""
    k = cuda.grid(1)
    if k < indices.size and stamps[indices[k]] == k + 1:
        numbers[indices[k]] = leaves[k]
        stamps[indices[k]] = 0


@kernel(exact=True)
def refresh_level(tree, level, is_whole, span, indices):
    """Recompute the sums of a level: all if `is_whole`, or those above the leaves at `indices`.

    Each entry is the sum of `span` leaves. Two threads that recompute one entry write the same
    numbers.
    """
    k, offsets = cuda.grid(1), tree.offsets
    count = (offsets[level] - offsets[level - 1]) // WIDTH if is_whole else indices.size
    if k < count:
        refresh(levels_of(tree), level, k if is_whole else indices[k] // span)


@kernel(exact=True)
def refresh_top(tree, level):
    """Recompute a level and all above it, by one block."""
    levels, offsets = levels_of(tree), tree.offsets
    for above in range(level, offsets.size - 1):
        entries = (offsets[above] - offsets[above - 1]) // WIDTH
        for node in range(cuda.threadIdx.x, entries, cuda.blockDim.x):
            refresh(levels, above, node)
        cuda.syncthreads()


@kernel(exact=True)
def summarise(tree, out):
    """Write the sum of all weights, and the shift, to `out`, (2,) float64."""
    if cuda.grid(1) == 0:
        levels = levels_of(tree)
        out[0], out[1] = weight_of_all(levels), levels.shift


@kernel(exact=True)
def draw(tree, key, counter, stratified, avoids_zero, out):
    """Draw leaves by weight, a thread each; draw k has stratum k. See `rlcpu.replay.tree_cpu`.

    Sums are rounded, so that a target may fall between the shares of two leaves, and a leaf without
    weight be drawn; with `avoids_zero` one that has a weight takes its place.
    """
    k = cuda.grid(1)
    if k < out.size:
        levels = levels_of(tree)
        all_weights = weight_of_all(levels)
        width = all_weights / out.size if stratified else 0.0
        target = find_target(key, counter, all_weights, width, k)
        targets, leaves = cuda.local.array(1, np.float64), cuda.local.array(1, np.int64)
        targets[0] = target
        walk(levels, targets, leaves, 1)
        leaf = leaves[0]
        if avoids_zero and not weight(levels.sums[leaf], levels.shift, levels.filled, leaf) > 0.0:
            leaf = scan(levels, target / all_weights)
        out[k] = leaf


# ---------------------------------------------------------------- memory


def wants_all(count: int, entries: int) -> bool:
    """Tell whether to recompute a level as a whole, and not only above so many leaves.

    A level's entry takes 72 bytes of memory traffic, a leaf's parent found by its index 104: where
    there are 2 entries for 3 leaves the whole level takes less, on paper.
    """
    return 2 * entries <= 3 * count


class DeviceTree(tree_cpu.Tree):
    """`rlcpu.replay.tree_cpu.Tree` on the device.

    Attributes:
        offsets: (num_levels + 1,) int64 on the device, where levels begin.
        stamps: (capacity,) int32 of zeros, room for marks.
    """

    def __init__(self, capacity: int, extremes: bool) -> None:
        super().__init__(capacity, extremes)
        self._begins = self.offsets.tolist()
        self.numbers, self.offsets = device.asarray(self.numbers), device.asarray(self.offsets)
        self.stamps = device.zeros(capacity, np.int32)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def _top(self) -> Any:
        return device.to_host(super()._top())

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and largest priority above zero."""
        leaves = self.leaves
        return float(xp.where(leaves > 0.0, leaves, np.inf).min()), float(leaves.max())

    # ------------------------------------------------------------ upkeep

    def leaves_of(self, priorities: Any, epsilon: float, alpha: float) -> Any:
        """Return the leaves (n,) of priorities (n,) float64: (priority + epsilon) ** alpha."""
        return (priorities + epsilon) ** alpha

    def update(self, indices: Any, leaves: Any, filled: int | None = None) -> float:
        """Write leaves, of equal indices the last one, and return the largest, at least 0.0."""
        if not indices.size:
            return 0.0
        launch(claim, indices.size, indices, self.stamps)
        launch(write, indices.size, indices, leaves, self.stamps, self.numbers)
        self._refresh(indices, filled)
        return max(float(leaves.max()), 0.0)

    def write_runs(
        self, num_envs: int, begin: int, end: int, leaves: Any, filled: int | None = None
    ) -> None:
        """Write the leaves of new items; see `rlcpu.replay.tree_cpu.write_runs`."""
        items = self.capacity // num_envs
        count = min(max(end - begin, 0), items)
        if count:
            slots = (end - count + xp.arange(count)) % items  # of each environment, round its ring
            values = device.asarray(leaves)  # of the newest items, or one number for all
            values = values[values.size - count :] if values.size > 1 else values
            self.leaves.reshape(num_envs, items)[:, slots] = values
            indices = xp.arange(num_envs)[:, None] * items + slots
            self._refresh(indices.reshape(-1), filled)

    def rebuild(self, filled: int | None = None) -> None:
        """Recompute everything above the leaves."""
        self._refresh(None, filled)

    def _memory(self, filled: int | None) -> TreeMemory:
        """Return the tree as kernels take it; all leaves are items where `filled` is None."""
        count = self.capacity if filled is None else filled
        return TreeMemory(self.numbers, self.offsets, float(count))

    def _refresh(self, indices: Any, filled: int | None) -> None:
        """Recompute the sums above the leaves at `indices`, or all sums for None."""
        level, tree = 1, self._memory(filled)
        while level < len(self._begins) - 2 and self._entries(level) > _FEW:
            entries, span = self._entries(level), WIDTH**level
            if indices is None or wants_all(indices.size, entries):
                unused = self.offsets  # in the place of indices, of which it has the dtype
                launch(refresh_level, entries, tree, level, True, span, unused)
            else:
                launch(refresh_level, indices.size, tree, level, False, span, indices)
            level += 1
        threads = min(_TOP, -(-self._entries(level) // 32) * 32)  # whole warps
        launch(refresh_top, threads, tree, level, block=threads, grid=1)

    def _entries(self, level: int) -> int:
        """Return sums of a level, without its padding."""
        return (self._begins[level] - self._begins[level - 1]) // WIDTH

    # ------------------------------------------------------------ drawing

    def draw(
        self, stream: Any, out: Any, stratified: bool = False, num_threads: int | None = None
    ) -> float:
        """Fill `out` with leaves drawn by priority, and return the sum of all; ValueError at 0."""
        total = self.total()
        if not total > 0.0:
            raise self.nothing_to_draw()
        key, counter = stream
        avoids_zero = True
        tree = self._memory(filled=None)
        launch(draw, out.size, tree, key, counter, stratified, avoids_zero, out)
        stream[1] += np.uint64(out.size)
        return total

    def weights(self, indices: Any, total: float, beta: float) -> tuple[Any, Any]:
        """Return probabilities, float64, and importance weights, float32, of drawn items."""
        leaves = self.numbers[indices]
        ratios = xp.minimum(leaves / leaves.min(), 3e38).astype(np.float32)  # which goes to 3.4e38
        return leaves / total, xp.exp(xp.log(ratios) * np.float32(-beta))

    def draw_distinct(
        self,
        stream: Any,
        out: Any,
        stratified: bool = False,
        filled: int | None = None,
        fills: bool = False,
    ) -> bool:
        """Fill `out` with different leaves, by weight; False where fewer have one.

        With `fills` the values that have none follow, all as likely.

        In rounds, as on the CPU. What they do not find, because all weights are zero or below the
        rounding errors of their sums, the CPU draws from a copy of the tree.
        """
        if draws := self._draw_rounds(stream, out, stratified, filled):
            stream[1] += np.uint64(draws)
            return True
        host, drawn = copy.copy(self), np.empty(out.size, np.int64)
        host.numbers, host.offsets = device.to_host(self.numbers), np.array(self._begins)
        is_full = tree_cpu.Tree.draw_distinct(host, stream, drawn, stratified, filled, fills)
        if is_full:
            out[:] = device.asarray(drawn)
        return is_full

    def _draw_rounds(self, stream: Any, out: Any, stratified: bool, filled: int | None) -> int:
        """Draw different leaves until `out` is full, and return how many random numbers it took.

        0 if a round finds nothing. Leaves that were drawn have no weight until the end, so that no
        round draws them again: their value is minus the shift meanwhile, see `rlcpu.replay.tree`.
        """
        tree, wanted, batch, avoids_zero = self._memory(filled), out.size, out.size, False
        if wanted > tree.filled:
            return 0
        done, removed, draws, summary = 0, 0, 0, device.empty(2, np.float64)
        removed_values = device.empty(wanted, np.float64)
        try:
            while done < wanted:
                launch(summarise, 1, tree, summary)
                all_weights, shift = device.to_host(summary).tolist()
                count = min(wanted - done, batch) if all_weights > 0.0 else 0
                drawn = device.empty(count, np.int64)
                counter = np.uint64((int(stream[1]) + draws) % 2**64)
                launch(draw, count, tree, stream[0], counter, stratified, avoids_zero, drawn)
                fresh = self._fresh(drawn, shift, tree.filled)
                if not fresh.size:
                    return 0
                out[done : done + fresh.size] = fresh
                done, draws = done + fresh.size, draws + count
                batch = max(tree_cpu.GROUP, 2 * fresh.size)  # as on the CPU
                if done < wanted:
                    removed_values[removed:done] = self.numbers[fresh]
                    self._put(fresh, -shift, filled)
                    removed = done
            return draws
        finally:
            self._put(out[:removed], removed_values[:removed], filled)

    def _fresh(self, drawn: Any, shift: float, filled: float) -> Any:
        """Return the leaves that have a weight and are new, each once, in order."""
        drawn = drawn[(self.numbers[drawn] + shift > 0.0) & (drawn < filled)]
        if not drawn.size:
            return drawn
        _, first = xp.unique(drawn, return_index=True)
        return drawn[xp.sort(first)]

    def _put(self, leaves: Any, numbers: Any, filled: int | None) -> None:
        """Write numbers to different leaves, and recompute the sums above."""
        if leaves.size:
            self.numbers[leaves] = numbers
            self._refresh(leaves, filled)

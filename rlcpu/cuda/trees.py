"""Trees of sums on the device: drivers of the rules in `rlcpu.replay.tree`.

The same numbers as on the CPU, bit for bit: sums, and what is drawn for the same seed. `numbers` is
the memory of all levels, which begin at `offsets`, and `filled` how many leaves are items. Leaves
are values on the device; priorities are values with a shift of 0, and `filled` is the capacity.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlcpu.cuda import device
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, cuda, launch, xp
from rlcpu.replay import tree_cpu
from rlcpu.replay.tree import (
    WIDTH,
    find_target,
    layout,
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
def refresh_level(numbers, offsets, filled, level, is_whole, below, indices):
    """Recompute the sums of a level: all if `is_whole`, or those above the leaves at `indices`.

    Each entry is the sum of `below` leaves. Two threads that recompute one entry write the same
    numbers.
    """
    k = cuda.grid(1)
    count = (offsets[level] - offsets[level - 1]) // WIDTH if is_whole else indices.size
    if k < count:
        refresh(unpack(numbers, offsets, filled), level, k if is_whole else indices[k] // below)


@kernel(exact=True)
def refresh_top(numbers, offsets, filled, level):
    """Recompute a level and all above it, by one block."""
    levels = unpack(numbers, offsets, filled)
    for above in range(level, offsets.size - 1):
        entries = (offsets[above] - offsets[above - 1]) // WIDTH
        for node in range(cuda.threadIdx.x, entries, cuda.blockDim.x):
            refresh(levels, above, node)
        cuda.syncthreads()


@kernel(exact=True)
def summarise(numbers, offsets, filled, out):
    """Return the sum of all weights, and the shift, to (2,) float64."""
    if cuda.grid(1) == 0:
        levels = unpack(numbers, offsets, filled)
        out[0], out[1] = weight_of_all(levels), levels.shift


@kernel(exact=True)
def draw(numbers, offsets, filled, key, counter, stratified, avoids_zero, out):
    """Draw leaves by weight, a thread each; draw k has stratum k. See `rlcpu.replay.tree_cpu`.

    Sums are rounded, so that a target may fall between the shares of two leaves, and a leaf without
    weight be drawn; with `avoids_zero` one that has a weight takes its place.
    """
    k = cuda.grid(1)
    if k < out.size:
        levels = unpack(numbers, offsets, filled)
        all_weights = weight_of_all(levels)
        width = all_weights / out.size if stratified else 0.0
        target = find_target(key, counter, all_weights, width, k)
        targets, nodes = cuda.local.array(1, np.float64), cuda.local.array(1, np.int64)
        targets[0] = target
        walk(levels, targets, nodes, 1)
        leaf = nodes[0]
        if avoids_zero and not weight(numbers[leaf], levels.shift, filled, leaf) > 0.0:
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
        offsets: (num_levels + 1,) int64 on the device, see `rlcpu.replay.tree.layout`.
        stamps: (capacity,) int32 of zeros, room for marks.
    """

    def __init__(self, capacity: int, extremes: bool) -> None:
        super().__init__(capacity, extremes)
        self.numbers = device.asarray(self.numbers)
        self._begins = layout(capacity).tolist()
        self.offsets = device.asarray(np.array(self._begins))
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
            slots = ((end - count) % items + xp.arange(count)) % items
            values = device.asarray(leaves)
            values = values[values.size - count :] if values.size > 1 else values
            self.leaves.reshape(num_envs, items)[:, slots] = values
            indices = xp.arange(num_envs)[:, None] * items + slots
            self._refresh(indices.reshape(-1), filled)

    def rebuild(self, filled: int | None = None) -> None:
        """Recompute everything above the leaves."""
        self._refresh(None, filled)

    def _levels(self, filled: int | None) -> tuple[Any, Any, float]:
        """Return the arrays that kernels unpack; priorities are values, all of which are items."""
        return self.numbers, self.offsets, float(self.capacity if filled is None else filled)

    def _refresh(self, indices: Any, filled: int | None) -> None:
        """Recompute the sums above the leaves at `indices`, or all sums for None."""
        level, tree = 1, self._levels(filled)
        while level < len(self._begins) - 2 and self._entries(level) > _FEW:
            entries = self._entries(level)
            is_whole = indices is None or wants_all(indices.size, entries)
            leaves = self.offsets if indices is None else indices
            count = entries if is_whole else leaves.size
            launch(refresh_level, count, *tree, level, is_whole, WIDTH**level, leaves)
            level += 1
        threads = min(_TOP, -(-self._entries(level) // 32) * 32)
        launch(refresh_top, threads, *tree, level, block=threads, grid=1)

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
        self._launch_draw(None, stream[0], stream[1], stratified, True, out)
        stream[1] += np.uint64(out.size)
        return total

    def _launch_draw(
        self,
        filled: int | None,
        key: Any,
        counter: Any,
        stratified: bool,
        avoids_zero: bool,
        out: Any,
    ) -> None:
        launch(draw, out.size, *self._levels(filled), key, counter, stratified, avoids_zero, out)

    def weights(self, indices: Any, total: float, beta: float) -> tuple[Any, Any]:
        """Return probabilities, float64, and importance weights, float32, of drawn items."""
        leaves = self.numbers[indices]
        ratios = xp.minimum(leaves / leaves.min(), 3e38).astype(np.float32)
        return leaves / total, xp.exp(xp.log(ratios) * np.float32(-beta))

    def draw_distinct(
        self, stream: Any, out: Any, stratified: bool = False, filled: int | None = None
    ) -> bool:
        """Fill `out` with different leaves, by weight; False where fewer have one.

        In rounds, as on the CPU. What they do not find, because all weights are zero or below the
        rounding errors of their sums, the CPU draws from a copy of the tree.
        """
        if draws := self._draw_rounds(stream, out, stratified, filled):
            stream[1] += np.uint64(draws)
            return True
        host, drawn = copy.copy(self), np.empty(out.size, np.int64)
        host.numbers = device.to_host(self.numbers)
        is_full = tree_cpu.Tree.draw_distinct(host, stream, drawn, stratified, filled)
        if is_full:
            out[:] = device.asarray(drawn)
        return is_full

    def _draw_rounds(self, stream: Any, out: Any, stratified: bool, filled: int | None) -> int:
        """Draw different leaves until `out` is full, and return how many random numbers it took.

        0 if a round finds nothing. Leaves that were drawn have no weight until the end, see
        `rlcpu.replay.tree_cpu`.
        """
        tree, wanted, batch = self._levels(filled), out.size, out.size
        if wanted > tree[-1]:
            return 0
        done, removed, draws, summary = 0, 0, 0, device.empty(2, np.float64)
        removed_weights = device.empty(wanted, np.float64)
        try:
            while done < wanted:
                launch(summarise, 1, *tree, summary)
                weight, shift = device.to_host(summary).tolist()
                count = min(wanted - done, batch) if weight > 0.0 else 0
                drawn = device.empty(count, np.int64)
                counter = np.uint64((int(stream[1]) + draws) % 2**64)
                self._launch_draw(filled, stream[0], counter, stratified, False, drawn)
                fresh = self._fresh(drawn, shift, tree[-1])
                if not fresh.size:
                    return 0
                out[done : done + fresh.size] = fresh
                done, draws, batch = done + fresh.size, draws + count, max(64, 2 * fresh.size)
                if done < wanted:
                    removed_weights[removed:done] = self.numbers[fresh]
                    self._put(fresh, -shift, filled)
                    removed = done
            return draws
        finally:
            self._put(out[:removed], removed_weights[:removed], filled)

    def _fresh(self, drawn: Any, shift: float, filled: float) -> Any:
        """Return the leaves that have a weight and are new, each once, in order."""
        drawn = drawn[(self.numbers[drawn] + shift > 0.0) & (drawn < filled)]
        if not drawn.size:
            return drawn
        _, first = xp.unique(drawn, return_index=True)
        return drawn[xp.sort(first)]

    def _put(self, leaves: Any, numbers: Any, filled: int | None) -> None:
        """Write numbers to different leaves."""
        if leaves.size:
            self.numbers[leaves] = numbers
            self._refresh(leaves, filled)

"""Drivers of trees of values: writing, what is above the leaves, drawing."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.nodes import WIDTH
from rlcpu.cuda.replay.value_nodes import refresh, total_weight, walk, walk_carefully
from rlcpu.kernels.random import u64, uniform53


@functools.cache
def outside_kernel() -> Any:
    """(numbers, low, high, bad): lower `bad` to the first position outside [low, high].

    `bad` is (1,) int64; NaN is in no range.
    """

    @kernel(exact=True)
    def find(numbers, low, high, bad):
        k = cuda.grid(1)
        if k < numbers.size and not low <= numbers[k] <= high:
            cuda.atomic.min(bad, 0, np.int64(k))

    return find


@functools.cache
def magnitudes_kernel() -> Any:
    """(values, out): absolute values, float64."""

    @kernel(exact=True)
    def find(values, out):
        k = cuda.grid(1)
        if k < out.size:
            out[k] = abs(np.float64(values[k]))

    return find


@functools.cache
def write_run_kernel() -> Any:
    """(values, skipped, begin, count, capacity, numbers): `count` leaves from `begin` on.

    Going round; `values` is (skipped + count,) or (1,), real.
    """

    @kernel(exact=True)
    def write(values, skipped, begin, count, capacity, numbers):
        k = cuda.grid(1)
        if k < count:
            leaf = begin + k
            value = np.float64(values[skipped + k if values.size > 1 else 0])
            numbers[leaf if leaf < capacity else leaf - capacity] = value

    return write


@functools.cache
def refresh_run_kernel() -> Any:
    """(offsets, level, first, count, filled, numbers): recompute `count` entries of a level.

    From `first` on, going round.
    """

    @kernel(exact=True)
    def recompute(offsets, level, first, count, filled, numbers):
        k = cuda.grid(1)
        if k < count:
            entries = (offsets[level] - offsets[level - 1]) // WIDTH
            node = first + k
            refresh(numbers, offsets, level, node if node < entries else node - entries, filled)

    return recompute


@functools.cache
def refresh_above_kernel() -> Any:
    """(indices, capacity, offsets, level, filled, numbers): recompute the entries above leaves.

    Two threads that recompute one entry write the same numbers.
    """

    @kernel(exact=True)
    def recompute(indices, capacity, offsets, level, filled, numbers):
        k = cuda.grid(1)
        if k < indices.size:
            node = indices[k]
            if 0 <= node < capacity:
                for _ in range(level):
                    node //= WIDTH
                refresh(numbers, offsets, level, node, filled)

    return recompute


@functools.cache
def finish_values_kernel() -> Any:
    """(offsets, level, shift, filled, numbers, bad, summary): a level and all above, by one block.

    `summary` is (4,) float64, overwritten with the first bad position, or -1; the shift, which is
    the argument if that is not negative; the sum of all weights; and the largest of them. `bad` is
    left at `none`.
    """
    none = np.int64(2**62)

    @kernel(exact=True)
    def finish(offsets, level, shift, filled, numbers, bad, summary):
        top = offsets.size - 2
        for here in range(level, top + 1):
            entries = (offsets[here] - offsets[here - 1]) // WIDTH
            for node in range(cuda.threadIdx.x, entries, cuda.blockDim.x):
                refresh(numbers, offsets, here, node, filled)
            cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            size = offsets[top + 1]
            lows, inner = offsets[top] - offsets[1] + size, size - offsets[1]
            least, most = np.inf, -np.inf
            for j in range(WIDTH):
                least = min(least, numbers[lows + j])
                most = max(most, numbers[lows + inner + j])
            own = shift if shift >= 0.0 else max(-least, 0.0)
            summary[0] = -1.0 if bad[0] == none else np.float64(bad[0])
            summary[1] = own
            summary[2] = total_weight(numbers, offsets, own, filled)
            summary[3] = most + own
            bad[0] = none

    return finish


@functools.cache
def draw_values_kernel() -> Any:
    """(numbers, offsets, shift, filled, key, counter, out): leaves in proportion to their weights.

    Key and counter of the stream are uint64; `out` is (n,) int64, where the sum of all weights is 0
    nonsense, and leaves without a weight where that is below the rounding errors of the sums.
    """

    @kernel(dtype=np.float64, exact=True)
    def draw(numbers, offsets, shift, filled, key, counter, out):
        k = cuda.grid(1)
        if k < out.size:
            weight = total_weight(numbers, offsets, shift, filled)
            x = uniform53(key, u64(counter + u64(k))) * weight
            leaf = walk(numbers, offsets, shift, filled, x)
            if not (leaf < filled and numbers[leaf] + shift > 0.0):
                leaf = walk_carefully(numbers, offsets, shift, filled, x)
            out[k] = leaf

    return draw


@functools.cache
def stamp_values_kernel() -> Any:
    """(numbers, shift, filled, candidates, stamps): see `rlcpu.cuda.replay.distinct`.

    n less the first position of each leaf that has a weight.
    """

    @kernel(exact=True)
    def stamp(numbers, shift, filled, candidates, stamps):
        k = cuda.grid(1)
        if k < candidates.size:
            leaf = candidates[k]
            if leaf < filled and numbers[leaf] + shift > 0.0:
                cuda.atomic.max(stamps, leaf, np.int32(candidates.size - k))

    return stamp

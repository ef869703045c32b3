"""Drivers of the upkeep of trees: write leaves, and recompute what is above them."""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.octets import prefetch
from rlcpu.replay.tree import Kind, make_propagate, make_propagate_range, unpack

_AHEAD = 16  # leaves asked for before they are written: cache misses overlap, 30 % at 1,600 of 2^20


@functools.cache
def update_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, indices, leaves): write leaves; the last of equal indices counts.

    Indices and leaves are (n,) int64 and float64.
    """
    propagate, make_bias = make_propagate(kind), kind.bias

    @kernel(fastmath=EXACT)
    def update(numbers, capacity, filled, indices, leaves):  # type: ignore[no-untyped-def]
        tree, count = unpack(numbers, capacity), indices.size
        for k in range(count):
            prefetch(tree.sums, indices[min(k + _AHEAD, count - 1)])
            tree.sums[indices[k]] = leaves[k]
        propagate(tree, make_bias(tree, filled), indices.copy(), count)

    return update


@functools.cache
def assign_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, ranges, leaves): fill ranges of leaves, one number each.

    `ranges` is (n, 2) int64, begin and end of each; where it is empty nothing happens.
    """
    propagate_range, make_bias = make_propagate_range(kind), kind.bias

    @kernel(fastmath=EXACT)
    def assign(numbers, capacity, filled, ranges, leaves):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        bias = make_bias(tree, filled)
        for k in range(ranges.shape[0]):
            begin, end = ranges[k, 0], ranges[k, 1]
            if end > begin:
                for leaf in range(end - begin):
                    tree.sums[begin + leaf] = leaves[k]
                propagate_range(tree, bias, begin, end)

    return assign


@functools.cache
def write_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, begin, leaves): write a range of leaves from `begin` on."""
    propagate_range, make_bias = make_propagate_range(kind), kind.bias

    @kernel(fastmath=EXACT)
    def write(numbers, capacity, filled, begin, leaves):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        for k in range(leaves.size):
            tree.sums[begin + k] = leaves[k]
        propagate_range(tree, make_bias(tree, filled), begin, begin + leaves.size)

    return write


@functools.cache
def rebuild_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled): recompute everything above the leaves."""
    propagate_range, make_bias = make_propagate_range(kind), kind.bias

    @kernel(fastmath=EXACT)
    def rebuild(numbers, capacity, filled):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        propagate_range(tree, make_bias(tree, filled), 0, tree.offsets[1])

    return rebuild


@kernel(fastmath=EXACT)
def first_offender(indices, numbers, capacity, low, high):  # type: ignore[no-untyped-def]
    """Position of the first pair with an index or a number out of its range, or -1.

    Indices are to be in [0, capacity), numbers in [low, high]; NaN is in no range.
    """
    offenders = 0
    for k in range(indices.size):
        index_fits = (indices[k] >= 0) & (indices[k] < capacity)
        number_fits = (numbers[k] >= low) & (numbers[k] <= high)
        offenders += not (index_fits & number_fits)
    if offenders:
        for k in range(indices.size):
            if not (0 <= indices[k] < capacity and low <= numbers[k] <= high):
                return k
    return -1

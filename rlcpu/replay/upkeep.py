"""Drivers of the upkeep of trees: write leaves, and recompute what is above them."""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.octets import prefetch
from rlcpu.replay.tree import PRIORITIES, Kind, make_propagate, make_propagate_range, unpack

_AHEAD = 16  # leaves asked for before they are written: 8 % of an update of 1,600 of 2^20


@functools.cache
def update_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, indices, leaves): write leaves; the last of equal indices counts.

    Indices and leaves are (n,) int64 and float64; the indices are overwritten. Returns the largest
    leaf, at least 0.0.
    """
    propagate, make_bias = make_propagate(kind), kind.bias

    @kernel(fastmath=EXACT)
    def update(numbers, capacity, filled, indices, leaves):  # type: ignore[no-untyped-def]
        tree, count, largest = unpack(numbers, capacity), indices.size, 0.0
        for k in range(count):
            prefetch(tree.sums, indices[min(k + _AHEAD, count - 1)])
            tree.sums[indices[k]] = leaves[k]
            largest = max(largest, leaves[k])
        propagate(tree, make_bias(tree, filled), indices, count)
        return largest

    return update


@functools.cache
def mark_kernel() -> Any:
    """(numbers, capacity, num_envs, items, begin, end, priority): the same for a run of items.

    Items have numbers that go on for ever; number i is at leaf `env * items + i % items` of every
    environment, and the last ones of [begin, end) count.
    """
    propagate_range, make_bias = make_propagate_range(PRIORITIES), PRIORITIES.bias

    @inline_exact
    def fill(tree, bias, begin, end, priority):  # type: ignore[no-untyped-def]
        for leaf in range(end - begin):
            tree.sums[begin + leaf] = priority
        if end > begin:
            propagate_range(tree, bias, begin, end)

    @kernel(fastmath=EXACT)
    def mark(numbers, capacity, num_envs, items, begin, end, priority):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        bias, count = make_bias(tree, 0), min(max(end - begin, 0), items)
        start = (end - count) % items
        for env in range(num_envs):
            leaf = env * items
            fill(tree, bias, leaf + start, leaf + min(start + count, items), priority)
            fill(tree, bias, leaf, leaf + max(start + count - items, 0), priority)

    return mark


@functools.cache
def write_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, begin, leaves): write leaves from `begin` on, going round.

    There are at most `capacity` of them.
    """
    propagate_range, make_bias = make_propagate_range(kind), kind.bias

    @kernel(fastmath=EXACT)
    def write(numbers, capacity, filled, begin, leaves):  # type: ignore[no-untyped-def]
        tree, count = unpack(numbers, capacity), leaves.size
        for k in range(count):
            leaf = begin + k
            tree.sums[leaf if leaf < capacity else leaf - capacity] = leaves[k]
        bias, end = make_bias(tree, filled), begin + count
        if count:
            propagate_range(tree, bias, begin, min(end, capacity))
        if end > capacity:
            propagate_range(tree, bias, 0, end - capacity)

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


@kernel(fastmath=EXACT)
def first_outside(numbers, low, high):  # type: ignore[no-untyped-def]
    """Position of the first number that is not in [low, high], as NaN is, or -1."""
    for k in range(numbers.size):
        if not low <= numbers[k] <= high:
            return k
    return -1

"""Layout and upkeep of trees of eight children per node, of float64, level by level.

The leaves come first, then their parents, up to a single node of eight. A node is a cache line, and
holds the sums of its children: a million leaves are seven levels deep, of which only the last two
or three are not in the processor's nearest cache. Parents are always recomputed from all of their
children, never corrected by differences: nothing drifts, and a leaf of zero leaves no trace.

Two kinds of tree share this code. Leaves that are *priorities* are weights themselves, and zero
means that there is no item. Leaves that are *values* may be negative: an item's weight is
`value + shift`, the first `filled` leaves are items, and the shift may change at any time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels import octets
from rlcpu.kernels.compile import inline_exact
from rlcpu.kernels.octets import WIDTH, highest, load, lowest, total
from rlcpu.replay.memory import allocate

Array = npt.NDArray[Any]


class Tree(NamedTuple):
    """One tree, as kernels see it.

    Attributes:
        sums: (offsets[-1],) float64, all levels, each padded to whole nodes.
        lows: (offsets[-1] - offsets[1],) smallest item below, from the leaves' parents on; or
            empty: not kept.
        highs: likewise, largest.
        offsets: (num_levels + 1,) int64, beginning of each level in `sums`.
    """

    sums: Any
    lows: Any
    highs: Any
    offsets: Any


@inline_exact
def layout(capacity):  # type: ignore[no-untyped-def]
    """(num_levels + 1,) int64 beginnings of the levels of a tree, and the end of the last one."""
    offsets, levels = np.zeros(32, np.int64), 1
    entries = (capacity + WIDTH - 1) // WIDTH * WIDTH
    offsets[1] = entries
    while entries > WIDTH or levels < 2:
        entries = (entries // WIDTH + WIDTH - 1) // WIDTH * WIDTH
        offsets[levels + 1] = offsets[levels] + entries
        levels += 1
    return offsets[: levels + 1]


@inline_exact
def unpack(numbers, capacity):  # type: ignore[no-untyped-def]
    """The `Tree` of so many leaves in one array: all levels of sums, then of lows and of highs.

    One array, because each costs 0.04 us a call, and a tuple of them 0.5 us.
    """
    offsets = layout(capacity)
    size = offsets[-1]
    inner = size - offsets[1] if numbers.size > size else 0
    highs = numbers[size + inner : size + 2 * inner]
    return Tree(numbers[:size], numbers[size : size + inner], highs, offsets)


def make_tree(capacity: int, extremes: bool) -> Array:
    """The numbers of a tree without items, and whether lows and highs are kept in it."""
    offsets = layout.py_func(capacity)
    size, inner = int(offsets[-1]), int(offsets[-1] - offsets[1])
    numbers = allocate(8 * (size + 2 * inner * extremes)).view(np.float64)
    numbers[size : size + inner] = np.inf
    numbers[size + inner :] = -np.inf
    return numbers


class Kind(NamedTuple):
    """What leaves mean.

    Attributes:
        bias: inlinable (tree, filled) -> Bias.
        weigh: inlinable (sums, position, span, node, bias) -> Octet, weights of the eight children
            of a node, each of which is over `span` leaves.
        weight: inlinable (sums, leaf, bias) -> float, of one leaf.
        present: inlinable (leaves, node, bias, other) -> Octet, with `other` for leaves that are
            no items.
    """

    bias: Any
    weigh: Any
    weight: Any
    present: Any


class Bias(NamedTuple):
    """What turns sums of values into weights; not looked at where leaves are priorities.

    Attributes:
        shift: float, added to each value.
        filled: float, number of items.
    """

    shift: float
    filled: float


@inline_exact
def _no_bias(tree, filled):  # type: ignore[no-untyped-def]
    return Bias(0.0, 0.0)


@inline_exact
def _weigh_priorities(sums, position, span, node, bias):  # type: ignore[no-untyped-def]
    return load(sums, position)


@inline_exact
def _weight_priority(sums, leaf, bias):  # type: ignore[no-untyped-def]
    return sums[leaf]


@inline_exact
def _present_priorities(leaves, node, bias, other):  # type: ignore[no-untyped-def]
    return octets.positive_or(leaves, other)


@inline_exact
def _bias_values(tree, filled):  # type: ignore[no-untyped-def]
    least = lowest(load(tree.lows, tree.lows.size - WIDTH))
    return Bias(max(-least, 0.0), np.float64(filled))


@inline_exact
def _weigh_values(sums, position, span, node, bias):  # type: ignore[no-untyped-def]
    left = bias.filled - np.float64(node) * (WIDTH * span)
    return octets.raised(load(sums, position), bias.shift, left, span)


@inline_exact
def _weight_value(sums, leaf, bias):  # type: ignore[no-untyped-def]
    return sums[leaf] + bias.shift if leaf < bias.filled else 0.0


@inline_exact
def _present_values(leaves, node, bias, other):  # type: ignore[no-untyped-def]
    return octets.first_or(leaves, bias.filled - np.float64(node) * WIDTH, other)


PRIORITIES = Kind(_no_bias, _weigh_priorities, _weight_priority, _present_priorities)
VALUES = Kind(_bias_values, _weigh_values, _weight_value, _present_values)


# ---------------------------------------------------------------- inlined pieces


@functools.cache
def make_refresh(kind: Kind) -> Any:
    """Inlinable (tree, bias, level, node): recompute one entry of a level from its children."""
    present = kind.present

    @inline_exact
    def refresh(tree, bias, level, node):  # type: ignore[no-untyped-def]
        sums, offsets = tree.sums, tree.offsets
        children = load(sums, offsets[level - 1] + node * WIDTH)
        sums[offsets[level] + node] = total(children)
        if tree.lows.size:
            entry = offsets[level] - offsets[1] + node
            if level == 1:
                tree.lows[entry] = lowest(present(children, node, bias, np.inf))
                tree.highs[entry] = highest(present(children, node, bias, -np.inf))
            else:
                below = offsets[level - 1] - offsets[1] + node * WIDTH
                tree.lows[entry] = lowest(load(tree.lows, below))
                tree.highs[entry] = highest(load(tree.highs, below))

    return refresh


@functools.cache
def make_propagate(kind: Kind) -> Any:
    """Inlinable (tree, bias, nodes, count): recompute everything above the leaves `nodes`.

    `nodes[:count]` is overwritten. A parent is recomputed once where its children are neighbours in
    the list, and a level as a whole, with all above it, where that reads less.
    """
    refresh = make_refresh(kind)

    @inline_exact
    def propagate(tree, bias, nodes, count):  # type: ignore[no-untyped-def]
        offsets = tree.offsets
        for level in range(1, offsets.size - 1):
            num_entries = (offsets[level] - offsets[level - 1]) // WIDTH
            # In order, entries are read without waiting: several take the time of one at random.
            if 4 * count >= num_entries:
                for node in range(num_entries):
                    refresh(tree, bias, level, node)
                count = num_entries  # and so it goes on up to the top
                continue
            kept, last = 0, np.int64(-1)
            for k in range(count):
                node = nodes[k] // WIDTH
                if node != last:
                    refresh(tree, bias, level, node)
                    nodes[kept] = node
                    kept += 1
                    last = node
            count = kept

    return propagate


@functools.cache
def make_propagate_range(kind: Kind) -> Any:
    """Inlinable (tree, bias, begin, end): recompute everything above a range of leaves."""
    refresh = make_refresh(kind)

    @inline_exact
    def propagate_range(tree, bias, begin, end):  # type: ignore[no-untyped-def]
        for level in range(1, tree.offsets.size - 1):
            begin, end = begin // WIDTH, (end - 1) // WIDTH + 1
            for node in range(begin, end):
                refresh(tree, bias, level, node)

    return propagate_range

"""Trees of eight children per node, of float64: upkeep, and drawing leaves by weight.

The leaves come first, then their parents, up to a single node of eight. A node is a cache line, and
holds the sums of its children: a million leaves are seven levels deep, of which only the last two
or three are not in the processor's nearest cache. Parents are always recomputed from all of their
children, never corrected by differences: nothing drifts, and a leaf of zero leaves no trace.

Leaves are of two kinds. *Priorities* are weights themselves, and zero means that there is no item.
*Values* may be negative: an item's weight is `value + shift`, the first `filled` leaves are items,
and the shift, which raises the smallest value to zero, may change at any time.

A draw has a *target* in [0, sum of all weights), in which each leaf has a *share* as long as its
weight; it walks from the top to the leaf in whose share the target is, one node per level. The
rules of a walk and of the upkeep are plain Python, over a few operations on the eight numbers of a
node, which are a tuple in tests and on a GPU. For the CPU the same rules are compiled over vectors
(`over_vectors`). Both take sums in the same order: the same leaves have the same sums, bit for bit,
and the same random numbers find the same leaves everywhere.
"""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler import functions
from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine import memory, vectors
from rlcpu.kernels.machine.memory import ONE_LINE, prefetch
from rlcpu.kernels.machine.random import u64, uniform53
from rlcpu.kernels.machine.vectors import lane_numbers, maximum, where
from rlcpu.replay.storage import allocate

#: Children of a node. A node's sum and the search inside it are chains of eight dependent
#: operations in a plain loop; as vectors they take three steps each: sampling is 2.4x as fast.
WIDTH = 8


class Levels(NamedTuple):
    """One tree, as rules see it."""

    sums: Any  # (offsets[-1],) float64, all levels, each padded to whole nodes
    lows: Any  # (offsets[-1] - offsets[1],) smallest items below leaves' parents and on; or empty
    highs: Any  # the same of the largest items
    offsets: Any  # (num_levels + 1,) int64, beginning of each level in `sums`
    span: Any  # float, leaves below each of the eight entries of the highest level
    shift: Any  # float, added to each value for its weight; None for priorities
    filled: Any  # number of leaves that are items; None for priorities


def layout(capacity):
    """Return where the levels of a tree begin in its sums, leaves first, and where the last ends.

    (num_levels + 1,) int64; there are two levels at least, each of whole nodes.
    """
    offsets, levels = np.zeros(32, np.int64), 1  # 32: more levels than fit any memory
    entries = (capacity + WIDTH - 1) // WIDTH * WIDTH
    offsets[1] = entries
    while entries > WIDTH or levels < 2:
        entries = (entries // WIDTH + WIDTH - 1) // WIDTH * WIDTH
        offsets[levels + 1] = offsets[levels] + entries
        levels += 1
    return offsets[: levels + 1]


def make_tree(capacity: int, extremes: bool) -> npt.NDArray[np.float64]:
    """Return the memory of a tree without items: sums, and if `extremes`, lows and highs behind."""
    offsets = layout(capacity)
    size, inner = int(offsets[-1]), int(offsets[-1] - offsets[1])
    numbers = allocate(8 * (size + 2 * inner * extremes)).view(np.float64)
    numbers[size : size + inner] = np.inf
    numbers[size + inner :] = -np.inf
    return numbers


# ---------------------------------------------------------------- the eight numbers of a node

# Leaves are values here; priorities are values that are raised by 0, all of which are items.


def load(numbers, i):
    """Return the eight numbers of the node at a position."""
    a, b, c, d = numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]
    return a, b, c, d, numbers[i + 4], numbers[i + 5], numbers[i + 6], numbers[i + 7]


def prefetch_node(numbers, position):
    """Prefetch the node at a position, which is loaded soon; does nothing in plain Python."""


def total(node):
    """Return the sum of the eight numbers of a node."""
    a, b, c, d, e, f, g, h = node
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def lowest(node):
    """Return the smallest of the eight numbers of a node."""
    return min(node)


def highest(node):
    """Return the largest of the eight numbers of a node."""
    return max(node)


def search(weights, target):
    """Return the child in whose share of [0, sum) a target is, and the rest of the target there.

    Children have shares as long as their weights, one after the other. Rounding may put a target
    between two shares, or beyond the last: then it is a child without weight.
    """
    a, b, c, d, e, f, g, _ = weights
    # Running sums, in the order of vectors: of two neighbours, of four, of eight. The eighth is not
    # needed: a target beyond the seventh is in the last share.
    ab, bc, cd, de, ef, fg = b + a, c + b, d + c, e + d, f + e, g + f
    abc, abcd, bcde, cdef, defg = bc + a, cd + ab, de + bc, ef + cd, fg + de
    sums = a, ab, abc, abcd, bcde + a, cdef + ab, defg + abc
    child, before = 7, sums[6]
    for k in range(6, 0, -1):
        if sums[k] > target:
            child, before = k, sums[k - 1]
    if a > target:
        child, before = 0, 0.0
    return child, max(target - before, 0.0)


def weight_of_child(number, shift, count, span):
    """Return the weight of a child whose values add up to `number`.

    The first `count` of its `span` leaves are items: `shift` is added once for each of them.
    """
    return max(number + min(max(count, 0.0), span) * shift, 0.0)


def child_weights(sums, shift, begin, span, filled):
    """Return the weights of the eight children of a node, from the sums of the values below each.

    `begin` is the first leaf of the node, `span` the leaves of each child. The first `filled`
    leaves are items, to whose values `shift` is added.
    """
    a, b, c, d, e, f, g, h = sums
    count = filled - begin
    return (
        weight_of_child(a, shift, count, span),
        weight_of_child(b, shift, count - span, span),
        weight_of_child(c, shift, count - 2.0 * span, span),
        weight_of_child(d, shift, count - 3.0 * span, span),
        weight_of_child(e, shift, count - 4.0 * span, span),
        weight_of_child(f, shift, count - 5.0 * span, span),
        weight_of_child(g, shift, count - 6.0 * span, span),
        weight_of_child(h, shift, count - 7.0 * span, span),
    )


def replace_free(leaves, begin, filled, other):
    """Replace those of the eight leaves from `begin` on that have no item by `other`."""
    a, b, c, d, e, f, g, h = leaves
    count = filled - begin
    return (
        a if count > 0.0 else other,
        b if count > 1.0 else other,
        c if count > 2.0 else other,
        d if count > 3.0 else other,
        e if count > 4.0 else other,
        f if count > 5.0 else other,
        g if count > 6.0 else other,
        h if count > 7.0 else other,
    )


# ---------------------------------------------------------------- rules


def unpack(numbers, offsets, filled):
    """Return the levels of a tree as views of its memory, see `make_tree`.

    Kernels are given one array: each array of a call costs 0.04 us.
    """
    size = offsets[offsets.size - 1]
    inner = size - offsets[1] if numbers.size > size else 0
    lows, highs = numbers[size : size + inner], numbers[size + inner : size + 2 * inner]
    # What raises the smallest value to zero; the top node is the last one.
    if filled is None:
        shift = filled
    else:
        shift = max(-lowest(load(lows, lows.size - WIDTH)), 0.0) if lows.size else 0.0
    span = np.float64(1 << 3 * (offsets.size - 2))  # powers of WIDTH
    return Levels(numbers[:size], lows, highs, offsets, span, shift, filled)


def weight(leaf, shift, filled, index):
    """Return the weight of one leaf."""
    if filled is None:
        return leaf
    return leaf + shift if index < filled else 0.0


def weight_of_all(levels):
    """Return the sum of all weights."""
    node = load(levels.sums, levels.offsets[levels.offsets.size - 2])
    return total(child_weights(node, levels.shift, 0.0, levels.span, levels.filled))


def refresh(levels, level, node):
    """Recompute the sum, and the extremes if there are any, of one entry of a level.

    Its children are node number `node` of the level below.
    """
    offsets = levels.offsets
    children = load(levels.sums, offsets[level - 1] + node * WIDTH)
    levels.sums[offsets[level] + node] = total(children)
    if levels.lows.size:
        # Lows and highs begin with level 1; `first` is the first leaf, where the level is 1.
        entry, first = offsets[level] - offsets[1] + node, np.float64(node) * WIDTH
        if level == 1:
            levels.lows[entry] = lowest(replace_free(children, first, levels.filled, np.inf))
            levels.highs[entry] = highest(replace_free(children, first, levels.filled, -np.inf))
        else:
            below = offsets[level - 1] - offsets[1] + node * WIDTH
            levels.lows[entry] = lowest(load(levels.lows, below))
            levels.highs[entry] = highest(load(levels.highs, below))


def walk(levels, targets, nodes, count):
    """Overwrite `nodes` with the leaves at `count` targets, a level at a time from the top.

    `targets`, float64 in [0, sum of all weights), are overwritten, too.
    """
    sums, offsets, shift, filled = levels.sums, levels.offsets, levels.shift, levels.filled
    span = levels.span  # leaves below each child of a node
    for q in range(count):
        nodes[q] = 0
    for up in range(offsets.size - 1):
        level = offsets.size - 2 - up
        # Where the level and the one below begin, and the last node of that, or the last leaf.
        # Leaves have no children: prefetching what is not there would take three times as long.
        begin, below = offsets[level], offsets[level - 1] if level else np.int64(-1)
        last = (begin - below) // WIDTH - 1 if level else offsets[1] - 1
        for q in range(count):
            node = nodes[q]
            sums_below, first = load(sums, begin + node * WIDTH), np.float64(node) * (WIDTH * span)
            weights = child_weights(sums_below, shift, first, span, filled)
            child, targets[q] = search(weights, targets[q])
            # Beyond the last share is the padding of a level, and below that nothing.
            nodes[q] = min(node * WIDTH + child, last)
            if below >= 0:
                prefetch_node(sums, below + nodes[q] * WIDTH)
        span /= WIDTH


def scan(levels, u):
    """Draw a leaf by weight, looking at each; -1 if none has a weight. `u` is in [0, 1).

    It serves where a target fell between two shares, or weights are below the rounding errors of
    their sum.
    """
    sums, shift, filled = levels.sums, levels.shift, levels.filled
    sum_of_all, sum_before, drawn = 0.0, 0.0, -1
    for leaf in range(levels.offsets[1]):
        sum_of_all += weight(sums[leaf], shift, filled, leaf)
    # The last leaf with a weight whose share begins at the target or before it; or the first one.
    for leaf in range(levels.offsets[1]):
        share = weight(sums[leaf], shift, filled, leaf)
        if share > 0.0 and (sum_before <= u * sum_of_all or drawn < 0):
            drawn = leaf
        sum_before += share
    return drawn


def find_target(key, counter, weight, width, number):
    """Return the random target of draw `number`, a place in [0, weight), the sum of all weights.

    `counter` is that of the first draw's random number. Draw k of strata of a `width` has a place
    in [k * width, (k + 1) * width); 0 for no strata.
    """
    u = uniform53(key, u64(counter + u64(number)))
    return (number + u) * width if width > 0.0 else u * weight


# ---------------------------------------------------------------- on the CPU: a node is a vector


@inline(exact=True)
def load_vector(numbers, position):
    """Load eight numbers as a vector; see `load`."""
    return memory.load(numbers, position, ONE_LINE)


@inline(exact=True)
def child_weights_vector(sums, shift, begin, span, filled):
    """Return the weights of eight children as a vector.

    See `child_weights`. Priorities (`filled` is None) are their own weights.
    """
    # Numba drops a branch on None when it compiles, so that nobody decides in a loop; a branch that
    # was left would make it count references there, 28 times the time.
    if filled is None:
        return sums
    counts = maximum(filled - (begin + lane_numbers(sums) * span), 0.0)
    counts = where(counts < span, counts, span)
    # Not contracted: of equal values, sum and product are rounded alike and cancel exactly.
    return maximum(sums + counts * shift, 0.0)


@inline(exact=True)
def replace_free_vector(leaves, begin, filled, other):
    """Replace leaves without an item; see `replace_free`. A priority of zero has no item."""
    if filled is None:
        return where(leaves > 0.0, leaves, other)
    return where(begin + lane_numbers(leaves) < filled, leaves, other)


_OPERATIONS: dict[Any, Any] = {
    load: load_vector,
    prefetch_node: prefetch,
    total: vectors.total,
    lowest: vectors.lowest,
    highest: vectors.highest,
    search: vectors.search,
    child_weights: child_weights_vector,
    replace_free: replace_free_vector,
}


@functools.cache
def over_vectors(rule: Any) -> Any:
    """Compile a function of this module for the CPU, over vectors in the place of tuples."""

    def convert(name: str, value: Any) -> Any:
        """Return what stands for a global of the rule: rules that it calls are compiled, too."""
        is_rule = isinstance(value, types.FunctionType) and value.__module__ == __name__
        return over_vectors(value) if is_rule else value

    def is_kept(module: Any) -> bool:
        """Say that all modules which the rule names stay as they are."""
        return True

    if rule in _OPERATIONS:
        return _OPERATIONS[rule]
    return inline(functions.rebuild(rule, convert, is_kept), exact=True)

"""Trees of eight children per node, of float64: upkeep, and drawing leaves by weight.

The leaves come first, then their parents, up to a single node of eight. A node is a cache line, and
holds the sums of its children: a million leaves are seven levels deep, of which only the last two
or three are not in the processor's nearest cache. Parents are always recomputed from all of their
children, never corrected by differences: nothing drifts, and a leaf of zero leaves no trace.

Leaves are of two kinds. *Priorities* are weights themselves, and zero means that there is no item.
*Values* may be negative: an item's weight is `value + shift`, the first `filled` leaves are items,
and the shift, which raises the smallest value to zero, may change at any time.

A draw walks from the top to a leaf, one node per level. The rules of a walk and of the upkeep are
written once, over a few operations on the eight numbers of a node (`Node`): vectors on the CPU, and
tuples in plain Python, on a GPU and in tests. Both take sums in the same order: the same leaves
have the same sums, bit for bit, and the same random numbers find the same leaves everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels import memory, vectors
from rlcpu.kernels.compile import inline_exact
from rlcpu.kernels.memory import ONE_LINE, prefetch
from rlcpu.kernels.random import u64, uniform53
from rlcpu.kernels.vectors import lane_numbers, maximum, where
from rlcpu.replay.storage import allocate

Array = npt.NDArray[Any]

#: Children of a node. A node's sum and the search inside it are chains of eight dependent
#: operations in a plain loop; as vectors they take three steps each: sampling is 2.4x as fast.
WIDTH = 8


class Levels(NamedTuple):
    """One tree, as rules see it.

    Attributes:
        sums: (offsets[-1],) float64, all levels, each padded to whole nodes.
        lows: (offsets[-1] - offsets[1],) smallest item below, from the leaves' parents on; or
            empty: not kept.
        highs: likewise, largest.
        offsets: (num_levels + 1,) int64, beginning of each level in `sums`.
        shift: float, added to each value for its weight; None for priorities.
        filled: number of leaves that are items; None for priorities.
    """

    sums: Any
    lows: Any
    highs: Any
    offsets: Any
    shift: Any
    filled: Any


@inline_exact
def layout(capacity):
    """(num_levels + 1,) int64 beginnings of the levels of a tree, and the end of the last one."""
    offsets, levels = np.zeros(32, np.int64), 1
    entries = (capacity + WIDTH - 1) // WIDTH * WIDTH
    offsets[1] = entries
    while entries > WIDTH or levels < 2:
        entries = (entries // WIDTH + WIDTH - 1) // WIDTH * WIDTH
        offsets[levels + 1] = offsets[levels] + entries
        levels += 1
    return offsets[: levels + 1]


def make_tree(capacity: int, extremes: bool) -> Array:
    """The numbers of a tree without items, and whether lows and highs are kept in it."""
    offsets = layout.py_func(capacity)
    size, inner = int(offsets[-1]), int(offsets[-1] - offsets[1])
    numbers = allocate(8 * (size + 2 * inner * extremes)).view(np.float64)
    numbers[size : size + inner] = np.inf
    numbers[size + inner :] = -np.inf
    return numbers


# ---------------------------------------------------------------- the eight numbers of a node


class Node(NamedTuple):
    """Operations on the numbers of a node.

    Attributes:
        load: (numbers, position) -> the eight from a position on.
        total, lowest, highest: (node) -> sum, smallest and largest number.
        search: (weights, mark) -> child in whose share of [0, sum) the mark falls, and the mark
            from the share's beginning; between two shares or beyond the last, one of no weight.
        weigh: (sums, shift, begin, span, filled) -> weights of eight children over `span` leaves
            each, of which the first is number `begin` and `filled` are items.
        keep: (leaves, begin, filled, other) -> the leaves, `other` for those that are no items.
        spread: (node) -> the numbers as something with an index.
        ask: (numbers, position) asks the memory for what will be read soon.
    """

    load: Any
    total: Any
    lowest: Any
    highest: Any
    search: Any
    weigh: Any
    keep: Any
    spread: Any
    ask: Any


# On the CPU a node is a vector of eight.


@inline_exact
def _load_vector(numbers, position):
    return memory.load(numbers, position, ONE_LINE)


@inline_exact
def _weigh_vector(sums, shift, begin, span, filled):
    # Numba drops a branch on None when it compiles, so that nobody decides in a loop; a branch that
    # was left would make it count references there, 28 times the time.
    if filled is None:
        return sums
    counts = maximum(filled - (begin + lane_numbers(sums) * span), 0.0)
    counts = where(counts < span, counts, span)
    # Not contracted: of equal values, sum and product are rounded alike and cancel exactly.
    return maximum(sums + counts * shift, 0.0)


@inline_exact
def _keep_vector(leaves, begin, filled, other):
    if filled is None:
        return where(leaves > 0.0, leaves, other)
    return where(begin + lane_numbers(leaves) < filled, leaves, other)


@inline_exact
def _spread_vector(node):
    numbers = np.empty(WIDTH, np.float64)
    memory.store(node, numbers, 0)
    return numbers


#: On the CPU.
VECTORS = Node(
    load=_load_vector,
    total=vectors.total,
    lowest=vectors.lowest,
    highest=vectors.highest,
    search=vectors.search,
    weigh=_weigh_vector,
    keep=_keep_vector,
    spread=_spread_vector,
    ask=prefetch,
)

# Elsewhere it is a tuple. Leaves are values; priorities are values that are raised by 0.


def _load_tuple(numbers, i):
    a, b, c, d = numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]
    return a, b, c, d, numbers[i + 4], numbers[i + 5], numbers[i + 6], numbers[i + 7]


def _total_of_tuple(node):
    a, b, c, d, e, f, g, h = node
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def _lowest_of_tuple(node):
    a, b, c, d, e, f, g, h = node
    return min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h)))


def _highest_of_tuple(node):
    a, b, c, d, e, f, g, h = node
    return max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))


def _search_tuple(weights, mark):
    a, b, c, d, e, f, g, _ = weights
    # Of distance 1, 2 and 4, as vectors do; the last sum is not looked at.
    ab, bc, cd, de, ef, fg = b + a, c + b, d + c, e + d, f + e, g + f
    abc, abcd, bcde, cdef, defg = bc + a, cd + ab, de + bc, ef + cd, fg + de
    five, six, seven = bcde + a, cdef + ab, defg + abc
    child, before = 7, seven
    if seven > mark:
        child, before = 6, six
    if six > mark:
        child, before = 5, five
    if five > mark:
        child, before = 4, abcd
    if abcd > mark:
        child, before = 3, abc
    if abc > mark:
        child, before = 2, ab
    if ab > mark:
        child, before = 1, a
    if a > mark:
        child, before = 0, 0.0
    return child, max(mark - before, 0.0)


def _weigh_number(number: Any, shift: Any, begin: Any, span: Any, filled: Any) -> Any:
    return max(number + min(max(filled - begin, 0.0), span) * shift, 0.0)


def _weigh_tuple(sums, shift, begin, span, filled):
    a, b, c, d, e, f, g, h = sums
    return (
        _weigh_number(a, shift, begin, span, filled),
        _weigh_number(b, shift, begin + span, span, filled),
        _weigh_number(c, shift, begin + 2.0 * span, span, filled),
        _weigh_number(d, shift, begin + 3.0 * span, span, filled),
        _weigh_number(e, shift, begin + 4.0 * span, span, filled),
        _weigh_number(f, shift, begin + 5.0 * span, span, filled),
        _weigh_number(g, shift, begin + 6.0 * span, span, filled),
        _weigh_number(h, shift, begin + 7.0 * span, span, filled),
    )


def _keep_tuple(leaves, begin, filled, other):
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


def _spread_tuple(node):
    return node


def _ask_nobody(numbers, position):
    return None


#: In plain Python.
TUPLES = Node(
    load=_load_tuple,
    total=_total_of_tuple,
    lowest=_lowest_of_tuple,
    highest=_highest_of_tuple,
    search=_search_tuple,
    weigh=_weigh_tuple,
    keep=_keep_tuple,
    spread=_spread_tuple,
    ask=_ask_nobody,
)


# ---------------------------------------------------------------- rules


class Rules(NamedTuple):
    """What `make_rules` makes, one function each: see there."""

    unpack: Any
    weight: Any
    weight_of_all: Any
    refresh: Any
    walk: Any
    walk_in_order: Any


def make_rules(compiled: Callable[..., Any], node: Node) -> Rules:
    """The algorithm on one tree, over operations on a node; `compiled` decorates each function."""
    load, total, lowest, highest, search, weigh, keep, spread, ask = node

    @compiled
    def find_shift(lows, filled):
        """What raises the smallest value to zero."""
        if filled is None:
            return filled
        return max(-lowest(load(lows, lows.size - WIDTH)), 0.0) if lows.size else 0.0

    @compiled
    def unpack(numbers, offsets, filled):
        """The levels of a tree in one array: all of sums, then of lows and of highs.

        One array, because each costs 0.04 us a call, and a tuple of them 0.5 us.
        """
        size = offsets[offsets.size - 1]
        inner = size - offsets[1] if numbers.size > size else 0
        lows, highs = numbers[size : size + inner], numbers[size + inner : size + 2 * inner]
        shift = find_shift(lows, filled)
        return Levels(numbers[:size], lows, highs, offsets, shift, filled)

    @compiled
    def weight(leaf, shift, filled, index):
        """Weight of one leaf."""
        if filled is None:
            return leaf
        return leaf + shift if index < filled else 0.0

    @compiled
    def top_span(offsets):
        """Leaves below each of the eight entries of the highest level."""
        span = 1.0
        for _ in range(offsets.size - 2):
            span *= WIDTH
        return span

    @compiled
    def weights(sums, position, shift, filled, node, span):
        """Weights of the eight children of a node, whose sums begin at a position."""
        first = np.float64(node) * (WIDTH * span)
        return weigh(load(sums, position), shift, first, span, filled)

    @compiled
    def weight_of_all(levels):
        """Sum of all weights."""
        offsets, shift, filled = levels.offsets, levels.shift, levels.filled
        top = offsets[offsets.size - 2]
        return total(weights(levels.sums, top, shift, filled, np.int64(0), top_span(offsets)))

    @compiled
    def refresh(levels, level, node):
        """Recompute one entry of a level from its children."""
        offsets = levels.offsets
        children = load(levels.sums, offsets[level - 1] + node * WIDTH)
        levels.sums[offsets[level] + node] = total(children)
        if levels.lows.size:
            entry, first = offsets[level] - offsets[1] + node, np.float64(node) * WIDTH
            if level == 1:
                levels.lows[entry] = lowest(keep(children, first, levels.filled, np.inf))
                levels.highs[entry] = highest(keep(children, first, levels.filled, -np.inf))
            else:
                below = offsets[level - 1] - offsets[1] + node * WIDTH
                levels.lows[entry] = lowest(load(levels.lows, below))
                levels.highs[entry] = highest(load(levels.highs, below))

    @compiled
    def walk(levels, marks, nodes, count):
        """Fill `nodes[:count]` with the leaves at `marks[:count]`, which are overwritten.

        Marks are positions in [0, sum of all weights).
        """
        sums, offsets, shift, filled = levels.sums, levels.offsets, levels.shift, levels.filled
        span = top_span(offsets)
        for q in range(count):
            nodes[q] = 0
        for up in range(offsets.size - 1):
            level = offsets.size - 2 - up
            # The leaves have nothing below: to ask for what is not there takes three times as long.
            begin, below = offsets[level], offsets[level - 1] if level else np.int64(-1)
            last = (begin - below) // WIDTH - 1 if level else offsets[1] - 1
            for q in range(count):
                node = nodes[q]
                position = begin + node * WIDTH
                child, marks[q] = search(
                    weights(sums, position, shift, filled, node, span), marks[q]
                )
                # Beyond the last share is the padding of a level, and below that nothing.
                nodes[q] = min(node * WIDTH + child, last)
                if below >= 0:
                    ask(sums, below + nodes[q] * WIDTH)
            span /= WIDTH

    @compiled
    def walk_in_order(levels, mark):
        """The leaf at a mark, of a weight above zero if any child on the way has one.

        For a mark that fell between two shares, or beyond the last: here sums are taken in order,
        which leaves no gaps.
        """
        sums, offsets, shift, filled = levels.sums, levels.offsets, levels.shift, levels.filled
        node, span = np.int64(0), top_span(offsets)
        for up in range(offsets.size - 1):
            position = offsets[offsets.size - 2 - up] + node * WIDTH
            shares = spread(weights(sums, position, shift, filled, node, span))
            before, after, child = 0.0, 0.0, 0
            for j in range(WIDTH):
                if shares[j] > 0.0 and (mark >= after or after == 0.0):
                    before, child = after, j
                after += shares[j]
            mark = max(mark - before, 0.0)
            node = node * WIDTH + child
            span /= WIDTH
        return node

    return Rules(unpack, weight, weight_of_all, refresh, walk, walk_in_order)


@inline_exact
def find_mark(key, counter, weight, width, number):
    """The mark of draw `number` of a stream: in its stratum of a width, or in the whole weight."""
    u = uniform53(key, u64(counter + u64(number)))
    return (number + u) * width if width > 0.0 else u * weight

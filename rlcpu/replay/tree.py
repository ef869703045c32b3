"""Trees of eight children per node, of float64: upkeep, and drawing leaves by weight.

The leaves come first, then their parents, up to a single node of eight. A node is a cache line, and
holds the sums of its children: a million leaves are seven levels deep, of which only the last two
or three are not in the processor's nearest cache. Parents are always recomputed from all of their
children, never corrected by differences: nothing drifts, and a leaf of zero leaves no trace.

Leaves are of two kinds. *Priorities* are weights themselves, and zero means that there is no item.
*Values* may be negative: an item's weight is `value + shift`, the first `filled` leaves are items,
and the shift, which raises the smallest value to zero, may change at any time. The code is the same
for both, but for the section on weights below; drivers get None for `filled` where leaves are
priorities.

A draw walks from the top to a leaf, one node per level. Sixty-four draws walk side by side, so that
their cache misses overlap, and every number comes from a counter: a result depends neither on the
number of threads nor on how a request is split.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import ONE_LINE, load, prefetch, store
from rlcpu.kernels.random import u64, uniform53
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import highest, lane_numbers, lowest, maximum, search, total, where
from rlcpu.replay.storage import allocate

Array = npt.NDArray[Any]

#: Children of a node. A node's sum and the search inside it are chains of eight dependent
#: operations in a plain loop; as vectors they take three steps each: sampling is 2.4x as fast.
WIDTH = 8
GROUP = 64  # draws that walk side by side; at 2^20 leaves 32 take 1.2 and 16 1.5 times as long
_AHEAD = 16  # leaves asked for before they are written: 8 % of an update of 1,600 of 2^20
_BLOCK = 1024  # draws that a thread takes at a time
_GRAIN = 4096  # draws, 90 us, from which a second core is worth waking: 65 us
_HASH, _HIGH = u64(0x9E3779B97F4A7C15), u64(32)


class Levels(NamedTuple):
    """One tree, as kernels see it.

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


class Stream(NamedTuple):
    """Where a stream of random numbers is; drivers get it as an array, and move it on.

    Attributes:
        key: uint64.
        counter: uint64, the number to be drawn next.
    """

    key: Any
    counter: Any


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


@inline_exact
def _shift(lows, filled):
    """What raises the smallest value to zero; None for priorities."""
    if filled is None:
        return filled
    return max(-lowest(load(lows, lows.size - WIDTH, ONE_LINE)), 0.0)


@inline_exact
def unpack(numbers, capacity, filled):
    """The levels of a tree in one array: all of sums, then of lows and of highs.

    One array, because each costs 0.04 us a call, and a tuple of them 0.5 us.
    """
    offsets = layout(capacity)
    size = offsets[-1]
    inner = size - offsets[1] if numbers.size > size else 0
    lows, highs = numbers[size : size + inner], numbers[size + inner : size + 2 * inner]
    return Levels(numbers[:size], lows, highs, offsets, _shift(lows, filled), filled)


# ---------------------------------------------------------------- weights and items


# The kinds differ here alone. Numba drops a branch on None when it compiles, so that nobody decides
# in a loop; a branch that was left would make it count references there, 28 times the time.


@inline_exact
def weigh(sums, shift, filled, span, node):
    """Weights of the eight children of a node, each of which is over `span` leaves."""
    if filled is None:
        return sums
    begins = np.float64(node) * (WIDTH * span) + lane_numbers(sums) * span
    counts = maximum(filled - begins, 0.0)
    counts = where(counts < span, counts, span)
    # Not contracted: of equal values, sum and product are rounded alike and cancel exactly.
    return maximum(sums + counts * shift, 0.0)


@inline_exact
def _weight(leaf, shift, filled, index):
    """Weight of one leaf."""
    if filled is None:
        return leaf
    return leaf + shift if index < filled else 0.0


@inline_exact
def _leaf_without_weight(shift):
    if shift is None:
        return 0.0
    return -shift


@inline_exact
def items_or(leaves, filled, node, other):
    """The eight leaves of a node, with `other` in place of those that are no items."""
    if filled is None:
        return where(leaves > 0.0, leaves, other)
    return where(lane_numbers(leaves) < filled - np.float64(node) * WIDTH, leaves, other)


@inline_exact
def _none_weighs(levels):
    """Whether no value has a weight: all are equal, and not above zero."""
    return highest(load(levels.highs, levels.highs.size - WIDTH, ONE_LINE)) + levels.shift <= 0.0


@inline_exact
def _total(levels):
    """Sum of all weights."""
    top, node = levels.offsets.size - 2, np.int64(0)
    sums, span = load(levels.sums, levels.offsets[top], ONE_LINE), WIDTH ** np.float64(top)
    return total(weigh(sums, levels.shift, levels.filled, span, node))


# ---------------------------------------------------------------- upkeep


@inline_exact
def _refresh(levels, level, node):
    """Recompute one entry of a level from its children."""
    offsets = levels.offsets
    children = load(levels.sums, offsets[level - 1] + node * WIDTH, ONE_LINE)
    levels.sums[offsets[level] + node] = total(children)
    if levels.lows.size:
        entry = offsets[level] - offsets[1] + node
        if level == 1:
            levels.lows[entry] = lowest(items_or(children, levels.filled, node, np.inf))
            levels.highs[entry] = highest(items_or(children, levels.filled, node, -np.inf))
        else:
            below = offsets[level - 1] - offsets[1] + node * WIDTH
            levels.lows[entry] = lowest(load(levels.lows, below, ONE_LINE))
            levels.highs[entry] = highest(load(levels.highs, below, ONE_LINE))


@inline_exact
def _propagate(levels, nodes, count):
    """Recompute everything above the leaves `nodes[:count]`, which are overwritten.

    A parent is recomputed once where its children are neighbours in the list, and a level as a
    whole, with all above it, where that reads less.
    """
    offsets = levels.offsets
    for level in range(1, offsets.size - 1):
        num_entries = (offsets[level] - offsets[level - 1]) // WIDTH
        # In order, entries are read without waiting: several take the time of one at random.
        if 4 * count >= num_entries:
            for node in range(num_entries):
                _refresh(levels, level, node)
            count = num_entries  # and so it goes on up to the top
            continue
        kept, last = 0, np.int64(-1)
        for k in range(count):
            node = nodes[k] // WIDTH
            if node != last:
                _refresh(levels, level, node)
                nodes[kept] = node
                kept += 1
                last = node
        count = kept


@inline_exact
def _propagate_range(levels, begin, end):
    """Recompute everything above a range of leaves, if there are any in it."""
    if end > begin:
        for level in range(1, levels.offsets.size - 1):
            begin, end = begin // WIDTH, (end - 1) // WIDTH + 1
            for node in range(begin, end):
                _refresh(levels, level, node)


@kernel(fastmath=EXACT)
def update(numbers, capacity, filled, indices, leaves):
    """Write leaves; the last of equal indices counts. Returns the largest leaf, at least 0.0.

    Indices and leaves are (n,) int64 and float64; the indices are overwritten.
    """
    levels, count, largest = unpack(numbers, capacity, filled), indices.size, 0.0
    for k in range(count):
        prefetch(levels.sums, indices[min(k + _AHEAD, count - 1)])
        levels.sums[indices[k]] = leaves[k]
        largest = max(largest, leaves[k])
    _propagate(levels, indices, count)
    return largest


@kernel(fastmath=EXACT)
def write_runs(numbers, capacity, filled, num_envs, begin, end, leaves):
    """Write the leaves of the items numbered `begin` to `end`; the last ones of them count.

    Numbers go on for ever: number i is at `env * items + i % items` of every environment.
    `leaves` is (end - begin,), the same for all environments, or (1,), the same for all items.
    """
    levels, items = unpack(numbers, capacity, filled), capacity // num_envs
    count = min(max(end - begin, 0), items)
    start = (end - count) % items
    for env in range(num_envs):
        base = env * items
        for k in range(count):
            slot = start + k
            leaf = leaves[leaves.size - count + k] if leaves.size > 1 else leaves[0]
            levels.sums[base + (slot if slot < items else slot - items)] = leaf
        _propagate_range(levels, base + start, base + min(start + count, items))
        _propagate_range(levels, base, base + start + count - items)


@kernel(fastmath=EXACT)
def rebuild(numbers, capacity, filled):
    """Recompute everything above the leaves."""
    levels = unpack(numbers, capacity, filled)
    _propagate_range(levels, 0, levels.offsets[1])


# ---------------------------------------------------------------- drawing


@inline_exact
def _walk(levels, marks, nodes, count):
    """Fill `nodes[:count]` with the leaves at `marks[:count]`, which are overwritten.

    Marks are positions in [0, sum of all weights).
    """
    sums, offsets, shift, filled = levels.sums, levels.offsets, levels.shift, levels.filled
    for q in range(count):
        nodes[q] = 0
    span = WIDTH ** np.float64(offsets.size - 2)
    for level in range(offsets.size - 2, -1, -1):
        # The leaves have nothing below: asking for what is not there takes three times as long.
        begin, below = offsets[level], offsets[level - 1] if level else np.int64(-1)
        last = (offsets[level] - offsets[level - 1]) // WIDTH - 1 if level else offsets[1] - 1
        for q in range(count):
            node = nodes[q]
            weights = weigh(load(sums, begin + node * WIDTH, ONE_LINE), shift, filled, span, node)
            child, marks[q] = search(weights, marks[q])
            # Beyond the last share is the padding of a level, and below that nothing.
            nodes[q] = min(node * WIDTH + child, last)
            if below >= 0:
                prefetch(sums, below + nodes[q] * WIDTH)
        span /= WIDTH


@inline_exact
def _walk_in_order(levels, mark):
    """The leaf at a mark, of a weight above zero if any child on the way has one.

    For a mark that fell between two shares, or beyond the last: here sums are taken in order, which
    leaves no gaps.
    """
    offsets, weights = levels.offsets, np.empty(WIDTH, np.float64)
    node, span = np.int64(0), WIDTH ** np.float64(offsets.size - 2)
    for level in range(offsets.size - 2, -1, -1):
        sums = load(levels.sums, offsets[level] + node * WIDTH, ONE_LINE)
        store(weigh(sums, levels.shift, levels.filled, span, node), weights, 0)
        before, after, child = 0.0, 0.0, 0
        for j in range(WIDTH):
            if weights[j] > 0.0 and (mark >= after or after == 0.0):
                before, child = after, j
            after += weights[j]
        mark = max(mark - before, 0.0)
        node = node * WIDTH + child
        span /= WIDTH
    return node


@inline_exact
def _mark(stream, weight, width, number):
    u = uniform53(stream.key, u64(stream.counter + u64(number)))
    return (number + u) * width if width > 0.0 else u * weight


@inline_exact
def _fill(levels, stream, weight, width, first, out):
    """Draw numbers `first`, `first + 1`, ... into `out`.

    `width` is the length of a stratum; 0 draws from the whole weight.
    """
    marks = np.empty(GROUP, np.float64)
    for begin in range(0, out.size, GROUP):
        count = min(GROUP, out.size - begin)
        for q in range(count):
            marks[q] = _mark(stream, weight, width, first + begin + q)
        _walk(levels, marks, out[begin : begin + count], count)
    for q in range(out.size):
        if not _weight(levels.sums[out[q]], levels.shift, levels.filled, out[q]) > 0.0:
            out[q] = _walk_in_order(levels, _mark(stream, weight, width, first + q))


@inline_exact
def _total_of(numbers, capacity, filled):
    return _total(unpack(numbers, capacity, filled))


@inline_exact
def _fill_block(numbers, capacity, filled, stream, weight, width, first, out):
    levels, here = unpack(numbers, capacity, filled), Stream(stream[0], stream[1])
    _fill(levels, here, weight, width, first, out)


def _make_draw(parallel: bool) -> Any:
    @kernel(parallel=parallel, fastmath=EXACT)
    def draw(numbers, capacity, filled, stream, stratified, out):
        weight, count = _total_of(numbers, capacity, filled), out.size
        width = weight / count if stratified else 0.0
        for block in prange((count + _BLOCK - 1) // _BLOCK):
            begin, end = block * _BLOCK, min((block + 1) * _BLOCK, count)
            rows = out[begin:end]
            _fill_block(numbers, capacity, filled, stream, weight, width, begin, rows)
        stream[1] += u64(count)
        return weight

    return draw


#: (numbers, capacity, filled, stream, stratified, out) -> sum of all weights: with replacement.
#: `out` is (n,) int64; where the sum is 0 it is nonsense. Stratum k of n is draw k's.
DRAW = Kernels(_make_draw(False), _make_draw(True), _GRAIN)


# ---------------------------------------------------------------- without replacement


@inline_exact
def _make_table(count):
    """An empty hash table for as many leaves, at most half full."""
    size = 64
    while size < 2 * count:
        size *= 2
    return np.zeros(size, np.int64)


@inline_exact
def _insert(table, leaf):
    """Put a leaf into a hash table of leaf + 1, 0 where free; False if it is there already."""
    mask = table.size - 1
    place = np.int64(u64(u64(leaf) * _HASH) >> _HIGH) & mask
    while table[place] != 0:
        if table[place] == leaf + 1:
            return False
        place = (place + 1) & mask
    table[place] = leaf + 1
    return True


@inline_exact
def _scan(levels, u):
    """A leaf drawn by looking at every one, or -1 if none has a weight.

    For values whose weights are below the rounding errors of their sums.
    """
    weight, after, chosen = 0.0, 0.0, -1
    for leaf in range(levels.offsets[1]):
        weight += _weight(levels.sums[leaf], levels.shift, levels.filled, leaf)
    for leaf in range(levels.offsets[1]):
        share = _weight(levels.sums[leaf], levels.shift, levels.filled, leaf)
        if share > 0.0 and (u * weight >= after or chosen < 0):
            chosen = leaf
        after += share
    return chosen


@inline_exact
def _exchange(levels, leaves, values, nodes):
    """Exchange the leaves' numbers for `values`; `nodes`, as long as `leaves`, is overwritten."""
    for k in range(leaves.size):
        leaf = leaves[k]
        nodes[k] = leaf
        values[k], levels.sums[leaf] = levels.sums[leaf], values[k]
    _propagate(levels, nodes, leaves.size)


@inline_exact
def _draw_successively(levels, stream, stratified, out):
    """Different leaves, each drawn from those that were not drawn before (successive sampling).

    Leaves that come again are dropped. Where that drops half of the draws or more, what was found
    is taken out of the tree until the end, when it is put back bit for bit. Returns how many were
    found, and how many random numbers that took.
    """
    wanted = out.size
    table, nodes = _make_table(wanted), np.empty(wanted, np.int64)
    values = np.full(wanted, _leaf_without_weight(levels.shift))
    found, removed, draws, batch = 0, 0, 0, wanted
    while found < wanted:
        before, weight = found, _total(levels)
        count = min(wanted - found, batch) if weight > 0.0 else 0
        width = weight / count if stratified else 0.0
        here = Stream(stream.key, u64(stream.counter + u64(draws)))
        candidates = out[before : before + count]
        _fill(levels, here, weight, width, 0, candidates)
        draws += count
        for k in range(count):
            leaf = candidates[k]
            weight = _weight(levels.sums[leaf], levels.shift, levels.filled, leaf)
            if weight > 0.0 and _insert(table, leaf):
                out[found] = leaf
                found += 1
        fresh = found - before
        batch = max(GROUP, 2 * fresh)
        if fresh == 0 and removed == found:
            leaf = _scan(levels, uniform53(stream.key, u64(stream.counter + u64(draws))))
            if leaf < 0:
                break
            out[found] = leaf
            draws, found = draws + 1, found + 1
        if found < wanted and (removed or stratified or 2 * fresh <= count):
            begin, end = removed, found
            _exchange(levels, out[begin:end], values[begin:end], nodes[begin:end])
            removed = found
    _exchange(levels, out[:removed], values[:removed], nodes[:removed])
    return found, draws


@inline_exact
def draw_uniform(stream, filled, out):
    """Different numbers below `filled`, each as likely; returns how many random numbers it took."""
    wanted, draws = out.size, 0
    if 2 * wanted > filled:
        left = np.arange(filled)
        for k in range(wanted):
            u = uniform53(stream.key, u64(stream.counter + u64(k)))
            place = min(k + np.int64(u * (filled - k)), filled - 1)
            out[k], left[place] = left[place], left[k]
        return wanted
    table, found = _make_table(wanted), 0
    while found < wanted:
        u = uniform53(stream.key, u64(stream.counter + u64(draws)))
        leaf = min(np.int64(u * filled), filled - 1)
        draws += 1
        if _insert(table, leaf):
            out[found] = leaf
            found += 1
    return draws


@kernel(fastmath=EXACT)
def draw_distinct(numbers, capacity, filled, stream, stratified, out):
    """Fill `out`, (n,) int64, with different leaves; returns how many were found.

    Fewer than n are found only if no others have a weight. Values that are all equal once they are
    raised, to zero, are as likely each; there are n of them at least.
    """
    levels, here = unpack(numbers, capacity, filled), Stream(stream[0], stream[1])
    if filled is not None and _none_weighs(levels):
        found, draws = out.size, draw_uniform(here, filled, out)
    else:
        found, draws = _draw_successively(levels, here, stratified, out)
    stream[1] += u64(draws)
    return found

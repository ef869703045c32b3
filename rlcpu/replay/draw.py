"""Weighted sampling from trees: with replacement, stratified, and without replacement.

A draw walks from the top to a leaf, one node per level. Thirty-two draws walk side by side, so that
their cache misses overlap, and every number comes from a counter: a result depends neither on the
number of threads nor on how a request is split.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.octets import WIDTH, prefetch, search, store, total
from rlcpu.kernels.random import u64, uniform53
from rlcpu.kernels.threads import Kernels
from rlcpu.replay.tree import Kind, make_propagate, unpack

GROUP = 32  # draws that walk side by side; 16 take 10 % longer at 2^20 leaves, 64 no less
_BLOCK = 1024  # draws that a thread takes at a time
_GRAIN = 4096  # draws, 100 us, from which a second core is worth waking
_HASH, _HIGH = u64(0x9E3779B97F4A7C15), u64(32)


class Stream(NamedTuple):
    """Where a stream of random numbers is; kernels get it as an array, and move it on.

    Attributes:
        key: uint64.
        counter: uint64, the number to be drawn next.
    """

    key: Any
    counter: Any


class Found(NamedTuple):
    """What came of a drawing without replacement.

    Attributes:
        count: how many leaves were found; fewer than asked for if no others have a weight.
        draws: how many random numbers it took.
    """

    count: Any
    draws: Any


# ---------------------------------------------------------------- inlined pieces


@functools.cache
def make_walk(kind: Kind) -> Any:
    """Inlinable (tree, bias, marks, nodes, count): `nodes[:count]`, the leaves at marks[:count].

    `marks` are positions in [0, sum of all weights); they are overwritten.
    """
    weigh = kind.weigh

    @inline_exact
    def walk(tree, bias, marks, nodes, count):  # type: ignore[no-untyped-def]
        sums, offsets = tree.sums, tree.offsets
        for q in range(count):
            nodes[q] = 0
        span = WIDTH ** np.float64(offsets.size - 2)
        for level in range(offsets.size - 2, -1, -1):
            # The leaves have nothing below: asking for what is not there takes three times as long.
            begin, below = offsets[level], offsets[level - 1] if level else np.int64(-1)
            last = (offsets[level] - offsets[level - 1]) // WIDTH - 1 if level else offsets[1] - 1
            for q in range(count):
                node = nodes[q]
                weights = weigh(sums, begin + node * WIDTH, span, node, bias)
                child, marks[q] = search(weights, marks[q])
                # Beyond the last share is the padding of a level, and below that nothing.
                nodes[q] = min(node * WIDTH + child, last)
                if below >= 0:
                    prefetch(sums, below + nodes[q] * WIDTH)
            span /= WIDTH

    return walk


@functools.cache
def make_careful_walk(kind: Kind) -> Any:
    """Inlinable (tree, bias, mark) -> leaf, of a weight above zero if any child on the way has one.

    For a mark that fell between two shares, or beyond the last: here sums are taken in order, which
    leaves no gaps.
    """
    weigh = kind.weigh

    @inline_exact
    def walk(tree, bias, mark):  # type: ignore[no-untyped-def]
        offsets, weights = tree.offsets, np.empty(WIDTH, np.float64)
        node, span = np.int64(0), WIDTH ** np.float64(offsets.size - 2)
        for level in range(offsets.size - 2, -1, -1):
            position = offsets[level] + node * WIDTH
            store(weigh(tree.sums, position, span, node, bias), weights, 0)
            before, after, child = 0.0, 0.0, 0
            for j in range(WIDTH):
                if weights[j] > 0.0 and (mark >= after or after == 0.0):
                    before, child = after, j
                after += weights[j]
            mark = max(mark - before, 0.0)
            node = node * WIDTH + child
            span /= WIDTH
        return node

    return walk


@functools.cache
def make_total(kind: Kind) -> Any:
    """Inlinable (tree, bias): sum of all weights."""
    weigh = kind.weigh

    @inline_exact
    def total_weight(tree, bias):  # type: ignore[no-untyped-def]
        offsets = tree.offsets
        span = WIDTH ** np.float64(offsets.size - 2)
        return total(weigh(tree.sums, offsets[offsets.size - 2], span, np.int64(0), bias))

    return total_weight


@functools.cache
def make_fill(kind: Kind) -> Any:
    """Inlinable (tree, bias, stream, weight, width, first, out): draws number first, ... into out.

    `width` is the length of a stratum; 0 draws from the whole weight.
    """
    walk, careful_walk, weight_of = make_walk(kind), make_careful_walk(kind), kind.weight

    @inline_exact
    def mark(stream, weight, width, number):  # type: ignore[no-untyped-def]
        u = uniform53(stream.key, u64(stream.counter + u64(number)))
        return (number + u) * width if width > 0.0 else u * weight

    @inline_exact
    def fill(tree, bias, stream, weight, width, first, out):  # type: ignore[no-untyped-def]
        marks = np.empty(GROUP, np.float64)
        for begin in range(0, out.size, GROUP):
            count = min(GROUP, out.size - begin)
            for q in range(count):
                marks[q] = mark(stream, weight, width, first + begin + q)
            walk(tree, bias, marks, out[begin : begin + count], count)
        for q in range(out.size):
            if not weight_of(tree.sums, out[q], bias) > 0.0:
                out[q] = careful_walk(tree, bias, mark(stream, weight, width, first + q))

    return fill


# ---------------------------------------------------------------- with replacement


@functools.cache
def draw_kernels(kind: Kind) -> Kernels:
    """(numbers, capacity, filled, stream, stratified, out) -> sum of all weights.

    `out` is (n,) int64; where the sum is 0 it is nonsense. Stratum k of n is draw k's.
    """
    return Kernels(_make_draw(kind, False), _make_draw(kind, True), _GRAIN)


def _make_draw(kind: Kind, parallel: bool) -> Any:
    fill, total_weight, make_bias = make_fill(kind), make_total(kind), kind.bias

    @inline_exact
    def weigh_all(numbers, capacity, filled):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        return total_weight(tree, make_bias(tree, filled))

    @inline_exact
    def fill_block(numbers, capacity, filled, stream, weight, width, first, out):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        here = Stream(stream[0], stream[1])
        fill(tree, make_bias(tree, filled), here, weight, width, first, out)

    @kernel(parallel=parallel, fastmath=EXACT)
    def draw(numbers, capacity, filled, stream, stratified, out):  # type: ignore[no-untyped-def]
        weight, count = weigh_all(numbers, capacity, filled), out.size
        width = weight / count if stratified else 0.0
        for block in prange((count + _BLOCK - 1) // _BLOCK):
            begin, end = block * _BLOCK, min((block + 1) * _BLOCK, count)
            rows = out[begin:end]
            fill_block(numbers, capacity, filled, stream, weight, width, begin, rows)
        stream[1] += u64(count)
        return weight

    return draw


# ---------------------------------------------------------------- without replacement


@inline_exact
def _insert(table, leaf):  # type: ignore[no-untyped-def]
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
def _make_table(count):  # type: ignore[no-untyped-def]
    """An empty hash table for as many leaves, at most half full."""
    size = 64
    while size < 2 * count:
        size *= 2
    return np.zeros(size, np.int64)


@functools.cache
def _make_scan(kind: Kind) -> Any:
    """Inlinable (tree, bias, u) -> leaf drawn by looking at every leaf, or -1 if none has a weight.

    For values whose weights are below the rounding errors of their sums.
    """
    weight_of = kind.weight

    @inline_exact
    def scan(tree, bias, u):  # type: ignore[no-untyped-def]
        weight, after, chosen = 0.0, 0.0, -1
        for leaf in range(tree.offsets[1]):
            weight += weight_of(tree.sums, leaf, bias)
        for leaf in range(tree.offsets[1]):
            share = weight_of(tree.sums, leaf, bias)
            if share > 0.0 and (u * weight >= after or chosen < 0):
                chosen = leaf
            after += share
        return chosen

    return scan


@functools.cache
def _make_keep_new(kind: Kind) -> Any:
    """Inlinable (tree, bias, candidates, table, out, found): `found`, after adding to `out`."""
    weight_of = kind.weight

    @inline_exact
    def keep_new(tree, bias, candidates, table, out, found):  # type: ignore[no-untyped-def]
        for k in range(candidates.size):
            leaf = candidates[k]
            if weight_of(tree.sums, leaf, bias) > 0.0 and _insert(table, leaf):
                out[found] = leaf
                found += 1
        return found

    return keep_new


@functools.cache
def _make_put(kind: Kind) -> Any:
    """Inlinable (tree, bias, leaves, values, nodes): exchange the leaves' numbers for `values`.

    `nodes`, as long as `leaves`, is overwritten.
    """
    propagate = make_propagate(kind)

    @inline_exact
    def put(tree, bias, leaves, values, nodes):  # type: ignore[no-untyped-def]
        for k in range(leaves.size):
            leaf = leaves[k]
            nodes[k] = leaf
            values[k], tree.sums[leaf] = tree.sums[leaf], values[k]
        propagate(tree, bias, nodes, leaves.size)

    return put


@functools.cache
def make_distinct(kind: Kind) -> Any:
    """Inlinable (tree, bias, stream, stratified, out) -> Found: different leaves, by weight.

    Each is drawn from those that were not drawn before (successive sampling): leaves that come
    again are dropped. Where that drops half of the draws or more, what was found is taken out of
    the tree until the end, when it is put back bit for bit.
    """
    fill, total_weight, scan = make_fill(kind), make_total(kind), _make_scan(kind)
    keep_new, put = _make_keep_new(kind), _make_put(kind)

    @inline_exact
    def draw_distinct(tree, bias, stream, stratified, out):  # type: ignore[no-untyped-def]
        wanted = out.size
        table, nodes = _make_table(wanted), np.empty(wanted, np.int64)
        values = np.full(wanted, -bias.shift)  # weight 0
        found, removed, draws, batch = 0, 0, 0, wanted
        while found < wanted:
            before, weight = found, total_weight(tree, bias)
            count = min(wanted - found, batch) if weight > 0.0 else 0
            width = weight / count if stratified else 0.0
            here = Stream(stream.key, u64(stream.counter + u64(draws)))
            candidates = out[found : found + count]
            fill(tree, bias, here, weight, width, 0, candidates)
            draws += count
            found = keep_new(tree, bias, candidates, table, out, before)
            fresh = found - before
            batch = max(GROUP, 2 * fresh)
            if fresh == 0 and removed == found:
                leaf = scan(tree, bias, uniform53(stream.key, u64(stream.counter + u64(draws))))
                if leaf < 0:
                    break
                out[found] = leaf
                draws, found = draws + 1, found + 1
            if found < wanted and (removed or stratified or 2 * fresh <= count):
                begin, end = removed, found
                put(tree, bias, out[begin:end], values[begin:end], nodes[begin:end])
                removed = found
        put(tree, bias, out[:removed], values[:removed], nodes[:removed])
        return Found(found, draws)

    return draw_distinct


@functools.cache
def distinct_kernel(kind: Kind) -> Any:
    """(numbers, capacity, filled, stream, stratified, out) -> how many different leaves were found.

    Fewer than `out` is long only if no others have a weight.
    """
    draw_distinct, make_bias = make_distinct(kind), kind.bias

    @kernel(fastmath=EXACT)
    def draw(numbers, capacity, filled, stream, stratified, out):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        here = Stream(stream[0], stream[1])
        found = draw_distinct(tree, make_bias(tree, filled), here, stratified, out)
        stream[1] += u64(found.draws)
        return found.count

    return draw

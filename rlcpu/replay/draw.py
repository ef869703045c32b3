"""Weighted sampling from trees, with replacement: each draw for itself, or one from each stratum.

A draw walks from the top to a leaf, one node per level. Sixty-four draws walk side by side, so that
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
from rlcpu.replay.tree import Kind, unpack

GROUP = 64  # draws that walk side by side; at 2^20 leaves 32 take 1.2 and 16 1.5 times as long
_BLOCK = 1024  # draws that a thread takes at a time
_GRAIN = 4096  # draws, 90 us, from which a second core is worth waking: 65 us


class Stream(NamedTuple):
    """Where a stream of random numbers is; kernels get it as an array, and move it on.

    Attributes:
        key: uint64.
        counter: uint64, the number to be drawn next.
    """

    key: Any
    counter: Any


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

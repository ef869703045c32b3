"""Weighted sampling from trees without replacement."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.octets import WIDTH, highest, load
from rlcpu.kernels.random import u64, uniform53
from rlcpu.replay.draw import GROUP, Stream, make_fill, make_total
from rlcpu.replay.tree import VALUES, Kind, make_propagate, unpack

_HASH, _HIGH = u64(0x9E3779B97F4A7C15), u64(32)


class Found(NamedTuple):
    """What came of a drawing without replacement.

    Attributes:
        count: how many leaves were found; fewer than asked for if no others have a weight.
        draws: how many random numbers it took.
    """

    count: Any
    draws: Any


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


@inline_exact
def draw_uniform(stream, filled, out):  # type: ignore[no-untyped-def]
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


@functools.cache
def value_kernel() -> Any:
    """(numbers, capacity, filled, stream, out) -> how many different leaves were found.

    By value, raised so that none is negative; where all are equal then, each is as likely.
    """
    draw_distinct, make_bias = make_distinct(VALUES), VALUES.bias

    @kernel(fastmath=EXACT)
    def draw(numbers, capacity, filled, stream, out):  # type: ignore[no-untyped-def]
        tree = unpack(numbers, capacity)
        bias, here = make_bias(tree, filled), Stream(stream[0], stream[1])
        if highest(load(tree.highs, tree.highs.size - WIDTH)) + bias.shift <= 0.0:
            stream[1] += u64(draw_uniform(here, filled, out))
            return out.size
        found = draw_distinct(tree, bias, here, False, out)
        stream[1] += u64(found.draws)
        return found.count

    return draw

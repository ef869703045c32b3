"""Recurrences over time where many lanes lie next to each other: vectors of lanes, row by row.

A core takes a block of lanes through all steps; what is carried from step to step stays in its
first cache. Rows of the same block are far apart in memory, which the machine does not guess:
asking for the next row while this one is computed, and writing past the caches, takes advantages of
2,048 x 1,024 float32 from 1.1 to 0.5 ms.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import address, load, shifted, store
from rlcpu.kernels.threads import Kernels
from rlcpu.scan.recurrences.places import (
    ORIGIN,
    following,
    moved,
    pointers,
    read_plan,
    read_strides,
)
from rlcpu.scan.recurrences.steps import After, Rule, access, lanes, link, link_always, prefetcher

GRAIN = 2**16  # steps of all lanes, 40 us, from which a second core is worth waking


@functools.cache
def column_kernels(rule: Rule, dtype: Any) -> Kernels:
    """The rule's drivers over arrays with lanes."""
    return Kernels(make_columns(rule, dtype, False), make_columns(rule, dtype, True), GRAIN)


def make_columns(rule: Rule, dtype: Any, parallel: bool) -> Any:
    """Driver: (inputs..., last, initial, options, plan, first, second); see `places`."""
    block = _make_block(rule, dtype)

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, first, second):  # type: ignore[no-untyped-def]
        slices = max(1, (plan[2] - plan[4] + plan[3] - 1) // plan[3])
        for number in prange(plan[0] * slices):
            inputs, ends = (i0, i1, i2, i3, i4, i5, i6, i7, i8), (last, initial)
            block(number, slices, inputs, ends, options, plan, (first, second))

    return scan


def make_strip(rule: Rule, dtype: Any) -> Any:
    """Function: one step of up to a vector of lanes, from all that it reads to all it writes."""
    _, put, gather, gather_after = access(dtype)
    coefficients, results = rule.coefficients, rule.results
    connect = link if rule.cuts else link_always
    two = rule.outputs == 2

    @inline_exact
    def strip(memory, at, after, carried, by, count, options, streamed):  # type: ignore[no-untyped-def]
        step = gather(memory.steps, at.steps, by, count)
        coming = gather_after(after[0], after[1], by, count)
        before = load(carried, by, 1)
        a, b = coefficients(step, coming, options)
        y = connect(a, b, before)
        # All lanes: a load of what has just been written to some of them waits for every store.
        store(y, carried, by)
        first, second = results(y, before, step, coming, options)
        put(first, memory.first, at.first + by, count, streamed > 0)
        if two:
            put(second, memory.second, at.second + by, count, streamed > 1)

    return strip


def _make_row(rule: Rule, dtype: Any) -> Any:
    """Function: one step of a block of lanes."""
    full, strip, ask = lanes(dtype), make_strip(rule, dtype), prefetcher(rule.reads)

    @inline_exact
    def row(memory, at, ahead, after, carried, width, options, streamed):  # type: ignore[no-untyped-def]
        vectors = width // full
        for v in range(vectors):
            ask(memory.steps, ahead.steps, v * full)
            strip(memory, at, after, carried, v * full, full, options, streamed)
        done = vectors * full
        if done < width:
            strip(memory, at, after, carried, done, width - done, options, streamed)

    return row


@inline_exact
def _after(memory, at, none, is_first):  # type: ignore[no-untyped-def]
    """Pointers and positions of `After`; of the step computed first, only a value comes after."""
    if is_first:
        zero = at.last - at.last
        return After(memory.last, none, none, none), After(at.last, zero, zero, zero)
    return following(memory.steps), following(at.steps)


class Edge(NamedTuple):
    """The lanes before the first vector: the core that has the last lanes computes them too.

    The last lanes of a row and the first of the next one share a cache line. Two cores that write
    to it take 1.2x as long.

    Attributes:
        size: number of lanes, 0 if they are another core's.
        strides: over lanes.
        back: lanes between them and the block's first one.
        carried: like the block's.
    """

    size: int
    strides: Any
    back: int
    carried: Any


def _make_block(rule: Rule, dtype: Any) -> Any:
    """Function: all steps of one block of lanes."""
    row, strip = _make_row(rule, dtype), make_strip(rule, dtype)
    full, zero = lanes(dtype), dtype(0.0)

    @inline_exact
    def steps(memory, at, over_time, carried, edge, width, options, plan):  # type: ignore[no-untyped-def]
        back, nothing = -plan.direction, np.zeros(plan.width + full, dtype)
        none, streamed = address(nothing), plan.streamed
        at = moved(at, over_time, plan.num_steps - 1 if back < 0 else 0)
        before = at
        for k in range(plan.num_steps):
            ahead, after = moved(at, over_time, back), _after(memory, before, none, k == 0)
            row(memory, at, ahead, after, carried, width, options, streamed)
            if edge.size > 0:
                here = moved(at, edge.strides, -edge.back)
                after = _after(memory, moved(before, edge.strides, -edge.back), none, k == 0)
                strip(memory, here, after, edge.carried, 0, edge.size, options, 0)
            before, at = at, ahead
        return nothing.size  # alive up to here

    @inline_exact
    def block(number, slices, inputs, ends, options, integers, outputs):  # type: ignore[no-untyped-def]
        plan, memory = read_plan(integers), pointers(inputs, ends, outputs)
        part, over_lanes = number % slices, read_strides(integers, 2)
        begin = plan.head + part * plan.width
        width = min(plan.inner - begin, plan.width)
        at = moved(ORIGIN, read_strides(integers, 0), number // slices)
        numbers = np.full(width + 3 * full, zero)
        carried, size = address(numbers), plan.head if part == slices - 1 else 0
        edge = Edge(size, over_lanes, begin, shifted(carried, width + full))
        for lane in range(edge.size):
            edge.carried[lane] = memory.initial[at.initial + lane * over_lanes.initial]
        at = moved(at, over_lanes, begin)
        for lane in range(width):
            carried[lane] = memory.initial[at.initial + lane * over_lanes.initial]
        settings = options[0], options[1], options[2]
        steps(memory, at, read_strides(integers, 1), carried, edge, width, settings, plan)
        fence()
        return numbers.size  # alive up to here

    return block

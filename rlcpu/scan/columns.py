"""Recurrences over time where many lanes lie next to each other: vectors of lanes, row by row.

A core takes a block of lanes through all steps; what is carried from step to step stays in its
first cache. Rows of the same block are far apart in memory, which the machine does not guess:
asking for the next row while this one is computed, and writing past the caches, takes advantages of
2,048 x 1,024 float32 from 1.1 to 0.5 ms.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import address, load
from rlcpu.kernels.threads import Kernels
from rlcpu.scan.places import ORIGIN, following, moved, pointers, read_plan, read_strides
from rlcpu.scan.steps import After, Rule, access, lanes, link, link_always, prefetcher

GRAIN = 2**16  # steps of all lanes, 20 us, from which a second core is worth waking


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
        put(y, carried, by, count, False)
        first, second = results(y, before, step, coming, options)
        put(first, memory.first, at.first + by, count, streamed)
        if two:
            put(second, memory.second, at.second + by, count, streamed)

    return strip


def _make_row(rule: Rule, dtype: Any) -> Any:
    """Function: one step of a block of lanes, of which the first `head` fill no vector."""
    full, strip, ask = lanes(dtype), make_strip(rule, dtype), prefetcher(rule.reads)

    @inline_exact
    def row(memory, at, ahead, after, carried, span, options, streamed):  # type: ignore[no-untyped-def]
        head, width = span
        vectors = (width - head) // full
        for v in range(vectors):
            by = head + v * full
            ask(memory.steps, ahead.steps, by)
            strip(memory, at, after, carried, by, full, options, streamed)
        done = head + vectors * full
        for by, stop in ((0, head), (done, width)):
            if by < stop:
                strip(memory, at, after, carried, by, stop - by, options, streamed)

    return row


def _make_block(rule: Rule, dtype: Any) -> Any:
    """Function: all steps of one block of lanes."""
    row, full, zero = _make_row(rule, dtype), lanes(dtype), dtype(0.0)

    @inline_exact
    def steps(memory, at, over_time, carried, span, options, plan):  # type: ignore[no-untyped-def]
        back, streamed = -plan.direction, plan.streamed != 0
        nothing = np.zeros(plan.width + full, carried.dtype)
        last = plan.num_steps - 1
        at = moved(at, over_time, last if back < 0 else 0)
        none = address(nothing)
        after = After(memory.last, none, none, none), After(at.last, 0, 0, 0)
        row(
            memory, at, moved(at, over_time, back), after, address(carried), span, options, streamed
        )
        for _ in range(last):
            after = following(memory.steps), following(at.steps)
            at = moved(at, over_time, back)
            ahead = moved(at, over_time, back)
            row(memory, at, ahead, after, address(carried), span, options, streamed)
        return nothing.size  # alive up to here

    @inline_exact
    def block(number, slices, inputs, ends, options, integers, outputs):  # type: ignore[no-untyped-def]
        plan, memory = read_plan(integers), pointers(inputs, ends, outputs)
        part = number % slices
        begin = plan.head + part * plan.width if part else 0
        stop = min(plan.inner, plan.head + (part + 1) * plan.width)
        at = moved(ORIGIN, read_strides(integers, 0), number // slices)
        at = moved(at, read_strides(integers, 2), begin)
        carried = np.full(stop - begin + full, zero)
        for k in range(stop - begin):
            carried[k] = ends[1][at.initial + k]
        span = (0 if part else min(plan.head, stop)), stop - begin
        settings = options[0], options[1], options[2]
        steps(memory, at, read_strides(integers, 1), carried, span, settings, plan)
        fence()

    return block

"""Recurrences over windows of n steps, each of which ends in a value.

y of a step is b + a * (b' + a' * (...)) over its n steps, and the innermost y is the value after
the last of them. Nothing is carried from one window to another: a, b and the values of a piece of
time, and of the n - 1 steps after it, are kept in a core's first cache.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import address, load, shifted, store
from rlcpu.kernels.threads import Kernels
from rlcpu.scan.recurrences.columns import GRAIN
from rlcpu.scan.recurrences.places import (
    ORIGIN,
    following,
    moved,
    pointers,
    read_plan,
    read_strides,
)
from rlcpu.scan.recurrences.steps import After, Rule, access, lanes, link

PIECE = 512  # steps of a row; not more than `layout.REPEATS`
ROWS = 32  # steps of a block of lanes, at least
VECTORS = 4  # of lanes in a block


@functools.cache
def window_kernels(rule: Rule, dtype: Any) -> Kernels:
    """The rule's drivers over windows."""
    return Kernels(make_windows(rule, dtype, False), make_windows(rule, dtype, True), GRAIN)


def make_windows(rule: Rule, dtype: Any, parallel: bool) -> Any:
    """Driver: (inputs..., last, initial, options, plan, first, second); see `places`."""
    block, extent = _make_block(rule, dtype), inline_exact(_make_extent(lanes(dtype)))

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, first, second):  # type: ignore[no-untyped-def]
        rows, width = extent(plan[2], plan[7])
        pieces = (plan[1] + rows - 1) // rows
        for number in prange(plan[0] * pieces * ((plan[2] + width - 1) // width)):
            inputs, ends = (i0, i1, i2, i3, i4, i5, i6, i7, i8), (last, initial)
            block(number, pieces, inputs, ends, options, plan, (first, second))

    return scan


def _make_extent(full: int) -> Any:
    """Function: how many steps and lanes a block has."""

    def extent(inner, window):  # type: ignore[no-untyped-def]
        rows = PIECE if inner == 1 else ROWS
        return max(rows, 2 * window), 1 if inner == 1 else VECTORS * full

    return extent


class Block(NamedTuple):
    """The windows that a core computes at a time, and what they need.

    Attributes:
        begin: first step.
        steps: number of them.
        lanes: number of lanes.
        width: lanes from one step to the next in `a`, `b` and `values`.
        a: of all steps of the windows; 1 beyond the last step.
        b: the same; 0 beyond the last step.
        values: after each step.
    """

    begin: int
    steps: int
    lanes: int
    width: int
    a: Any
    b: Any
    values: Any


def _make_block(rule: Rule, dtype: Any) -> Any:
    """Function: the windows that begin in a piece of time, of a block of lanes."""
    full, extent = lanes(dtype), inline_exact(_make_extent(lanes(dtype)))
    fill, slide = _make_fill(rule, dtype), _make_slide(dtype)

    @inline_exact
    def block(number, pieces, inputs, ends, options, integers, outputs):  # type: ignore[no-untyped-def]
        plan, memory = read_plan(integers), pointers(inputs, ends, outputs)
        rows, width = extent(plan.inner, plan.window)
        piece, rest = number % pieces, number // pieces
        slices = (plan.inner + width - 1) // width
        lane, begin = rest % slices * width, piece * rows
        at = moved(ORIGIN, read_strides(integers, 0), rest // slices)
        at = moved(at, read_strides(integers, 2), lane)
        size = (rows + plan.window) * width + full
        numbers = np.empty(3 * size, dtype)
        a = address(numbers)
        extents = begin, min(rows, plan.num_steps - begin), min(width, plan.inner - lane), width
        windows = Block(*extents, a, shifted(a, size), shifted(a, 2 * size))
        over_time, settings = read_strides(integers, 1), (options[0], options[1], options[2])
        fill(memory, at, over_time, windows, settings, plan)
        slide(memory, moved(at, over_time, begin), over_time, windows, plan.window)
        return numbers.size  # alive up to here

    return block


def _make_fill(rule: Rule, dtype: Any) -> Any:
    """Function: a, b and values of all steps of a block's windows."""
    full, coefficients = lanes(dtype), rule.coefficients
    _, _, gather, gather_after = access(dtype)

    @inline_exact
    def run(memory, at, after, windows, begin, length, options):  # type: ignore[no-untyped-def]
        """As many steps or lanes as lie next to each other."""
        for by in range(0, length, full):
            count = min(full, length - by)
            step = gather(memory.steps, at.steps, by, count)
            coming = gather_after(after[0], after[1], by, count)
            a, b = coefficients(step, coming, options)
            store(a, windows.a, begin + by)
            store(b, windows.b, begin + by)
            store(coming.value, windows.values, begin + by)

    @inline_exact
    def pad(memory, at, windows, begin, stop):  # type: ignore[no-untyped-def]
        """Steps beyond the last one, which change nothing."""
        for step in range(begin, stop):
            for lane in range(windows.lanes):
                k = step * windows.width + lane
                windows.a[k], windows.b[k] = dtype(1.0), dtype(0.0)
                windows.values[k] = memory.last[at.last + lane]

    @inline_exact
    def fill(memory, at, over_time, windows, options, plan):  # type: ignore[no-untyped-def]
        last, width = plan.num_steps - 1, windows.width
        begin, stop = windows.begin, windows.begin + windows.steps + plan.window - 1
        inside = min(stop, last) - begin
        jump = PIECE if plan.inner == 1 else 1
        for step in range(0, inside, jump):
            here = moved(at, over_time, begin + step)
            after = following(memory.steps), following(moved(here, over_time, 1).steps)
            length = min(jump, inside - step) if plan.inner == 1 else windows.lanes
            run(memory, here, after, windows, step * width, length, options)
        if stop > last:
            nothing = np.zeros(width + full, dtype)
            none = address(nothing)
            after = After(memory.last, none, none, none), After(at.last, 0, 0, 0)
            here = moved(at, over_time, last)
            run(memory, here, after, windows, inside * width, windows.lanes, options)
            pad(memory, at, windows, inside + 1, stop - begin)
            return nothing.size  # alive up to here
        return 0

    return fill


def _make_slide(dtype: Any) -> Any:
    """Function: y of a block's windows."""
    full, put = lanes(dtype), access(dtype).put

    @inline_exact
    def window(windows, at, count):  # type: ignore[no-untyped-def]
        at += (count - 1) * windows.width
        y = load(windows.values, at, 1)
        for _ in range(count):
            y = link(load(windows.a, at, 1), load(windows.b, at, 1), y)
            at -= windows.width
        return y

    @inline_exact
    def slide(memory, at, over_time, windows, count):  # type: ignore[no-untyped-def]
        one_lane = windows.width == 1
        runs, length = (1, windows.steps) if one_lane else (windows.steps, windows.lanes)
        for number in range(runs):
            here = moved(at, over_time, number)
            for by in range(0, length, full):
                y = window(windows, number * windows.width + by, count)
                put(y, memory.first, here.first + by, min(full, length - by), False)

    return slide

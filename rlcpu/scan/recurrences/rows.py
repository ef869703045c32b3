"""Recurrences along contiguous rows: vectors across the rows.

A core takes as many rows as two vectors have lanes, a piece of each at a time. What belongs to one
step alone is computed along the rows; only a, b and y of the recurrence are moved to vectors across
them and back, transposed in registers.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import address, load, shifted, store, to_line
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.tiles import load_tile, store_tile
from rlcpu.scan.recurrences.columns import GRAIN, make_strip
from rlcpu.scan.recurrences.places import (
    ORIGIN,
    following,
    moved,
    pointers,
    read_plan,
    read_strides,
)
from rlcpu.scan.recurrences.steps import After, Rule, access, lanes, link, link_always, prefetcher

REGISTERS = 2  # vectors across the rows: two hide the latency of one step after the other


@functools.cache
def row_kernels(rule: Rule, dtype: Any) -> Kernels:
    """The rule's drivers over contiguous rows."""
    return Kernels(make_rows(rule, dtype, False), make_rows(rule, dtype, True), GRAIN)


def make_rows(rule: Rule, dtype: Any, parallel: bool) -> Any:
    """Driver: (inputs..., last, initial, options, plan, first, second); see `places`."""
    block, group = _make_block(rule, dtype), REGISTERS * lanes(dtype)

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, first, second):  # type: ignore[no-untyped-def]
        for number in prange((plan[0] + group - 1) // group):
            inputs, ends = (i0, i1, i2, i3, i4, i5, i6, i7, i8), (last, initial)
            block(number * group, inputs, ends, options, plan, (first, second))

    return scan


# ---------------------------------------------------------------- along the rows


def _make_prepare(rule: Rule, dtype: Any) -> Any:
    """Function: a and b of `count` steps of a row."""
    full, ask, coefficients = lanes(dtype), prefetcher(rule.reads), rule.coefficients
    _, _, gather, gather_after = access(dtype)

    @inline_exact
    def one(memory, at, after, rows, by, count, options):  # type: ignore[no-untyped-def]
        step = gather(memory.steps, at.steps, by, count)
        coming = gather_after(following(memory.steps), following(after.steps), by, count)
        a, b = coefficients(step, coming, options)
        store(a, rows[0], by)
        store(b, rows[1], by)

    @inline_exact
    def prepare(memory, at, over_time, rows, count, ahead, options, direction):  # type: ignore[no-untyped-def]
        after, coming = moved(at, over_time, direction), moved(at, over_time, ahead)
        vectors = count // full
        for v in range(vectors):
            ask(memory.steps, coming.steps, v * full)
            one(memory, at, after, rows, v * full, full, options)
        if vectors * full < count:
            one(memory, at, after, rows, vectors * full, count - vectors * full, options)

    return prepare


def _make_finish(rule: Rule, dtype: Any) -> Any:
    """Function: the outputs of `count` steps of a row, from y."""
    full, results, two = lanes(dtype), rule.results, rule.outputs == 2
    _, put, gather, gather_after = access(dtype)

    @inline_exact
    def one(memory, at, after, y, by, count, options, streamed):  # type: ignore[no-untyped-def]
        step = gather(memory.steps, at.steps, by, count)
        coming = gather_after(following(memory.steps), following(after.steps), by, count)
        found = results(load(y, by, 1), load(y, by + 1, 1), step, coming, options)
        put(found[0], memory.first, at.first + by, count, streamed > 0)
        if two:
            put(found[1], memory.second, at.second + by, count, streamed > 1)

    @inline_exact
    def finish(memory, at, over_time, y, count, options, direction, streamed):  # type: ignore[no-untyped-def]
        after = moved(at, over_time, direction)
        vectors = count // full
        for v in range(vectors):
            one(memory, at, after, y, v * full, full, options, streamed)
        if vectors * full < count:
            done = vectors * full
            one(memory, at, after, y, done, count - done, options, streamed)

    return finish


# ---------------------------------------------------------------- across the rows


def _make_connect(rule: Rule, dtype: Any) -> Any:
    """Function: y of `count` steps of all rows, in the place of b; carried goes in and out."""
    full, group = lanes(dtype), REGISTERS * lanes(dtype)
    connect = link if rule.cuts else link_always

    @inline_exact
    def tile(tiles, carried, count, direction):  # type: ignore[no-untyped-def]
        y = load(carried, 0, REGISTERS)
        for k in range(count):
            at = (count - 1 - k if direction > 0 else k) * group
            y = connect(load(tiles[0], at, REGISTERS), load(tiles[1], at, REGISTERS), y)
            store(y, tiles[1], at)
        store(y, carried, 0)

    @inline_exact
    def across(rows, starts, tiles, carried, count, direction):  # type: ignore[no-untyped-def]
        number = (count + full - 1) // full
        for v in range(number):
            begin = (number - 1 - v if direction > 0 else v) * full
            load_tile(rows[0], starts, begin, tiles[0], REGISTERS)
            load_tile(rows[1], starts, begin, tiles[1], REGISTERS)
            tile(tiles, carried, min(full, count - begin), direction)
            store_tile(tiles[1], rows[1], starts, begin, REGISTERS)

    return across


def _span(edge: int, plan: Any, full: int) -> tuple[int, int]:
    """The piece of the rows that comes next to `edge`: its first step, and the one after its last.

    But for the first and the last pieces, the outputs' vectors are aligned.
    """
    if plan.direction > 0:
        begin = (edge - 1 - plan.head) // plan.width * plan.width + plan.head
        return max(0, begin), edge
    rest = (plan.head - edge) % full
    return edge, min(plan.num_steps, edge + (rest if rest > 0 else plan.width))


class Area(NamedTuple):
    """Memory of one group of rows: pointers into one array.

    Attributes:
        rows: a and y (before it is known, b) of a piece of every row, one row after the other.
        tiles: the same of a few steps, one step after the other.
        carried: y of the step computed before, of every row.
        before: y of the step computed before the present piece.
        starts: where each row begins in `rows`, int64.
        stride: from one row to the next in `rows`.
    """

    rows: Any
    tiles: Any
    carried: Any
    before: Any
    starts: Any
    stride: int


def _make_area(dtype: Any) -> Any:
    """Functions: the arrays of an `Area` for pieces of `width` steps, and the area itself."""
    full, group = lanes(dtype), REGISTERS * lanes(dtype)

    @inline_exact
    def allocate(width):  # type: ignore[no-untyped-def]
        stride = width + full
        starts = np.arange(group) * stride
        return np.zeros(2 * group * (stride + 2 * full) + 4 * full, dtype), starts

    @inline_exact
    def divide(numbers, starts):  # type: ignore[no-untyped-def]
        memory, stride = address(numbers), starts[1]
        memory = shifted(memory, to_line(memory, 0))
        tiles = shifted(memory, 2 * group * stride + full)
        rows = memory, shifted(memory, group * stride)
        carried = shifted(tiles, 2 * group * full)
        pair = tiles, shifted(tiles, group * full)
        return Area(rows, pair, carried, shifted(carried, group), address(starts), stride)

    return allocate, divide


def _make_block(rule: Rule, dtype: Any) -> Any:
    """Function: a group of rows, from one end to the other."""
    group, (allocate, divide) = REGISTERS * lanes(dtype), _make_area(dtype)
    ends, pieces = _make_ends(rule, dtype), _make_pieces(rule, dtype)

    @inline_exact
    def block(first, inputs, arrays, options, integers, outputs):  # type: ignore[no-untyped-def]
        plan, memory = read_plan(integers), pointers(inputs, arrays, outputs)
        strides = read_strides(integers, 0), read_strides(integers, 1)
        at, count = moved(ORIGIN, strides[0], first), min(group, plan.outer - first)
        numbers, starts = allocate(plan.width)
        area = divide(numbers, starts)
        for row in range(count):
            area.carried[row] = arrays[1][at.initial + row * strides[0].initial]
        settings = options[0], options[1], options[2]
        ends(memory, at, strides, area, count, settings, plan)
        pieces(memory, at, strides, area, count, settings, plan)
        fence()
        return numbers.size + starts.size  # alive up to here

    return block


def _make_ends(rule: Rule, dtype: Any) -> Any:
    """Function: the step that is computed first, one row after the other."""
    strip, full = make_strip(rule, dtype), lanes(dtype)

    @inline_exact
    def ends(memory, at, strides, area, count, options, plan):  # type: ignore[no-untyped-def]
        nothing = np.zeros(2 * full, dtype)
        none, carried = address(nothing), shifted(address(nothing), full)
        at = moved(at, strides[1], plan.num_steps - 1 if plan.direction > 0 else 0)
        for row in range(count):
            here = moved(at, strides[0], row)
            after = After(memory.last, none, none, none), After(here.last, 0, 0, 0)
            carried[0] = area.carried[row]
            strip(memory, here, after, carried, 0, 1, options, 0)
            area.carried[row] = carried[0]
        return nothing.size  # alive up to here

    return ends


def _make_pieces(rule: Rule, dtype: Any) -> Any:
    """Function: all other steps, piece after piece."""
    full, span = lanes(dtype), inline_exact(_span)
    prepare, across, finish = (f(rule, dtype) for f in (_make_prepare, _make_connect, _make_finish))

    @inline_exact
    def piece(memory, at, strides, area, counts, options, plan):  # type: ignore[no-untyped-def]
        (num_rows, count), direction = counts, plan.direction
        a, y = area.rows
        ahead = -direction * plan.width
        for row in range(num_rows):
            here, by = moved(at, strides[0], row), row * area.stride
            targets = shifted(a, by), shifted(y, by)
            prepare(memory, here, strides[1], targets, count, ahead, options, direction)
            area.before[row] = area.carried[row]
        across(area.rows, area.starts, area.tiles, area.carried, count, direction)
        for row in range(num_rows):
            here, target = moved(at, strides[0], row), shifted(y, row * area.stride)
            target[count] = area.before[row]
            finish(memory, here, strides[1], target, count, options, direction, plan.streamed)

    @inline_exact
    def pieces(memory, at, strides, area, num_rows, options, plan):  # type: ignore[no-untyped-def]
        edge = plan.num_steps - 1 if plan.direction > 0 else 1
        while 0 < edge < plan.num_steps:
            begin, stop = span(edge, plan, full)
            counts = num_rows, stop - begin
            piece(memory, moved(at, strides[1], begin), strides, area, counts, options, plan)
            edge = begin if plan.direction > 0 else stop

    return pieces

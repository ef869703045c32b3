"""A few long rows of a linear recurrence, cut into segments that are computed side by side.

Every segment is passed twice: once for what it makes of any y before it, product * y + final; and,
once these have been put together, as a row of its own with the right y to begin with.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.memory import address, load, shifted, store, to_line
from rlcpu.kernels.threads import Kernels, check_num_threads, launch
from rlcpu.kernels.tiles import load_tile
from rlcpu.kernels.vectors import fill
from rlcpu.scan.layout import Array, Flat, Layout
from rlcpu.scan.recurrences.rows import REGISTERS
from rlcpu.scan.recurrences.run import Problem, launch_on, run
from rlcpu.scan.recurrences.steps import Rule, Step, lanes

MANY = 16  # rows from which there are enough for vectors across them
LONG = 2**15  # steps from which two passes take less time than one that waits for every step
GRAIN = 2**16


def is_long(layout: Layout) -> bool:
    """Whether rows are worth cutting."""
    return layout.inner == 1 and layout.outer < MANY and layout.num_steps >= LONG


def run_long(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    outs: tuple[Array, ...],
    num_threads: int | None = None,
) -> None:
    """`run` for a few long rows of `LINEAR`, one after the other."""
    num_threads = check_num_threads(num_threads)
    target = layout.target(outs[0])
    if target is None:
        run(rule, layout, problem, outs, num_threads)
        return
    a, b = layout.flat(problem.steps.gamma), layout.flat(problem.steps.reward)
    initial = layout.flat_ends(problem.initial)
    for row in range(layout.outer):
        parts = [_part(flat, row, 0, layout.num_steps) for flat in (a, b, target)]
        start = initial.numbers[row * initial.outer]
        _run_row(rule, parts, start, problem.direction, num_threads)


def _part(flat: Flat, row: int, begin: int, stop: int) -> Flat:
    """Some steps of a row."""
    if not flat.lane:
        return flat
    first = row * flat.outer
    return Flat(flat.numbers[first + begin : first + stop], 0, 1, 1)


def _run_row(rule: Rule, parts: list[Flat], initial: Any, direction: int, threads: Any) -> None:
    num_steps, dtype = parts[-1].numbers.size, parts[-1].numbers.dtype
    kind: Any = dtype.type
    number, length = _cut(num_steps, lanes(dtype))
    rest = num_steps - number * length
    first = (num_steps - rest, num_steps) if direction > 0 else (0, rest)
    others = (0, num_steps - rest) if direction > 0 else (rest, num_steps)
    _scan(rule, [_part(p, 0, *first) for p in parts], (1, rest), initial, direction, threads)
    edge = first[0] if direction > 0 else first[1] - 1
    before = parts[-1].numbers[edge] if rest else initial
    parts = [_part(p, 0, *others) for p in parts]
    carried = np.full(number, before, dtype)
    a, b = parts[:2]
    sizes = number, length, direction, int(a.lane), int(b.lane)
    work = 2 * number * length
    if launch(ends_kernels(kind), work, threads, a.numbers, b.numbers, carried, *sizes):
        _scan(rule, parts, (number, length), carried, direction, threads)
    else:  # an infinity or NaN would spread to steps that it does not reach
        _scan(rule, parts, (1, number * length), before, direction, threads)


def _cut(num_steps: int, full: int) -> tuple[int, int]:
    """Number and length of the segments: whole vectors, an odd number of them.

    Segments whose distance is a power of two would meet in the same few lines of the cache.
    """
    number = 64 if num_steps < 2**20 else 256
    vectors = num_steps // (number * full)
    return number, (vectors - 1 + vectors % 2) * full


def _scan(
    rule: Rule,
    parts: list[Flat],
    shape: tuple[int, int],
    initial: Any,
    direction: int,
    threads: Any,
) -> None:
    """Rows that follow each other in memory, from one end to the other."""
    if not math.prod(shape):
        return
    layout = Layout((0, 1), shape, 1, *shape, 1, True)
    a, b, out = (part._replace(outer=shape[1] * part.lane) for part in parts)
    steps = Step(b, None, None, None, None, a, None, None, None)
    problem = Problem(steps, initial=np.asarray(initial), direction=direction)
    launch_on(rule, layout, problem, [out], threads)


# ---------------------------------------------------------------- the first pass


@functools.cache
def ends_kernels(dtype: Any) -> Kernels:
    """The first pass over all segments."""
    return Kernels(make_ends(dtype, False), make_ends(dtype, True), GRAIN)


def make_ends(dtype: Any, parallel: bool) -> Any:
    """Driver: from a and b to the y with which each segment begins; false if any is not finite.

    `carried` holds the y before the first segment, and then that before every one.
    """
    group, block = REGISTERS * lanes(dtype), _make_block(dtype)

    @kernel(parallel=parallel, fastmath=EXACT)
    def ends(a, b, carried, number, length, direction, a_moves, b_moves):  # type: ignore[no-untyped-def]
        products, finals = np.empty(number, dtype), np.empty(number, dtype)
        for part in prange(number // group):
            moves = length, direction, a_moves, b_moves
            block(part * group, a, b, moves, products, finals)
        finite = True
        for k in range(number - 1):
            at, to = (number - 1 - k, number - 2 - k) if direction > 0 else (k, k + 1)
            carried[to] = finals[at] + products[at] * carried[at]
            finite = finite and np.isfinite(products[at]) and np.isfinite(carried[to])
        return finite

    return ends


def _make_block(dtype: Any) -> Any:
    """Function: product and final y of a group of segments, in vectors across them."""
    full, group = lanes(dtype), REGISTERS * lanes(dtype)

    @inline_exact
    def tile(a, b, product, y, direction):  # type: ignore[no-untyped-def]
        for k in range(full):
            at = (full - 1 - k if direction > 0 else k) * group
            factor = load(a, at, REGISTERS)
            product, y = product * factor, load(b, at, REGISTERS) + factor * y
        return product, y

    @inline_exact
    def block(first, a, b, moves, products, finals):  # type: ignore[no-untyped-def]
        length, direction, a_moves, b_moves = moves
        starts = (first + np.arange(group)) * length
        numbers = np.empty(2 * full * group + full, dtype)
        tile_a = shifted(address(numbers), to_line(address(numbers), 0))
        tile_b = shifted(tile_a, full * group)
        product, y = fill(dtype(1.0), REGISTERS), fill(dtype(0.0), REGISTERS)
        for k in range(full):
            store(fill(a[0], REGISTERS), tile_a, k * group)
            store(fill(b[0], REGISTERS), tile_b, k * group)
        for k in range(0, length, full):
            begin = length - full - k if direction > 0 else k
            if a_moves:
                load_tile(address(a), address(starts), begin, tile_a, REGISTERS)
            if b_moves:
                load_tile(address(b), address(starts), begin, tile_b, REGISTERS)
            product, y = tile(tile_a, tile_b, product, y, direction)
        store(product, address(products), first)
        store(y, address(finals), first)
        return numbers.size + starts.size  # alive up to here

    return block

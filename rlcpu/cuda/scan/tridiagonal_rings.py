"""Driver of periodic tridiagonal systems: a thread for each, which reads it twice.

A ring is one chunk whose neighbour on both sides is itself (`rlcpu.scan.tridiagonal.equations`):
its equations leave two of its first and its last unknown, and once these are known all others
follow. Threads of a warp read whole lines where systems lie next to each other.
"""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import IN_ORDER, device_step
from rlcpu.cuda.scan.tridiagonal_steps import (
    INNER,
    LENGTH,
    OUT,
    OUTER,
    OWN_LENGTHS,
    Known,
    Raw,
    System,
    make_steps,
    place,
    report,
)
from rlcpu.scan.tridiagonal.equations import (
    Pivot,
    eliminate_pair,
    enter_chunk,
    open_chunk,
    reduce_pair,
    scaled,
)

KEEPS = 3  # numbers of a pivot in scratch


def read(arrays: Any, plan: Any, system: Any, k: Any) -> Any:
    """One equation as it lies in memory."""
    outer, inner = system.outer, system.inner
    return Raw(
        arrays.lower[place(plan, 0, outer, inner, k)],
        arrays.diagonal[place(plan, 1, outer, inner, k)],
        arrays.upper[place(plan, 2, outer, inner, k)],
        arrays.rhs[place(plan, 3, outer, inner, k)],
    )


def close(one: Any, two: Any) -> Any:
    """Last and first unknown of a ring from the two equations that its chunk leaves.

    Each equation holds both twice: x[-1] is the last unknown, x[n] the first.
    """
    if abs(two.before + two.diagonal) * one.scale > abs(one.before + one.diagonal) * two.scale:
        one, two = two, one
    last = one.before + one.diagonal
    factor = (two.before + two.diagonal) / last
    rest = (two.first + two.upper) - factor * (one.first + one.upper)
    first = (two.rhs - factor * one.rhs) / rest
    return (one.rhs - (one.first + one.upper) * first) / last, first


def _make_reduce(dtype: Any, pivoting: bool) -> Any:
    """Function: last and first unknown of a system of two or more, and `State.health`."""
    replaced = None if pivoting else IN_ORDER
    scale, opened = device_step(scaled, dtype), device_step(open_chunk, dtype)
    step = device_step(reduce_pair, dtype, replaced)
    healthy, eagerness = make_steps(dtype, pivoting).healthy, dtype(1.0)

    def reduce(arrays: Any, plan: Any, system: Any) -> Any:
        top, second = read(arrays, plan, system, 0), read(arrays, plan, system, 1)
        health = healthy(top) + healthy(second)
        one, two = opened(scale(*top), scale(*second))
        for k in range(2, system.stop):
            raw = read(arrays, plan, system, k)
            health += healthy(raw)
            one, two = step(one, two, scale(*raw), eagerness)[-2:]  # the equations left
        last, first = close(one, two)
        return last, first, health

    return reduce


def _make_expand(dtype: Any, pivoting: bool) -> Any:
    """Function: write all unknowns of a system of two or more; 0, or NaN if one is not finite."""
    replaced = None if pivoting else IN_ORDER
    scale, opened = device_step(scaled, dtype), device_step(open_chunk, dtype)
    enter, step = device_step(enter_chunk, dtype), device_step(eliminate_pair, dtype, replaced)
    up, eagerness = make_steps(dtype, pivoting).up, dtype(1.0)

    def expand(arrays: Any, plan: Any, system: Any, ends: Any, pivots: Any, out: Any) -> Any:
        last, first = ends
        outer, inner, room = system.outer, system.inner, system.room
        top, second = read(arrays, plan, system, 0), read(arrays, plan, system, 1)
        upper, lower = opened(scale(*top), scale(*second))
        one, two = enter(upper, last, first), enter(lower, last, first)
        at = system.thread
        for k in range(2, system.stop):
            pivot, one, two = step(one, two, scale(*read(arrays, plan, system, k)), eagerness)
            pivots[at], pivots[at + room], pivots[at + 2 * room] = pivot
            at += KEEPS * room
        known = Known(last, first, (last - last) + (first - first))
        out[place(plan, OUT, outer, inner, system.stop - 1)] = last
        for i in range(2, system.stop):
            at -= KEEPS * room
            known = up(known, Pivot(pivots[at], pivots[at + room], pivots[at + 2 * room]))
            out[place(plan, OUT, outer, inner, system.stop - i)] = known.following
        out[place(plan, OUT, outer, inner, 0)] = first
        return known.health

    return expand


@functools.cache
def ring_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver with the arguments of `tridiagonal_columns.column_kernel`."""
    reduce, expand = _make_reduce(dtype, pivoting), _make_expand(dtype, pivoting)
    healthy, zero = make_steps(dtype, pivoting).healthy, dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def solve(lower, diagonal, upper, rhs, lengths, plan, pivots, out, status, failed):
        arrays = Raw(lower, diagonal, upper, rhs)
        thread, room = cuda.grid(1), cuda.gridsize(1)
        for number in range(thread, plan[OUTER] * plan[INNER], room):
            outer = number // plan[INNER]
            inner = number - outer * plan[INNER]
            stop = lengths[number] if plan[OWN_LENGTHS] > 0 else plan[LENGTH]
            system = System(outer, inner, stop, thread, room)
            for k in range(stop, plan[LENGTH]):
                out[place(plan, OUT, outer, inner, k)] = zero
            status[number] = 0
            if stop == 1:
                raw = read(arrays, plan, system, 0)
                x = raw.rhs / (raw.diagonal + (raw.lower + raw.upper))
                out[place(plan, OUT, outer, inner, 0)] = x
                report(healthy(raw), x - x, number, status, failed)
            elif stop > 1:
                last, first, matrix = reduce(arrays, plan, system)
                health = expand(arrays, plan, system, (last, first), pivots, out)
                report(matrix, health, number, status, failed)

    return solve

"""Drivers of few long tridiagonal systems: a thread for each chunk of equations.

A chunk leaves two equations of its first and last unknown and of those next to it
(`rlcpu.scan.tridiagonal.equations`). Neighbours are put together, some at a time, until one pair
of equations is left of each system (`tridiagonal_joins`); then the outer unknowns of all chunks are
known, and the inner ones follow.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import IN_ORDER, device_step
from rlcpu.cuda.scan.tridiagonal_steps import (
    INNER,
    LENGTH,
    NOT_FINITE,
    OUT,
    OUTER,
    OWN_LENGTHS,
    SINGULAR,
    Known,
    Raw,
    make_steps,
    place,
)
from rlcpu.scan.tridiagonal.equations import (
    Pivot,
    Rest,
    eliminate_pair,
    enter_chunk,
    open_chunk,
    reduce_pair,
    scaled,
)

KEEPS = 3  # numbers of a pivot in scratch
NUMBERS = 2 * len(Rest._fields)  # of the two equations that a chunk leaves


class Chunk(NamedTuple):
    """Which equations a thread has.

    Attributes:
        number: of the chunk, those of a system after each other.
        system: which has it.
        outer, inner: indices of the system.
        begin, end: its first equation, and the one after its last.
        stop: number of unknowns of the system; x = 0 beyond.
        periodic: whether the last unknown is next to the first.
    """

    number: Any
    system: Any
    outer: Any
    inner: Any
    begin: Any
    end: Any
    stop: Any
    periodic: Any


def find(plan: Any, lengths: Any, cut: Any) -> Any:
    """The chunk of a thread; the last one of a system takes what is left over."""
    number, n, count, length = cuda.grid(1), plan[LENGTH], cut[0], cut[1]
    system, j = number // count, number % count
    stop = lengths[min(system, plan[OUTER] * plan[INNER] - 1)] if plan[OWN_LENGTHS] > 0 else n
    outer, inner = system // plan[INNER], system % plan[INNER]
    end = (j + 1) * length if j + 1 < count else n
    return Chunk(number, system, outer, inner, j * length, end, stop, cut[2] != 0)


def _make_read(dtype: Any) -> Any:
    """Function: one equation of a chunk."""
    zero, one = dtype(0.0), dtype(1.0)

    def read(arrays: Any, plan: Any, chunk: Any, k: Any) -> Any:
        # What is ignored is read too: a branch would wait for the number before.
        lower = arrays.lower[place(plan, 0, chunk.outer, chunk.inner, k)]
        diagonal = arrays.diagonal[place(plan, 1, chunk.outer, chunk.inner, k)]
        upper = arrays.upper[place(plan, 2, chunk.outer, chunk.inner, k)]
        rhs = arrays.rhs[place(plan, 3, chunk.outer, chunk.inner, k)]
        inside = k < chunk.stop
        low = inside and (k > 0 or chunk.periodic)
        high = inside and (k + 1 < chunk.stop or chunk.periodic)
        return Raw(
            lower if low else zero,
            diagonal if inside else one,
            upper if high else zero,
            rhs if inside else zero,
        )

    return read


@functools.cache
def reduce_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver: (lower, diagonal, upper, rhs, lengths, plan, cut, rests, spoiled).

    `cut` is int64: chunks of a system, equations of each but the last one, 1 if periodic. `rests`
    float64 (12, chunks of all systems) is overwritten with the equations that they leave; `spoiled`
    int8 (systems,) is set to 1 where a number is not finite.
    """
    replaced = None if pivoting else IN_ORDER
    scale, opened = device_step(scaled, dtype), device_step(open_chunk, dtype)
    step, read = device_step(reduce_pair, dtype, replaced), _make_read(dtype)
    healthy, eagerness = make_steps(dtype, pivoting).healthy, dtype(1.0)

    @kernel(dtype=dtype, exact=True)
    def reduce(lower, diagonal, upper, rhs, lengths, plan, cut, rests, spoiled):
        arrays, chunk = Raw(lower, diagonal, upper, rhs), find(plan, lengths, cut)
        if chunk.system < plan[OUTER] * plan[INNER]:
            top = read(arrays, plan, chunk, chunk.begin)
            second = read(arrays, plan, chunk, chunk.begin + 1)
            coming = read(arrays, plan, chunk, min(chunk.begin + 2, chunk.end - 1))
            health = healthy(top) + healthy(second)
            one, two = opened(scale(*top), scale(*second))
            for k in range(chunk.begin + 2, chunk.end):
                raw = coming
                coming = read(arrays, plan, chunk, min(k + 1, chunk.end - 1))
                health += healthy(raw)
                one, two = step(one, two, scale(*raw), eagerness)[-2:]
            at = chunk.number
            for numbers in (one, two):
                for number in numbers:
                    rests[at] = number
                    at += spoiled.size * cut[0]
            if health != 0:  # as NaN is
                spoiled[chunk.system] = 1

    return reduce


@functools.cache
def expand_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver of the unknowns of all chunks, from the first and last ones.

    (lower, diagonal, upper, rhs, lengths, plan, cut, ends, pivots, spoiled, out, status, failed):
    `ends` is float64 (2, chunks of all systems), `pivots` scratch of `scratch` numbers; `status` is
    set, and `failed` to 1, where an unknown is not finite.
    """
    replaced = None if pivoting else IN_ORDER
    scale, opened = device_step(scaled, dtype), device_step(open_chunk, dtype)
    enter, step = device_step(enter_chunk, dtype), device_step(eliminate_pair, dtype, replaced)
    up, eagerness, read = make_steps(dtype, pivoting).up, dtype(1.0), _make_read(dtype)

    def descend(arrays: Any, plan: Any, chunk: Any, outer: Any, pivots: Any, room: Any) -> Any:
        before, first = outer
        top = read(arrays, plan, chunk, chunk.begin)
        second = read(arrays, plan, chunk, chunk.begin + 1)
        coming = read(arrays, plan, chunk, min(chunk.begin + 2, chunk.end - 1))
        upper, lower = opened(scale(*top), scale(*second))
        one, two = enter(upper, before, first), enter(lower, before, first)
        at = chunk.number
        for k in range(chunk.begin + 2, chunk.end):
            raw = coming
            coming = read(arrays, plan, chunk, min(k + 1, chunk.end - 1))
            pivot, one, two = step(one, two, scale(*raw), eagerness)
            pivots[at], pivots[at + room], pivots[at + 2 * room] = pivot
            at += KEEPS * room
        return at

    @kernel(dtype=dtype, exact=True)
    def expand(
        lower, diagonal, upper, rhs, lengths, plan, cut, ends, pivots, spoiled, out, status, failed
    ):
        arrays, chunk, count = Raw(lower, diagonal, upper, rhs), find(plan, lengths, cut), cut[0]
        if chunk.system < plan[OUTER] * plan[INNER]:
            room = spoiled.size * count
            begin, j = chunk.system * count, chunk.number % count
            before = dtype(ends[room + begin + (j if j > 0 else count) - 1])
            first, last = dtype(ends[chunk.number]), dtype(ends[room + chunk.number])
            after = dtype(ends[begin + (j + 1 if j + 1 < count else 0)])
            at = descend(arrays, plan, chunk, (before, first), pivots, room)
            known = Known(last, after, (last - last) + (first - first))
            out[place(plan, OUT, chunk.outer, chunk.inner, chunk.end - 1)] = last
            for i in range(chunk.begin + 2, chunk.end):
                at -= KEEPS * room
                known = up(known, Pivot(pivots[at], pivots[at + room], pivots[at + 2 * room]))
                k = chunk.end - (i - chunk.begin)
                out[place(plan, OUT, chunk.outer, chunk.inner, k)] = known.following
            out[place(plan, OUT, chunk.outer, chunk.inner, chunk.begin)] = first
            if known.health != 0:
                status[chunk.system] = NOT_FINITE if spoiled[chunk.system] else SINGULAR
                failed[0] = 1

    return expand


def scratch(chunks: int, longest: int) -> int:
    """Numbers of `pivots` for so many chunks."""
    return KEEPS * chunks * max(longest - 2, 1)

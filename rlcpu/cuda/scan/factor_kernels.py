"""Drivers that factor tridiagonal matrices, and solve with the factors: a thread for each.

Factors are an array (n, 5, matrices), so that threads next to each other read numbers next to each
other; all systems of one matrix read the same ones. Right-hand sides of pivots wait in the output
until the unknowns take their place: that of x[k-1] where x[k] will be.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import device_step
from rlcpu.cuda.scan.tridiagonal_rows import LINE, WARP, make_load, make_store
from rlcpu.cuda.scan.tridiagonal_steps import INNER, LENGTH, OUT, OUTER, STRIDES, place
from rlcpu.scan.tridiagonal.factor import (
    Factors,
    Multiplier,
    Rest,
    Row,
    advance,
    back,
    factor_row,
)
from rlcpu.scan.tridiagonal.status import Status

COUNT = 5  # numbers of an equation's factors
#: Of a plan: right-hand sides among its strides, how many matrices there are, and how many systems
#: that follow each other have the same one.
RHS, MATRICES, REPEATS = 0, 3, STRIDES + 1
_SINGULAR, _NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)


@functools.cache
def factor_kernel(dtype: Any) -> Any:
    """Driver: (lower, diagonal, upper, plan, packed, status, failed), a thread for each matrix.

    The plan is that of systems; `packed` (n, 5, matrices) is overwritten with the factors,
    `status` int8 (matrices,) with a `Status`, and `failed` int32 (1,) set to 1 if one is not 0.
    """
    factor = device_step(factor_row, dtype)
    zero, one = dtype(0.0), dtype(1.0)

    def put(packed: Any, at: Any, matrices: Any, numbers: Any) -> Any:
        """Write numbers of an equation; 0, or NaN if one of them is not finite."""
        trace = zero
        for number in numbers:
            packed[at] = number
            at += matrices
            trace += number * zero
        return trace

    @kernel(dtype=dtype, exact=True)
    def run(lower, diagonal, upper, plan, packed, status, failed):
        matrix, n = cuda.grid(1), plan[LENGTH]
        matrices = plan[OUTER] * plan[INNER]
        if matrix < matrices:
            outer, inner = matrix // plan[INNER], matrix % plan[INNER]
            rest, trace, health, at = Rest(one, zero), zero, zero, matrix
            for k in range(n):
                low, high = lower[place(plan, 0, outer, inner, k)], zero
                if k + 1 < n:
                    high = upper[place(plan, 2, outer, inner, k)]
                row = Row(low if k > 0 else zero, diagonal[place(plan, 1, outer, inner, k)], high)
                health += (row.lower - row.lower) + (row.diagonal - row.diagonal)
                health += row.upper - row.upper
                multiplier, factors, rest = factor(rest, row)
                if k > 0:  # the factors of the row before
                    trace += put(packed, at - 3 * matrices, matrices, factors)
                trace += put(packed, at, matrices, multiplier)
                at += COUNT * matrices
            trace += put(packed, at - 3 * matrices, matrices, (one / rest.diagonal, zero, zero))
            status[matrix] = 0
            if trace != 0:  # as NaN is
                status[matrix] = _SINGULAR if health == 0 else _NOT_FINITE
                failed[0] = 1

    return run


class _Carried(NamedTuple):
    """What is known on the way up: x[k], x[k+1], and 0, or NaN after one that is not finite."""

    following: Any
    second: Any
    health: Any


class _Solve(NamedTuple):
    """Functions of one thread, for one dtype.

    Attributes:
        down: (packed, at, matrices, pending, rhs) -> the pivot's right-hand side, and the pending
            one; `at` is where the equation's factors are.
        up: (packed, at, matrices, known, rhs) -> what is known after one more unknown.
    """

    down: Any
    up: Any


@functools.cache
def _make_solve(dtype: Any) -> _Solve:
    forward, find = device_step(advance, dtype), device_step(back, dtype)

    def down(packed: Any, at: Any, matrices: Any, pending: Any, rhs: Any) -> Any:
        return forward(pending, rhs, Multiplier(packed[at], packed[at + matrices]))

    def up(packed: Any, at: Any, matrices: Any, known: Any, rhs: Any) -> Any:
        factors = Factors(
            packed[at + 2 * matrices], packed[at + 3 * matrices], packed[at + 4 * matrices]
        )
        x = find(rhs, known.following, known.second, factors)
        return _Carried(x, known.following, known.health + (x - x))

    return _Solve(down, up)


def mark(health: Any, number: Any, status: Any, failed: Any) -> Any:
    """Write whether all unknowns of a system are finite."""
    status[number] = 0
    if health != 0:
        status[number] = _NOT_FINITE
        failed[0] = 1


@functools.cache
def column_solver(dtype: Any) -> Any:
    """Driver: (packed, rhs, plan, out, status, failed), a thread for each system.

    The plan is that of systems, but for what `RHS`, `MATRICES` and `REPEATS` stand for: matrices
    come again in turn, each for some systems that follow each other. `out` may be `rhs`.
    """
    down, up = _make_solve(dtype)
    zero = dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def solve(packed, rhs, plan, out, status, failed):
        number, n, matrices = cuda.grid(1), plan[LENGTH], plan[MATRICES]
        if number < plan[OUTER] * plan[INNER]:
            outer, inner = number // plan[INNER], number % plan[INNER]
            at = number // plan[REPEATS] % matrices
            pending, row = zero, COUNT * matrices
            coming = rhs[place(plan, RHS, outer, inner, 0)]
            for k in range(n):
                # The next number is on the way before one is written: they may be the same array.
                equation = coming
                coming = rhs[place(plan, RHS, outer, inner, min(k + 1, n - 1))]
                pivot, pending = down(packed, at, matrices, pending, equation)
                out[place(plan, OUT, outer, inner, k)] = pivot
                at += row
            known, value = _Carried(zero, zero, zero), pending
            for i in range(n):
                k, at = n - 1 - i, at - row
                coming = out[place(plan, OUT, outer, inner, k)]
                known = up(packed, at, matrices, known, value)
                out[place(plan, OUT, outer, inner, k)] = known.following
                value = coming
            mark(known.health, number, status, failed)

    return solve


@functools.cache
def row_solver(dtype: Any) -> Any:
    """Driver with the arguments of `column_solver`, in blocks of `WARP` threads, inner size 1.

    Rows go through tiles in shared memory, see `tridiagonal_rows`.
    """
    width = LINE // np.dtype(dtype).itemsize
    load, store, (down, up) = make_load(0, width), make_store(width), _make_solve(dtype)
    shape, zero = (1, WARP, width + 1), dtype(0.0)

    def descend(packed: Any, at: Any, rhs: Any, plan: Any, first: Any, tile: Any, out: Any) -> Any:
        pending, own, matrices = zero, cuda.threadIdx.x, plan[MATRICES]
        for begin in range(0, plan[LENGTH], width):
            load(rhs, plan, first, begin, tile)
            cuda.syncthreads()
            for k in range(min(width, plan[LENGTH] - begin)):
                pivot, pending = down(packed, at, matrices, pending, tile[0, own, k])
                tile[0, own, k] = pivot
                at += COUNT * matrices
            cuda.syncthreads()
            store(tile, plan, first, begin, out)
            cuda.syncthreads()
        return pending

    def ascend(packed: Any, at: Any, value: Any, plan: Any, first: Any, tile: Any, out: Any) -> Any:
        known, own, matrices = _Carried(zero, zero, zero), cuda.threadIdx.x, plan[MATRICES]
        tiles = (plan[LENGTH] + width - 1) // width
        for number in range(tiles):
            begin = (tiles - 1 - number) * width
            load(out, plan, first, begin, tile)
            cuda.syncthreads()
            count = min(width, plan[LENGTH] - begin)
            for i in range(count):
                k = count - 1 - i
                at -= COUNT * matrices
                known = up(packed, at, matrices, known, value)
                value = tile[0, own, k]
                tile[0, own, k] = known.following
            cuda.syncthreads()
            store(tile, plan, first, begin, out)
            cuda.syncthreads()
        return known

    @kernel(dtype=dtype, exact=True)
    def solve(packed, rhs, plan, out, status, failed):
        tile = cuda.shared.array(shape, dtype)
        first = cuda.blockIdx.x * WARP
        number = first + cuda.threadIdx.x
        at = min(number, plan[OUTER] - 1) // plan[REPEATS] % plan[MATRICES]
        pending = descend(packed, at, rhs, plan, first, tile, out)
        end = at + plan[LENGTH] * COUNT * plan[MATRICES]
        known = ascend(packed, end, pending, plan, first, tile, out)
        if number < plan[OUTER]:
            mark(known.health, number, status, failed)

    return solve

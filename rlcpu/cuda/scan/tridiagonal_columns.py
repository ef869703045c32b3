"""Driver of tridiagonal systems that lie next to each other: a thread for each, row by row.

Pivots wait in scratch memory, of which there is as much as the second cache holds: a thread solves
one system after the other in its share of it, so that only the arrays themselves travel.
"""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.tridiagonal_steps import (
    INNER,
    LENGTH,
    OUT,
    OUTER,
    OWN_LENGTHS,
    Raw,
    System,
    make_steps,
    place,
    report,
)

#: Equations that are on the way while as many are eliminated, and pivots that are read at once on
#: the way back. With scratch in the second cache a multiprocessor has some 120 systems of 100
#: unknowns in float64, each of which has to have 110 bytes on the way (3 TB/s for 0.6 us).
AHEAD = 4


def _make_read(dtype: Any) -> Any:
    """Function: one equation of a system."""
    zero = dtype(0.0)

    def read(arrays: Any, plan: Any, system: Any, k: Any) -> Any:
        outer, inner = system.outer, system.inner
        # Whatever is ignored is read too: a read waits for nothing, a branch for its condition.
        lower = arrays.lower[place(plan, 0, outer, inner, k)]
        diagonal = arrays.diagonal[place(plan, 1, outer, inner, k)]
        upper = arrays.upper[place(plan, 2, outer, inner, k)]
        rhs = arrays.rhs[place(plan, 3, outer, inner, k)]
        last = k + 1 == system.stop
        return Raw(lower if k > 0 else zero, diagonal, zero if last else upper, rhs)

    return read


def _make_descend(dtype: Any, pivoting: bool) -> Any:
    """Function: from the first equation to the last; the state after it."""
    opened, down, _, _, _, _, keeps = make_steps(dtype, pivoting)
    read = _make_read(dtype)

    def group(arrays: Any, plan: Any, system: Any, k: Any) -> Any:
        last = system.stop - 1  # what is beyond is read once more and not used
        one = read(arrays, plan, system, min(k, last))
        two = read(arrays, plan, system, min(k + 1, last))
        three = read(arrays, plan, system, min(k + 2, last))
        return one, two, three, read(arrays, plan, system, min(k + 3, last))

    def descend(arrays: Any, plan: Any, system: Any, pivots: Any) -> Any:
        state = opened(read(arrays, plan, system, 0))
        room, row, at, k = system.room, keeps * system.room, system.thread, 1
        one, two, three, four = group(arrays, plan, system, k)
        while k + AHEAD <= system.stop:
            next_one, next_two, next_three, next_four = group(arrays, plan, system, k + AHEAD)
            state = down(state, one, pivots, at, room)
            state = down(state, two, pivots, at + row, room)
            state = down(state, three, pivots, at + 2 * row, room)
            state = down(state, four, pivots, at + 3 * row, room)
            one, two, three, four = next_one, next_two, next_three, next_four
            k, at = k + AHEAD, at + AHEAD * row
        while k < system.stop:
            state = down(state, read(arrays, plan, system, k), pivots, at, room)
            k, at = k + 1, at + row
        return state

    return descend


def _make_ascend(dtype: Any, pivoting: bool) -> Any:
    """Function: write all unknowns, from the last one to the first; what is known then."""
    _, _, turn, up, pivot_at, _, keeps = make_steps(dtype, pivoting)

    def write(known: Any, plan: Any, system: Any, k: Any, out: Any) -> Any:
        out[place(plan, OUT, system.outer, system.inner, k)] = known.following
        return known

    def ascend(state: Any, plan: Any, system: Any, pivots: Any, out: Any) -> Any:
        room, row = system.room, keeps * system.room
        k = system.stop - 2
        at = system.thread + k * row
        known = write(turn(state), plan, system, k + 1, out)
        while k + 1 >= AHEAD:
            one, two = pivot_at(pivots, at, room), pivot_at(pivots, at - row, room)
            three = pivot_at(pivots, at - 2 * row, room)
            four = pivot_at(pivots, at - 3 * row, room)
            known = write(up(known, one), plan, system, k, out)
            known = write(up(known, two), plan, system, k - 1, out)
            known = write(up(known, three), plan, system, k - 2, out)
            known = write(up(known, four), plan, system, k - 3, out)
            k, at = k - AHEAD, at - AHEAD * row
        while k >= 0:
            known = write(up(known, pivot_at(pivots, at, room)), plan, system, k, out)
            k, at = k - 1, at - row
        return known

    return ascend


@functools.cache
def column_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver: (lower, diagonal, upper, rhs, lengths, plan, pivots, out, status, failed).

    One-dimensional arrays of the dtype, but `lengths` int64 (of each system), `plan`
    int64, `status` int8 (of each system) and `failed` int32 (1,), set to 1 if a status is not 0.
    `pivots` is scratch: `keeps` * length numbers for each thread of the grid.
    """
    descend, ascend = _make_descend(dtype, pivoting), _make_ascend(dtype, pivoting)
    zero = dtype(0.0)

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
            if stop > 0:
                state = descend(arrays, plan, system, pivots)
                known = ascend(state, plan, system, pivots, out)
                report(state.health, known.health, number, status, failed)

    return solve

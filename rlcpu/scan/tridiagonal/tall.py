"""Driver of tall tridiagonal systems that lie next to each other: in pieces of their rows.

Both halves of every block are tasks of their own. Nothing is written before it is known whether
the systems have solutions.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, pointer_to, shifted, store, to_line
from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.columns import GRAIN, MOST, block_at, set_stops, slices_of
from rlcpu.scan.tridiagonal.lanes import carried
from rlcpu.scan.tridiagonal.memory import side_by_side
from rlcpu.scan.tridiagonal.pieces import (
    Half,
    ascend,
    descend,
    mark_at,
    rows_of,
    unknowns_at,
)
from rlcpu.scan.tridiagonal.plan import INNER, LENGTH, OUTER, PLACES, STREAM, Array
from rlcpu.scan.tridiagonal.steps import inlined, meet
from rlcpu.scan.tridiagonal.tiles import ONE

#: What the kernels return: nothing is written; some solution is not finite; all are.
REFUSED, FAILED, WELL = -1, 0, 1
_TALL = 1500  # unknowns from which to read twice is faster than narrow blocks; of 1,000 it varies
_SCRATCH = 2**19  # bytes of a piece's pivots: the coefficients pass through the same cache
_SLICES = 2  # blocks that a few systems are divided into, for more than two cores
_LEAST = 4  # vectors of such a block: a vector waits for itself, and others fill the time
_STREAMED = 1024  # bytes of a row from which it is written past the caches


def is_tall(out: Array) -> bool:
    """Whether systems (batch..., n) lie next to each other and are solved in pieces."""
    return out.shape[-1] >= _TALL and side_by_side(out) is not None


@inlined
def _room_of(plan, lanes):  # type: ignore[no-untyped-def]
    """Systems of a block: all have about as many, and there is something to do for every core."""
    most, inner = MOST * lanes // VECTOR_BYTES, plan[INNER]
    most = min(max(inner // 4, most // 2), most)
    slices = max((inner + most - 1) // most, min(inner // (_LEAST * lanes), _SLICES))
    return ((inner + slices - 1) // slices + lanes - 1) // lanes * lanes


@inlined
def _pieces(plan, room, lanes):  # type: ignore[no-untyped-def]
    """Number of pieces of half a system, and the number of their rows."""
    rows = (plan[LENGTH] + 1) // 2
    fitting = max(_SCRATCH // (3 * (VECTOR_BYTES // lanes) * room), 1)
    count = (rows + fitting - 1) // fitting
    return count, (rows + count - 1) // count


@inlined
def _marks(plan, room, lanes):  # type: ignore[no-untyped-def]
    """Numbers of the marks and the unknowns of half a block."""
    return (3 * (_pieces(plan, room, lanes)[0] + 1) + 2) * room


@inlined
def _half(plan, task, room, memory, stops, eagerness):  # type: ignore[no-untyped-def]
    """A half by its number."""
    lanes, zero = width(memory, ONE), eagerness - eagerness
    count, size = _pieces(plan, room, lanes)
    block, first = block_at(plan, task // 2, room, stops, zero)
    set_stops(plan, first, block.systems, room, stops, zero)
    marks = shifted(memory, to_line(memory, 0) + _marks(plan, room, lanes) * task)
    unknowns = shifted(marks, 3 * (count + 1) * room)
    return Half(block, task % 2, size, count, marks, unknowns, room, eagerness)


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _descend(plan, eagerness, room, task, memory):  # type: ignore[no-untyped-def]
    stops = np.empty(room, memory.dtype)
    descend(_half(address(plan), task, room, address(memory), address(stops), eagerness))
    return stops.size  # alive up to here


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _meet(plan, eagerness, room, number, memory, failed):  # type: ignore[no-untyped-def]
    """Solve for the two unknowns in the middle; `failed` gets NaN if a system fails."""
    stops, start = np.empty(room, memory.dtype), address(memory)
    top = _half(address(plan), 2 * number, room, start, address(stops), eagerness)
    bottom = _half(address(plan), 2 * number + 1, room, start, address(stops), eagerness)
    trace, last = fill(eagerness - eagerness, ONE), rows_of(top) - 1
    for by in range(0, top.block.systems, width(start, ONE)):
        falling = carried(mark_at(top, top.count), by, room)
        above, below = meet(falling, carried(mark_at(bottom, top.count), by, room), eagerness)
        store(above, unknowns_at(top, last), by)
        store(below, unknowns_at(top, last + 1), by)
        store(below, unknowns_at(bottom, last), by)
        store(above, unknowns_at(bottom, last + 1), by)
        trace = trace + (above - above) + (below - below)
    store(trace, address(failed), 0)
    return stops.size


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _ascend(plan, eagerness, room, task, memory, failed):  # type: ignore[no-untyped-def]
    """Write half a block; `failed` gets NaN if a system fails."""
    lanes = failed.size
    size = 3 * room * _pieces(plan, room, lanes)[1]
    scratch, start = np.empty(size + room + 2 * lanes, failed.dtype), address(memory)
    stops = shifted(address(scratch), to_line(address(scratch), 0))
    half = _half(address(plan), task, room, start, stops, eagerness)
    ascend(half, shifted(stops, room), plan[STREAM] != 0)
    trace = fill(eagerness - eagerness, ONE)
    for by in range(0, half.block.systems, lanes):
        x = load(unknowns_at(half, 0), by, ONE)
        trace = trace + (x - x)
    store(trace, address(failed), 0)
    fence()
    return scratch.size


def _make(parallel: bool) -> Any:
    """Driver: writes solutions, from a plan and `eagerness`; with `spare` only if all are finite.

    Systems are finite, and the matrices not singular, if the unknowns in the middle are finite:
    others may overflow on the way to the ends, after some have been written.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(plan, eagerness, spare):  # type: ignore[no-untyped-def]
        lanes, plan = width(pointer_to(plan[PLACES], eagerness), ONE), plan.copy()
        if plan[INNER] * VECTOR_BYTES < _STREAMED * lanes:
            plan[STREAM] = 0
        room = _room_of(plan, lanes)
        blocks = plan[OUTER] * slices_of(plan, room, eagerness)[1]
        failed = np.full((2 * blocks, lanes), eagerness)
        memory = np.empty(2 * blocks * _marks(plan, room, lanes) + lanes, failed.dtype)
        # All first halves come first, so that blocks of unequal width divide evenly by two.
        for task in prange(2 * blocks):
            _descend(plan, eagerness, room, 2 * (task % blocks) + task // blocks, memory)
        for number in prange(blocks):
            _meet(plan, eagerness, room, number, memory, failed[number])
        if spare and np.isnan(failed.sum()):
            return REFUSED
        for task in prange(2 * blocks):
            half = 2 * (task % blocks) + task // blocks
            _ascend(plan, eagerness, room, half, memory, failed[task])
        return FAILED if np.isnan(failed.sum()) else WELL

    return solve


@functools.cache
def tall_kernels() -> Kernels:
    """Kernels for both dtypes; they take what those of `columns` take."""
    return Kernels(_make(False), _make(True), GRAIN)

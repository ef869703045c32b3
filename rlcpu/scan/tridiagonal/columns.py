"""Driver of tridiagonal systems that lie next to each other: vectors of systems, row by row.

A core takes a block of systems from the first unknown to the last and back. What is left of the
equations above waits in the first cache, the pivots in the second: the more unknowns, the narrower
is a block.
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
from rlcpu.scan.tridiagonal.lanes import (
    Columns,
    ask,
    carried,
    carry,
    equation_part,
    fetch,
    row_at,
    write,
)
from rlcpu.scan.tridiagonal.plan import (
    INNER,
    INNERS,
    LENGTH,
    LENGTHS,
    OUTER,
    OUTERS,
    PLACES,
    STEPS,
    STREAM,
)
from rlcpu.scan.tridiagonal.steps import Pending, Pivot, eliminate, inlined, substitute
from rlcpu.scan.tridiagonal.tiles import ONE, Sources

CHUNKS = 64  # parts that cores take in turn
GRAIN = 2**14  # numbers from which a second core is worth waking
# Wide blocks read and write long pieces of rows: 100 unknowns of float64 in 16.3 ms with blocks of
# 104 systems, in 14.1 with 432.
SCRATCH = 2**20  # bytes of a block's pivots
MOST = 512  # systems of a block


# ---------------------------------------------------------------- one block


@inlined
def _down(block):  # type: ignore[no-untyped-def]
    """From the first equation to the last: pivots to scratch, the last pending stays carried."""
    n, systems, room = block.sizes
    lanes = width(block.carried, ONE)
    row = row_at(block, 0)
    for by in range(0, systems, lanes):
        ask(block, row, by)
        first = equation_part(block, row, 0, by, systems - by)
        carry(block, Pending(first.diagonal, first.upper, first.rhs), by)
    for k in range(1, n):
        row, pivots = row_at(block, k), shifted(block.pivots, 3 * room * (k - 1))
        for by in range(0, systems, lanes):
            ask(block, row, by)
            equation = fetch(block, row, k, by)
            pivot, pending = eliminate(carried(block, by), equation, block.eagerness)
            carry(block, pending, by)
            store(pivot.upper, pivots, by)
            store(pivot.second, pivots, room + by)
            store(pivot.rhs, pivots, 2 * room + by)


@inlined
def _up(block):  # type: ignore[no-untyped-def]
    """From the last unknown to the first; returns zeros, NaN in the lanes of systems that fail."""
    n, systems, room = block.sizes
    lanes, zero = width(block.carried, ONE), block.eagerness - block.eagerness
    trace = fill(zero, ONE)
    for by in range(0, systems, lanes):
        pending = carried(block, by)
        x = pending.rhs / pending.diagonal
        write(block, x, n - 1, by)
        store(x, block.carried, by)
        store(fill(zero, ONE), block.carried, room + by)
        if n == 1:
            trace = trace + (x - x)
    for i in range(1, n):
        k = n - 1 - i
        pivots = shifted(block.pivots, 3 * room * k)
        for by in range(0, systems, lanes):
            upper, second = load(pivots, by, ONE), load(pivots, room + by, ONE)
            pivot = Pivot(upper, second, load(pivots, 2 * room + by, ONE))
            following = load(block.carried, by, ONE)
            x = substitute(pivot, following, load(block.carried, room + by, ONE))
            store(x, block.carried, by)
            store(following, block.carried, room + by)
            write(block, x, k, by)
            if k == 0:
                trace = trace + (x - x)
    return trace


# ---------------------------------------------------------------- all blocks


@inlined
def room_of(plan, lanes):  # type: ignore[no-untyped-def]
    """Systems of a block: their pivots fit, and there is something to do for every core."""
    size = VECTOR_BYTES // lanes
    fitting = min(SCRATCH // (3 * size * plan[LENGTH]), plan[INNER] // 8, MOST)
    return max(fitting // lanes * lanes, lanes)


@inlined
def _source(plan, array, outer, inner, zero):  # type: ignore[no-untyped-def]
    base = pointer_to(plan[PLACES + array], zero)
    return shifted(base, plan[OUTERS + array] * outer + plan[INNERS + array] * inner)


@inlined
def _set_stops(plan, first, systems, room, stops, zero):  # type: ignore[no-untyped-def]
    for i in range(room):
        stops[i] = zero
        if i < systems:
            stops[i] = zero + plan[LENGTH]
            if plan[LENGTHS] != 0:
                stops[i] = zero + pointer_to(plan[LENGTHS], np.int64(0))[first + i]


@inlined
def _solve_from(plan, number, room, memory, eagerness):  # type: ignore[no-untyped-def]
    """Solve one block; see `_up`."""
    n, zero = plan[LENGTH], eagerness - eagerness
    slices = (plan[INNER] + room - 1) // room
    outer, inner = number // slices, number % slices * room
    systems = min(room, plan[INNER] - inner)
    _set_stops(plan, outer * plan[INNER] + inner, systems, room, memory, zero)
    out = _source(plan, 4, outer, inner, zero)
    waiting = shifted(memory, room)
    line = VECTOR_BYTES // width(memory, ONE)
    even = to_line(out, 0) == 0 and plan[STEPS + 4] * line % VECTOR_BYTES == 0
    block = Columns(
        Sources(
            _source(plan, 0, outer, inner, zero),
            _source(plan, 1, outer, inner, zero),
            _source(plan, 2, outer, inner, zero),
            _source(plan, 3, outer, inner, zero),
        ),
        out,
        (plan[INNERS] != 0, plan[INNERS + 1] != 0, plan[INNERS + 2] != 0, plan[INNERS + 3] != 0),
        (plan[STEPS], plan[STEPS + 1], plan[STEPS + 2], plan[STEPS + 3], plan[STEPS + 4]),
        (n, systems, room),
        memory,
        waiting,
        shifted(waiting, 3 * room),
        plan[LENGTHS] == 0,
        even and plan[STREAM] != 0,
        eagerness,
    )
    _down(block)
    return _up(block)


@inlined
def _solve_all(plan, eagerness, blocks, room, memory, failed):  # type: ignore[no-untyped-def]
    """With pointers only: to count the references to arrays takes time."""
    plan, start = address(plan), address(memory)
    start = shifted(start, to_line(start, 0))
    trace = fill(eagerness - eagerness, ONE)
    for number in range(blocks[0], blocks[1]):
        trace = trace + _solve_from(plan, number, room, start, eagerness)
    store(trace, address(failed), 0)
    fence()


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _solve_blocks(plan, eagerness, room, first, last, failed):  # type: ignore[no-untyped-def]
    """Solve some blocks; `failed` gets NaN if a system fails."""
    memory = np.empty(room * (4 + 3 * plan[LENGTH]) + failed.size, failed.dtype)
    _solve_all(plan, eagerness, (first, last), room, memory, failed)


def _make(parallel: bool) -> Any:
    """Driver: whether all solutions are finite, from a plan, `eagerness` and a limit (not used)."""

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(plan, eagerness, limit):  # type: ignore[no-untyped-def]
        lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
        room = room_of(plan, lanes)
        total = plan[OUTER] * ((plan[INNER] + room - 1) // room)
        chunks = min(total, CHUNKS)
        failed = np.full((chunks, lanes), eagerness)
        for chunk in prange(chunks):
            first, last = total * chunk // chunks, total * (chunk + 1) // chunks
            _solve_blocks(plan, eagerness, room, first, last, failed[chunk])
        return not np.isnan(failed.sum())

    return solve


@functools.cache
def column_kernels() -> Kernels:
    """Kernels for both dtypes; systems of the inner axis are 1 apart, or share their numbers."""
    return Kernels(_make(False), _make(True), GRAIN)

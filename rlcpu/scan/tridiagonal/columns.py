"""Driver of tridiagonal systems that lie next to each other: vectors of systems, row by row.

A core takes blocks of systems, each from both ends to the middle and back to the ends.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, pointer_to, shifted, store, to_line
from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.lanes import Columns, Scratch
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
from rlcpu.scan.tridiagonal.steps import inlined
from rlcpu.scan.tridiagonal.sweep import sweep
from rlcpu.scan.tridiagonal.tiles import ONE, Sources

CHUNKS = 16  # parts of the work; in each the first and the last block are alone
GRAIN = 2**14  # numbers from which a second core is worth waking
# Wide blocks read and write long pieces of rows: of 100 unknowns of float64, blocks of 432 systems
# took 0.64 of the time of blocks of 64.
SCRATCH = 2**20  # bytes of a block's pivots
MOST = 4096  # bytes of a row of a block


@inlined
def room_of(plan, lanes):  # type: ignore[no-untyped-def]
    """Systems of a block: their pivots fit, and there is something to do for every core."""
    size = VECTOR_BYTES // lanes
    fitting = min(SCRATCH // (3 * size * plan[LENGTH]), plan[INNER] // 8, MOST // size)
    return max(fitting // lanes * lanes, lanes)


@inlined
def _source(plan, array, outer, inner, zero):  # type: ignore[no-untyped-def]
    base = pointer_to(plan[PLACES + array], zero)
    return shifted(base, plan[OUTERS + array] * outer + plan[INNERS + array] * inner)


@inlined
def set_stops(plan, first, systems, room, stops, zero):  # type: ignore[no-untyped-def]
    """Write the lengths of the systems of a block, the number of the first of which is given."""
    for i in range(room):
        stops[i] = zero
        if i < systems:
            stops[i] = zero + plan[LENGTH]
            if plan[LENGTHS] != 0:
                stops[i] = zero + pointer_to(plan[LENGTHS], np.int64(0))[first + i]


@inlined
def slices_of(plan, room, zero):  # type: ignore[no-untyped-def]
    """Systems before the first whole line of results, and number of blocks of an outer index."""
    head = 0
    if plan[STREAM] != 0:
        head = to_line(pointer_to(plan[PLACES + 4], zero), 0)
    return head, (plan[INNER] - head + room - 1) // room + (1 if head > 0 else 0)


@inlined
def block_at(plan, number, room, stops, zero):  # type: ignore[no-untyped-def]
    """A block by its number, which may be beyond the last; and the number of its first system."""
    head, slices = slices_of(plan, room, zero)
    outer, inner = number // slices, number % slices * room
    systems = room
    if head > 0:
        systems = head if inner == 0 else room
        inner = 0 if inner == 0 else inner - room + head
    systems = min(systems, plan[INNER] - inner)
    return Columns(
        Sources(
            _source(plan, 0, outer, inner, zero),
            _source(plan, 1, outer, inner, zero),
            _source(plan, 2, outer, inner, zero),
            _source(plan, 3, outer, inner, zero),
        ),
        _source(plan, 4, outer, inner, zero),
        (plan[INNERS] != 0, plan[INNERS + 1] != 0, plan[INNERS + 2] != 0, plan[INNERS + 3] != 0),
        (plan[STEPS], plan[STEPS + 1], plan[STEPS + 2], plan[STEPS + 3], plan[STEPS + 4]),
        plan[LENGTH],
        systems,
        stops,
        plan[LENGTHS] == 0,
    ), outer * plan[INNER] + inner


@inlined
def _empty(block):  # type: ignore[no-untyped-def]
    return Columns(
        block.sources, block.out, block.moves, block.steps, block.n, 0, block.stops, block.whole
    )


@inlined
def _solve_all(plan, eagerness, blocks, room, memory, failed):  # type: ignore[no-untyped-def]
    """With pointers only: to count the references to arrays takes time."""
    plan, start = address(plan), address(memory)
    start = shifted(start, to_line(start, 0))
    zero = eagerness - eagerness
    stops, rest = start, shifted(start, room)
    unknowns = shifted(rest, 6 * room)
    scratch = Scratch(rest, unknowns, shifted(unknowns, 4 * room), room, eagerness)
    trace = fill(zero, ONE)
    there, first = block_at(plan, blocks[0], room, stops, zero)
    back = _empty(there)
    for number in range(blocks[0], blocks[1] + 1):
        if number == blocks[1]:
            there = _empty(there)
        set_stops(plan, first, there.systems, room, stops, zero)
        then, first = block_at(plan, number + 1, room, stops, zero)
        three = (back, there, then)
        trace = trace + sweep(three, scratch, number % 2 == 0, plan[STREAM] != 0)
        back, there = there, then
    store(trace, address(failed), 0)
    fence()


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _solve_blocks(plan, eagerness, room, first, last, failed):  # type: ignore[no-untyped-def]
    """Solve some blocks; `failed` gets NaN if a system fails."""
    half = (plan[LENGTH] + 1) // 2
    memory = np.empty(room * (11 + 6 * half) + 2 * failed.size, failed.dtype)
    _solve_all(plan, eagerness, (first, last), room, memory, failed)


def _make(parallel: bool) -> Any:
    """Driver: whether all solutions are finite, from a plan, `eagerness` and a limit (not used)."""

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(plan, eagerness, limit):  # type: ignore[no-untyped-def]
        lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
        room = room_of(plan, lanes)
        total = plan[OUTER] * slices_of(plan, room, eagerness)[1]
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

"""Driver of many periodic tridiagonal systems that lie next to each other."""

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
from rlcpu.scan.tridiagonal.columns import CHUNKS, GRAIN, MOST, SCRATCH, block_at, slices_of
from rlcpu.scan.tridiagonal.plan import ERRORS, INNER, LENGTH, OUTER, PLACES, STREAM
from rlcpu.scan.tridiagonal.ring_lanes import BESIDE, KEEPS, Rings, solve_rings
from rlcpu.scan.tridiagonal.steps import inlined
from rlcpu.scan.tridiagonal.tiles import ONE


@inlined
def _room_of(plan, lanes):  # type: ignore[no-untyped-def]
    """Systems of a block: their slots fit, and there is something to do for every core.

    An odd number of vectors: rows of 4,096 bytes fall to the same lines of the caches, so that
    250,000 systems of 20 unknowns take 18.7 ms in place of 9.1.
    """
    size = VECTOR_BYTES // lanes
    fitting = min(SCRATCH // (KEEPS * size * plan[LENGTH]), plan[INNER] // 8, MOST // size)
    return max((fitting // lanes - 1) | 1, 1) * lanes


@inlined
def _solve_all(plan, settings, blocks, room, memory, failed):  # type: ignore[no-untyped-def]
    """With pointers only: to count the references to arrays takes time."""
    eagerness, checked = settings
    plan, start = address(plan), address(memory)
    start = shifted(start, to_line(start, 0))
    zero = eagerness - eagerness
    slots, trace = shifted(start, BESIDE * room), fill(zero, ONE)
    there, first = block_at(plan, blocks[0], room, start, zero)
    for number in range(blocks[0], blocks[1]):
        then, following = block_at(plan, number + 1, room, start, zero)
        rings = Rings(there, then, start, slots, room, eagerness)
        errors = shifted(pointer_to(plan[ERRORS], zero), first)
        trace = trace + solve_rings(rings, plan[STREAM] != 0, checked, errors)
        there, first = then, following
    store(trace, address(failed), 0)
    fence()


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _solve_blocks(plan, settings, room, first, last, failed):  # type: ignore[no-untyped-def]
    """Solve some blocks; `failed` gets NaN if a system fails."""
    size = room * (BESIDE + KEEPS * plan[LENGTH]) + 2 * failed.size
    memory = np.empty(size, failed.dtype)
    _solve_all(plan, settings, (first, last), room, memory, failed)


def _make(parallel: bool) -> Any:
    """Driver: whether all solutions are finite, from a plan, `eagerness` and whether to check.

    Systems are of at least two unknowns. Writes their backward errors, of all or where doubtful.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(plan, eagerness, checked):  # type: ignore[no-untyped-def]
        lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
        room = _room_of(plan, lanes)
        total = plan[OUTER] * slices_of(plan, room, eagerness)[1]
        chunks = min(total, CHUNKS)
        failed = np.full((chunks, lanes), eagerness)
        for chunk in prange(chunks):
            first, last = total * chunk // chunks, total * (chunk + 1) // chunks
            _solve_blocks(plan, (eagerness, checked), room, first, last, failed[chunk])
        return not np.isnan(failed.sum())

    return solve


@functools.cache
def ring_column_kernels() -> Kernels:
    """Kernels for both dtypes; systems of the inner axis are 1 apart, or share their numbers."""
    return Kernels(_make(False), _make(True), GRAIN)

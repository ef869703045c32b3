"""Driver of many periodic tridiagonal systems whose unknowns lie one after the other in memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, pointer_to, prefetch, shifted, store, to_line
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, fma, maximum, width
from rlcpu.scan.tridiagonal.block import write
from rlcpu.scan.tridiagonal.chunks import (
    BEGINS,
    ENDS,
    LISTS,
    OUT,
    STOP,
    Chunks,
    ask_chunks,
    fetch_chunks,
    open_chunks,
)
from rlcpu.scan.tridiagonal.plan import INNER, LENGTH, OUTER, PLACES, place, split
from rlcpu.scan.tridiagonal.ring_steps import (
    DOUBTFUL,
    RingPivot,
    close_ring,
    eliminate_ring,
    outer_part,
)
from rlcpu.scan.tridiagonal.rows import is_dense, report, write_dense
from rlcpu.scan.tridiagonal.steps import backward_error, inlined
from rlcpu.scan.tridiagonal.tiles import ONE, Sources, equation

GRAIN = 2**14  # numbers from which a second core is worth waking
_PARTS = 64  # that cores take in turn
_KEEPS = 5  # numbers of a pivot
_BUFFER = LISTS  # list of where each system begins in a buffer
_NEAR = 500  # unknowns up to which the next systems fit into the caches beside these


@inlined
def _find(plan, begin, chunks, following):  # type: ignore[no-untyped-def]
    """Write where the systems of a block lie, and where the first of the next block does."""
    lanes, lists = width(chunks.memory, ONE), chunks.lists
    last = plan[OUTER] * plan[INNER] - 1
    for lane in range(lanes):
        index = split(plan, min(begin + lane, last))
        for i in range(OUT + 1):
            lists[i * lanes + lane] = place(plan, i, index)
        lists[STOP * lanes + lane] = plan[LENGTH]
        lists[_BUFFER * lanes + lane] = lane * plan[LENGTH]
        lists[BEGINS * lanes + lane] = lists[ENDS * lanes + lane] = 0
    index = split(plan, min(begin + lanes, last))
    for i in range(4):
        following[i] = place(plan, i, index)


@inlined
def _ask(chunks, following, k):  # type: ignore[no-untyped-def]
    """Ask for a line of each array of the next block; of this one if systems are long."""
    lanes, sources = width(chunks.memory, ONE), chunks.sources
    if chunks.length > _NEAR:
        if k % lanes == 0:
            ask_chunks(chunks, k)
    else:
        prefetch(sources.lower, following[0] + k * lanes)
        prefetch(sources.diagonal, following[1] + k * lanes)
        prefetch(sources.upper, following[2] + k * lanes)
        prefetch(sources.rhs, following[3] + k * lanes)


@inlined
def _forward(chunks, following, pivots):  # type: ignore[no-untyped-def]
    """Eliminate all but the outer unknowns; what is left, and one over the smallest pivot."""
    lanes, n = width(chunks.memory, ONE), chunks.length
    one, two = open_chunks(chunks)
    _ask(chunks, following, 0)
    _ask(chunks, following, 1)
    largest = one.diagonal * 0.0
    for k in range(0, n, lanes):
        if k > 0:
            fetch_chunks(chunks, k)
        for row in range(0 if k > 0 else 2, min(lanes, n - k)):
            _ask(chunks, following, k + row)
            new = equation(chunks.memory, row)
            pivot, inverse, one, two = eliminate_ring(one, two, new, chunks.eagerness)
            largest = maximum(abs(inverse), largest)
            to = shifted(pivots, _KEEPS * (k + row - 2) * lanes)
            store(pivot.upper, to, 0)
            store(pivot.second, to, lanes)
            store(pivot.rhs, to, 2 * lanes)
            store(pivot.before, to, 3 * lanes)
            store(pivot.first, to, 4 * lanes)
    return one, two, largest


@inlined
def _backward(pivots, x, n, last, first):  # type: ignore[no-untyped-def]
    """Write all unknowns, x[-1] first; a vector of zeros, NaN in lanes of numbers not finite."""
    lanes = width(x, ONE)
    store(first, x, lanes)
    store(last, x, n * lanes)
    following, second, trace = last, first, (first - first) + (last - last)
    for i in range(n - 2):
        k = n - 2 - i
        kept = shifted(pivots, _KEEPS * (k - 1) * lanes)
        upper, beyond, rhs = load(kept, 0, ONE), load(kept, lanes, ONE), load(kept, 2 * lanes, ONE)
        before, own = load(kept, 3 * lanes, ONE), load(kept, 4 * lanes, ONE)
        outer = outer_part(RingPivot(upper, beyond, rhs, before, own), last, first)
        current = fma(-upper, following, fma(-beyond, second, outer))
        second = following
        following = current
        trace = trace + (current - current)
        store(current, x, (k + 1) * lanes)
    return trace


@inlined
def is_doubtful(largest, buffer):  # type: ignore[no-untyped-def]
    """Whether to look at solutions, from one over the smallest pivot of each; writes these."""
    store(largest, buffer, 0)
    doubtful = False
    for lane in range(width(buffer, ONE)):
        doubtful = doubtful or not buffer[lane] <= DOUBTFUL
    return doubtful


@inlined
def _check(chunks, x, n):  # type: ignore[no-untyped-def]
    """Backward errors of solutions, x[-1] first; writes x[-1] and x[n]."""
    lanes = width(x, ONE)
    store(load(x, n * lanes, ONE), x, 0)
    store(load(x, lanes, ONE), x, (n + 1) * lanes)
    worst = fill(chunks.eagerness - chunks.eagerness, ONE)
    for k in range(0, n, lanes):
        fetch_chunks(chunks, k)
        for row in range(min(lanes, n - k)):
            at = (k + row) * lanes
            around = load(x, at, ONE), load(x, at + lanes, ONE), load(x, at + 2 * lanes, ONE)
            worst = maximum(backward_error(equation(chunks.memory, row), around), worst)
    return worst


@inlined
def _solve_from(plan, begin, chunks, following, checked):  # type: ignore[no-untyped-def]
    """Solve the block of a first system; zeros, NaN in the lanes of systems that fail."""
    lanes, n = width(chunks.memory, ONE), plan[LENGTH]
    _find(plan, begin, chunks, following)
    pivots = shifted(chunks.memory, 4 * lanes * lanes)
    x = shifted(pivots, _KEEPS * n * lanes)
    one, two, largest = _forward(chunks, following, pivots)
    last, first = close_ring(one, two)
    trace = _backward(pivots, x, n, last, first)
    if checked or is_doubtful(largest, pivots):
        store(_check(chunks, x, n), pivots, 0)
        report(plan, begin, pivots)
    starts = shifted(chunks.lists, OUT * lanes)
    out = pointer_to(plan[PLACES + 4], chunks.eagerness)
    if is_dense(plan, begin, lanes):
        write_dense(x, n, out, (starts, shifted(chunks.lists, _BUFFER * lanes)), pivots)
    else:
        write(x, n, out, starts)
    return trace


@inlined
def _solve_all(plan, settings, blocks, memory, lists, failed):  # type: ignore[no-untyped-def]
    """With pointers only: to count the references to arrays takes as long as ten unknowns."""
    eagerness, checked = settings
    plan, lists, start = address(plan), address(lists), address(memory)
    start = shifted(start, to_line(start, 0))
    following = shifted(lists, (LISTS + 1) * failed.size)
    lower, diagonal = pointer_to(plan[PLACES], eagerness), pointer_to(plan[PLACES + 1], eagerness)
    upper, rhs = pointer_to(plan[PLACES + 2], eagerness), pointer_to(plan[PLACES + 3], eagerness)
    sources = Sources(lower, diagonal, upper, rhs)
    chunks = Chunks(sources, lists, plan[LENGTH], start, eagerness)
    trace = fill(eagerness - eagerness, ONE)
    for begin in range(blocks[0] * failed.size, blocks[1] * failed.size, failed.size):
        trace = trace + _solve_from(plan, begin, chunks, following, checked)
    store(trace, address(failed), 0)
    fence()


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _solve_blocks(plan, settings, first, last, failed):  # type: ignore[no-untyped-def]
    """Solve the systems of some blocks; `failed` gets NaN if one of them fails."""
    lanes = failed.size
    size = (5 * lanes + (_KEEPS + 1) * plan[LENGTH] + 4) * lanes
    memory, lists = np.empty(size, failed.dtype), np.empty((LISTS + 1) * lanes + 4, np.int64)
    _solve_all(plan, settings, (first, last), memory, lists, failed)


def _make(parallel: bool) -> Any:
    """Driver: whether all solutions are finite, from a plan, `eagerness` and whether to check.

    Systems are of at least two unknowns. Writes their backward errors, of all or where doubtful.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(plan, eagerness, checked):  # type: ignore[no-untyped-def]
        lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
        total = (plan[OUTER] * plan[INNER] + lanes - 1) // lanes
        parts = min(total, _PARTS)
        failed = np.full((parts, lanes), eagerness)
        for part in prange(parts):
            first, last = total * part // parts, total * (part + 1) // parts
            _solve_blocks(plan, (eagerness, checked), first, last, failed[part])
        return not np.isnan(failed.sum())

    return solve


@functools.cache
def ring_row_kernels() -> Kernels:
    """Kernels for both dtypes."""
    return Kernels(_make(False), _make(True), GRAIN)

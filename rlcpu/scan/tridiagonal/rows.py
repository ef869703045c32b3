"""Driver of tridiagonal systems whose unknowns lie one after the other in memory."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, pointer_to, shifted, store, stream, to_line
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.block import BUFFER, LISTS, NEXT, OUT, scratch, solve_block, write
from rlcpu.scan.tridiagonal.plan import (
    ERRORS,
    INNER,
    LENGTH,
    LENGTHS,
    OUTER,
    PLACES,
    STREAM,
    place,
    split,
)
from rlcpu.scan.tridiagonal.steps import inlined
from rlcpu.scan.tridiagonal.tiles import ONE, Block, Sources

CHUNKS = 64  # parts that cores take in turn
GRAIN = 2**14  # numbers from which a second core is worth waking


@inlined
def write_dense(x, n, out, lists, buffer):  # type: ignore[no-untyped-def]
    """Write unknowns past the caches, of systems that follow each other without a gap.

    `lists` are two, where each system begins in out, and where it does in the buffer.
    """
    starts, inside = lists
    lanes = width(x, ONE)
    position, total = starts[0], n * lanes
    head = to_line(out, position)
    end = head + (total - head) // lanes * lanes
    linear = shifted(buffer, lanes - head)
    write(x, n, linear, inside)
    for i in range(min(head, total)):
        out[position + i] = linear[i]
    for i in range(head, end, lanes):
        stream(load(linear, i, ONE), out, position + i)
    for i in range(max(head, end), total):
        out[position + i] = linear[i]


@inlined
def _find(plan, system, lists, lane, lanes):  # type: ignore[no-untyped-def]
    """Where the system of a lane lies, and where that of the first lane of the next block does."""
    starts, stops = lists
    last = plan[OUTER] * plan[INNER] - 1
    index = split(plan, min(system, last))
    for i in range(5):
        starts[i * lanes + lane] = place(plan, i, index)
    starts[BUFFER * lanes + lane] = lane * plan[LENGTH]
    if lane == 0:
        index = split(plan, min(system + lanes, last))
        for i in range(4):
            starts[(NEXT + i) * lanes] = place(plan, i, index)
    stops[lane] = plan[LENGTH]
    if plan[LENGTHS] != 0:
        stops[lane] = pointer_to(plan[LENGTHS], np.int64(0))[min(system, last)]
    stops[lanes + lane] = stops[lane] - 1


@inlined
def is_dense(plan, begin, lanes):  # type: ignore[no-untyped-def]
    """Whether to stream a block: it is full, and its results follow each other without a gap."""
    last = begin + lanes - 1
    if plan[STREAM] == 0 or last >= plan[OUTER] * plan[INNER]:
        return False
    span = place(plan, 4, split(plan, last)) - place(plan, 4, split(plan, begin))
    return span == (lanes - 1) * plan[LENGTH]


@inlined
def report(plan, begin, errors):  # type: ignore[no-untyped-def]
    """Write the backward errors of a block."""
    target = pointer_to(plan[ERRORS], errors[0])
    for lane in range(min(width(errors, ONE), plan[OUTER] * plan[INNER] - begin)):
        target[begin + lane] = errors[lane]


@inlined
def _solve_from(plan, begin, block, errors):  # type: ignore[no-untyped-def]
    """Solve the block of a first system; zeros, NaN in the lanes of systems that fail."""
    lanes, n = width(errors, ONE), plan[LENGTH]
    for lane in range(lanes):
        _find(plan, begin + lane, (block.starts, block.stops), lane, lanes)
    pivots = shifted(block.memory, 8 * lanes * lanes)
    x = shifted(pivots, 3 * lanes * (n + (n & 1) + 2))
    trace = solve_block(block, pivots, x, n, errors)
    starts, out = shifted(block.starts, OUT * lanes), pointer_to(plan[PLACES + 4], errors[0])
    if is_dense(plan, begin, lanes):
        lists = starts, shifted(block.starts, BUFFER * lanes)
        write_dense(x, n, out, lists, pivots)
    else:
        write(x, n, out, starts)
    if plan[ERRORS] != 0:
        report(plan, begin, errors)
    return trace


@inlined
def _solve_all(plan, settings, blocks, memory, lists, failed):  # type: ignore[no-untyped-def]
    """With pointers only: to count the references to arrays takes as long as ten unknowns."""
    eagerness, limit = settings
    plan, lanes = address(plan), failed.size
    lower, diagonal = pointer_to(plan[PLACES], eagerness), pointer_to(plan[PLACES + 1], eagerness)
    upper, rhs = pointer_to(plan[PLACES + 2], eagerness), pointer_to(plan[PLACES + 3], eagerness)
    start = address(memory)
    start = shifted(start, to_line(start, 0))
    lists = address(lists)
    block = Block(
        *(Sources(lower, diagonal, upper, rhs), lists, shifted(lists, LISTS * lanes)),
        *(shifted(start, lanes), plan[LENGTHS] == 0, limit, eagerness),
    )
    trace = fill(eagerness - eagerness, ONE)
    for begin in range(blocks[0] * lanes, blocks[1] * lanes, lanes):
        trace = trace + _solve_from(plan, begin, block, start)
    store(trace, address(failed), 0)
    fence()


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _solve_blocks(plan, settings, first, last, failed):  # type: ignore[no-untyped-def]
    """Solve the systems of some blocks; `failed` gets NaN if one of them fails."""
    lanes = failed.size
    size = scratch(plan[LENGTH], lanes, plan[ERRORS] != 0)
    memory = np.empty(size + 2 * lanes, failed.dtype)
    lists = np.empty((LISTS + 2) * lanes, np.int64)
    _solve_all(plan, settings, (first, last), memory, lists, failed)


def _make(parallel: bool) -> Any:
    """Driver: whether all solutions are finite, from a plan, addresses, `eagerness` and a limit.

    The addresses are those of the five arrays, in place of the plan's: to write them into a plan
    takes longer than to solve four systems of 16. From the limit on, of the working dtype, backward
    errors are refined; negative for no check.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(  # type: ignore[no-untyped-def]
        plan, lower, diagonal, upper, rhs, out, eagerness, limit
    ):
        plan = plan.copy()
        plan[PLACES], plan[PLACES + 1], plan[PLACES + 2] = lower, diagonal, upper
        plan[PLACES + 3], plan[PLACES + 4] = rhs, out
        lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
        total = (plan[OUTER] * plan[INNER] + lanes - 1) // lanes
        chunks = min(total, CHUNKS)
        failed = np.full((chunks, lanes), eagerness)
        for chunk in prange(chunks):
            first, last = total * chunk // chunks, total * (chunk + 1) // chunks
            _solve_blocks(plan, (eagerness, limit), first, last, failed[chunk])
        return not np.isnan(failed.sum())

    return solve


@functools.cache
def row_kernels() -> Kernels:
    """Kernels for both dtypes."""
    return Kernels(_make(False), _make(True), GRAIN)

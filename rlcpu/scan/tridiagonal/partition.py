"""Driver of few long tridiagonal systems, which may be periodic: chunks of them side by side.

Every system is cut into chunks of equal length, and one of another length for what is left over. As
many chunks as a register has numbers are reduced to two equations each; these are solved system by
system; then all chunks are solved. The equations are read twice, and nothing is written before it
is known whether the systems have solutions.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, pointer_to, shifted, store, to_line
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, maximum, width
from rlcpu.scan.tridiagonal.chunks import (
    BEGINS,
    ENDS,
    LISTS,
    STOP,
    Chunks,
    chunk_scratch,
    expand_chunks,
    reduce_chunks,
)
from rlcpu.scan.tridiagonal.join import REST, WIDTH, join
from rlcpu.scan.tridiagonal.plan import INNER, OUTER, PLACES, place, split
from rlcpu.scan.tridiagonal.steps import inlined
from rlcpu.scan.tridiagonal.tiles import ONE, Sources

GRAIN = 2**14  # numbers from which a second core is worth waking
_PARTS = 64  # that cores take in turn

_join: Any = njit(nogil=True, error_model="numpy", fastmath=EXACT)(join)


class Cut(NamedTuple):
    """How systems are cut: four whole numbers for the kernel.

    Attributes:
        count: number of chunks of the usual length, of each system.
        length: of these, at least 2.
        rest: length of the last chunk, at least 2; 0 if there is none.
        periodic: whether the last unknown is next to the first, 1 or 0.
    """

    count: Any
    length: Any
    rest: Any
    periodic: Any


@inlined
def _per_system(cut):  # type: ignore[no-untyped-def]
    return cut.count + (1 if cut.rest > 0 else 0)


@inlined
def _blocks(plan, cut, lanes):  # type: ignore[no-untyped-def]
    """Blocks of chunks of the usual length, and of last chunks."""
    systems = plan[OUTER] * plan[INNER]
    usual = (systems * cut.count + lanes - 1) // lanes
    return usual, (systems + lanes - 1) // lanes if cut.rest > 0 else 0


@inlined
def _chunk(plan, cut, group, number):  # type: ignore[no-untyped-def]
    """System of a chunk and its number therein; group 1 is that of last chunks."""
    systems = plan[OUTER] * plan[INNER]
    if group == 1:
        return min(number, systems - 1), cut.count
    number = min(number, systems * cut.count - 1)
    return number // cut.count, number % cut.count


@inlined
def _find(plan, cut, chunk, length, lists, lane, lanes):  # type: ignore[no-untyped-def]
    """Write where the chunk of a lane lies."""
    system, j = chunk
    index, after = split(plan, system), _per_system(cut) - 1
    for i in range(5):
        lists[i * lanes + lane] = place(plan, i, index) + j * cut.length
    lists[STOP * lanes + lane] = length
    lists[BEGINS * lanes + lane] = 1 if j == 0 and cut.periodic == 0 else 0
    lists[ENDS * lanes + lane] = 1 if j == after and cut.periodic == 0 else 0


@inlined
def _keep_rests(one, two, buffer):  # type: ignore[no-untyped-def]
    lanes = width(buffer, ONE)
    at = 0
    for rest in (one, two):
        store(rest.before, buffer, at)
        store(rest.first, buffer, at + lanes)
        store(rest.diagonal, buffer, at + 2 * lanes)
        store(rest.upper, buffer, at + 3 * lanes)
        store(rest.rhs, buffer, at + 4 * lanes)
        store(rest.scale, buffer, at + 5 * lanes)
        at += REST * lanes


@inlined
def _outer(cut, chunk, ends, buffer, lane, lanes):  # type: ignore[no-untyped-def]
    """Write the outer unknowns of the chunk of a lane."""
    system, j = chunk
    per = _per_system(cut)
    buffer[lane] = ends[system, (j + per - 1) % per, 1]
    buffer[lanes + lane], buffer[2 * lanes + lane] = ends[system, j, 0], ends[system, j, 1]
    buffer[3 * lanes + lane] = ends[system, (j + 1) % per, 0]


@inlined
def _reduce(plan, cut, chunks, where, rests):  # type: ignore[no-untyped-def]
    """Reduce the chunks of a block; one over the smallest pivot of each."""
    group, begin = where
    lanes = width(chunks.memory, ONE)
    buffer = shifted(chunks.memory, chunk_scratch(chunks.length, lanes))
    for lane in range(lanes):
        chunk = _chunk(plan, cut, group, begin + lane)
        _find(plan, cut, chunk, chunks.length, chunks.lists, lane, lanes)
    one, two, largest = reduce_chunks(chunks)
    _keep_rests(one, two, buffer)
    for lane in range(lanes):
        system, j = _chunk(plan, cut, group, begin + lane)
        for i in range(2 * REST):
            rests[system, j, i // REST, i % REST] = buffer[i * lanes + lane]
    return largest


@inlined
def _expand(plan, cut, chunks, where, ends):  # type: ignore[no-untyped-def]
    """Solve the chunks of a block; zeros, NaN in lanes of numbers that are not finite."""
    group, begin = where
    lanes = width(chunks.memory, ONE)
    buffer = shifted(chunks.memory, chunk_scratch(chunks.length, lanes))
    for lane in range(lanes):
        chunk = _chunk(plan, cut, group, begin + lane)
        _find(plan, cut, chunk, chunks.length, chunks.lists, lane, lanes)
        _outer(cut, chunk, ends, buffer, lane, lanes)
    before, first = load(buffer, 0, ONE), load(buffer, lanes, ONE)
    last, after = load(buffer, 2 * lanes, ONE), load(buffer, 3 * lanes, ONE)
    out = pointer_to(plan[PLACES + 4], chunks.eagerness)
    return expand_chunks(chunks, (before, first, last, after), out)


@inlined
def _run(plan, cut, eagerness, blocks, arrays, scratch):  # type: ignore[no-untyped-def]
    """Reduce or expand some blocks; see `_pass`."""
    (rests, ends, found), (memory, lists) = arrays, scratch
    plan, lists, start = address(plan), address(lists), address(memory)
    start = shifted(start, to_line(start, 0))
    lanes = width(start, ONE)
    lower, diagonal = pointer_to(plan[PLACES], eagerness), pointer_to(plan[PLACES + 1], eagerness)
    upper, rhs = pointer_to(plan[PLACES + 2], eagerness), pointer_to(plan[PLACES + 3], eagerness)
    sources = Sources(lower, diagonal, upper, rhs)
    usual, _ = _blocks(plan, cut, lanes)
    total = fill(eagerness - eagerness, ONE)
    for block in range(blocks[0], blocks[1]):
        group = 0 if block < usual else 1
        where = group, (block if group == 0 else block - usual) * lanes
        length = cut.length if group == 0 else cut.rest
        chunks = Chunks(sources, lists, length, start, eagerness)
        if blocks[2]:
            total = total + _expand(plan, cut, chunks, where, ends)
        else:
            total = maximum(_reduce(plan, cut, chunks, where, rests), total)
    store(total, start, 0)
    for lane in range(lanes):
        found[lane] = start[lane]


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _pass(plan, cut, eagerness, blocks, arrays):  # type: ignore[no-untyped-def]
    """Reduce or expand some blocks.

    `arrays` are rests, ends, and, of every lane, what the blocks return: the largest or the sum.
    """
    lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
    size = chunk_scratch(max(cut[1], cut[2]), lanes) + (2 * REST + 1) * lanes
    memory, lists = np.empty(size, arrays[2].dtype), np.empty(LISTS * lanes, np.int64)
    four = Cut(cut[0], cut[1], cut[2], cut[3])
    _run(plan, four, eagerness, blocks, arrays, (memory, lists))


@inlined
def _shape(plan, cut, eagerness):  # type: ignore[no-untyped-def]
    """Lanes, blocks, and parts of them that cores take in turn."""
    lanes = width(pointer_to(plan[PLACES], eagerness), ONE)
    usual, last = _blocks(plan, Cut(cut[0], cut[1], cut[2], cut[3]), lanes)
    return lanes, usual + last, min(usual + last, _PARTS)


def _make_reducer(parallel: bool) -> Any:
    """Driver: one over the smallest pivot, from a plan, a `Cut` as int64, and `eagerness`.

    `ends` (systems, chunks, 2) is overwritten with the first and last unknowns of all chunks, not
    finite where a system has no solution or holds NaN or infinity. Nothing else is written.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def reduce(plan, cut, eagerness, ends):  # type: ignore[no-untyped-def]
        lanes, total, parts = _shape(plan, cut, eagerness)
        systems, per, _ = ends.shape
        rests, found = np.empty((systems, per, 2, REST)), np.full((parts, lanes), eagerness)
        for part in prange(parts):
            blocks = total * part // parts, total * (part + 1) // parts, False
            _pass(plan, cut, eagerness, blocks, (rests, ends, found[part]))
        for system in prange(systems):
            _join(rests[system], np.empty((per, 2, WIDTH)), ends[system])
        return found.max()

    return reduce


def _make_expander(parallel: bool) -> Any:
    """Driver: whether all solutions are finite; out is overwritten with them."""

    @kernel(parallel=parallel, fastmath=EXACT)
    def expand(plan, cut, eagerness, ends):  # type: ignore[no-untyped-def]
        lanes, total, parts = _shape(plan, cut, eagerness)
        rests, found = np.empty((1, 1, 2, REST)), np.full((parts, lanes), eagerness)
        for part in prange(parts):
            blocks = total * part // parts, total * (part + 1) // parts, True
            _pass(plan, cut, eagerness, blocks, (rests, ends, found[part]))
        return found.sum() == 0

    return expand


@functools.cache
def reducers() -> Kernels:
    """Kernels of the first pass, for both dtypes."""
    return Kernels(_make_reducer(False), _make_reducer(True), GRAIN)


@functools.cache
def expanders() -> Kernels:
    """Kernels of the second pass."""
    return Kernels(_make_expander(False), _make_expander(True), GRAIN)

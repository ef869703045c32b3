"""Long tridiagonal systems on a CUDA device, cut into chunks: so that few have many threads.

The rules are those of the CPU (`rlcpu.scan.tridiagonal.equations`, from `eliminate_pair` on): a
thread reduces a chunk to two equations of its outer unknowns. Those of `GROUP` neighbours are
reduced to two in turn, and so on, until one thread solves what is left of a system; the outer
unknowns then spread the same way back, and a thread for each chunk computes those inside. Nothing
waits for the host. Periodic systems, rings of chunks, may be of one.

Equations are read twice; pivots inside of chunks lie in scratch memory, as those of whole systems
do. The lanes of a kernel are chunks, those of a system one after the other.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, cuda, empty, launch, zeros
from rlcpu.cuda.equations import (
    DeviceSystems,
    Way,
    are_finite,
    lane_of_thread,
    make_ascend,
    make_descend,
    make_reader,
    multiprocessors,
    pivot_numbers,
    read_pivot,
    write_pivot,
)
from rlcpu.cuda.faults import report
from rlcpu.cuda.recurrences import DeviceStrided, ThreadLane, device_rule
from rlcpu.scan.tridiagonal import equations as rules
from rlcpu.scan.tridiagonal.equations import (
    EQUATION_NUMBERS,
    RING_COLUMNS,
    ChunkPending,
    ScaledPending,
)
from rlcpu.scan.tridiagonal.plans import Cut
from rlcpu.scan.tridiagonal.status import Status

SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)
#: Unknowns from which systems are cut, and systems of a multiprocessor from which they are not:
#: four warps of whole ones have half of what it can carry on the way, and chunks are read twice.
LONG, MANY = (40, 8) if SIMULATED else (512, 128)
#: Chunks of a multiprocessor: 16 warps, as the two pending equations take 128 registers.
CHUNKS = 16 if SIMULATED else 512
#: Rows of a chunk at least and at most, and of what they are a multiple: rows begin at whole lines.
LEAST, MOST, STEP = (5, 23, 2) if SIMULATED else (32, 512, 16)
#: Chunks whose equations a thread reduces to two, one after the other.
GROUP = 3 if SIMULATED else 12
#: Numbers that a chunk leaves, those of its pivot between neighbours, and its outer unknowns.
LEFT, PIVOTS, ENDS = 2 * EQUATION_NUMBERS, 2 * RING_COLUMNS, 4
_BLOCK = 4 if SIMULATED else 64  # threads of a block that reduce groups


def cut_of(systems: int, n: int) -> Cut | None:
    """Return how to cut systems of n unknowns; None for whole ones."""
    if n < LONG or systems >= MANY * multiprocessors():
        return None
    rows = min(max(systems * n // (CHUNKS * multiprocessors()), LEAST), MOST)
    rows = -(-rows // STEP) * STEP
    while n % rows == 1:  # the last chunk has two equations at least
        rows += STEP
    return Cut(-(-n // rows), rows)


# ---------------------------------------------------------------- inside of chunks


class ChunkDescent(NamedTuple):
    """Holds the two equations that are left of a chunk so far."""

    one: ChunkPending
    two: ChunkPending


class InnerDescent(NamedTuple):
    """Holds what is left of a chunk's equations so far, its outer unknowns being known."""

    one: ScaledPending
    two: ScaledPending
    before: Any  # x[-1]
    first: Any  # x[0]
    is_finite: Any  # whether all numbers so far are


class InnerKnown(NamedTuple):
    """Unknowns of a chunk that substitution has computed so far, down to x[k]."""

    x: Any  # x[k]
    next_x: Any  # x[k+1]
    first: Any  # x[0]
    is_finite: Any  # whether all of them are


def chunk_lane(sizes, cut, number, exists):
    """Return the lane of a thread: chunk `number`, or none."""
    row = number // sizes.inner
    outer = row // cut.chunks
    begin = (row - outer * cut.chunks) * cut.rows
    count = min(cut.rows, sizes.num_steps - begin) if exists else 0
    place = ThreadLane(outer, number - row * sizes.inner)
    return lane_of_thread(place, begin, count, sizes.num_steps, count)


@functools.cache
def reduce_kernel(dtype: Any, way: Way) -> Any:
    """Make the driver (systems, cut, equations): a thread reduces a chunk to two equations.

    `equations` is overwritten with `LEFT` numbers for each chunk.
    """
    scale, start = device_rule(rules.scaled, dtype), device_rule(rules.start_chunk, dtype)
    eliminate = device_rule(rules.eliminate_pair_with_outer, dtype)
    zero, one = dtype(0), dtype(1)

    def reduce_next(reading, state, raw, k):
        equation = scale(*raw)
        new_one, new_two = start(equation, equation)  # as the second equation, and as the first
        if k == 1:
            new_two = state.two
        elif k > 1:
            _, new_one, new_two = eliminate(
                state.one, state.two, equation, reading.systems.pivoting
            )
        return ChunkDescent(new_one, new_two)

    descend, reader = make_descend(dtype, way, reduce_next), make_reader(way, dtype)

    def write(equations, at, left):
        diagonal, upper, rhs, size = left.pending
        equations[at], equations[at + 1] = left.before, left.first
        equations[at + 2], equations[at + 3] = diagonal, upper
        equations[at + 4], equations[at + 5] = rhs, size

    @kernel(exact=True, max_registers=128)
    def reduce_chunks(systems, cut, equations):
        thread, count = cuda.grid(1), equations.size // LEFT
        exists = thread < count
        if exists or way.rows:
            lane = chunk_lane(systems.sizes, cut, min(thread, count - 1), exists)
            reading = reader(systems, lane, cut.rows, equations, systems.arrays.rhs)
            # Of a lone unknown, a ring, the last one is another: 1 * x[1] = 0.
            nothing = ChunkPending(ScaledPending(one, zero, zero, one), zero, zero)
            state = descend(reading, ChunkDescent(nothing, nothing))
            if exists:
                write(equations, thread * LEFT, state.one)
                write(equations, thread * LEFT + EQUATION_NUMBERS, state.two)

    return reduce_chunks


@functools.cache
def expand_kernel(dtype: Any, way: Way) -> Any:
    """Make the driver (systems, cut, first, ends, scratch, out, worst, words).

    A thread computes the unknowns of a chunk, from the chunk `first` on, whose outer ones are in
    `ends`, `ENDS` numbers for each chunk. `scratch` has room for a pivot, of three numbers, for
    each row of each thread; `worst` int32 is raised to the `Status` of each system, and word 0 of
    `words` reports a failure.
    """
    scale, start = device_rule(rules.scaled, dtype), device_rule(rules.start_chunk, dtype)
    eliminate, insert = (
        device_rule(rules.eliminate_pair, dtype),
        device_rule(rules.insert_outer, dtype),
    )
    substitute = device_rule(rules.substitute, dtype)
    zero, one = dtype(0), dtype(1)

    def eliminate_next(reading, state, raw, k):
        equation = scale(*raw)
        left_one, left_two = start(equation, equation)  # as the second equation, and as the first
        new_one = insert(left_one, state.before, state.first)
        new_two = insert(left_two, state.before, state.first)
        if k == 1:
            new_two = state.two
        elif k > 1:
            _, pivot, new_one, new_two = eliminate(
                state.one, state.two, equation, reading.systems.pivoting
            )
            write_pivot(reading, k, pivot, True)
        is_finite = state.is_finite and are_finite(raw)
        return InnerDescent(new_one, new_two, state.before, state.first, is_finite)

    def read_next(reading, k):
        return read_pivot(reading, k, True)

    def substitute_next(reading, known, pivot, k):
        x = known.first if k == 0 else substitute(pivot, known.x, known.next_x)
        return InnerKnown(x, known.x, known.first, known.is_finite and x - x == 0), x

    descend, reader = make_descend(dtype, way, eliminate_next), make_reader(way, dtype)
    ascend = make_ascend(dtype, way, read_next, substitute_next)

    @kernel(exact=True, max_registers=128)
    def expand_chunks(systems, cut, first, ends, scratch, out, worst, words):
        number, count = first + cuda.grid(1), ends.size // ENDS
        exists = number < count
        if exists or way.rows:
            number = min(number, count - 1)
            lane, at = chunk_lane(systems.sizes, cut, number, exists), number * ENDS
            reading = reader(systems, lane, cut.rows, scratch, out)
            nothing = ScaledPending(zero, zero, zero, one)
            state = InnerDescent(nothing, nothing, ends[at], ends[at + 1], True)
            state = descend(reading, state)
            last, after = ends[at + 2 if lane.length > 1 else at + 1], ends[at + 3]
            known = InnerKnown(last, after, ends[at + 1], last - last == 0)
            known = ascend(reading, known, last)
            if exists and not (state.is_finite and known.is_finite):
                system = lane.outer * systems.sizes.inner + lane.inner
                cuda.atomic.max(worst, system, SINGULAR if state.is_finite else NOT_FINITE)
                report(words, 0, system)

    return expand_chunks


# ---------------------------------------------------------------- between chunks


class Grouping(NamedTuple):
    """Says how items form groups; an item is a chunk, or a group of the level below."""

    inner: int  # systems whose items alternate in memory
    items: int  # of a system
    groups: int  # of a system, of `GROUP` items each, but for the last


class ItemGroup(NamedTuple):
    """Names a thread's items, `begin` to `end` - 1: item c is at offset + c * stride."""

    offset: Any
    stride: Any
    begin: Any
    end: Any


def group_of(grouping, number):
    """Return group `number` of all systems."""
    row = number // grouping.inner
    outer = row // grouping.groups
    begin = (row - outer * grouping.groups) * GROUP
    offset = outer * grouping.items * grouping.inner + number - row * grouping.inner
    return ItemGroup(offset, grouping.inner, begin, min(begin + GROUP, grouping.items))


def join_group(work, equations, pivots, group):
    """Reduce a group's equations to those in rows 2 and 3 of `work`, and write its pivots."""
    at = (group.offset + group.begin * group.stride) * LEFT
    rules.begin_ring(work, equations[at : at + LEFT])
    for c in range(group.begin + 1, group.end):
        item = group.offset + c * group.stride
        left = equations[item * LEFT : item * LEFT + LEFT]
        rules.join_chunk(work, left, pivots[item * PIVOTS : item * PIVOTS + PIVOTS])


def spread_group(pivots, ends, group, around):
    """Write the ends of a group's items; `around` are the group's: before, first, last, after."""
    ring_last, ring_first, last, after = around
    for i in range(group.end - group.begin):
        c = group.end - 1 - i
        item, before, first = group.offset + c * group.stride, ring_last, ring_first
        if c > group.begin:
            some = pivots[item * PIVOTS : item * PIVOTS + PIVOTS]
            before, first = rules.ends_before(some, (ring_last, ring_first, last, after))
        at = item * ENDS
        ends[at], ends[at + 1], ends[at + 2], ends[at + 3] = before, first, last, after
        last, after = before, first


@functools.cache
def join_kernel() -> Any:
    """Make the driver (equations, grouping, pivots, joined): a thread joins a group.

    `equations` has `LEFT` numbers for each item and `joined`, overwritten, for each group; `pivots`
    float64 is overwritten with `PIVOTS` for each item but the first of each group.
    """

    @kernel(exact=True)
    def join_groups(equations, grouping, pivots, joined):
        thread = cuda.grid(1)
        if thread < joined.size // LEFT:
            work = cuda.local.array((4, RING_COLUMNS), np.float64)
            join_group(work, equations, pivots, group_of(grouping, thread))
            for i in range(2):
                at = thread * LEFT + i * EQUATION_NUMBERS
                for j in range(2):  # ring's last and first; last and after; right-hand side, scale
                    joined[at + j], joined[at + 2 + j] = work[2 + i, j], work[2 + i, 4 + j]
                    joined[at + 4 + j] = work[2 + i, 6 + j]

    return join_groups


@functools.cache
def close_kernel() -> Any:
    """Make the driver (equations, grouping, pivots, ends): a thread solves a system's last group.

    `ends` is overwritten with `ENDS` numbers for each item; for the others see `join_kernel`.
    """

    @kernel(exact=True)
    def close_rings(equations, grouping, pivots, ends):
        thread = cuda.grid(1)
        if thread < ends.size // (ENDS * grouping.items):
            work = cuda.local.array((4, RING_COLUMNS), np.float64)
            group = group_of(grouping, thread)
            join_group(work, equations, pivots, group)
            last, first = rules.solve_ring(work)
            spread_group(pivots, ends, group, (last, first, last, first))

    return close_rings


@functools.cache
def spread_kernel() -> Any:
    """Make the driver (around, grouping, pivots, ends): a thread computes the ends of a group.

    `around` has `ENDS` numbers for each group, `pivots` is that of `join_kernel`, and `ends` is
    overwritten with `ENDS` for each item.
    """

    @kernel(exact=True)
    def spread_groups(around, grouping, pivots, ends):
        thread = cuda.grid(1)
        if thread < around.size // ENDS:
            at = thread * ENDS
            known = around[at], around[at + 1], around[at + 2], around[at + 3]
            spread_group(pivots, ends, group_of(grouping, thread), known)

    return spread_groups


def _solve_between(equations: Any, cut: Cut, count: int, inner: int) -> Any:
    """Return the outer unknowns of all chunks, from the equations that they leave.

    `count` is the number of systems, of which `inner` alternate in memory.
    """
    dtype, items = equations.dtype, cut.chunks
    levels: list[tuple[Grouping, Any, Any]] = []
    while True:
        grouping = Grouping(inner, items, -(-items // GROUP))
        groups, pivots = count * grouping.groups, empty(count * items * PIVOTS, np.float64)
        ends = empty(count * items * ENDS, np.float64 if levels else dtype)
        if grouping.groups == 1:
            break
        levels.append((grouping, pivots, ends))
        joined = empty(groups * LEFT, np.float64)
        launch(join_kernel(), groups, equations, grouping, pivots, joined, block=_BLOCK)
        equations, items = joined, grouping.groups
    launch(close_kernel(), count, equations, grouping, pivots, ends, block=_BLOCK)
    for grouping, pivots, inside in reversed(levels):
        arguments = ends, grouping, pivots, inside
        launch(spread_kernel(), count * grouping.groups, *arguments, block=_BLOCK)
        ends = inside
    return ends


def solve_cut(systems: DeviceSystems, cut: Cut, way: Way, out: DeviceStrided, words: Any) -> Any:
    """Overwrite `out` with the solutions, and return the statuses of all systems, int32.

    Word 0 of `words` reports a failure.
    """
    sizes, dtype = systems.sizes, out.memory.dtype.type
    count = sizes.outer * sizes.inner
    lanes = count * cut.chunks
    equations, worst = empty(lanes * LEFT, dtype), zeros(count, np.int32)
    blocks = -(-lanes // way.block)
    driver = reduce_kernel(dtype, way)
    launch(driver, lanes, systems, cut, equations, block=way.block, grid=blocks)
    ends = _solve_between(equations, cut, count, sizes.inner)
    # Scratch is for as many chunks as there are at once: only the longest systems have more.
    parts = -(-blocks // (2 * CHUNKS * multiprocessors() // way.block))
    blocks = -(-blocks // parts)
    scratch = empty(pivot_numbers(True) * cut.rows * blocks * way.block, dtype)
    driver = expand_kernel(dtype, way)
    for first in range(0, lanes, blocks * way.block):
        arguments = systems, cut, first, ends, scratch, out, worst, words
        launch(driver, lanes, *arguments, block=way.block, grid=blocks)
    return worst

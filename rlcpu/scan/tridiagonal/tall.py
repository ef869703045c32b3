"""Tall systems side by side: rows of many lanes at once, in pieces whose pivots stay in the caches.

`blocks` takes one register of lanes from row to row. Of tall systems a row is then a line or two of
each array, far from the next one, and pivots leave the caches. A strip is some registers wide, and
is eliminated twice: once from both ends to the middle, to know what is pending before each piece of
its rows; then piece by piece on the way back, where only the pivots of one piece are kept. Each
result is that of `lanes.solve`, to the bit.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import prange, types

from rlcpu.kernels.compile import EXACT, c_function
from rlcpu.kernels.memory import (
    address,
    call_at,
    load,
    pointer_to,
    prefetch,
    shifted,
    store,
    to_line,
)
from rlcpu.kernels.threads import launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, total, width
from rlcpu.scan.blocks import GRAIN
from rlcpu.scan.device import for_cores
from rlcpu.scan.gather import ONE
from rlcpu.scan.plans import (
    CHUNKS,
    FIELDS,
    HEADER,
    INNER,
    LENGTH,
    LISTS,
    NEXT,
    OUTER,
    PLACE,
    STEP,
    Array,
    called,
    find_lane,
    inlined,
)
from rlcpu.scan.tridiagonal.equations import (
    Pending,
    Pivot,
    eliminate,
    meet,
    nan_or_zero,
    scaled,
    substitute,
)

TALL = 800  # unknowns from which strips are faster than blocks
SCRATCH = 2**19  # bytes of a piece's pivots, beside which the coefficients pass through the cache
#: Registers of a strip at most, and at least if there are cores without one. Whole rows are best:
#: lines are read once, and fetched ahead.
WIDE, NARROW = 64, 4
AHEAD = 256  # numbers of a strip between one that is asked for and one that is read
ARRAYS, OUT = 6, 4  # four inputs, the output, and lengths, of which there are none


class Half(NamedTuple):
    """Half of some systems side by side; row 0 is their first one, or for `side` 1 the last one."""

    plan: Any  # pointer
    starts: Any  # pointer to where the first lane begins in each array
    side: Any
    count: Any  # lanes
    room: Any  # the same in whole registers
    rows: Any  # the last ones of an odd number have one more, which says x = 0
    size: Any  # rows of a piece
    pieces: Any
    marks: Any  # pointer to what is pending before each piece, and after the last one
    other: Any  # numbers from its marks to those of the other half
    absent: Any  # pointer to zeros and ones of a row: coefficients that are not there
    pivoting: Any


@inlined
def number_of(half, row):
    """A row, as the equations are numbered."""
    return row if half.side == 0 else 2 * half.rows - 1 - row


@inlined
def place(half, array, k):
    """Pointer to the first lane of row k of an array."""
    at = HEADER + array * FIELDS
    start = pointer_to(half.plan[at + PLACE], half.marks[0])
    return shifted(start, half.starts[array] + k * half.plan[at + STEP])


@inlined
def row_of(half, row):
    """Pointers to lower, diagonal, upper and rhs of a row, of side 1 mirrored."""
    k, last, side = number_of(half, row), half.plan[LENGTH] - 1, half.side
    lower = upper = rhs = half.absent
    diagonal = shifted(half.absent, half.room)
    if k <= last:
        diagonal, upper, rhs = place(half, 1, k), place(half, 2 - 2 * side, k), place(half, 3, k)
        if row > 0 and k < last:
            lower = place(half, 2 * side, k)
    return lower, diagonal, upper, rhs


@inlined
def put(values, target, at, room):
    """Write three vectors, `room` numbers apart."""
    store(values[0], target, at)
    store(values[1], target, at + room)
    store(values[2], target, at + 2 * room)


@inlined
def get(source, at, room):
    """What `put` wrote."""
    return (load(source, at, ONE), load(source, at + room, ONE), load(source, at + 2 * room, ONE))


@inlined
def mark_of(half, piece):
    """Pointer to what is pending before a piece."""
    return shifted(half.marks, 3 * half.room * piece)


@called
def descend(half, piece, target, pivots, keeps):
    """Eliminate a piece, towards the middle.

    Args:
        half: see `Half`.
        piece: its number.
        target: pointer to three rows, overwritten with what is pending after the piece.
        pivots: pointer to those of the piece, overwritten if it `keeps` them.
        keeps: whether they are wanted.
    """
    room, begin, lanes = half.room, piece * half.size, width(half.marks, ONE)
    source = mark_of(half, piece)
    for row in range(begin, min(begin + half.size, half.rows)):
        lower, diagonal, upper, rhs = row_of(half, row)
        later = number_of(half, row + AHEAD // room + 1)
        one, two = place(half, 0, later), place(half, 1, later)
        three, four = place(half, 2, later), place(half, 3, later)
        for by in range(0, room, lanes):
            at = min(by, half.count - lanes)
            prefetch(one, at)
            prefetch(two, at)
            prefetch(three, at)
            prefetch(four, at)
            matrix = load(lower, at, ONE), load(diagonal, at, ONE), load(upper, at, ONE)
            own = scaled(*matrix, load(rhs, at, ONE))
            pivot, left = eliminate(Pending(*get(source, by, room)), own, half.pivoting)
            if keeps:
                put(pivot, pivots, 3 * room * (row - begin) + by, room)
            put(left, target, by, room)
        source = target


@called
def ascend(half, piece, pivots, unknowns):
    """Write the unknowns of a piece, and find those of the row before it.

    Args:
        half: see `Half`.
        piece: its number.
        pivots: pointer to those of the piece.
        unknowns: pointer to the last two found, row k's at k modulo 2.
    """
    room, begin, lanes = half.room, piece * half.size, width(half.marks, ONE)
    end = min(begin + half.size, half.rows)
    for i in range(end - begin):
        row = end - 1 - i
        last, second = shifted(unknowns, row % 2 * room), shifted(unknowns, (row + 1) % 2 * room)
        k = number_of(half, row)
        if k < half.plan[LENGTH]:
            target = place(half, OUT, k)
            for by in range(0, room, lanes):
                store(load(last, by, ONE), target, min(by, half.count - lanes))
        for by in range(0, room, lanes):
            pivot = Pivot(*get(pivots, 3 * room * (row - begin) + by, room))
            x = substitute(pivot, load(last, by, ONE), load(second, by, ONE))
            store(x, second, by)


@inlined
def shape_of(plan, strips, lanes):
    """Lanes that the widest strip has room for, rows of a piece and number of pieces."""
    room = ((plan[INNER] // lanes + strips - 1) // strips + 1) * lanes
    rows = (plan[LENGTH] + 1) // 2
    size = min(max(SCRATCH * lanes // (VECTOR_BYTES * 3 * room), 1), rows)
    return room, size, (rows + size - 1) // size


@inlined
def half_of(plan, strips, task, pivoting, memory, lists):
    """A half by its number; its first lines of scratch are overwritten."""
    lanes = width(memory, ONE)
    most, size, pieces = shape_of(plan, strips, lanes)
    number, registers = task // 2 % strips, plan[INNER] // lanes
    first = registers * number // strips * lanes
    stop = registers * (number + 1) // strips * lanes if number < strips - 1 else plan[INNER]
    find_lane(plan, (task // 2 // strips, first, 0), lists, (ARRAYS, 1, 0))
    numbers = (3 * pieces + 5) * most
    absent = shifted(memory, to_line(memory, 0) + task * numbers)
    absent[0] = pivoting
    own, zero = absent[0], fill(absent[0] - absent[0], ONE)
    count, marks = stop - first, shifted(absent, 2 * most)
    room, rows = (count + lanes - 1) // lanes * lanes, (plan[LENGTH] + 1) // 2
    for by in range(0, room, lanes):
        store(zero, absent, by)
        store(zero + 1.0, absent, room + by)
        put((zero + 1.0, zero, zero), marks, by, room)  # x = 0 before the first row
    other = numbers if task % 2 == 0 else -numbers
    where = plan, lists, task % 2, count, room, rows
    return Half(*where, size, pieces, marks, other, absent, own)


def begin_half(plan, strips, task, pivoting, memory, lists):
    """Find what is pending before all pieces."""
    half = half_of(plan, strips, task, pivoting, memory, lists)
    for piece in range(half.pieces):
        descend(half, piece, mark_of(half, piece + 1), half.absent, False)


def end_half(plan, strips, task, pivoting, memory, lists, scratch, failed):
    """Write the unknowns; sets `failed` if one is not finite."""
    half = half_of(plan, strips, task, pivoting, memory, lists)
    lanes, room, rows = width(memory, ONE), half.room, half.rows
    unknowns = shifted(scratch, to_line(scratch, 0))
    pending = shifted(unknowns, 2 * room)
    pivots, one = shifted(pending, 3 * room), mark_of(half, half.pieces)
    two = shifted(one, half.other)
    if half.side == 1:
        one, two = two, one
    for by in range(0, room, lanes):
        falling, rising = Pending(*get(one, by, room)), Pending(*get(two, by, room))
        above, below = meet(falling, rising, half.pivoting)
        store(above, unknowns, (rows - 1 + half.side) % 2 * room + by)
        store(below, unknowns, (rows - half.side) % 2 * room + by)
    for i in range(half.pieces):
        piece = half.pieces - 1 - i
        descend(half, piece, pending, pivots, True)
        ascend(half, piece, pivots, unknowns)
    trace = fill(half.pivoting - half.pivoting, ONE)
    for by in range(0, room, lanes):
        trace = trace + nan_or_zero(load(unknowns, by, ONE))
    failed[0] |= np.isnan(total(trace))


def drive(table, plan, strips, itemsize, pivoting):
    """Solve all halves; whether all solutions are finite."""
    room, size, pieces = shape_of(address(plan), strips, VECTOR_BYTES // itemsize)
    tasks = 2 * strips * plan[OUTER]
    failed, lists = np.zeros(tasks, np.int64), np.empty((tasks, ARRAYS + LISTS), np.int64)
    memory = np.empty((tasks * (3 * pieces + 5) + 1) * room * itemsize, np.uint8)
    for task in prange(tasks):
        own = plan.ctypes.data, strips, task, pivoting, memory.ctypes.data, lists[task].ctypes.data
        call_at(table[0], own)
    for task in prange(tasks):
        own = plan.ctypes.data, strips, task, pivoting, memory.ctypes.data, lists[task].ctypes.data
        scratch = np.empty((3 * size + 6) * room * itemsize, np.uint8)
        call_at(table[1], (*own, scratch.ctypes.data, failed.ctypes.data + 8 * task))
        scratch[0] = 0  # keeps it alive until now: an address does not
    memory[0] = lists[0, 0] = 0
    return not failed.any()


_DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)


def is_tall(plan: Array, lanes: int) -> bool:
    """Whether a plan of four inputs and an output is one of tall systems side by side."""
    nexts = plan[HEADER + NEXT : HEADER + (OUT + 1) * FIELDS : FIELDS]
    has_lengths = plan[HEADER + (OUT + 1) * FIELDS + PLACE] != 0
    tall = plan[LENGTH] >= TALL and plan[INNER] >= lanes and plan[CHUNKS] == 1
    return bool(tall and not has_lengths and (nexts == 1).all())


def solve(plan: Array, dtype: Any, pivoting: float, work: int, num_threads: int | None) -> bool:
    """Solve the systems of a plan that `is_tall`; whether all solutions are finite."""
    registers = int(plan[INNER]) * dtype.itemsize // VECTOR_BYTES
    cores = num_threads or numba.config.NUMBA_NUM_THREADS
    strips = max(-(-registers // WIDE), min(cores // 2, registers // NARROW), 1)
    args = _table_of(dtype.name), plan, strips, dtype.itemsize, pivoting
    return bool(launch(_DRIVERS, work, num_threads, *args))


@functools.cache
def _table_of(dtype: str) -> Array:
    """Addresses of `begin_half` and `end_half`, compiled for a dtype."""
    integers, numbers = types.CPointer(types.int64), types.CPointer(getattr(types, dtype))
    count = types.int64
    kinds = integers, count, count, types.float64, numbers, integers
    begin = c_function(begin_half, kinds, fastmath=EXACT)
    end = c_function(end_half, (*kinds, numbers, integers), fastmath=EXACT)
    return np.array([begin, end], np.int64)

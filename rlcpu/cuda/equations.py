"""Equations of tridiagonal systems, as the threads of a CUDA device read them and write solutions.

A thread has a `SystemLane`: a system, or a chunk of one. Two ways lead from memory to it, and a
kernel is made for one of them:

- columns: lanes are neighbours in memory. Each thread reads its own numbers, in whole lines for a
  warp, and straight to registers.
- rows: the numbers of a lane are neighbours. The threads of a warp read a piece of all their lanes
  together into a tile in shared memory, from which each takes its own; results go the other way.

Occupancy is to hide latency: 80 registers a thread and 9 KB of tiles a warp leave room for 24 warps
on a multiprocessor, and each thread has 16 numbers on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.device import SIMULATED, cuda, xp
from rlcpu.cuda.recurrences import DeviceStrided, LaneSizes, number_at, position_of
from rlcpu.scan.tridiagonal.equations import Pivot

#: Threads that read a tile together; the simulator starts them one by one.
WARP = 4 if SIMULATED else 32
#: Threads of a block.
BLOCK = WARP if SIMULATED else 128
#: Equations that a thread reads before the first of them is used.
AHEAD = 4
#: Bytes of a row that are read at a time: two sectors of memory.
TILE_BYTES = 64


class PlainEquation(NamedTuple):
    """One equation as it lies in memory; or the four arrays, `DeviceStrided`."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


class DeviceSystems(NamedTuple):
    """Systems as kernels take them."""

    arrays: PlainEquation
    sizes: LaneSizes
    pivoting: Any  # of their dtype, 1 to exchange equations, 0 not to


class SystemLane(NamedTuple):
    """Equations `begin` to `begin + count - 1` of a system, one thread's."""

    outer: Any  # index of the system before the axis of unknowns
    inner: Any  # and after it
    begin: Any
    count: Any
    length: Any  # unknowns of the system
    end: Any  # numbers to write, which are 0 from `count` on; 0 for a thread that has no lane


def lane_of_thread(place, begin, count, length, end):
    """Return a `SystemLane` at a place (outer, inner), in 32 bits."""
    return SystemLane(
        np.int32(place.outer),
        np.int32(place.inner),
        np.int32(begin),
        np.int32(count),
        np.int32(length),
        np.int32(end),
    )


class Reading(NamedTuple):
    """Holds what one thread of a kernel reads and writes."""

    systems: DeviceSystems
    lane: SystemLane
    most: Any  # equations of the longest lane of all
    scratch: Any  # memory for a pivot for each equation of each thread
    out: DeviceStrided
    tile: Any  # shared (4, block, width + 1): `width` equations of each thread
    moved: Any  # shared int32 (3, block): outer, begin and end of each thread's lane


class Way(NamedTuple):
    """Says how numbers travel; a kernel is made for one way."""

    rows: bool  # through tiles
    transposed: bool  # whether lower[k] is upper[k-1] of the arrays
    periodic: bool  # whether lower[0] is of the last unknown, and the last of upper of x[0]
    ahead: int  # equations that a thread reads before the first of them is used, a power of two
    width: int  # equations of a tile, a power of two; `ahead` in columns
    block: int  # threads of a block


def way_of(rows: bool, dtype: Any, transposed: bool = False, periodic: bool = False) -> Way:
    """Return how numbers of a layout and a dtype travel."""
    width = TILE_BYTES // np.dtype(dtype).itemsize if rows else AHEAD
    return Way(rows, transposed, periodic, AHEAD, width, BLOCK)


def make_reader(way: Way, dtype: Any) -> Any:
    """Make `reader(systems, lane, most, scratch, out)`, which returns a thread's `Reading`."""
    block = way.block if way.rows else 1
    shape = 4, block, way.width + 1

    def reader(systems, lane, most, scratch, out):
        tile = cuda.shared.array(shape, dtype)
        moved = cuda.shared.array((3, block), np.int32)
        return Reading(systems, lane, most, scratch, out, tile, moved)

    return reader


def multiprocessors() -> int:
    """Return how many the current device has; one in the simulator."""
    return 1 if SIMULATED else _multiprocessors_of(xp.cuda.runtime.getDevice())


@functools.cache
def _multiprocessors_of(number: int) -> int:
    runtime = xp.cuda.runtime
    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, number))


def ahead_of_use(read: Any, use: Any, count: int, sign: int = 1) -> tuple[Any, Any]:
    """Return functions that read `count` items before the first of them is used.

    Args:
        read: (reading, k) -> item k.
        use: (reading, state, item, k) -> the state after it.
        count: of items, a power of two.
        sign: 1 for items k, k + 1, ...; -1 for k, k - 1, ...

    Returns:
        `read_all(reading, k)`, which returns all items, and `use_all(reading, state, items, k)`,
        which returns the state after them.
    """
    if count == 1:
        return read, use
    read_half, use_half = ahead_of_use(read, use, count // 2, sign)
    distance = sign * (count // 2)

    def read_all(reading, k):
        return read_half(reading, k), read_half(reading, np.int32(k + distance))

    def use_all(reading, state, items, k):
        state = use_half(reading, state, items[0], k)
        return use_half(reading, state, items[1], np.int32(k + distance))

    return read_all, use_all


def wait_for_warp():
    """Wait until all threads of the warp are here, and see what they have written."""
    if SIMULATED:
        cuda.syncthreads()  # a block is a warp there
    else:
        cuda.syncwarp()


# ---------------------------------------------------------------- pivots

# They wait in scratch memory, that of x[k-1] in the place of equation k. Numbers of a pivot are
# `WARP` apart, and between them are those of the other threads of the warp, whose scratch is in one
# piece: all distances are constants, and need no registers.


def pivot_numbers(has_second: Any) -> int:
    """Return the numbers of a pivot; without pivoting `second` is 0, and is not kept."""
    return 3 if has_second else 2


def pivot_position(reading, k, has_second):
    """Return where the first number of the pivot of x[k-1] is in scratch."""
    thread, step = cuda.grid(1), (3 if has_second else 2) * WARP
    warp = (thread // WARP) * (np.int64(reading.most) * step)
    return np.uint64(warp + thread % WARP + np.int64(k) * step)


def write_pivot(reading, k, pivot, has_second):
    """Write the pivot of x[k-1]."""
    scratch, at = reading.scratch, pivot_position(reading, k, has_second)
    scratch[at] = pivot.upper
    scratch[at + np.uint64(WARP)] = pivot.rhs
    if has_second:
        scratch[at + np.uint64(2 * WARP)] = pivot.second


def read_pivot(reading, k, has_second):
    """Return the pivot of x[k]."""
    scratch, at = reading.scratch, pivot_position(reading, k + 1, has_second)
    upper, rhs = scratch[at], scratch[at + np.uint64(WARP)]
    second = scratch[at + np.uint64(2 * WARP)] if has_second else rhs - rhs
    return Pivot(upper, second, rhs)


def are_finite(raw):
    """Tell whether all numbers of an equation are finite."""
    matrix = (raw.lower - raw.lower) + (raw.diagonal - raw.diagonal)
    return matrix + (raw.upper - raw.upper) + (raw.rhs - raw.rhs) == 0  # not NaN


# ---------------------------------------------------------------- tiles

# Each thread moves `width` numbers of each array to or from a tile, one at each step. Neighbours
# move numbers that are neighbours in memory. A row of a tile is one number longer than what it
# holds, so that threads that read a column find it in different banks. Indices have no sign, and
# sizes are powers of two: what counts from the end, and divides towards it, takes more instructions
# than the rest of a move.


def place_of(width, step):
    """Return the row of the tile and the place in it that this thread moves at a step."""
    thread = np.uint32(cuda.threadIdx.x)
    number = np.uint32(np.uint32(step) * np.uint32(WARP) + (thread & np.uint32(WARP - 1)))
    first, width = thread & np.uint32(2**32 - WARP), np.uint32(width)
    return np.uint32(first + number // width), np.uint32(number & np.uint32(width - np.uint32(1)))


def step_of(width, k):
    """Return the step of a tile whose equations begin at a multiple of `width`."""
    return np.uint32(k) & np.uint32(width - 1)


def announce_lane(reading):
    """Tell the other threads of the warp which lane this thread has."""
    thread, lane, moved = np.uint32(cuda.threadIdx.x), reading.lane, reading.moved
    moved[0, thread], moved[1, thread], moved[2, thread] = lane.outer, lane.begin, lane.end
    wait_for_warp()


def moved_lane(reading, row):
    """Return the lane of a thread of the warp, of which rows have no `inner`."""
    moved = reading.moved
    count, length = moved[2, row], reading.systems.sizes.num_steps
    return SystemLane(moved[0, row], 0, moved[1, row], count, length, count)


# ---------------------------------------------------------------- down and up


def read_equation(arrays, lane, k, shift):
    """Return equation k of a lane as it is in the arrays; `shift` is 1 for transposed systems.

    Their lower[k] is upper[k-1]; what is beyond the first and the last number is any number.
    """
    at: Any = np.int32(lane.begin + k)
    below, above = at, at
    if shift:
        below, above = max(at - 1, 0), min(at + 1, np.int32(lane.length - 1))
    return PlainEquation(
        number_at(arrays.lower, lane, below),
        number_at(arrays.diagonal, lane, at),
        number_at(arrays.upper, lane, above),
        number_at(arrays.rhs, lane, at),
    )


def make_descend(dtype: Any, way: Way, use: Callable[..., Any]) -> Any:
    """Make `descend(reading, state)`, which takes a lane's equations from the first to the last.

    `use(reading, state, equation, k)` returns the state after equation k of the lane, of which
    coefficients of unknowns that the system does not have are 0. In a ring of one unknown, that
    unknown is its own neighbour on both sides.
    """
    ahead, width, shift = way.ahead, way.width, int(way.transposed)
    zero, zero_k, periodic = dtype(0), np.int32(0), way.periodic

    def use_raw(reading, state, raw, k):
        lane, (lower, diagonal, upper, rhs) = reading.lane, raw
        if periodic:
            if lane.length == 1:
                lower, diagonal, upper = zero, lower + diagonal + upper, zero
        else:
            lower = lower if lane.begin + k > 0 else zero
            upper = upper if lane.begin + k + 1 < lane.length else zero
        return use(reading, state, PlainEquation(lower, diagonal, upper, rhs), k)

    def read_own(reading, k):
        return read_equation(reading.systems.arrays, reading.lane, k, shift)

    read_all, use_all = ahead_of_use(read_own, use_raw, ahead)

    def descend_columns(reading, state):
        count, k = reading.lane.count, np.int32(0)
        while k + ahead <= count:
            state = use_all(reading, state, read_all(reading, k), k)
            k = np.int32(k + ahead)
        while k < count:
            state = use_raw(reading, state, read_own(reading, k), k)
            k = np.int32(k + 1)
        return state

    def read_moved(reading, k):
        """Return the equation that this thread moves; k is that of the tile, plus the step."""
        step = step_of(width, k)
        row, i = place_of(width, step)
        lane = moved_lane(reading, row)
        last, here = np.int32(lane.count - 1), np.int32(k - step + i)
        return read_equation(reading.systems.arrays, lane, max(min(here, last), zero_k), shift)

    def write_moved(reading, state, raw, k):
        """Write it to the tile."""
        tile, (row, i) = reading.tile, place_of(width, step_of(width, k))
        tile[0, row, i], tile[1, row, i] = raw.lower, raw.diagonal
        tile[2, row, i], tile[3, row, i] = raw.upper, raw.rhs
        return state

    read_tile, write_tile = ahead_of_use(read_moved, write_moved, ahead)

    def descend_rows(reading, state):
        thread, tile = np.uint32(cuda.threadIdx.x), reading.tile
        announce_lane(reading)
        for begin in range(np.int32(0), np.int32(reading.most), np.int32(width)):
            for k in range(begin, np.int32(begin + width), np.int32(ahead)):
                write_tile(reading, zero, read_tile(reading, k), k)
            wait_for_warp()
            for k in range(begin, np.int32(min(begin + width, reading.lane.count))):
                i = step_of(width, k)
                lower, diagonal = tile[0, thread, i], tile[1, thread, i]
                raw = PlainEquation(lower, diagonal, tile[2, thread, i], tile[3, thread, i])
                state = use_raw(reading, state, raw, k)
            wait_for_warp()  # the tile is used up
        return state

    return descend_rows if way.rows else descend_columns


def make_ascend(dtype: Any, way: Way, read: Callable[..., Any], use: Callable[..., Any]) -> Any:
    """Make `ascend(reading, state, last)`, which writes unknowns from the last to the first.

    `last` is the last unknown of the lane, `read(reading, k)` returns what x[k] is computed from,
    and `use(reading, state, item, k)` the pair of the state after it and x[k].
    """
    ahead, width = way.ahead, way.width
    zero = dtype(0)

    def write(reading, k, x):
        """Write unknown k of a column."""
        lane, out = reading.lane, reading.out
        out.memory[position_of(out, lane, lane.begin + k)] = x

    def use_and_write(reading, state, item, k):
        state, x = use(reading, state, item, k)
        write(reading, k, x)
        return state

    read_all, use_all = ahead_of_use(read, use_and_write, ahead, -1)

    def ascend_columns(reading, state, last):
        count = reading.lane.count
        for i in range(count, reading.lane.end):
            write(reading, i, zero)
        if count > 0:
            write(reading, count - 1, last)
        k: Any = np.int32(count - 2)
        while k - ahead >= -1:
            state = use_all(reading, state, read_all(reading, k), k)
            k = np.int32(k - ahead)
        while k >= 0:
            state = use_and_write(reading, state, read(reading, k), k)
            k = np.int32(k - 1)
        return state

    def use_in_tile(reading, state, item, k):
        """Use an item unless it is of the last unknown, and write the unknown to the tile."""
        thread, i, count = np.uint32(cuda.threadIdx.x), step_of(width, k), reading.lane.count
        if k + 1 < count:
            state, x = use(reading, state, item, k)
            reading.tile[0, thread, i] = x
        elif k >= count:
            reading.tile[0, thread, i] = zero
        return state

    def read_clamped(reading, k):
        return read(reading, min(k, np.int32(reading.most - 2)))

    read_tile, use_tile = ahead_of_use(read_clamped, use_in_tile, ahead, -1)

    def ascend_rows(reading, state, last):
        thread, tile, out = np.uint32(cuda.threadIdx.x), reading.tile, reading.out
        count = reading.lane.count
        begin = np.int32((reading.most - 1) // width * width)
        while begin >= 0:
            for step in range(0, width, ahead):
                k = np.int32(begin + (width - 1 - step))
                state = use_tile(reading, state, read_tile(reading, k), k)
            if begin < count <= begin + width:
                tile[0, thread, step_of(width, count - 1)] = last
            wait_for_warp()
            for step in range(width):
                row, i = place_of(width, step)
                lane, k = moved_lane(reading, row), np.int32(begin + i)
                if k < lane.end:
                    out.memory[position_of(out, lane, lane.begin + k)] = tile[0, row, i]
            wait_for_warp()  # the tile is used up
            begin = np.int32(begin - width)
        return state

    return ascend_rows if way.rows else ascend_columns

"""Tridiagonal systems on a CUDA device, by the rules of `rlcpu.scan.tridiagonal.equations`.

A thread solves one system after the other, from the first equation to the last and back. A warp
takes as many systems as it has threads. It reads a piece of all of them at a time, in whole lines,
into tiles in shared memory, from which each thread takes its own equations; results go the other
way. Pivots wait in scratch memory, of which there is as much as the second cache holds, so that
only the arrays themselves travel.

In the device functions `warp` is a `WarpSystems`, and `begin` the first equation of a tile. A
failure is a number: 0, or NaN once a number was not finite.

One thread for a system is slow where there are few long ones: those are the CPU's.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, asarray, cuda, empty, launch, to_host, xp, zeros
from rlcpu.cuda.recurrences import (
    LaneSizes,
    StepsAxis,
    ThreadLane,
    device_rule,
    lane_of,
    number_at,
    position_of,
)
from rlcpu.scan.arguments import Systems, multiply_gradients
from rlcpu.scan.tridiagonal.chunks import Mode
from rlcpu.scan.tridiagonal.equations import Pending, Pivot, eliminate, scaled, substitute
from rlcpu.scan.tridiagonal.status import Status, TridiagonalInfo

__all__ = ["asarray", "empty", "multiply", "solve", "solve_transposed", "to_host", "xp"]

WARP = 32  # threads of a block: they wait for each other at every tile, and for nobody else
LINE = 128  # bytes of a row that are read at a time
#: Threads of a multiprocessor that are worth having, whatever their scratch takes.
LEAST, MOST = 64, 1024
PIVOT_NUMBERS = 3  # numbers of a pivot
SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)

# ---------------------------------------------------------------- tiles


class PlainEquation(NamedTuple):
    """One equation as it lies in memory; or the four arrays, `DeviceStrided`."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


class WarpSystems(NamedTuple):
    """The systems that a warp solves, one with each thread."""

    arrays: PlainEquation  # of all systems
    sizes: LaneSizes
    shift: int  # 1 for transposed systems, whose lower[k] is upper[k-1], 0 for others
    first: Any  # number of the warp's first system
    lane: ThreadLane  # of this thread's system
    stop: Any  # unknowns of this thread's system
    tile: Any  # shared (4, WARP, width + 1): numbers of `width` equations of each system


def _make_tiles(width: int) -> tuple[Any, Any]:
    """Make device functions `load` and `store` between arrays and tiles of `width` equations.

    `load(warp, begin)` fills the tile with lower, diagonal, upper and rhs of equations, and
    `store(warp, begin, out)` writes unknowns from its first part.

    A row of a tile is one number longer than what it holds, so that 32 threads that read a column
    find it in 32 banks. Eight numbers are on the way at once, wherever systems end: a branch, or a
    number that is stored before the next is asked for, would wait 0.6 us each time.
    """

    def equation_to_move(warp, step):
        """Return which equation this thread moves at a step, out of `width` steps of a tile.

        That is: the lane of its system, the number of the system in the warp, and the number of the
        equation in the tile. Neighbouring threads move numbers that are neighbours in memory.
        """
        if warp.sizes.inner > 1:  # systems are next to each other: a thread moves its own
            return warp.lane, cuda.threadIdx.x, step
        number = step * WARP + cuda.threadIdx.x
        row = number // width
        lane = ThreadLane(min(warp.first + row, warp.sizes.outer - 1), 0)
        return lane, row, number % width

    def read(warp, begin, step):
        """Return the equation that this thread moves at a step, as it is in the arrays.

        Where there is none, what is ignored later may be any number: that of a neighbour.
        """
        lane, _, i = equation_to_move(warp, step)
        arrays, last = warp.arrays, warp.sizes.num_steps - 1
        k = min(begin + i, last)
        return PlainEquation(
            number_at(arrays.lower, lane, max(k - warp.shift, 0)),
            number_at(arrays.diagonal, lane, k),
            number_at(arrays.upper, lane, min(k + warp.shift, last)),
            number_at(arrays.rhs, lane, k),
        )

    def put(warp, step, raw):
        """Write to the tile the equation that this thread moves at a step."""
        _, row, i = equation_to_move(warp, step)
        warp.tile[0, row, i] = raw.lower
        warp.tile[1, row, i] = raw.diagonal
        warp.tile[2, row, i] = raw.upper
        warp.tile[3, row, i] = raw.rhs

    def load(warp, begin):
        cuda.syncthreads()  # the tile before is used up
        for step in range(0, width, 2):
            one, two = read(warp, begin, step), read(warp, begin, step + 1)
            put(warp, step, one)
            put(warp, step + 1, two)
        cuda.syncthreads()

    def store(warp, begin, out):
        cuda.syncthreads()
        for step in range(width):
            lane, row, i = equation_to_move(warp, step)
            exists = warp.first + row < warp.sizes.outer * warp.sizes.inner
            if exists and begin + i < warp.sizes.num_steps:
                out.memory[position_of(out, lane, begin + i)] = warp.tile[0, row, i]
        cuda.syncthreads()

    return load, store


# ---------------------------------------------------------------- the driver


def _make_eliminate(dtype: Any, pivoting: bool, load: Any) -> Any:
    """Make `descend(warp, pivots)`, `load` being that of `_make_tiles`.

    It eliminates the unknowns of the thread's system from the top down, and writes pivots to
    scratch memory, `PIVOT_NUMBERS` numbers each; numbers of different threads are neighbours. It
    returns the equation that is pending in the end, and whether there was a failure.
    """
    scale, choose_pivot = device_rule(scaled, dtype), device_rule(eliminate, dtype)
    width, zero, one, swaps = LINE // np.dtype(dtype).itemsize, dtype(0), dtype(1), dtype(pivoting)

    def nan_or_zero(raw):
        """Return 0, or NaN if a number of an equation is not finite."""
        matrix = (raw.lower - raw.lower) + (raw.diagonal - raw.diagonal)
        return matrix + (raw.upper - raw.upper) + (raw.rhs - raw.rhs)

    def descend(warp, pivots):
        """Eliminate a system from its first equation to the last."""
        # Number j of a pivot is `threads` behind number j - 1.
        thread, threads, at = cuda.threadIdx.x, cuda.gridsize(1), cuda.grid(1)
        tile, stop = warp.tile, warp.stop
        pending, failure = Pending(one, zero, zero), zero
        for begin in range(0, warp.sizes.num_steps, width):
            load(warp, begin)
            for k in range(begin, min(begin + width, stop)):
                i = k - begin
                raw = PlainEquation(
                    tile[0, thread, i] if k > 0 else zero,
                    tile[1, thread, i],
                    tile[2, thread, i] if k + 1 < stop else zero,
                    tile[3, thread, i],
                )
                equation, failure = scale(*raw), failure + nan_or_zero(raw)
                if k == 0:
                    pending = Pending(equation.diagonal, equation.upper, equation.rhs)
                else:
                    pivot, pending = choose_pivot(pending, equation, swaps)
                    pivots[at] = pivot.upper
                    pivots[at + threads] = pivot.second
                    pivots[at + 2 * threads] = pivot.rhs
                    at += PIVOT_NUMBERS * threads
        return pending, failure

    return descend


class KnownUnknowns(NamedTuple):
    """Unknowns that substitution has computed so far, from the bottom up to equation k."""

    x: Any  # x[k]
    next_x: Any  # x[k+1]
    failure: Any


def _make_substitute(dtype: Any, store: Any) -> Any:
    """Make `ascend(warp, pending, pivots, out)`, `store` being that of `_make_tiles`.

    It writes the unknowns of the thread's system from the bottom up, from what `descend` has
    returned and written, and returns whether there was a failure.
    """
    width, zero = LINE // np.dtype(dtype).itemsize, dtype(0)
    substitute_pivot = device_rule(substitute, dtype)

    def pivot_of(pivots, sizes, k):
        """Return the pivot of x[k] of this thread's system."""
        threads = cuda.gridsize(1)
        at = cuda.grid(1) + min(k, sizes.num_steps - 1) * PIVOT_NUMBERS * threads
        return Pivot(pivots[at], pivots[at + threads], pivots[at + 2 * threads])

    def substitute_one(known, pivot, k, warp, i):
        """Compute x[k], write it to place i of the tile, and return what is known then.

        Behind the system there are zeros, and its last unknown is known already.
        """
        x, next_x, failure = known
        if k + 1 < warp.stop:
            x, next_x = substitute_pivot(pivot, x, next_x), x
            failure += x - x
        warp.tile[0, cuda.threadIdx.x, i] = x if k < warp.stop else zero
        return KnownUnknowns(x, next_x, failure)

    def ascend(warp, pending, pivots, out):
        """Compute and write a system's unknowns from the last to the first."""
        last, sizes = pending.rhs / pending.diagonal, warp.sizes
        known = KnownUnknowns(last, zero, last - last)
        tiles = (sizes.num_steps + width - 1) // width
        for number in range(tiles):
            begin = (tiles - 1 - number) * width
            for step in range(0, width, 4):  # four pivots are on the way at once
                i = width - 1 - step
                k = begin + i
                one, two = pivot_of(pivots, sizes, k), pivot_of(pivots, sizes, k - 1)
                three, four = pivot_of(pivots, sizes, k - 2), pivot_of(pivots, sizes, k - 3)
                known = substitute_one(known, one, k, warp, i)
                known = substitute_one(known, two, k - 1, warp, i - 1)
                known = substitute_one(known, three, k - 2, warp, i - 2)
                known = substitute_one(known, four, k - 3, warp, i - 3)
            store(warp, begin, out)
        return known.failure

    return ascend


@functools.cache
def solve_kernel(dtype: Any, pivoting: bool) -> Any:
    """Make the driver (arrays, lengths, sizes, shift, pivots, out, status), by blocks of `WARP`.

    `arrays` is a `PlainEquation` of `DeviceStrided`; `lengths` int64 has the number of unknowns of
    each system, or one for all; `pivots` is scratch, `PIVOT_NUMBERS` * n numbers for each thread of
    the grid; `status` int8 is overwritten with a `Status` for each.
    """
    width = LINE // np.dtype(dtype).itemsize
    load, store = _make_tiles(width)
    descend, ascend = _make_eliminate(dtype, pivoting, load), _make_substitute(dtype, store)
    shape = 4, WARP, width + 1

    @kernel(exact=True)
    def solve_systems(arrays, lengths, sizes, shift, pivots, out, status):
        """Solve a system with each thread, and write its solution and status.

        Threads beyond the last system solve it too, so that all of a warp can wait for each other.
        """
        tile, systems = cuda.shared.array(shape, dtype), sizes.outer * sizes.inner
        for first in range(cuda.blockIdx.x * WARP, systems, cuda.gridsize(1)):
            number = min(first + cuda.threadIdx.x, systems - 1)
            lane, stop = lane_of(sizes, number), lengths[min(number, lengths.size - 1)]
            warp = WarpSystems(arrays, sizes, shift, first, lane, stop, tile)
            pending, failure = descend(warp, pivots)
            outcome = ascend(warp, pending, pivots, out)
            if first + cuda.threadIdx.x < systems:
                status[number] = 0
                if failure + outcome != 0:  # as NaN is
                    status[number] = SINGULAR if failure == 0 else NOT_FINITE

    return solve_systems


# ---------------------------------------------------------------- what the public functions ask for


def solve(systems: Systems, lengths: Any, mode: Mode) -> TridiagonalInfo:
    """Overwrite solutions, and return statuses on the device before that has happened.

    `lengths` are (batch...) int64 on the host, or None; of `mode` it counts whether to pivot.
    """
    status = _run(systems.arrays, systems.axis, lengths, mode)
    return TridiagonalInfo(status, backward_error=None)


def solve_transposed(arrays: Any, axis: int) -> Any:
    """Solve transposed systems (batch..., n); returns their statuses."""
    return _run(arrays, axis, lengths=None, mode=Mode(transposed=True))


def _run(arrays: Any, axis: int, lengths: Any, mode: Mode) -> Any:
    """Solve systems, and return their statuses (batch...), on the device.

    Args:
        arrays: lower, diagonal, upper, rhs and out (batch..., n); out is overwritten.
        axis: of the unknowns in the arrays of the caller, whose layout is used.
        lengths: see `solve`.
        mode: whether to pivot, and to transpose.
    """
    lower, diagonal, upper, rhs, out = (xp.moveaxis(array, -1, axis) for array in arrays)
    status, dtype = zeros(arrays[4].shape[:-1], np.int8), out.dtype.type
    if out.size == 0:
        return status
    if mode.transposed:
        lower, upper = upper, lower
    layout = StepsAxis(out.shape, axis)
    sizes, strided = (
        layout.sizes,
        PlainEquation(*map(layout.strided, (lower, diagonal, upper, rhs))),
    )
    num_unknowns = asarray(
        np.reshape(sizes.num_steps if lengths is None else lengths, -1), np.int64
    )
    numbers = PIVOT_NUMBERS * sizes.num_steps  # of a system's pivots
    threads = _num_threads(sizes.outer * sizes.inner, numbers * out.itemsize)
    pivots, result = empty(numbers * threads, dtype), layout.strided(out)
    shift, statuses = int(mode.transposed), status.reshape(-1)
    arguments = strided, num_unknowns, sizes, shift, pivots, result, statuses
    driver = solve_kernel(dtype, mode.pivoting > 0)
    launch(driver, threads, *arguments, block=WARP, grid=threads // WARP)
    layout.finish(out, result)
    return status


def _num_threads(systems: int, pivot_bytes: int) -> int:
    """Return the threads of the grid, whole warps: as many as 3/4 of the second cache hold.

    `pivot_bytes` are those of one thread's pivots.
    """
    multiprocessors, cache = 1, 2**11  # in the simulator so few that threads take turns
    if not SIMULATED:
        device = cuda.get_current_device()
        multiprocessors, cache = device.MULTIPROCESSOR_COUNT, device.L2_CACHE_SIZE
    fitting = max(3 * cache // 4 // pivot_bytes, LEAST * multiprocessors)
    most = int(min(fitting, MOST * multiprocessors, systems))
    return -(-most // WARP) * WARP


def multiply(gradients: Any, x: Any, axis: int) -> None:
    """Overwrite the gradients of coefficients: minus multipliers times x and its neighbours.

    `gradients` are those of lower, diagonal and upper, and the multipliers, all of the shape of x,
    the solutions. The first number of lower's and the last one of upper's along the axis of the
    unknowns are not written.
    """
    lower, diagonal, upper, multipliers = gradients
    head, tail = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
    negative = -multipliers
    multiply_gradients(negative, x, diagonal, xp)
    multiply_gradients(negative[tail], x[head], lower[tail], xp)
    multiply_gradients(negative[head], x[tail], upper[head], xp)

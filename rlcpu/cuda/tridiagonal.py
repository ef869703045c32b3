"""Tridiagonal systems on a CUDA device, by the rules of `rlcpu.scan.tridiagonal.equations`.

A thread solves one system after the other, from the first equation to the last and back. A warp
takes as many systems as it has threads. It reads a piece of all of them at a time, in whole lines,
into tiles in shared memory, from which each thread takes its own equations; results go the other
way. Pivots wait in scratch memory, of which there is as much as the second cache holds, so that
only the arrays themselves travel.

One thread for a system is slow where there are few long ones: those are the CPU's.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import device, kernel
from rlcpu.cuda.device import SIMULATED, asarray, cuda, empty, launch, to_host, xp, zeros
from rlcpu.cuda.recurrences import (
    INNER,
    NUM_STEPS,
    OPTION,
    OUTER,
    Lane,
    Layout,
    lane_of,
    make_plan,
    multiprocessors,
    place,
)
from rlcpu.kernels import vectors
from rlcpu.kernels.compile import specialise
from rlcpu.kernels.functions import package_of, rebuild
from rlcpu.scan.arguments import Systems
from rlcpu.scan.tridiagonal.chunks import Mode
from rlcpu.scan.tridiagonal.equations import Pending, Pivot, eliminate, scaled, substitute
from rlcpu.scan.tridiagonal.status import Status, TridiagonalInfo

__all__ = ["asarray", "empty", "multiply", "solve", "solve_transposed", "to_host", "xp"]

WARP = 32  # threads of a block: they wait for each other at every tile, and for nobody else
LINE = 128  # bytes of a row that are read at a time
#: Threads of a multiprocessor that are worth having, whatever their scratch takes.
LEAST, MOST = 64, 1024
KEPT = 3  # numbers of a pivot
OUT = 4  # array of a plan, after lower, diagonal, upper and rhs
SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)

# ---------------------------------------------------------------- rules as device functions

# The rules call functions of vectors that are LLVM instructions on the CPU. A thread has one number
# of a dtype, for which they are written here; in the simulator they are plain Python already.


_libdevice: Any = None if SIMULATED else cuda.libdevice


def _fma32(x, y, z):
    return _libdevice.fmaf_rn(x, y, z)


def _fma64(x, y, z):
    return _libdevice.fma_rn(x, y, z)


_EXPONENT32, _LARGEST32 = np.int32(0xFF << 23), np.int32(0xFE << 23)
_EXPONENT64, _LARGEST64 = np.int64(0x7FF << 52), np.int64(0x7FE << 52)


def _inverse_power32(x):
    # An exponent's bits, all flipped, are those of the inverse; least of all, those of 0.
    flipped = np.int32(~_libdevice.float_as_int(x)) & _EXPONENT32
    return _libdevice.int_as_float(min(np.int32(flipped), _LARGEST32))


def _inverse_power64(x):
    flipped = ~_libdevice.double_as_longlong(x) & _EXPONENT64
    return _libdevice.longlong_as_double(min(flipped, _LARGEST64))


_OPERATIONS: dict[Any, dict[Any, Callable[..., Any]]] = {
    np.float32: {vectors.fma: _fma32, vectors.inverse_power: _inverse_power32},
    np.float64: {vectors.fma: _fma64, vectors.inverse_power: _inverse_power64},
}


def device_rule(function: Callable[..., Any], dtype: Any) -> Any:
    """A rule as a device function, in IEEE arithmetic of one dtype."""
    operations = {} if SIMULATED else _OPERATIONS[dtype]
    made: dict[types.FunctionType, Any] = {}

    def convert(_: str, value: Any) -> Any:
        if not isinstance(value, types.FunctionType) or package_of(value) != "rlcpu":
            return value
        return operations.get(value) or rebuild(value, convert, lambda _: True, made)

    return device(specialise(convert("", function), dtype, exact=True))


# ---------------------------------------------------------------- one thread's system


class Raw(NamedTuple):
    """One equation as it lies in memory, or all arrays."""

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


class State(NamedTuple):
    """What a thread knows on its way down.

    Attributes:
        pending: what is left of the equations above.
        health: 0, or NaN after a coefficient or a right-hand side that is not finite.
    """

    pending: Any
    health: Any


class Known(NamedTuple):
    """What a thread knows on its way up.

    Attributes:
        following: x[k+1].
        second: x[k+2].
        health: 0, or NaN after an unknown that is not finite.
    """

    following: Any
    second: Any
    health: Any


def _make_steps(dtype: Any, pivoting: float) -> tuple[Any, Any, Any]:
    """Device functions: a thread's first equation, any other one, one unknown.

    Returns:
        open: (raw) -> State.
        down: (state, raw, pivots, at, room) -> State; the pivot is written from `at` on.
        up: (known, pivot) -> Known.
    """
    scale, free, find = (device_rule(rule, dtype) for rule in (scaled, eliminate, substitute))
    swaps = dtype(pivoting)

    def healthy(raw):
        # Of all numbers, one minus itself.
        matrix = (raw.lower - raw.lower) + (raw.diagonal - raw.diagonal)
        return matrix + (raw.upper - raw.upper) + (raw.rhs - raw.rhs)

    def open_(raw):
        first = scale(raw.lower, raw.diagonal, raw.upper, raw.rhs)
        return State(Pending(first.diagonal, first.upper, first.rhs), healthy(raw))

    def down(state, raw, pivots, at, room):
        equation = scale(raw.lower, raw.diagonal, raw.upper, raw.rhs)
        pivot, pending = free(state.pending, equation, swaps)
        pivots[at] = pivot.upper
        pivots[at + room] = pivot.second
        pivots[at + 2 * room] = pivot.rhs
        return State(pending, state.health + healthy(raw))

    def up(known, pivot):
        x = find(pivot, known.following, known.second)
        return Known(x, known.following, known.health + (x - x))

    return open_, down, up


# ---------------------------------------------------------------- tiles


def _make_tiles(width: int) -> tuple[Any, Any]:
    """Device functions: equations to tiles in shared memory, unknowns from one to the result.

    A row of a tile is one number longer than what it holds, so that 32 threads that read a column
    find it in 32 banks. Eight numbers are on the way at once, wherever systems end: a branch, or a
    number that is stored before the next is asked for, would wait 0.6 us each time.
    """

    def spot(plan, own, first, step):
        """The thread's number of a tile at a step: its lane, system of the warp, equation."""
        if plan[INNER] > 1:  # systems are next to each other in memory: a thread reads its own
            return own, cuda.threadIdx.x, step
        number = step * WARP + cuda.threadIdx.x
        row = number // width
        return Lane(plan, min(first + row, plan[OUTER] - 1), 0), row, number % width

    def get(arrays, plan, own, first, begin, step):
        # Of transposed systems lower[k] is upper[k-1]. What is ignored may be any number.
        lane, _, i = spot(plan, own, first, step)
        last, shift = plan[NUM_STEPS] - 1, plan[OPTION]
        k = min(begin + i, last)
        return Raw(
            arrays.lower[place(lane, 0, max(k - shift, 0))],
            arrays.diagonal[place(lane, 1, k)],
            arrays.upper[place(lane, 2, min(k + shift, last))],
            arrays.rhs[place(lane, 3, k)],
        )

    def put(tile, plan, own, first, step, raw):
        _, row, i = spot(plan, own, first, step)
        tile[0, row, i] = raw.lower
        tile[1, row, i] = raw.diagonal
        tile[2, row, i] = raw.upper
        tile[3, row, i] = raw.rhs

    def load(arrays, plan, own, first, begin, tile):
        cuda.syncthreads()  # the tile before is used up
        for step in range(0, width, 2):
            one = get(arrays, plan, own, first, begin, step)
            two = get(arrays, plan, own, first, begin, step + 1)
            put(tile, plan, own, first, step, one)
            put(tile, plan, own, first, step + 1, two)
        cuda.syncthreads()

    def store(tile, plan, own, first, begin, out):
        cuda.syncthreads()
        for step in range(width):
            lane, row, i = spot(plan, own, first, step)
            if first + row < plan[OUTER] * plan[INNER] and begin + i < plan[NUM_STEPS]:
                out[place(lane, OUT, begin + i)] = tile[0, row, i]
        cuda.syncthreads()

    return load, store


# ---------------------------------------------------------------- the driver


@functools.cache
def solve_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver: (lower, diagonal, upper, rhs, lengths, plan, pivots, out, status).

    Launched in blocks of `WARP` threads. `lengths` int64 has the number of unknowns of each system,
    or one for all; `pivots` is scratch, `KEPT` * n numbers for each thread of the grid; `status`
    int8 is overwritten with a `Status` for each system. The option of the plan is 1 for transposed
    systems, else 0.
    """
    width = LINE // np.dtype(dtype).itemsize
    (load, store), (open_, down, up) = _make_tiles(width), _make_steps(dtype, float(pivoting))
    shape, zero, one = (4, WARP, width + 1), dtype(0.0), dtype(1.0)

    def descend(arrays, plan, own, first, stop, pivots, tile):
        thread, room, at = cuda.threadIdx.x, cuda.gridsize(1), cuda.grid(1)
        state = open_(Raw(zero, one, zero, zero))
        for begin in range(0, plan[NUM_STEPS], width):
            load(arrays, plan, own, first, begin, tile)
            for k in range(begin, min(begin + width, stop)):
                raw = Raw(
                    tile[0, thread, k - begin] if k > 0 else zero,
                    tile[1, thread, k - begin],
                    tile[2, thread, k - begin] if k + 1 < stop else zero,
                    tile[3, thread, k - begin],
                )
                if k == 0:
                    state = open_(raw)
                else:
                    state = down(state, raw, pivots, at, room)
                    at += KEPT * room
        return state

    def pivot_of(pivots, plan, k):
        room = cuda.gridsize(1)
        at = cuda.grid(1) + min(k, plan[NUM_STEPS] - 1) * KEPT * room
        return Pivot(pivots[at], pivots[at + room], pivots[at + 2 * room])

    def rise(known, pivot, k, stop, tile, i):
        if k + 1 < stop:
            known = up(known, pivot)
        tile[0, cuda.threadIdx.x, i] = known.following if k < stop else zero
        return known

    def ascend(state, plan, own, first, stop, pivots, tile, out):
        x = state.pending.rhs / state.pending.diagonal
        known = Known(x, zero, x - x)
        tiles = (plan[NUM_STEPS] + width - 1) // width
        for number in range(tiles):
            begin = (tiles - 1 - number) * width
            for step in range(0, width, 4):  # four pivots are on the way at once
                i = width - 1 - step
                k = begin + i
                one, two = pivot_of(pivots, plan, k), pivot_of(pivots, plan, k - 1)
                three, four = pivot_of(pivots, plan, k - 2), pivot_of(pivots, plan, k - 3)
                known = rise(known, one, k, stop, tile, i)
                known = rise(known, two, k - 1, stop, tile, i - 1)
                known = rise(known, three, k - 2, stop, tile, i - 2)
                known = rise(known, four, k - 3, stop, tile, i - 3)
            store(tile, plan, own, first, begin, out)
        return known

    @kernel(exact=True)
    def solve_systems(lower, diagonal, upper, rhs, lengths, plan, pivots, out, status):
        tile = cuda.shared.array(shape, dtype)
        arrays, systems = Raw(lower, diagonal, upper, rhs), plan[OUTER] * plan[INNER]
        for first in range(cuda.blockIdx.x * WARP, systems, cuda.gridsize(1)):
            number = min(first + cuda.threadIdx.x, systems - 1)
            own, stop = lane_of(plan, number), lengths[min(number, lengths.size - 1)]
            state = descend(arrays, plan, own, first, stop, pivots, tile)
            known = ascend(state, plan, own, first, stop, pivots, tile, out)
            if first + cuda.threadIdx.x < systems:
                status[number] = 0
                if state.health + known.health != 0:  # as NaN is
                    status[number] = SINGULAR if state.health == 0 else NOT_FINITE

    return solve_systems


# ---------------------------------------------------------------- what the public functions ask for


def solve(systems: Systems, lengths: Any, mode: Mode) -> TridiagonalInfo:
    """Overwrite solutions; returns before that has happened.

    Args:
        systems: checked.
        lengths: (batch...) int64 on the host, or None.
        mode: of it whether to pivot.

    Returns:
        Statuses on the device, and no backward errors.
    """
    return TridiagonalInfo(_run(systems.arrays, systems.axis, lengths, mode), None)


def solve_transposed(arrays: Any, axis: int) -> Any:
    """Solve the transposed systems (batch..., n), whose axis was that one; their statuses."""
    return _run(arrays, axis, None, Mode(transposed=True))


def _run(arrays: Any, axis: int, lengths: Any, mode: Mode) -> Any:
    *inputs, out = (xp.moveaxis(array, -1, axis) for array in arrays)
    status, dtype = zeros(arrays[4].shape[:-1], np.int8), out.dtype.type
    if out.size == 0:
        return status
    if mode.transposed:
        inputs[0], inputs[2] = inputs[2], inputs[0]
    layout = Layout(out.shape, axis)
    flat = [layout.flat(array) for array in (*inputs, out)]
    outer, n, inner = layout.sizes
    ends = asarray(np.reshape(n if lengths is None else lengths, -1), np.int64)
    threads = _threads(outer * inner, KEPT * n * out.itemsize)
    pivots, plan = empty(KEPT * n * threads, dtype), make_plan(layout, 1, mode.transposed, flat)
    *memory, result = (array.memory for array in flat)
    arguments = *memory, ends, plan, pivots, result, status.reshape(-1)
    driver = solve_kernel(dtype, mode.pivoting > 0)
    launch(driver, threads, *arguments, block=WARP, grid=threads // WARP)
    layout.finish(out, flat[OUT])
    return status


@functools.cache
def _cache_bytes() -> int:
    """Size of the second cache; in the simulator so small that threads solve several systems."""
    return 2**11 if SIMULATED else int(cuda.get_current_device().L2_CACHE_SIZE)


def _threads(systems: int, each: int) -> int:
    """Threads of the grid, whole warps: as many as three quarters of the second cache hold."""
    fitting = max(3 * _cache_bytes() // 4 // each, LEAST * multiprocessors())
    most = min(fitting, MOST * multiprocessors(), systems)
    return -(-most // WARP) * WARP


def multiply(gradients: Any, x: Any, axis: int) -> None:
    """Overwrite the gradients of coefficients: minus multipliers times x and its neighbours.

    Args:
        gradients: of lower, diagonal and upper, and the multipliers, all of x's shape. The first
            number of lower's and the last one of upper's along the axis are not written.
        x: solutions.
        axis: of the unknowns.
    """
    lower, diagonal, upper, multipliers = gradients
    head, tail = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
    negative = -multipliers
    xp.multiply(negative, x, out=diagonal)
    xp.multiply(negative[tail], x[head], out=lower[tail])
    xp.multiply(negative[head], x[tail], out=upper[head])

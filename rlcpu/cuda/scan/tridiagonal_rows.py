"""Driver of tridiagonal systems in rows: tiles of them through shared memory.

A warp takes as many systems as it has threads. It reads a piece of every row at a time, in whole
lines, into tiles from which each thread takes the equations of its own system; results go the other
way. Pivots wait in scratch memory as in `tridiagonal_columns`: nothing is transposed in the
device's memory.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.tridiagonal_steps import (
    ARRAYS,
    LENGTH,
    OUT,
    OUTER,
    OWN_LENGTHS,
    STRIDES,
    Raw,
    make_steps,
    place,
    report,
)

WARP = 32  # threads of a block: they wait for each other at every tile, and for nobody else
LINE = 128  # bytes of a row that are read at a time


def make_load(array: int, width: int) -> Any:
    """Function: a tile of one array from the device's memory to shared memory.

    A row of a tile is one number longer than what it holds, so that 32 threads that read a column
    find it in 32 banks. Eight numbers are on the way at once, wherever rows or systems end: a
    branch, or a number that is stored before the next is asked for, would wait 0.6 us each time.
    """

    def get(source: Any, plan: Any, first: Any, begin: Any, number: Any) -> Any:
        row = min(first + number // width, plan[OUTER] - 1)
        k = min(begin + number % width, plan[LENGTH] - 1)
        return source[row * plan[STRIDES + array] + k * plan[STRIDES + array + ARRAYS]]

    def put(tile: Any, number: Any, value: Any) -> None:
        tile[array, number // width, number % width] = value

    def load(source: Any, plan: Any, first: Any, begin: Any, tile: Any) -> None:
        for step in range(0, width, 8):
            at = step * WARP + cuda.threadIdx.x
            a = get(source, plan, first, begin, at)
            b = get(source, plan, first, begin, at + WARP)
            c = get(source, plan, first, begin, at + 2 * WARP)
            d = get(source, plan, first, begin, at + 3 * WARP)
            e = get(source, plan, first, begin, at + 4 * WARP)
            f = get(source, plan, first, begin, at + 5 * WARP)
            g = get(source, plan, first, begin, at + 6 * WARP)
            h = get(source, plan, first, begin, at + 7 * WARP)
            put(tile, at, a)
            put(tile, at + WARP, b)
            put(tile, at + 2 * WARP, c)
            put(tile, at + 3 * WARP, d)
            put(tile, at + 4 * WARP, e)
            put(tile, at + 5 * WARP, f)
            put(tile, at + 6 * WARP, g)
            put(tile, at + 7 * WARP, h)

    return load


def make_store(width: int) -> Any:
    """Function: the first tile from shared memory to the result."""

    def store(tile: Any, plan: Any, first: Any, begin: Any, out: Any) -> Any:
        for step in range(width):
            number = step * WARP + cuda.threadIdx.x
            row, k = number // width, number % width
            if first + row < plan[OUTER] and begin + k < plan[LENGTH]:
                out[place(plan, OUT, first + row, 0, begin + k)] = tile[0, row, k]

    return store


def _make_fill(width: int) -> Any:
    """Function: tiles of all four arrays."""
    lower, diagonal, upper, rhs = (make_load(array, width) for array in range(4))

    def fill(arrays: Any, plan: Any, first: Any, begin: Any, tile: Any) -> Any:
        cuda.syncthreads()  # the tile before is used up
        lower(arrays.lower, plan, first, begin, tile)
        diagonal(arrays.diagonal, plan, first, begin, tile)
        upper(arrays.upper, plan, first, begin, tile)
        rhs(arrays.rhs, plan, first, begin, tile)
        cuda.syncthreads()

    return fill


def _make_descend(dtype: Any, pivoting: bool, width: int) -> Any:
    """Function: from the first equations to the last; the state after them."""
    opened, down, _, _, _, _, keeps = make_steps(dtype, pivoting)
    fill, zero, one = _make_fill(width), dtype(0.0), dtype(1.0)

    def descend(arrays: Any, plan: Any, first: Any, stop: Any, pivots: Any, tile: Any) -> Any:
        own, room, at = cuda.threadIdx.x, cuda.gridsize(1), cuda.grid(1)
        state = opened(Raw(zero, one, zero, zero))
        for begin in range(0, plan[LENGTH], width):
            fill(arrays, plan, first, begin, tile)
            for k in range(begin, min(begin + width, stop)):
                raw = Raw(
                    tile[0, own, k - begin] if k > 0 else zero,
                    tile[1, own, k - begin],
                    tile[2, own, k - begin] if k + 1 < stop else zero,
                    tile[3, own, k - begin],
                )
                if k == 0:
                    state = opened(raw)
                else:
                    state = down(state, raw, pivots, at, room)
                    at += keeps * room
        return state

    return descend


def _make_ascend(dtype: Any, pivoting: bool, width: int) -> Any:
    """Function: write all unknowns, from the last ones to the first; what is known then."""
    _, _, turn, up, pivot_at, _, keeps = make_steps(dtype, pivoting)
    store = make_store(width)
    zero = dtype(0.0)

    def ascend(
        state: Any, plan: Any, first: Any, stop: Any, pivots: Any, tile: Any, out: Any
    ) -> Any:
        own, room, known = cuda.threadIdx.x, cuda.gridsize(1), turn(state)
        tiles = (plan[LENGTH] + width - 1) // width
        for number in range(tiles):
            begin = (tiles - 1 - number) * width
            cuda.syncthreads()  # the tile before is written
            for step in range(width):
                k = begin + width - 1 - step
                if k < stop - 1:
                    at = cuda.grid(1) + k * keeps * room
                    known = up(known, pivot_at(pivots, at, room))
                tile[0, own, k - begin] = known.following if k < stop else zero
            cuda.syncthreads()
            store(tile, plan, first, begin, out)
        return known

    return ascend


@functools.cache
def row_kernel(dtype: Any, pivoting: bool) -> Any:
    """Driver with the arguments of `column_kernel`, launched in blocks of `WARP` threads.

    The unknowns' axis is the last one: the plan's inner size is 1.
    """
    width = LINE // np.dtype(dtype).itemsize
    descend, ascend = (make(dtype, pivoting, width) for make in (_make_descend, _make_ascend))
    shape = (4, WARP, width + 1)

    @kernel(dtype=dtype, exact=True)
    def solve(lower, diagonal, upper, rhs, lengths, plan, pivots, out, status, failed):
        tile = cuda.shared.array(shape, dtype)
        arrays, systems = Raw(lower, diagonal, upper, rhs), plan[OUTER]
        for first in range(cuda.blockIdx.x * WARP, systems, cuda.gridsize(1)):
            number = first + cuda.threadIdx.x
            stop = plan[LENGTH] if number < systems else 0
            if plan[OWN_LENGTHS] > 0 and number < systems:
                stop = lengths[number]
            state = descend(arrays, plan, first, stop, pivots, tile)
            known = ascend(state, plan, first, stop, pivots, tile, out)
            if number < systems:
                status[number] = 0
                report(state.health, known.health, number, status, failed)

    return solve

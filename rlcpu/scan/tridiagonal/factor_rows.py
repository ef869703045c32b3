"""Driver: solve with factors where the unknowns of a system lie next to each other.

Right-hand sides come as tiles, transposed on the way, into memory that stays in the first cache.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.bytes import fence
from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, prefetch, shifted, store, stream, to_line
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.tiles import load_tile, load_tile_part, store_tile, store_tile_first
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.factor_kernels import CHUNKS, COUNT, GRAIN, ONE, OWN, SHARED, Reader
from rlcpu.scan.tridiagonal.factor_steps import advance, back
from rlcpu.scan.tridiagonal.steps import inlined


def _make_down(reader: Reader) -> Any:
    """Function: right-hand sides of the pivots, from tiles of those of the equations."""
    registers, multiplier = reader.registers, reader.multiplier

    @inlined
    def down(rhs, starts, stops, zero, factors, memory, n, ahead):  # type: ignore[no-untyped-def]
        lanes, tile = width(memory, registers), width(memory, ONE)
        pending = fill(zero, registers)
        for k in range(0, n, tile):
            numbers = shifted(memory, k * lanes)
            if k + tile <= n:
                load_tile(rhs, starts, k, numbers, registers)
            else:
                load_tile_part(rhs, starts, (k, 0, stops), zero, numbers, registers)
            if ahead > 0:
                for i in range(lanes):
                    prefetch(rhs, starts[0] + ahead + k * lanes + i * tile)
            for j in range(min(tile, n - k)):
                equation = load(numbers, j * lanes, registers)
                pivot, pending = advance(pending, equation, multiplier(factors, k + j))
                store(pivot, numbers, (j - 1) * lanes)
        store(pending, memory, (n - 1) * lanes)

    return down


def _make_up(reader: Reader) -> Any:
    """Function: unknowns in place of the right-hand sides of the pivots; returns x[0]."""
    registers, read = reader.registers, reader.factors

    @inlined
    def up(zero, factors, memory, n):  # type: ignore[no-untyped-def]
        lanes = width(memory, registers)
        following = fill(zero, registers)
        second = following
        for i in range(n):
            k = n - 1 - i
            current = back(load(memory, k * lanes, registers), following, second, read(factors, k))
            store(current, memory, k * lanes)
            following, second = current, following
        return following

    return up


def _make_write(reader: Reader) -> Any:
    """Functions: write a block of systems anywhere, or past the caches if they have no gaps."""
    registers = reader.registers

    @inlined
    def write(memory, out, starts, n):  # type: ignore[no-untyped-def]
        lanes, tile = width(memory, registers), width(memory, ONE)
        whole = n // tile * tile
        for k in range(0, whole, tile):
            store_tile(shifted(memory, k * lanes), out, starts, k, registers)
        if whole < n:
            rest = shifted(memory, whole * lanes)
            store_tile_first(rest, out, starts, whole, n - whole, registers)

    @inlined
    def streamed(memory, out, places, n, buffer):  # type: ignore[no-untyped-def]
        lanes, line = width(memory, registers), width(memory, ONE)
        position, total = places[lanes], n * lanes
        head = to_line(out, position)
        linear = shifted(buffer, line - head)
        write(memory, linear, shifted(places, 3 * lanes), n)
        end = head + (total - head) // line * line
        for i in range(min(head, total)):
            out[position + i] = linear[i]
        for i in range(head, end, line):
            stream(load(linear, i, ONE), out, position + i)
        for i in range(max(head, end), total):
            out[position + i] = linear[i]

    return write, streamed


def _make_blocks(reader: Reader) -> Any:
    """Function: the blocks of a chunk; returns 0, or NaN where something is not finite."""
    registers = reader.registers
    down, up = _make_down(reader), _make_up(reader)
    write, streamed = _make_write(reader)

    @inlined
    def solve_block(factors, rhs, out, places, zero, memory, n, ahead):  # type: ignore[no-untyped-def]
        lanes = width(out, registers)
        stops = shifted(places, 2 * lanes)
        memory = shifted(memory, to_line(memory, 0) + lanes)
        down(rhs, places, stops, zero, factors, memory, n, ahead)
        first = up(zero, factors, memory, n)
        if ahead > 0:
            tile = width(out, ONE)
            end = (n + tile) // tile * tile * lanes
            streamed(memory, out, places, n, shifted(memory, end))
        else:
            write(memory, out, shifted(places, lanes), n)
        return first - first

    @njit(nogil=True, error_model="numpy", fastmath=EXACT)
    def solve_blocks(factors, rhs, out, plan, blocks, failed):  # type: ignore[no-untyped-def]
        per, count, n = plan[1], plan[2], plan[3]
        lanes, tile = width(address(out), registers), width(address(out), ONE)
        memory = np.empty((2 * n + 3 * tile + 3) * lanes, out.dtype)
        places = np.full(4 * lanes, n)
        zero = out.dtype.type(0.0)
        dense = plan[4] == n and plan[6] == n
        trace = fill(zero, registers)
        for number in range(blocks[0], blocks[1]):
            base, block = number // per * count, number % per
            for i in range(lanes):
                system = base + min(block * lanes + i, count - 1)
                places[i] = system * plan[4]
                places[lanes + i] = system * plan[6]
                places[3 * lanes + i] = i * n
            used = shifted(address(factors), block * n * COUNT * lanes if registers == 1 else 0)
            ahead = n * lanes if dense and (block + 2) * lanes <= count else 0
            trace = trace + solve_block(
                used, address(rhs), address(out), address(places), zero, address(memory), n, ahead
            )
        store(trace, address(failed), 0)
        fence()
        return memory.size + places.size  # alive up to here

    return solve_blocks


def make_rows(reader: Reader, parallel: bool) -> Any:
    """Driver: (factors, rhs, out, plan); returns whether anything is not finite.

    `plan` is (repeats, blocks of systems, systems of a repeat, unknowns, then of rhs and of out the
    strides from system to system and from unknown to unknown, which is 1).
    """
    solve_blocks, registers = _make_blocks(reader), reader.registers

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(factors, rhs, out, plan):  # type: ignore[no-untyped-def]
        lanes = width(address(out), registers)
        total = plan[0] * plan[1]
        chunks = min(total, CHUNKS)
        failed = np.zeros((chunks, lanes), out.dtype)
        for chunk in prange(chunks):
            blocks = (total * chunk // chunks, total * (chunk + 1) // chunks)
            solve_blocks(factors, rhs, out, plan, blocks, failed[chunk])
        return np.isnan(failed.sum())

    return solve


@functools.cache
def row_solvers(shared: bool) -> Kernels:
    """Drivers for one matrix, or for one of each system."""
    reader = SHARED if shared else OWN
    return Kernels(make_rows(reader, False), make_rows(reader, True), GRAIN)

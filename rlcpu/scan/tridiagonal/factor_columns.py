"""Driver: solve with factors where the systems lie next to each other in memory.

A core takes a block of systems through all their equations; right-hand sides of the pivots wait in
the output, which the block keeps in the second cache, until the unknowns take their place.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, load_first, shifted, store, store_first
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.tridiagonal.factor_kernels import COUNT, GRAIN, OWN, SHARED, Reader
from rlcpu.scan.tridiagonal.factor_steps import advance, back
from rlcpu.scan.tridiagonal.steps import inlined


def _make_down(reader: Reader) -> Any:
    """Function: one equation of a block of systems; writes the pivots' right-hand sides before."""
    registers, multiplier = reader.registers, reader.multiplier

    @inlined
    def down(rhs, out, carried, factors, zero, k, span):  # type: ignore[no-untyped-def]
        lanes, (systems, stride) = width(carried, registers), span
        whole = systems // lanes
        for v in range(whole):
            at = v * lanes
            step = multiplier(shifted(factors, v * stride), k)
            pivot, pending = advance(load(carried, at, registers), load(rhs, at, registers), step)
            store(pivot, out, at)
            store(pending, carried, at)
        at, rest = whole * lanes, systems - whole * lanes
        if rest > 0:
            step = multiplier(shifted(factors, whole * stride), k)
            equation = load_first(rhs, at, rest, zero, registers)
            pivot, pending = advance(load(carried, at, registers), equation, step)
            store_first(pivot, out, at, rest)
            store(pending, carried, at)

    return down


def _make_up(reader: Reader) -> Any:
    """Function: one unknown of a block of systems, in place of the pivots' right-hand sides."""
    registers, read = reader.registers, reader.factors

    @inlined
    def up(rhs, out, carried, factors, zero, k, span):  # type: ignore[no-untyped-def]
        lanes, (systems, stride) = width(out, registers), span
        room = (systems + lanes - 1) // lanes * lanes
        for at in range(0, systems, lanes):
            rest = min(lanes, systems - at)
            factor = read(shifted(factors, at // lanes * stride), k)
            following = load(carried, at, registers)
            second = load(carried, room + at, registers)
            if rest == lanes:
                current = back(load(rhs, at, registers), following, second, factor)
                store(current, out, at)
            else:
                pivot = load_first(rhs, at, rest, zero, registers)
                current = back(pivot, following, second, factor)
                store_first(current, out, at, rest)
            store(current, carried, at)
            store(following, carried, room + at)

    return up


def _make_blocks(reader: Reader) -> Any:
    """Function: one block; returns 0, or NaN where something is not finite."""
    registers = reader.registers
    down, up = _make_down(reader), _make_up(reader)

    @inlined
    def sweep(factors, rhs, out, strides, memory, zero, n, span):  # type: ignore[no-untyped-def]
        lanes = width(out, registers)
        room = (span[0] + lanes - 1) // lanes * lanes
        pending, spare = shifted(memory, 2 * room), shifted(memory, 3 * room)
        down(rhs, spare, pending, factors, zero, 0, span)
        for k in range(1, n):
            target = shifted(out, (k - 1) * strides[1])
            down(shifted(rhs, k * strides[0]), target, pending, factors, zero, k, span)
        last = shifted(out, (n - 1) * strides[1])
        up(pending, last, memory, factors, zero, n - 1, span)
        for i in range(1, n):
            row = shifted(out, (n - 1 - i) * strides[1])
            up(row, row, memory, factors, zero, n - 1 - i, span)
        trace = fill(zero, registers)
        for at in range(0, room, lanes):
            first = load(memory, at, registers)
            trace = trace + (first - first)
        return trace

    @njit(nogil=True, error_model="numpy", fastmath=EXACT)
    def solve_block(factors, rhs, out, plan, number, failed):  # type: ignore[no-untyped-def]
        groups, inner, n, block = plan[1], plan[2], plan[3], plan[4]
        per = (inner + block - 1) // block
        outer, begin = number // per, number % per * block
        lanes = width(address(out), registers)
        systems = min(block, inner - begin)
        zero = out.dtype.type(0.0)
        memory = np.full(4 * (systems + lanes), zero)
        stride = n * COUNT * lanes if registers == 1 else 0
        group = outer % groups * ((inner + lanes - 1) // lanes) + begin // lanes
        trace = sweep(
            shifted(address(factors), group * stride),
            shifted(address(rhs), outer * plan[5] + begin),
            shifted(address(out), outer * plan[7] + begin),
            (plan[6], plan[8]),
            address(memory),
            zero,
            n,
            (systems, stride),
        )
        store(trace, address(failed), 0)
        return memory.size  # alive up to here

    return solve_block


def make_columns(reader: Reader, parallel: bool) -> Any:
    """Driver: (factors, rhs, out, plan); returns whether anything is not finite.

    `plan` is (outer, outer indices with factors of their own, systems next to each other, unknowns,
    systems of a block, then of rhs and of out the strides from one outer index and from one unknown
    to the next). Right-hand sides may be the output.
    """
    solve_block, registers = _make_blocks(reader), reader.registers

    @kernel(parallel=parallel, fastmath=EXACT)
    def solve(factors, rhs, out, plan):  # type: ignore[no-untyped-def]
        total = plan[0] * ((plan[2] + plan[4] - 1) // plan[4])
        failed = np.zeros((total, width(address(out), registers)), out.dtype)
        for number in prange(total):
            solve_block(factors, rhs, out, plan, number, failed[number])
        return np.isnan(failed.sum())

    return solve


@functools.cache
def column_solvers(shared: bool) -> Kernels:
    """Drivers for one matrix, or for one of each system."""
    reader = SHARED if shared else OWN
    return Kernels(make_columns(reader, False), make_columns(reader, True), GRAIN)

"""Driver of the backward errors of tridiagonal systems that lie next to each other."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel, njit
from rlcpu.kernels.memory import address, load, load_first, pointer_to, shifted, store
from rlcpu.kernels.threads import Kernels
from rlcpu.kernels.vectors import fill, maximum, width
from rlcpu.scan.tridiagonal.columns import GRAIN, block_at, room_of, set_stops, slices_of
from rlcpu.scan.tridiagonal.lanes import fetch, row_at
from rlcpu.scan.tridiagonal.plan import ERRORS, OUTER, PLACES
from rlcpu.scan.tridiagonal.steps import backward_error, inlined
from rlcpu.scan.tridiagonal.tiles import ONE


@inlined
def _around(block, k, by, zero):  # type: ignore[no-untyped-def]
    """Unknowns k - 1, k and k + 1, which are zero beyond the ends."""
    step, count = block.steps[4], block.systems - by
    row = shifted(block.out, k * step)
    before = load_first(shifted(row, -step), by, count if k > 0 else 0, zero, ONE)
    after = load_first(shifted(row, step), by, count if k + 1 < block.n else 0, zero, ONE)
    return before, load_first(row, by, count, zero, ONE), after


@inlined
def _check(block, worst, zero):  # type: ignore[no-untyped-def]
    """Write the backward error of every system of a block."""
    lanes = width(worst, ONE)
    for by in range(0, block.systems, lanes):
        store(fill(zero, ONE), worst, by)
    for k in range(block.n):
        row = row_at(block, k)
        for by in range(0, block.systems, lanes):
            equation = fetch(block, row, k, by, False, zero)
            error = backward_error(equation, _around(block, k, by, zero))
            store(maximum(load(worst, by, ONE), error), worst, by)


@njit(nogil=True, error_model="numpy", fastmath=EXACT)
def _check_block(plan, number, room, like):  # type: ignore[no-untyped-def]
    memory = np.empty(2 * room, like.dtype)
    zero = like[0]
    stops = address(memory)
    worst = shifted(stops, room)
    block, first = block_at(address(plan), number, room, stops, zero)
    set_stops(address(plan), first, block.systems, room, stops, zero)
    _check(block, worst, zero)
    target = pointer_to(plan[ERRORS], zero)
    for i in range(block.systems):
        target[first + i] = worst[i]
    return memory.size  # alive up to here


def _make(parallel: bool) -> Any:
    """Driver: writes errors, from the plan of what `column_kernels` solved, and a zero."""

    @kernel(parallel=parallel, fastmath=EXACT)
    def check(plan, zero):  # type: ignore[no-untyped-def]
        room = room_of(plan, width(pointer_to(plan[PLACES], zero), ONE))
        like = np.full(1, zero)
        for number in prange(plan[OUTER] * slices_of(plan, room, zero)[1]):
            _check_block(plan, number, room, like)

    return check


@functools.cache
def error_kernels() -> Kernels:
    """Kernels for both dtypes."""
    return Kernels(_make(False), _make(True), GRAIN)

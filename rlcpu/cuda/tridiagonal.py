"""Tridiagonal systems on a CUDA device, by the rules of `rlcpu.scan.tridiagonal.equations`.

A thread solves a system, from the first equation to the last and back; `rlcpu.cuda.equations` says
how numbers come to it, and where pivots wait. Few long systems are cut, see `rlcpu.cuda.chunks`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.chunks import cut_of, solve_cut
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, asarray, cuda, empty, launch, to_host, xp, zeros
from rlcpu.cuda.equations import (
    DeviceSystems,
    PlainEquation,
    Way,
    are_finite,
    lane_of_thread,
    make_ascend,
    make_descend,
    make_reader,
    multiprocessors,
    pivot_numbers,
    read_pivot,
    way_of,
    write_pivot,
)
from rlcpu.cuda.recurrences import StepsAxis, device_rule, lane_of
from rlcpu.scan.arguments import Systems, multiply_gradients
from rlcpu.scan.tridiagonal.chunks import Mode
from rlcpu.scan.tridiagonal.equations import Pending, eliminate, scaled, substitute
from rlcpu.scan.tridiagonal.status import Status, TridiagonalInfo

__all__ = ["asarray", "empty", "multiply", "solve", "solve_transposed", "to_host", "xp"]

#: Threads of a multiprocessor at most: more systems take turns, so that scratch is not larger.
MOST = 4 if SIMULATED else 1024
SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)

# ---------------------------------------------------------------- whole systems


class Descent(NamedTuple):
    """What is left of the equations of a lane so far."""

    pending: Pending
    is_finite: Any  # whether all their numbers are


class Known(NamedTuple):
    """Unknowns that substitution has computed so far, from the bottom up to equation k."""

    x: Any  # x[k]
    next_x: Any  # x[k+1], 0 for the last one
    is_finite: Any  # whether all of them are


def make_elimination(dtype: Any, pivoting: bool) -> Any:
    """Make `use` of `make_descend`, which writes pivots; that of x[-1], above the system, is 0."""
    scale, choose_pivot = device_rule(scaled, dtype), device_rule(eliminate, dtype)

    def eliminate_next(reading, state, raw, k):
        is_finite = state.is_finite and are_finite(raw)
        pivot, pending = choose_pivot(state.pending, scale(*raw), reading.systems.pivoting)
        write_pivot(reading, k, pivot, pivoting)
        return Descent(pending, is_finite)

    return eliminate_next


def make_substitution(dtype: Any, pivoting: bool) -> tuple[Any, Any]:
    """Make `read` and `use` of `make_ascend`, from what `make_elimination` has written."""
    substitute_pivot = device_rule(substitute, dtype)

    def read_next(reading, k):
        return read_pivot(reading, k, pivoting)

    def substitute_next(reading, known, pivot, k):
        x = substitute_pivot(pivot, known.x, known.next_x)
        return Known(x, known.x, known.is_finite and x - x == 0), x

    return read_next, substitute_next


@functools.cache
def solve_kernel(dtype: Any, pivoting: bool, way: Way) -> Any:
    """Make the driver (systems, first, lengths, scratch, out, status).

    It solves as many systems as `status` int8 has numbers, from the system `first` on, and
    overwrites that with a `Status` for each. `lengths` int64 has the number of unknowns of each of
    them, or one for all; `scratch` n times `pivot_numbers` for each thread of the grid, which is
    of whole blocks of `way`; `out` is `DeviceStrided`.
    """
    descend = make_descend(dtype, way, make_elimination(dtype, pivoting))
    ascend = make_ascend(dtype, way, *make_substitution(dtype, pivoting))
    reader, zero, one = make_reader(way, dtype), dtype(0), dtype(1)

    @kernel(exact=True, max_registers=80)
    def solve_systems(systems, first, lengths, scratch, out, status):
        """Solve a system with each thread.

        In rows, threads beyond the last system have none of its unknowns: a warp shares its tiles.
        """
        sizes, thread = systems.sizes, np.int32(cuda.grid(1))
        exists = thread < status.size
        if exists or way.rows:
            place = lane_of(sizes, first + min(thread, status.size - 1))
            unknowns = lengths[min(thread, lengths.size - 1)] if exists else 0
            end = sizes.num_steps if exists else 0
            lane = lane_of_thread(place, 0, unknowns, unknowns, end)
            reading = reader(systems, lane, sizes.num_steps, scratch, out)
            # Nothing above: 1 * x[-1] = 0.
            state = descend(reading, Descent(Pending(one, zero, zero), True))
            last = state.pending.rhs / state.pending.diagonal
            known = ascend(reading, Known(last, zero, last - last == 0), last)
            if exists:
                status[thread] = 0
                if not (state.is_finite and known.is_finite):
                    status[thread] = SINGULAR if state.is_finite else NOT_FINITE

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
    result, sizes = layout.strided(out), layout.sizes
    inputs = PlainEquation(*map(layout.strided, (lower, diagonal, upper, rhs)))
    in_rows = sizes.inner == 1 and result.step_stride <= result.outer_stride
    way, systems = (
        way_of(in_rows, dtype, mode.transposed),
        DeviceSystems(inputs, sizes, dtype(mode.pivoting)),
    )
    cut = cut_of(status.size, sizes.num_steps) if lengths is None else None
    if cut is not None:
        worst = solve_cut(systems, cut, way, result)
        layout.finish(out, result)
        return worst.astype(np.int8).reshape(status.shape)
    driver = solve_kernel(dtype, bool(mode.pivoting), way)
    count, at_once = status.size, min(status.size, MOST * multiprocessors())
    blocks = -(-at_once // way.block)
    scratch = empty(pivot_numbers(mode.pivoting) * sizes.num_steps * blocks * way.block, dtype)
    unknowns = np.reshape(sizes.num_steps if lengths is None else lengths, -1)
    unknowns, statuses = asarray(unknowns, np.int64), status.reshape(-1)
    for first in range(0, count, blocks * way.block):
        part = slice(first, first + blocks * way.block)
        some = unknowns if unknowns.size == 1 else unknowns[part]
        arguments = systems, first, some, scratch, result, statuses[part]
        launch(driver, blocks * way.block, *arguments, block=way.block, grid=blocks)
    layout.finish(out, result)
    return status


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

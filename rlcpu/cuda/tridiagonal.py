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
from rlcpu.cuda.device import (
    SIMULATED,
    SimulatedArray,
    asarray,
    cuda,
    empty,
    launch,
    to_host,
    xp,
    zeros,
)
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
from rlcpu.cuda.faults import Faults, report
from rlcpu.cuda.recurrences import DeviceStrided, constant, device_rule, lane_of, layout_of
from rlcpu.scan.arguments import Systems, multiply_gradients
from rlcpu.scan.tridiagonal.chunks import Mode
from rlcpu.scan.tridiagonal.equations import Pending, eliminate, scaled, substitute
from rlcpu.scan.tridiagonal.plans import Cut
from rlcpu.scan.tridiagonal.status import SingularSystemError, Status, TridiagonalInfo

__all__ = ["asarray", "empty", "multiply", "solve", "solve_ordinary", "solve_transposed", "xp"]

#: Threads of a multiprocessor at most: more systems take turns, so that scratch is not larger.
MOST = 4 if SIMULATED else 1024
SINGULAR, NOT_FINITE = int(Status.SINGULAR), int(Status.NOT_FINITE)

# ---------------------------------------------------------------- whole systems


class Descent(NamedTuple):
    """Holds what is left of the equations of a lane so far."""

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
    """Make the driver (systems, first, lengths, scratch, out, status, words).

    It solves as many systems as `status` int8 has numbers, from the system `first` on, and
    overwrites that with a `Status` for each. `lengths` int64 has the number of unknowns of each of
    them, or one for all; `scratch` n times `pivot_numbers` for each thread of the grid, which is
    of whole blocks of `way`; `out` is `DeviceStrided`; word 0 of `words` reports a failure.
    """
    descend = make_descend(dtype, way, make_elimination(dtype, pivoting))
    ascend = make_ascend(dtype, way, *make_substitution(dtype, pivoting))
    reader, zero, one = make_reader(way, dtype), dtype(0), dtype(1)

    @kernel(exact=True, max_registers=80)
    def solve_systems(systems, first, lengths, scratch, out, status, words):
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
                    report(words, 0, thread)

    return solve_systems


# ---------------------------------------------------------------- what the public functions ask for


def solve(systems: Systems, lengths: Any, mode: Mode, raises: bool) -> TridiagonalInfo:
    """Overwrite solutions, and return statuses on the device before that has happened.

    `lengths` are (batch...) int64 on the host, or None; of `mode` it counts whether to pivot. If
    it `raises`, it waits for the statuses, and raises SingularSystemError where a system fails.
    """
    arrays = [_moved_back(array, systems.axis) for array in systems.arrays]
    return TridiagonalInfo(_solve(arrays, systems.axis, lengths, mode, raises), None)


def solve_ordinary(
    arrays: tuple[Any, ...], out: Any, axis: int, mode: Mode, raises: bool
) -> tuple[Any, TridiagonalInfo] | None:
    """Solve contiguous arrays of one shape, with few checks: all make twice the calls of CuPy.

    `arrays` are lower, diagonal, upper and rhs, and may be anything, as may `out`.

    Returns:
        The solutions and their statuses; None if the arguments are not as simple as that.
    """
    rhs, kind = arrays[3], SimulatedArray if SIMULATED else xp.ndarray
    if type(rhs) is not kind or rhs.dtype.char not in "fd" or rhs.size == 0:
        return None
    for array in arrays if out is None else (*arrays, out):
        is_alike = type(array) is kind and array.shape == rhs.shape and array.dtype == rhs.dtype
        if not is_alike or not array.flags.c_contiguous or asarray(array) is not array:
            return None
    others = arrays[:3] if out is rhs else arrays  # out may be rhs, and no other one
    if not -rhs.ndim <= axis < rhs.ndim:
        return None
    if out is not None and any(xp.may_share_memory(out, array) for array in others):
        return None
    out = empty(rhs.shape, rhs.dtype) if out is None else out
    status = _solve((*arrays, out), axis % rhs.ndim, None, mode, raises)
    return out, TridiagonalInfo(status, None)


def solve_transposed(arrays: Any, axis: int) -> None:
    """Solve transposed systems (batch..., n), or raise SingularSystemError."""
    arrays = [_moved_back(array, axis) for array in arrays]
    _solve(arrays, axis, None, Mode(transposed=True), raises=True)


def _moved_back(array: Any, axis: int) -> Any:
    """Return an array (batch..., n) with the unknowns along an axis."""
    return array if axis == array.ndim - 1 else xp.moveaxis(array, -1, axis)


def _solve(arrays: Any, axis: int, lengths: Any, mode: Mode, raises: bool) -> Any:
    """Solve systems whose unknowns are along an axis, and return their statuses (batch...).

    `arrays` are lower, diagonal, upper, rhs and out, which is overwritten; for the others see
    `solve`.
    """
    lower, diagonal, upper, rhs, out = arrays
    if mode.transposed:
        lower, upper = upper, lower
    shape, dtype = (*out.shape[:axis], *out.shape[axis + 1 :]), out.dtype.type
    if out.size == 0:
        return zeros(shape, np.int8)
    layout = layout_of(out, axis)
    result, sizes = layout.strided(out), layout.sizes
    inputs = PlainEquation(*map(layout.strided, (lower, diagonal, upper, rhs)))
    systems = DeviceSystems(inputs, sizes, dtype(mode.pivoting))
    in_rows = sizes.inner == 1 and result.step_stride <= result.outer_stride
    way = way_of(in_rows, dtype, mode.transposed, mode.periodic)
    count, n = sizes.outer * sizes.inner, sizes.num_steps
    faults = Faults(lambda _: SingularSystemError(to_host(status))) if raises else None
    words = empty(1, np.int64) if faults is None else faults.words  # nobody reads the first
    cut = cut_of(count, n) if lengths is None else None
    if mode.periodic and cut is None:
        cut = Cut(1, n)
    if cut is None:
        status = empty(shape, np.int8)
        _solve_whole(systems, lengths, way, result, status.reshape(-1), words)
    else:
        status = solve_cut(systems, cut, way, result, words).astype(np.int8).reshape(shape)
    layout.finish(out, result)
    if faults is not None:
        if not SIMULATED:
            xp.cuda.get_current_stream().synchronize()
        faults.check()
    return status


def _solve_whole(
    systems: DeviceSystems, lengths: Any, way: Way, out: DeviceStrided, status: Any, words: Any
) -> None:
    """Solve each system by one thread; overwrites `out`, and `status` int8 of all systems."""
    dtype, sizes, pivoting = out.memory.dtype.type, systems.sizes, bool(systems.pivoting)
    driver, at_once = solve_kernel(dtype, pivoting, way), min(status.size, MOST * multiprocessors())
    blocks = -(-at_once // way.block)
    threads = blocks * way.block
    scratch = empty(pivot_numbers(pivoting) * sizes.num_steps * threads, dtype)
    unknowns = constant(sizes.num_steps, np.int64)
    if lengths is not None:
        unknowns = asarray(np.reshape(lengths, -1))
    for first in range(0, status.size, threads):
        part = slice(first, first + threads)
        some = unknowns if unknowns.size == 1 else unknowns[part]
        arguments = systems, first, some, scratch, out, status[part], words
        launch(driver, threads, *arguments, block=way.block, grid=blocks)


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

"""Many tridiagonal systems at once."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rlcpu.backends import cpu_only
from rlcpu.kernels.machine.memory import array_address
from rlcpu.kernels.machine.threads import check_num_threads, launch
from rlcpu.scan.arguments import Array, backend_of, check_lengths, check_systems
from rlcpu.scan.tridiagonal.blocks import NO_EXTRAS, SolvePlan
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, solve_arrays
from rlcpu.scan.tridiagonal.lanes import SOLVE, inputs_of
from rlcpu.scan.tridiagonal.panels import DRIVERS
from rlcpu.scan.tridiagonal.plans import LaneArguments, cut_systems, plan_of
from rlcpu.scan.tridiagonal.status import SingularSystemError, TridiagonalInfo, info_of, status_of

#: Whether a method pivots, see `equations`.
METHODS = {"pivot": True, "thomas": False}


def solve_tridiagonal(
    lower: npt.ArrayLike,
    diagonal: npt.ArrayLike,
    upper: npt.ArrayLike,
    rhs: npt.ArrayLike,
    *,
    axis: int = -1,
    method: Literal["pivot", "thomas"] = "pivot",
    periodic: bool = False,
    lengths: npt.ArrayLike | None = None,
    check: Literal["residual"] | None = None,
    return_info: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Any:
    """Solve lower[k] * x[k-1] + diagonal[k] * x[k] + upper[k] * x[k+1] = rhs[k] for x.

    Gaussian elimination with scaled partial pivoting, without branches, many systems at once. All
    axes but `axis` are batch axes; the four arrays broadcast. Rows, whose unknowns are side by side
    in memory, and columns, whose systems are, are computed where they lie. Other layouts are copied
    first, columns with `lengths` too, which takes about 1.5 times as long.

    Systems on a CUDA device are solved there, each by one thread, or in chunks where they are long
    and few: of 512 unknowns or more, fewer than 128 for each multiprocessor, and no `lengths`.
    Pivots take memory there: three numbers an unknown, two of whole systems without pivoting, and
    of these for 1,024 systems for each multiprocessor at most. With `return_info` the call returns
    before the statuses, which stay there, are known.

    One matrix for many right-hand sides is eliminated again for each of them: `factor_tridiagonal`
    takes about a third of the time.

    The componentwise backward error, in proportion to the terms of each equation, is some epsilons
    for ordinary systems. With 1e-14 for every second diagonal and ones elsewhere it is 3e2 epsilons
    in the worst of 1,280 systems of 1,000 unknowns, and 8e3 in LAPACK's worst of 80. Few systems of
    2,048 unknowns or more, and all of 32,768, are cut into chunks, which have less choice of
    pivots: a lone system of 10,000 such equations has up to 1e9 epsilons, and normwise, in
    proportion to the largest terms, 5e2. `check="residual"` mends that. On the host, solutions of
    chunks with a small pivot are refined; on a device none is: without it, the worst of 400,000
    random equations has 1e2 epsilons.

    Args:
        lower: coefficients below the diagonal, padded to n; `lower[0]` is ignored, whatever it is.
        diagonal: coefficients on the diagonal.
        upper: coefficients above it, padded to n; `upper[n-1]` is ignored, whatever it is.
        rhs: right-hand sides.
        axis: of the unknowns of a system, in the shape that the arrays broadcast to. All arrays but
            single numbers have it: for right-hand sides as columns, axis=0, a matrix of one axis is
            `lower[:, None]`, `diagonal[:, None]`, `upper[:, None]`.
        method: "pivot", or "thomas" for no pivoting: not faster, and accurate only where diagonals
            dominate, but without rounding where all pivots are exact.
        periodic: unknowns lie in a ring: `lower[0]` is the coefficient of x[n-1] and `upper[n-1]`
            that of x[0].
        lengths: whole numbers (batch...): system i has the first lengths[i] unknowns only. What is
            beyond is not read, and zero in the result.
        check: "residual" computes the backward error of every system, refines those above 2**7
            times the dtype's epsilon (without pivoting, too), and fails what stays above 2**13
            times. It takes longer, most of all where systems are refined.
        return_info: also return a status for each system, and raise no `SingularSystemError`.
        out: array of the result's shape and dtype, overwritten with it; `rhs` itself or no input.
        num_threads: at most so many; None for all. The result does not depend on it.

    Returns:
        x, of the shape that the arrays broadcast to; `out` if given. With `return_info` the pair
        of x and a `TridiagonalInfo`.

    Raises:
        SingularSystemError: a system has no finite solution or holds NaN or infinity, or its
            backward error is too large. The content of `out` is then undefined; with `return_info`
            it holds the other solutions.
        NotImplementedError: an array is on a CUDA device, and `check` is asked for, or `periodic`
            with `lengths`.
        TypeError: an array is neither float32, float64 nor of whole numbers (which are converted),
            or float32 and float64 are mixed.
        ValueError: shapes do not broadcast, an array lacks the axis of the unknowns, off-diagonals
            are shorter than the diagonal, or an argument is out of its range.

    Source: Golub and Van Loan, Matrix Computations, 4th edition, sections 3.4 and 3.5.2.

    Example:
        >>> solve_tridiagonal(-1.0, 2.0, -1.0, np.ones((2, 3)))
        array([[1.5, 2. , 1.5],
               [1.5, 2. , 1.5]])
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, METHODS))}")
    if check is not None and not (isinstance(check, str) and check == "residual"):
        raise ValueError(f'check={check!r}: expected "residual" or None')
    if num_threads is not None:
        num_threads = check_num_threads(num_threads)
    mode = Mode(METHODS[method], bool(periodic), num_threads=num_threads)
    is_ordinary = type(axis) is int and lengths is None and check is None and not periodic
    arrays = lower, diagonal, upper, rhs
    if is_ordinary and axis == -1:
        result = _solve_ordinary(arrays, out, METHODS[method], num_threads)
        if result is not None:
            info = TridiagonalInfo(np.zeros(result.shape[:-1], np.int8), None)
            return (result, info) if return_info else result
    backend = backend_of("tridiagonal", rhs, diagonal)
    if is_ordinary and backend is not None:
        solved = backend.solve_ordinary(arrays, out, axis, mode, raises=not return_info)
        if solved is not None:
            return solved if return_info else solved[0]
    if backend is not None and (check is not None or (periodic and lengths is not None)):
        options = 'check="residual"' if check is not None else "periodic=True and lengths"
        raise cpu_only(f"solve_tridiagonal with {options}")
    systems = check_systems(arrays, axis, out, backend)
    *batch, n = systems.arrays[0].shape
    ends = None if lengths is None else check_lengths(lengths, tuple(batch), n)
    if backend is None:
        info = _solve(Arrays(*systems.arrays), ends, mode, check is not None)
    else:
        info = backend.solve(systems, ends, mode, raises=not return_info)
    result = systems.result if out is None else out
    if return_info:
        return result, info
    if backend is None and info.status.any():
        raise SingularSystemError(info.status)
    return result


def _solve(arrays: Arrays, lengths: Array | None, mode: Mode, check: bool) -> TridiagonalInfo:
    """Overwrite `arrays.out` (batch..., n) with solutions, and return the status of each.

    `lengths` is (batch...) or None; with `check` backward errors are computed, too.
    """
    status = np.zeros(arrays.out.shape[:-1], np.int8)
    is_finite, errors = solve_arrays(arrays, lengths, mode, check)
    if not is_finite:

        def solve(*some: Array) -> Array:
            """Return the solutions of some systems, see `status_of`."""
            lower, diagonal, upper, rhs, lengths = some
            solve_arrays(Arrays(lower, diagonal, upper, rhs, rhs), lengths.copy(), mode)
            return rhs

        status = status_of(arrays, lengths, mode.periodic, solve)
    return info_of(status, errors)


# ---------------------------------------------------------------- ordinary calls


def _solve_ordinary(
    arrays: tuple[Any, ...], out: Any, pivoting: bool, num_threads: int | None
) -> Array | None:
    """Solve systems along the last axis of contiguous arrays of one shape, with few checks.

    All checks take 30 us; 4 systems of 16 take 9. `arrays` are lower, diagonal, upper and rhs, and
    may be anything.

    Returns:
        The result, all of it finite; None if a system fails or the arguments are not as simple as
        that; the inputs are then as they were.
    """
    lower, diagonal, upper, rhs = arrays
    if not (
        type(lower) is type(diagonal) is type(upper) is type(rhs) is np.ndarray
        and lower.shape == diagonal.shape == upper.shape == rhs.shape
        and lower.dtype is diagonal.dtype is upper.dtype is rhs.dtype
        and (out is None or _may_write(out, arrays))
    ):
        return None
    for array in arrays:
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            return None
    plan = _ordinary_plan(rhs.shape, rhs.dtype, pivoting)
    if plan is None:
        return None
    x = np.empty_like(rhs) if out is None else out
    inputs = array_address(lower), array_address(diagonal), array_address(upper), array_address(rhs)
    addresses = np.array([*inputs, array_address(x)])
    extras = NO_EXTRAS[rhs.dtype.type]
    if launch(DRIVERS, x.size, num_threads, plan.address, extras.address, addresses):
        return x
    return None


@functools.lru_cache(maxsize=256)
def _ordinary_plan(shape: tuple[int, ...], dtype: Any, pivoting: bool) -> SolvePlan | None:
    """Return the plan of ordinary systems, cached; None for others, and for those that are cut."""
    if dtype.char not in "fd" or not dtype.isnative or not shape or 0 in shape:
        return None
    n = shape[-1]
    count = math.prod(shape) // n
    # Axes: systems, unknowns, and lanes side by side. Memory that is not touched is not there.
    like = np.empty((count, n, 1), dtype)
    if cut_systems(count, n, dtype):
        return None
    return plan_of(SOLVE, inputs_of([like] * 4), like, LaneArguments(pivoting=pivoting))


def _may_write(out: Any, arrays: tuple[Any, ...]) -> bool:
    """Tell whether a result may be written to an array without further checks.

    `arrays` are lower, diagonal, upper and rhs.
    """
    if type(out) is not np.ndarray or out.shape != arrays[3].shape:
        return False
    if out.dtype is not arrays[3].dtype or not out.flags.carray:
        return False
    return not any(np.may_share_memory(out, array) for array in arrays)

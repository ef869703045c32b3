"""Many tridiagonal systems at once."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads
from rlcpu.scan.device import is_on_device, on_device
from rlcpu.scan.tridiagonal.drive import METHODS, Mode, solve_arrays
from rlcpu.scan.tridiagonal.input import check_lengths, check_systems, is_same
from rlcpu.scan.tridiagonal.long import How, is_long, solve_cut
from rlcpu.scan.tridiagonal.plain import SPARED, solve_plain
from rlcpu.scan.tridiagonal.plan import REFINED, Array, Arrays, Extras, batch_order
from rlcpu.scan.tridiagonal.rings import are_rings
from rlcpu.scan.tridiagonal.status import SingularSystemError, Status, TridiagonalInfo
from rlcpu.scan.tridiagonal.tall import is_tall

#: Backward errors above this multiple of the dtype's epsilon are failures: partial pivoting stays
#: below 1,000 on random matrices, and elimination without it reaches 1e13.
INACCURATE = 2**13


class Work(NamedTuple):
    """Systems (batch..., n) to be solved, their lengths as given, whether to check, and how."""

    arrays: Arrays
    lengths: Any
    check: bool
    mode: Mode


class Done(NamedTuple):
    """Systems, out being where their solutions are; whether all of these are finite."""

    arrays: Arrays
    extras: Extras
    well: bool


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
    axes but `axis` are batch axes; the four arrays broadcast.

    In proportion to the largest terms of a system the backward error is tens of epsilons. In
    proportion to the terms of each equation it can be larger: with 1e-14 for every second diagonal
    and ones elsewhere 1e5 epsilons for one system of 1,000 unknowns, where LAPACK has 1e2.
    `check="residual"` mends that.

    Args:
        lower: coefficients below the diagonal; `lower[0]` is ignored, whatever it is.
        diagonal: coefficients on the diagonal.
        upper: coefficients above the diagonal; `upper[n-1]` is ignored, whatever it is.
        rhs: right-hand sides.
        axis: of the unknowns of a system, in the shape that the arrays broadcast to.
        method: "pivot", or "thomas" for no pivoting: not faster, and accurate only where diagonals
            dominate, but without rounding where all pivots are exact.
        periodic: unknowns lie in a ring: `lower[0]` is the coefficient of x[n-1] and `upper[n-1]`
            that of x[0].
        lengths: whole numbers (batch...): system i has the first lengths[i] unknowns only. What is
            beyond is not read, and zero in the result.
        check: "residual" computes the backward error of every system, refines those above 2**7
            times the dtype's epsilon (without pivoting, too), and fails what stays above 2**13
            times. It takes half as long again.
        return_info: also return a status for each system, and raise no `SingularSystemError`.
        out: array of the result's shape and dtype, overwritten with it; `rhs` itself or no input.
        num_threads: at most so many; None for all. The result does not depend on it.

    Returns:
        x, of the shape that the arrays broadcast to; `out` if given. With `return_info` the pair
        of x and a `TridiagonalInfo`.

    Raises:
        SingularSystemError: a system has no finite solution or holds NaN or infinity, or its
            backward error is too large. Nothing is written to `out` if it is of at most 16,384
            numbers; nor if systems are of at least 32,768 unknowns, unless an unknown overflows or
            a backward error is too large. Otherwise `out` may then hold the other solutions, and
            numbers that are not finite for these, as it does with `return_info`.
        TypeError: an array is neither float32, float64 nor of whole numbers (which are converted),
            or float32 and float64 are mixed.
        ValueError: shapes do not broadcast, or an argument is out of its range.

    Source: Golub and Van Loan, Matrix Computations, 4th edition, sections 3.4 and 3.5.2.

    Example:
        >>> solve_tridiagonal(-1.0, 2.0, -1.0, np.ones((2, 3)))
        array([[1.5, 2. , 1.5],
               [1.5, 2. , 1.5]])
    """
    if is_on_device(rhs) or is_on_device(diagonal):
        return on_device("solve_tridiagonal", locals())
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, METHODS))}")
    if check is not None and not (isinstance(check, str) and check == "residual"):
        raise ValueError(f'check={check!r}: expected "residual" or None')
    if num_threads is not None:
        num_threads = check_num_threads(num_threads)
    if type(axis) is int and axis == -1 and lengths is None and check is None and not periodic:
        result = solve_plain(lower, diagonal, upper, rhs, out, method, num_threads)
        if result is not None:
            info = TridiagonalInfo(np.zeros(result.shape[:-1], np.int8), None)
            return (result, info) if return_info else result
    systems = check_systems((lower, diagonal, upper, rhs), axis, out)
    work = Work(systems.arrays, lengths, check is not None, Mode(method, bool(periodic)))
    done = _solve(work, out is not None and not return_info, num_threads)
    info = _inspect(done, work.mode)
    if return_info:
        return systems.result, info
    if info.status.any():
        raise SingularSystemError(info.status)
    if done.arrays.out is not systems.arrays.out:
        systems.arrays.out[...] = done.arrays.out
    return systems.result


def _solve(work: Work, spare: bool, num_threads: int | None) -> Done:
    """Solve systems; with `spare` in other memory than out if they are few.

    If they are long, with `spare`, nothing is written to out where one of them fails.
    """
    arrays, few = work.arrays, work.arrays.out.size <= SPARED
    cut = is_long(arrays.out)
    if work.mode.periodic:
        cut = work.lengths is not None or not are_rings(arrays.out)
    if spare and not few and cut:
        extras = _extras(arrays, work)
        well = _solve_spared(arrays, extras, work.mode, num_threads)
        if well is not None:
            return Done(arrays, extras, well)
        few = True  # in other memory, for a status of each system
    if spare and few:
        arrays = arrays._replace(out=np.empty_like(arrays.out))
    extras = _extras(arrays, work)
    return Done(arrays, extras, bool(solve_arrays(arrays, extras, work.mode, num_threads)))


def _solve_spared(
    arrays: Arrays, extras: Extras, mode: Mode, num_threads: int | None
) -> bool | None:
    """Solve long systems; None, with nothing written, where one of them fails."""
    if is_tall(arrays.out) and not mode.periodic:
        return solve_arrays(arrays, extras, mode, num_threads, spare=True)
    limit = REFINED * float(np.finfo(arrays.out.dtype).eps)
    how = How(METHODS[mode.method], mode.periodic, num_threads, spare=True)
    return solve_cut(arrays, extras, limit, how)


def _order(arrays: Arrays) -> tuple[int, ...]:
    return batch_order(arrays.out.shape, arrays.out.strides)


def _extras(arrays: Arrays, work: Work) -> Extras:
    """What goes with each system, in the order that a plan wants."""
    order, lengths = _order(arrays), work.lengths
    if lengths is not None:
        lengths = np.ascontiguousarray(check_lengths(lengths, arrays).transpose(order))
    shape = [arrays.out.shape[i] for i in order]
    return Extras(lengths, np.zeros(shape, arrays.out.dtype) if work.check else None)


def _inspect(done: Done, mode: Mode) -> TridiagonalInfo:
    """What became of each system."""
    arrays, extras, well = done
    status, errors = np.zeros(arrays.out.shape[:-1], np.int8), extras.errors
    if well and errors is None:
        return TridiagonalInfo(status, None)
    back = np.argsort(_order(arrays))
    if errors is not None:
        errors = errors.transpose(back)
        limit = INACCURATE * np.finfo(errors.dtype).eps
        status[errors > limit] = Status.INACCURATE
    if not well:
        lengths = extras.lengths
        lengths = None if lengths is None else lengths.transpose(back)
        _classify(arrays, lengths, status, mode)
        if errors is not None:
            errors[(status == Status.SINGULAR) | (status == Status.NOT_FINITE)] = np.nan
    return TridiagonalInfo(status, errors)


def _classify(arrays: Arrays, lengths: Array | None, status: Array, mode: Mode) -> None:
    """Mark systems without finite solution as singular or as not finite."""
    failed = ~np.isfinite(arrays.out).all(-1)
    n = arrays.out.shape[-1]
    own = [np.array(array[failed]) for array in arrays]  # a few, so that copies are cheap
    ends = np.full(len(own[0]), n) if lengths is None else lengths[failed]
    k = np.arange(n)
    inside = k < ends[:, None]
    finite = np.ones_like(inside)
    for array, used in zip(
        own[:3], (k > -mode.periodic, k >= 0, k < ends[:, None] - 1 + mode.periodic), strict=True
    ):
        finite &= np.isfinite(array) | ~(inside & used)
    sound: Any = finite.all(-1)
    if is_same(arrays.out, arrays.rhs):
        # Its right-hand side is overwritten: a matrix that solves for zero was not to blame.
        zeros = np.zeros_like(own[3])
        alone = Arrays(own[0], own[1], own[2], zeros, zeros)
        solve_arrays(alone, Extras(np.ascontiguousarray(ends)), mode)
        blameless = np.isfinite(zeros).all(-1, keepdims=True)[..., 0]
    else:
        blameless = (~np.isfinite(own[3]) & inside).any(-1, keepdims=True)[..., 0]
    status[failed] = np.where(sound & ~blameless, Status.SINGULAR, Status.NOT_FINITE)

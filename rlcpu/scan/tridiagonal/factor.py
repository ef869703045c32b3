"""Tridiagonal matrices that are factored once and solved with many times.

The elimination of `equations` in two parts: what it does to the matrix is kept, and is done later
to any right-hand side. Five numbers an equation are left, and no division.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.memory import VECTOR_BYTES, address, store_first
from rlcpu.kernels.threads import check_num_threads
from rlcpu.kernels.vectors import fill, fma, inverse_power, maximum, where
from rlcpu.scan.arguments import (
    Array,
    axis_last,
    check_alike,
    check_axis,
    check_out,
    check_real,
    common_shape,
    is_same,
    repeated,
)
from rlcpu.scan.blocks import SOON, Lanes, ask, get, put, read, run, shared, write
from rlcpu.scan.device import check_on_host
from rlcpu.scan.gather import ONE
from rlcpu.scan.plans import Input, fitted, inlined, make_plan, share
from rlcpu.scan.tridiagonal.equations import is_better
from rlcpu.scan.tridiagonal.status import (
    SingularMatrixError,
    SingularSystemError,
    Status,
    status_of,
)

# ---------------------------------------------------------------- rules, of numbers or vectors


class Row(NamedTuple):
    """lower * x[k-1] + diagonal * x[k] + upper * x[k+1], without a right-hand side."""

    lower: Any
    diagonal: Any
    upper: Any


class Rest(NamedTuple):
    """diagonal * x[k] + upper * x[k+1]: what is left of the rows above."""

    diagonal: Any
    upper: Any


class Multiplier(NamedTuple):
    """What frees an equation or the pending one of x[k].

    Attributes:
        scale: power of two that the equation is multiplied by; negative if it is the pivot.
        factor: of the pivot, which is added to the other one.
    """

    scale: Any
    factor: Any


class Factors(NamedTuple):
    """x[k] = inverse * rhs - upper * x[k+1] - second * x[k+2]."""

    inverse: Any
    upper: Any
    second: Any


@inlined
def factor_row(rest: Rest, row: Row) -> tuple[Multiplier, Factors, Rest]:
    """Free one of two rows of x[k]; the other one is the pivot.

    A pivot of zero makes all that follows NaN.
    """
    size = maximum(maximum(abs(row.lower), abs(row.upper)), abs(row.diagonal))
    scale = inverse_power(size)
    lower, diagonal, upper = row.lower * scale, row.diagonal * scale, row.upper * scale
    swap = is_better(rest, Row(lower, diagonal, upper), 1.0)
    inverse = 1.0 / where(swap, lower, rest.diagonal)
    factor = -where(swap, rest.diagonal, lower) * inverse
    next_to = where(swap, diagonal, rest.upper)
    second = where(swap, upper, 0.0)
    below = Rest(
        fma(factor, next_to, where(swap, rest.upper, diagonal)),
        fma(factor, second, where(swap, 0.0, upper)),
    )
    multiplier = Multiplier(where(swap, -scale, scale), factor)
    return multiplier, Factors(inverse, next_to * inverse, second * inverse), below


@inlined
def advance(pending: Any, rhs: Any, multiplier: Multiplier) -> tuple[Any, Any]:
    """Right-hand sides of the pivot and of what is pending, from the pending one and the next."""
    equation = rhs * abs(multiplier.scale)
    swap = multiplier.scale < 0.0
    pivot = where(swap, equation, pending)
    return pivot, fma(multiplier.factor, pivot, where(swap, pending, equation))


@inlined
def back(rhs: Any, following: Any, second: Any, factors: Factors) -> Any:
    """x[k] from the pivot's right-hand side, x[k+1] and x[k+2]."""
    known = fma(-factors.second, second, rhs * factors.inverse)
    return fma(-factors.upper, following, known)


# ---------------------------------------------------------------- one lane

# Elimination goes from both ends to the middle, where the rest of the lower half frees that of the
# upper half of x[half]: two chains of dependent operations hide each other's latency.

#: Planes of numbers: first lower, diagonal and upper coefficients, then the factors of the same
#: equation in their place, and its multiplier. x[half - 1] follows from no other unknown: the
#: multiplier of the middle is in the place of what it would have of x[half] and x[half + 1].
INVERSE, UPPER, SECOND, SCALE, MULTIPLE, RHS = range(6)
FACTORS = 5  # planes of factors


def make_factor(read: Callable[..., Any], write: Callable[..., Any]) -> Any:
    """Function: (block, rows, zero) factors in place; returns zeros, NaN where that is impossible.

    The number of rows is even.

    Args:
        read: number or vector of (block, input, row).
        write: writes one: (number, block, output, row).
    """

    @inlined
    def keep(factors, block, k):
        write(factors.inverse, block, INVERSE, k)
        write(factors.upper, block, UPPER, k)
        write(factors.second, block, SECOND, k)
        return (factors.inverse * 0.0 + factors.upper * 0.0) + factors.second * 0.0

    @inlined
    def multiply(multiplier, block, k):
        write(multiplier.scale, block, SCALE, k)
        write(multiplier.factor, block, MULTIPLE, k)
        return multiplier.factor * 0.0

    @inlined
    def factor(block, n, zero):
        half, last, trace = n // 2, n - 1, zero
        falling = rising = Rest(zero + 1.0, zero)
        for i in range(half):
            row = Row(read(block, 0, i), read(block, 1, i), read(block, 2, i))
            multiplier, above, falling = factor_row(falling, row)
            trace = trace + multiply(multiplier, block, i)
            k = last - i
            row = Row(read(block, 2, k), read(block, 1, k), read(block, 0, k))
            multiplier, below, rising = factor_row(rising, row)
            trace = trace + multiply(multiplier, block, k)
            if i > 0:
                trace = trace + keep(above, block, i - 1) + keep(below, block, k + 1)
        middle = Row(falling.upper, falling.diagonal, zero)
        multiplier, below, rest = factor_row(rising, middle)
        above = Factors(1.0 / rest.diagonal, multiplier.scale, multiplier.factor)
        return trace + keep(above, block, half - 1) + keep(below, block, half)

    return factor


class Access(NamedTuple):
    """How a lane's numbers, or vectors of them, are read and written.

    Attributes:
        factor: factors: (block, plane, row).
        read: right-hand sides: (block, row).
        get: what `put` wrote: (block, row).
        put: keeps a number until `get`: (number, block, row).
        write: writes an unknown: (number, block, row).
        ask: called once for each row, evenly, with its number and a row that is read soon: a core
            has few lines on the way.
    """

    factor: Callable[..., Any]
    read: Callable[..., Any]
    get: Callable[..., Any]
    put: Callable[..., Any]
    write: Callable[..., Any]
    ask: Callable[..., Any]


def make_solve(access: Access) -> Any:
    """Function: (block, rows, zero) solves; returns zeros, NaN where x is not finite."""
    factor, read, get, put, write, ask = access

    @inlined
    def down(pending, block, k):
        multiplier = Multiplier(factor(block, SCALE, k), factor(block, MULTIPLE, k))
        return advance(pending, read(block, k), multiplier)

    @inlined
    def up(following, second, block, k):
        inverse, upper = factor(block, INVERSE, k), factor(block, UPPER, k)
        factors = Factors(inverse, upper, factor(block, SECOND, k))
        x = back(get(block, k), following, second, factors)
        write(x, block, k)
        return x

    @inlined
    def solve(block, n, zero):
        half, last = n // 2, n - 1
        falling = rising = zero
        for i in range(half):
            ask(block, 2 * i, i + SOON)
            above, falling = down(falling, block, i)
            ask(block, 2 * i + 1, last - i - SOON)
            below, rising = down(rising, block, last - i)
            if i > 0:
                put(above, block, i - 1)
                put(below, block, last - i + 1)
        middle = Multiplier(factor(block, UPPER, half - 1), factor(block, SECOND, half - 1))
        pivot, pending = advance(rising, falling, middle)
        above = pending * factor(block, INVERSE, half - 1)
        write(above, block, half - 1)
        put(pivot, block, half)
        below = up(above, zero, block, half)
        after_above, after_below = below, above
        for i in range(1, half):
            x = up(above, after_above, block, half - 1 - i)
            after_above, above = above, x
            x = up(below, after_below, block, half + i)
            after_below, below = below, x
        return (above - above) + (below - below)

    return solve


# ---------------------------------------------------------------- drivers

#: Unknowns from which a few systems are solved one by one: lanes need scratch of 64 bytes for each
#: of their numbers, and most lanes would be empty.
LONG = 2**14


@inlined
def _factor_shared(block, plane, k):
    return fill(shared(block)[plane * block.rows + k], ONE)


def _access_block(factor: Callable[..., Any], rhs: int) -> Access:
    """Right-hand sides are an input, and a plane, of that number; unknowns are the only output."""

    @inlined
    def read_rhs(block, k):
        return read(block, rhs, k)

    @inlined
    def get_rhs(block, k):
        return get(block, rhs, k)

    @inlined
    def put_rhs(number, block, k):
        put(number, block, rhs, k)

    @inlined
    def write_x(number, block, k):
        write(number, block, 0, k)

    return Access(factor, read_rhs, get_rhs, put_rhs, write_x, ask)


@inlined
def _get_number(arrays, plane, k):
    return fill(arrays[plane][k], ONE)


@inlined
def _put_number(number, arrays, plane, k):
    store_first(number, address(arrays[plane]), k, 1)


@inlined
def _get_rhs(arrays, k):
    return _get_number(arrays, RHS, k)


@inlined
def _put_rhs(number, arrays, k):
    _put_number(number, arrays, RHS, k)


@inlined
def _ask_nothing(arrays, number, later):
    pass


def _make_lanes(function: Callable[..., Any], **options: Any) -> Lanes:
    @inlined
    def on_block(block, parameter):
        return function(block, block.rows, fill(parameter, ONE))

    return Lanes(on_block, **options)


def _make_loop(function: Callable[..., Any]) -> Any:
    """Kernel: (planes, rows, zero) -> whether all is finite; of one system's arrays (n,)."""

    @kernel(fastmath=EXACT)
    def run(planes, n, zero):
        trace = np.empty(1, planes[0].dtype)
        store_first(function(planes, n, fill(zero, ONE)), address(trace), 0, 1)
        return not np.isnan(trace[0])

    return run


_ONE = Access(_get_number, _get_rhs, _get_rhs, _put_rhs, _put_rhs, _ask_nothing)
FACTOR = _make_lanes(make_factor(read, write), planes=FACTORS, outputs=tuple(range(FACTORS)))
FACTOR_ONE = _make_loop(make_factor(_get_number, _put_number))
SOLVE = _make_lanes(make_solve(_access_block(read, RHS)), planes=RHS + 1, outputs=(RHS,))
SOLVE_SHARED = _make_lanes(make_solve(_access_block(_factor_shared, 0)), planes=1, outputs=(0,))
SOLVE_ONE = _make_loop(make_solve(_ONE))


def _even(n: int) -> int:
    """Rows for so many unknowns: whole pairs."""
    return max(n + n % 2, 2)


def _is_few(count: int, dtype: Any) -> bool:
    """Whether more than half of the lanes would be empty."""
    return count < VECTOR_BYTES // dtype.itemsize // 2


def _factor(coefficients: list[Array], num_threads: int | None) -> tuple[list[Array], bool]:
    """Five arrays (batch..., n) of factors, or a row longer, and whether all are finite."""
    shape, dtype = coefficients[0].shape, coefficients[0].dtype
    if _is_few(math.prod(shape[:-1]), dtype):
        planes = np.zeros((FACTORS, *shape[:-1], _even(shape[-1])), dtype)
        planes[1] = 1.0
        planes[:3, ..., : shape[-1]] = coefficients
        planes[0, ..., 0] = planes[2, ..., shape[-1] - 1] = 0.0
        matrices = planes.reshape(FACTORS, -1, planes.shape[-1])
        wells = [
            FACTOR_ONE(tuple(matrices[:, i]), planes.shape[-1], dtype.type(0.0))
            for i in range(matrices.shape[1])
        ]
        return list(planes), all(wells)
    # In memory as the coefficients that are not repeated.
    like = max(coefficients, key=lambda array: sum(stride != 0 for stride in array.strides))
    found = [np.empty_like(like) for _ in range(FACTORS)]
    lower, diagonal, upper = map(fitted, coefficients)
    plan = make_plan([Input(lower, 0, -1), Input(diagonal, 1), Input(upper, 0, 1)], found)
    return found, run(FACTOR, plan, like.dtype, 0.0, like.size, num_threads)


# ---------------------------------------------------------------- public


class TridiagonalFactors:
    """What `factor_tridiagonal` returns: matrices without division or search for pivots.

    Attributes:
        shape: of the matrices' coefficients, broadcast.
        axis: of the unknowns, as it was given.
        dtype: float32 or float64.
    """

    def __init__(self, planes: list[Array], shape: tuple[int, ...], axis: int) -> None:
        self.shape, self.axis, self.dtype = shape, axis, planes[0].dtype
        self._planes, self._batch = planes, planes[0].shape[:-1]
        one = math.prod(self._batch) == 1
        self._shared = np.array([plane.reshape(-1) for plane in planes]) if one else None

    def __repr__(self) -> str:
        return f"TridiagonalFactors(shape={self.shape}, axis={self.axis}, dtype={self.dtype})"

    def solve(
        self,
        rhs: npt.ArrayLike,
        *,
        axis: int | None = None,
        out: Array | None = None,
        num_threads: int | None = None,
    ) -> Array:
        """The x of A x = rhs.

        Args:
            rhs: right-hand sides of the matrices' dtype, n numbers along `axis`; the matrices
                broadcast to its other axes. Whole numbers are converted.
            axis: of the unknowns in `rhs`; by default the one that was given for the matrices.
            out: of rhs's shape and dtype, overwritten with x; may be rhs itself.
            num_threads: at most so many threads; all by default.

        Returns:
            x, of rhs's shape; `out` if given.

        Raises:
            NotImplementedError: rhs is on a CUDA device.
            TypeError: rhs or out is of another dtype.
            ValueError: the length of the axis is another, the other axes do not fit, an argument is
                out of range, or `out` is read-only or overlaps rhs without being it.
            SingularMatrixError: some x is not finite, because rhs is not or because it is too
                large; the content of `out` is undefined then.

        Example:
            >>> factors = factor_tridiagonal([0.0, 1.0], [2.0, 2.0], [1.0, 0.0])
            >>> factors.solve([[3.0, 3.0], [2.0, 1.0]])
            array([[1., 1.],
                   [1., 0.]])
        """
        check_on_host("TridiagonalFactors.solve", rhs=rhs)
        rhs = check_real("rhs", rhs, self.dtype)
        axis = self._check_shape(self.axis if axis is None else axis, rhs)
        num_threads = check_num_threads(num_threads)
        if out is not None:
            check_out("out", out, rhs, [rhs], may_be=rhs)
        if rhs.size == 0:
            return np.empty_like(rhs) if out is None else out
        result = np.empty_like(rhs) if out is None else out
        right, target = axis_last(rhs, axis), axis_last(result, axis)
        if not self._solve(right, target, num_threads):
            finite = np.isfinite(target).all(-1)
            raise SingularMatrixError(
                np.where(finite, Status.SOLVED, Status.NOT_FINITE).astype(np.int8)
            )
        return result

    def _solve(self, rhs: Array, out: Array, num_threads: int | None) -> bool:
        """Overwrite `out` (batch..., n); whether all of it is finite."""
        batch, n = out.shape[:-1], out.shape[-1]
        if n > LONG and _is_few(math.prod(batch), self.dtype):
            return self._solve_each(rhs, out)
        source, target = fitted(rhs), out if fitted(out) is out else np.empty_like(out)
        if self._shared is not None:
            plan = share(make_plan([Input(source)], [target]), self._shared)
            well = run(SOLVE_SHARED, plan, self.dtype, 0.0, target.size, num_threads)
        else:
            planes = [repeated(plane[..., :n], out.shape) for plane in self._planes]
            plan = make_plan([Input(array) for array in (*planes, source)], [target])
            well = run(SOLVE, plan, self.dtype, 0.0, target.size, num_threads)
        if target is not out:
            out[...] = target
        return well

    def _solve_each(self, rhs: Array, out: Array) -> bool:
        """The same, one system after the other."""
        batch, n = out.shape[:-1], out.shape[-1]
        numbers = np.arange(math.prod(self._batch)).reshape(self._batch)
        planes = [plane.reshape(-1, plane.shape[-1]) for plane in self._planes]
        wells, x = [], np.zeros(_even(n), self.dtype)
        for place, number in np.ndenumerate(np.broadcast_to(numbers, batch)):
            x[:n] = rhs[place]
            arrays = (*(plane[number] for plane in planes), x)
            wells.append(SOLVE_ONE(arrays, len(x), self.dtype.type(0.0)))
            out[place] = x[:n]
        return all(wells)

    def _check_shape(self, axis: int, rhs: Array) -> int:
        """The axis, if the matrices fit."""
        axis, n = check_axis(axis, rhs.shape, "rhs"), self.shape[self.axis]
        if rhs.shape[axis] != n:
            raise ValueError(f"rhs: expected {n} numbers along axis {axis}, got shape {rhs.shape}")
        others = rhs.shape[:axis] + rhs.shape[axis + 1 :]
        pairs = zip(reversed(self._batch), reversed(others), strict=False)
        if len(self._batch) > len(others) or any(m not in (1, r) for m, r in pairs):
            raise ValueError(
                f"rhs: the matrices' shape {self._batch} does not broadcast to {others}, "
                f"its shape without axis {axis}"
            )
        return axis


def factor_tridiagonal(
    lower: npt.ArrayLike,
    diagonal: npt.ArrayLike,
    upper: npt.ArrayLike,
    *,
    axis: int = -1,
    num_threads: int | None = None,
) -> TridiagonalFactors:
    """Factor tridiagonal matrices, to solve with them many times.

    Equation k of a matrix is lower[k] * x[k-1] + diagonal[k] * x[k] + upper[k] * x[k+1]. Scaled
    partial pivoting: Golub and Van Loan, Matrix Computations, 4th edition, section 3.5.2.

    Args:
        lower: float32 or float64 that broadcasts with the others, n numbers along `axis`, of which
            the first is ignored; whole numbers are converted.
        diagonal: the same.
        upper: the same; the last number along the axis is ignored.
        axis: of the unknowns; the other axes are those of a batch of matrices.
        num_threads: at most so many threads; all by default.

    Returns:
        Factors, whose `solve` takes right-hand sides.

    Raises:
        NotImplementedError: an array is on a CUDA device.
        TypeError: an array is of another dtype than the others.
        ValueError: shapes do not broadcast, there are no unknowns, or an argument is out of range.
        SingularMatrixError: some matrices are singular or not finite.

    Example:
        >>> factor_tridiagonal([0.0, 1.0], [2.0, 2.0], [1.0, 0.0]).solve([3.0, 3.0])
        array([1., 1.])
    """
    named = {"lower": lower, "diagonal": diagonal, "upper": upper}
    check_on_host("factor_tridiagonal", **named)
    given = check_alike(named)
    shape = common_shape(named, given)
    place = check_axis(axis, shape, "lower, diagonal and upper")
    num_threads = check_num_threads(num_threads)
    if shape[place] == 0:
        raise ValueError(f"lower, diagonal, upper: no unknowns along axis {place} of shape {shape}")
    whole = [axis_last(repeated(array, shape), place) for array in given]
    planes, well = _factor(whole, num_threads)
    if not well:
        # Factors in the place of a solution: they are finite where that would be.
        finite = np.abs(planes).max(0)[..., : shape[place]]
        arrays = (*whole, np.zeros(finite.shape), finite)
        status = status_of(arrays, None, periodic=False)
        raise SingularMatrixError(status, "matrices not factored")
    return TridiagonalFactors(planes, shape, int(axis))


# ---------------------------------------------------------------- many systems of one matrix

#: Systems, and right-hand sides' numbers, from which one matrix is factored to be solved with: it
#: takes 1.3 to 2.0 times less than whole systems, and in the caches 1.1 to 1.2 times less.
SYSTEMS, NUMBERS = 64, 2**17


def is_shared(arrays: Sequence[Array]) -> bool:
    """Whether lower, diagonal and upper (batch..., n) are one matrix that many rhs share."""
    batch = arrays[3].shape[:-1]
    strides = [array.strides[i] for array in arrays[:3] for i, n in enumerate(batch) if n > 1]
    return math.prod(batch) >= SYSTEMS and arrays[3].size >= NUMBERS and not any(strides)


def solve_shared(arrays: Sequence[Array], num_threads: int | None) -> bool:
    """Solve systems of one matrix.

    Args:
        arrays: lower, diagonal, upper, rhs and out (batch..., n).
        num_threads: of the kernels; None for all.

    Returns:
        Whether out holds all solutions, and all are finite. If not, rhs is as it was.
    """
    *matrix, rhs, out = arrays
    if not is_shared(arrays) or is_same(out, rhs):
        return False
    first = (0,) * (out.ndim - 1)
    try:
        factors = factor_tridiagonal(*(array[first] for array in matrix), num_threads=num_threads)
        factors.solve(rhs, out=out, num_threads=num_threads)
    except SingularSystemError:
        return False
    return True

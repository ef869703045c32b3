"""Tridiagonal matrices that are solved with many times: factored if there is one.

Systems of one matrix take about half the time with factors, five numbers an equation that all of
them read. Where each has a matrix of its own, reading five numbers takes as long as eliminating.

`run` computes systems side by side, a lane each, by a lane function, here `FACTORED`; factors, an
array (FACTORS, rows), are its `shared` input. `layout_of_systems` says how arrays lie for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import EXACT, inline, kernel
from rlcpu.kernels.machine.memory import address, store
from rlcpu.kernels.machine.threads import check_num_threads
from rlcpu.kernels.machine.vectors import fill
from rlcpu.scan.arguments import (
    Array,
    axis_last,
    check_alike,
    check_axis,
    check_on_host,
    check_out,
    check_real,
    check_unknowns,
    common_shape,
    repeated,
)
from rlcpu.scan.tridiagonal.blocks import ROW, ROW_BYTES, LaneFunction, LaneInput
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, layout_of_systems, repeats_of, solve_arrays
from rlcpu.scan.tridiagonal.equations import (
    Factors,
    Multiplier,
    Pending,
    apply_multiplier,
    factor_step,
    mirrored,
    nan_or_zero,
    scaled,
    substitute_factored,
)
from rlcpu.scan.tridiagonal.lanes import (
    DIAGONAL,
    LOWER,
    ROWS_AHEAD,
    UPPER,
    load_row,
    prefetch_row,
    read_input,
    store_row,
    write_output,
)
from rlcpu.scan.tridiagonal.plans import SHORT, LaneArguments, even, run
from rlcpu.scan.tridiagonal.status import SingularMatrixError, Status, status_of

# ---------------------------------------------------------------- kernels

#: Rows of a matrix's factors: fields of `Factors`, then of `Multiplier`. x[half - 1], the unknown
#: that is computed first, follows from no other: the multiplier of the middle stands in the place
#: of its coefficients of x[half] and x[half + 1].
INVERSE, ABOVE, SECOND, SCALE, MULTIPLE, FACTORS = range(6)


@inline(exact=True)
def matrix_row(planes, k, one):
    """Return row k of the matrix as `factor_step` wants it: scaled, with 1 on the right-hand side.

    All are vectors of one number repeated: the rules compute on these.
    """
    lower, diagonal = fill(planes[LOWER, k], ROW), fill(planes[DIAGONAL, k], ROW)
    return scaled(lower, diagonal, fill(planes[UPPER, k], ROW), one)


@inline(exact=True)
def set_entry(value, planes, plane, k):
    """Overwrite number k of a row of `planes` with a vector of one number repeated."""
    store(value, address(planes), plane * planes.shape[1] + k, 1)


@inline(exact=True)
def store_factors(factors, planes, k):
    """Overwrite the `Factors` of x[k]."""
    set_entry(factors.inverse, planes, INVERSE, k)
    set_entry(factors.upper, planes, ABOVE, k)
    set_entry(factors.second, planes, SECOND, k)


@inline(exact=True)
def store_multiplier(multiplier, planes, k):
    """Overwrite the `Multiplier` of equation k."""
    set_entry(multiplier.scale, planes, SCALE, k)
    set_entry(multiplier.factor, planes, MULTIPLE, k)


@kernel(fastmath=EXACT)
def factor_matrix(planes):
    """Factor a matrix of an even number of rows, from both ends as `solve` does.

    Args:
        planes: (FACTORS, rows) with the coefficients in rows `LOWER`, `DIAGONAL` and `UPPER`, 0
            where they are ignored; overwritten with the factors, some of which are not finite if
            the matrix is singular.
    """
    half, last, zero = planes.shape[1] // 2, planes.shape[1] - 1, fill(planes[LOWER, 0], ROW)
    one = zero + 1.0
    # 1 * x[-1] = 0 is pending at first, so that step 0 is like others; its pivot is dropped.
    falling = rising = Pending(one, zero, zero)
    for i in range(half):
        multiplier, above, falling = factor_step(falling, matrix_row(planes, i, one))
        store_multiplier(multiplier, planes, i)
        k = last - i
        multiplier, below, rising = factor_step(rising, mirrored(matrix_row(planes, k, one)))
        store_multiplier(multiplier, planes, k)
        if i > 0:
            store_factors(above, planes, i - 1)
            store_factors(below, planes, k + 1)
    # Where they meet, `falling` is the next equation of `rising`; see `INVERSE`.
    middle = scaled(falling.upper, falling.diagonal, zero, one)
    multiplier, below, left = factor_step(rising, middle)
    above = Factors(1.0 / left.diagonal, multiplier.scale, multiplier.factor)
    store_factors(above, planes, half - 1)
    store_factors(below, planes, half)


@inline(exact=True)
def shared_factor(block, plane, k):
    """Return number k of a row of the factors, the shared array, as a vector."""
    return fill(block.shared[plane * block.rows + k], ROW)


@inline(exact=True)
def eliminate_rhs(pending, block, k):
    """Return the right-hand sides of the pivot and of the pending equation after equation k."""
    multiplier = Multiplier(shared_factor(block, SCALE, k), shared_factor(block, MULTIPLE, k))
    return apply_multiplier(pending, read_input(block, 0, k), multiplier)


@inline(exact=True)
def substitute_rhs(next_x, second_x, block, k):
    """Write and return x[k], from the two unknowns that it is made of."""
    inverse, above = shared_factor(block, INVERSE, k), shared_factor(block, ABOVE, k)
    factors = Factors(inverse, above, shared_factor(block, SECOND, k))
    x = substitute_factored(load_row(block, 0, k), next_x, second_x, factors)
    write_output(x, block, k)
    return x


@inline(exact=True)
def solve_factored(block, pivoting):
    """Write the unknowns of systems of one matrix that is factored; see `LaneFunction`.

    The only input, and plane, 0 is rhs, overwritten with the right-hand sides of pivots. `pivoting`
    is 0, and not used but as a zero of the right type.
    """
    half, last, zero = block.rows // 2, block.rows - 1, fill(pivoting, ROW)
    falling = rising = zero
    for i in range(half):
        prefetch_row(block, 1, 2 * i, i + ROWS_AHEAD)
        above, falling = eliminate_rhs(falling, block, i)
        prefetch_row(block, 1, 2 * i + 1, last - i - ROWS_AHEAD)
        below, rising = eliminate_rhs(rising, block, last - i)
        if i > 0:
            store_row(above, block, 0, i - 1)
            store_row(below, block, 0, last - i + 1)
    # Where both eliminations meet: the multiplier of the middle is in these places, see `INVERSE`.
    scale, factor = shared_factor(block, ABOVE, half - 1), shared_factor(block, SECOND, half - 1)
    middle = Multiplier(scale, factor)
    pivot, pending = apply_multiplier(rising, falling, middle)
    above = pending * shared_factor(block, INVERSE, half - 1)
    write_output(above, block, half - 1)
    store_row(pivot, block, 0, half)
    below = substitute_rhs(above, zero, block, half)
    after_above, after_below = below, above
    for i in range(1, half):
        x = substitute_rhs(above, after_above, block, half - 1 - i)
        after_above, above = above, x
        x = substitute_rhs(below, after_below, block, half + i)
        after_below, below = below, x
    return nan_or_zero(above) + nan_or_zero(below)


FACTORED = LaneFunction(solve_factored, planes=1, output=0)

# ---------------------------------------------------------------- public names


class TridiagonalFactors:
    """Factors of matrices, which solve without division or search for pivots.

    Attributes:
        shape: of the matrices' coefficients, broadcast.
        axis: of the unknowns, as it was given.
        dtype: float32 or float64.
    """

    def __init__(
        self, matrices: list[Array], factors: Array | None, shape: tuple[int, ...], axis: int
    ) -> None:
        self.shape, self.axis, self.dtype = shape, axis, matrices[0].dtype
        self._matrices, self._factors, self._batch = matrices, factors, matrices[0].shape[:-1]

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
        """Return the x of A x = rhs.

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
        # Few long systems, that would fill less than half of a row, are solved in chunks, of
        # which there are no factors.
        few = 2 * (rhs.size // rhs.shape[axis]) < ROW_BYTES // self.dtype.itemsize
        if self._factors is None or (few and rhs.shape[axis] >= SHORT):
            whole = [repeated(array, right.shape) for array in self._matrices]
            systems = (*whole, right, target)
            is_finite, _ = solve_arrays(Arrays(*systems), None, Mode(num_threads=num_threads))
        else:
            is_finite = _solve_factored(self._factors, right, target, num_threads)
        if not is_finite:
            finite = np.isfinite(target).all(-1)
            raise SingularMatrixError(
                np.where(finite, Status.SOLVED, Status.NOT_FINITE).astype(np.int8)
            )
        return result

    def _check_shape(self, axis: int, rhs: Array) -> int:
        """Return the axis, counted from the first; ValueError if rhs does not fit the matrices."""
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
    arrays = check_alike(named)
    check_unknowns(dict(zip(named, arrays, strict=True)), axis)
    shape = common_shape(named, arrays)
    position = check_axis(axis, shape, "lower, diagonal and upper")
    num_threads = check_num_threads(num_threads)
    if shape[position] == 0:
        raise ValueError(
            f"lower, diagonal, upper: no unknowns along axis {position} of shape {shape}"
        )
    whole = [axis_last(repeated(array.copy("K"), shape), position) for array in arrays]
    factors = _factor(whole) if math.prod(whole[0].shape[:-1]) == 1 else None
    if factors is None:
        # A matrix is regular if its system with zeros on the right can be solved.
        systems = (*whole, np.zeros_like(whole[1]), np.empty_like(whole[1]))
        is_finite, _ = solve_arrays(Arrays(*systems), None, Mode(num_threads=num_threads))
        if not is_finite:
            status = status_of(systems, lengths=None, periodic=False)
            raise SingularMatrixError(status, "matrices not factored")
    return TridiagonalFactors(whole, factors, shape, int(axis))


def _factor(matrix: Sequence[Array]) -> Array | None:
    """Return the factors (FACTORS, n rounded up) of one matrix; None if they are not finite.

    `matrix` has its lower, diagonal and upper (..., n).
    """
    n = matrix[0].shape[-1]
    planes = np.zeros((FACTORS, even(n)), matrix[0].dtype)
    planes[DIAGONAL] = 1.0  # of a row more than n: x = 0
    for plane, array in zip((LOWER, DIAGONAL, UPPER), matrix, strict=True):
        planes[plane, :n] = array.reshape(-1)
    planes[LOWER, 0] = planes[UPPER, n - 1] = 0.0  # ignored, whatever they are
    factor_matrix(planes)
    return planes if np.isfinite(planes).all() else None


def _solve_factored(factors: Array, rhs: Array, out: Array, num_threads: int | None) -> bool:
    """Overwrite `out` (batch..., n) with solutions for rhs, and return whether all are finite."""
    layout = layout_of_systems(out)
    target = out if layout.target(out) else layout.empty(out.dtype)
    inputs = [LaneInput(layout.arranged(rhs, repeats_of(layout, out.dtype)))]
    arguments = LaneArguments(shared=factors, num_threads=num_threads)
    is_finite = run(FACTORED, inputs, layout.flat(target), arguments)
    if target is not out:
        out[...] = target
    return is_finite

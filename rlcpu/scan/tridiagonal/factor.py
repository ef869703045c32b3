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

from rlcpu.kernels.memory import VECTOR_BYTES
from rlcpu.kernels.threads import check_num_threads
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
from rlcpu.scan.tridiagonal.blocks import LaneInput
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, layout_of_systems, repeats_of, solve_arrays
from rlcpu.scan.tridiagonal.lanes import (
    DIAGONAL,
    FACTORED,
    FACTORS,
    LOWER,
    UPPER,
    factor_matrix,
)
from rlcpu.scan.tridiagonal.plans import SHORT, LaneArguments, even, run
from rlcpu.scan.tridiagonal.status import SingularMatrixError, Status, status_of


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
        # Few long systems, that would fill less than half of a register, are solved in chunks, of
        # which there are no factors.
        few = 2 * (rhs.size // rhs.shape[axis]) < VECTOR_BYTES // self.dtype.itemsize
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

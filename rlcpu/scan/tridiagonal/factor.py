"""Tridiagonal matrices that are factored once and solved with many times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.scan.checks import as_array, check_axis, check_out, check_real
from rlcpu.scan.device import is_on_device, on_device
from rlcpu.scan.layout import Layout, layout_of
from rlcpu.scan.tridiagonal.factor_columns import column_solvers
from rlcpu.scan.tridiagonal.factor_kernels import COUNT, factor_kernels
from rlcpu.scan.tridiagonal.factor_pack import Pack, pack
from rlcpu.scan.tridiagonal.factor_rows import row_solvers
from rlcpu.scan.tridiagonal.status import SingularSystemError, Status

Array = npt.NDArray[Any]

#: Unknowns of a system above which rows are solved one by one: more do not fit the second cache.
LONG = 2**14
#: Output of a block of columns: half of a second cache.
BLOCK = 2**19  # bytes


class SingularMatrixError(SingularSystemError):
    """Some matrices cannot be factored, or what is solved with them is not finite.

    Attributes:
        status: (batch...) int8, a `Status` for each matrix or system.
    """

    def __init__(self, status: Array, what: str = "systems not solved") -> None:
        super().__init__(status)
        self.args = (self.args[0].split(";")[0].replace("systems not solved", what),)


class TridiagonalFactors:
    """What `factor_tridiagonal` returns: matrices without division or search for pivots.

    Attributes:
        shape: of the matrices' coefficients, broadcast.
        axis: of the unknowns, as it was given.
        dtype: float32 or float64.
    """

    def __init__(self, packed: Array, shape: tuple[int, ...], axis: int) -> None:
        self.shape, self.axis, self.dtype = shape, axis, packed.dtype
        self._packed, self._size = packed, shape[axis]
        self._batch = _without(shape, axis % len(shape))
        self._last: tuple[Any, Pack] = (None, Pack(packed, 1, 1))

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
                broadcast to its other axes. Whole numbers count as float64.
            axis: of the unknowns in `rhs`; by default the one that was given for the matrices.
            out: of rhs's shape and dtype, overwritten with x; may be rhs itself.
            num_threads: at most so many threads; all by default.

        Returns:
            x, of rhs's shape; `out` if given.

        Raises:
            TypeError: rhs or out is of another dtype.
            ValueError: the length of the axis is another, the other axes do not fit, an argument is
                out of range, or `out` is read-only or overlaps rhs without being it.
            SingularMatrixError: some x is not finite, because rhs is not or because it is too
                large; the others are written.

        Example:
            >>> factors = factor_tridiagonal([0.0, 1.0], [2.0, 2.0], [1.0, 0.0])
            >>> factors.solve([[3.0, 3.0], [2.0, 1.0]])
            array([[1., 1.],
                   [1., 0.]])
        """
        rhs = check_real("rhs", rhs, self.dtype)
        axis = self._check_axis(self.axis if axis is None else axis, rhs)
        num_threads = check_num_threads(num_threads)
        if out is not None:
            check_out("out", out, rhs, () if _same(out, rhs) else (rhs,))
        if rhs.size == 0:
            return np.empty_like(rhs) if out is None else out
        layout = layout_of(rhs if out is None else out, axis)
        target = layout.empty(self.dtype) if out is None else out
        if self._launch(layout, rhs, target, num_threads):
            raise SingularMatrixError(_status(target, axis))
        return target

    def _check_axis(self, axis: int, rhs: Array) -> int:
        axis = check_axis(axis, rhs.shape, "rhs")
        if rhs.shape[axis] != self._size:
            raise ValueError(
                f"rhs: expected {self._size} numbers along axis {axis}, got shape {rhs.shape}"
            )
        others = _without(rhs.shape, axis)
        pairs = zip(reversed(self._batch), reversed(others), strict=False)
        if len(self._batch) > len(others) or any(m not in (1, r) for m, r in pairs):
            raise ValueError(
                f"rhs: the matrices' shape {self._batch} does not broadcast to {others}, "
                f"its shape without axis {axis}"
            )
        return axis

    # ------------------------------------------------------------ kernels

    def _launch(self, layout: Layout, rhs: Array, out: Array, num_threads: int | None) -> bool:
        """Overwrite `out`; whether something is not finite."""
        # Numbers that are all repeated are fewer in memory than kernels read.
        source = layout.flat(rhs if any(rhs.strides) else rhs.copy())
        target = layout.target(out)
        if target is None:
            spare = layout.empty(self.dtype)
            failed = self._launch(layout, rhs, spare, num_threads)
            np.copyto(out, spare)
            return failed
        rows = layout.inner == 1 and layout.num_steps <= LONG
        found = self._pack(layout, rows)
        one = math.prod(self._batch) == 1
        lanes = VECTOR_BYTES // self.dtype.itemsize
        strides = [source.outer, source.time, target.outer, target.time]
        if rows:
            count = layout.outer if one else found.matrices
            blocks = -(-count // (2 * lanes if one else lanes))
            plan = [layout.outer // count, blocks, count, layout.num_steps, *strides]
        else:
            width = _width(layout, self.dtype.itemsize, lanes, one)
            plan = [layout.outer, found.groups, layout.inner, layout.num_steps, width, *strides]
        kernels = (row_solvers if rows else column_solvers)(one)
        numbers = (found.numbers, source.numbers, target.numbers)
        return bool(launch(kernels, out.size, num_threads, *numbers, np.array(plan, np.int64)))

    def _pack(self, layout: Layout, rows: bool) -> Pack:
        """The factors for a layout, packed anew if it is not that of the last call."""
        key, found = self._last  # read once: another thread may replace it
        if math.prod(self._batch) > 1 and key != (layout, rows):
            found = pack(self._packed, self._batch, layout, rows)
            self._last = ((layout, rows), found)
        return found


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
            the first is ignored; whole numbers count as float64.
        diagonal: the same.
        upper: the same; the last number along the axis is ignored.
        axis: of the unknowns; the other axes are those of a batch of matrices.
        num_threads: at most so many threads; all by default.

    Returns:
        Factors, whose `solve` takes right-hand sides.

    Raises:
        TypeError: an array is of another dtype than the others.
        ValueError: shapes do not broadcast, there are no unknowns, or an argument is out of range.
        SingularMatrixError: some matrices are singular or not finite.

    Example:
        >>> factor_tridiagonal([0.0, 1.0], [2.0, 2.0], [1.0, 0.0]).solve([3.0, 3.0])
        array([1., 1.])
    """
    if is_on_device(diagonal) or is_on_device(lower):
        return on_device("factor_tridiagonal", locals())
    coefficients, dtype = _coefficients(lower, diagonal, upper)
    shape = coefficients[0].shape
    place = check_axis(axis, shape, "lower, diagonal and upper")
    num_threads = check_num_threads(num_threads)
    size, batch = shape[place], _without(shape, place)
    if size == 0:
        raise ValueError(f"lower, diagonal, upper: no unknowns along axis {place} of shape {shape}")
    count = math.prod(batch)
    flat = [np.ascontiguousarray(np.moveaxis(a, place, 0)).reshape(-1) for a in coefficients]
    pitch = 1 if count == 1 else VECTOR_BYTES // dtype.itemsize
    packed = np.empty(-(-count // pitch) * size * COUNT * pitch, dtype)
    failed = np.zeros(count, dtype)
    if count:
        plan = np.array([size, count, pitch])
        launch(factor_kernels(), 8 * count * size, num_threads, *flat, plan, packed, failed)
    if np.isnan(failed).any():
        raise SingularMatrixError(_matrix_status(failed, flat, batch), "matrices not factored")
    return TridiagonalFactors(packed, shape, int(axis))


# ---------------------------------------------------------------- arguments


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _coefficients(*arrays: npt.ArrayLike) -> tuple[list[Array], Any]:
    """The coefficients in one dtype and shape."""
    names = ("lower", "diagonal", "upper")
    found = [as_array(name, array) for name, array in zip(names, arrays, strict=True)]
    floats = [i for i, a in enumerate(found) if a.ndim and a.dtype.kind == "f"]
    dtype = check_real(names[floats[0]], found[floats[0]]).dtype if floats else None
    real = [check_real(name, a, dtype) for name, a in zip(names, found, strict=True)]
    dtype = real[1].dtype
    real = [check_real(name, a, dtype) for name, a in zip(names, real, strict=True)]
    try:
        return list(np.broadcast_arrays(*real)), dtype
    except ValueError:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(names, real, strict=True))
        raise ValueError(f"shapes do not broadcast: {shapes}") from None


def _same(out: Any, rhs: Array) -> bool:
    """Whether both are the very same numbers in memory."""
    if not isinstance(out, np.ndarray) or out.shape != rhs.shape or out.strides != rhs.strides:
        return False
    places = [array.__array_interface__["data"][0] for array in (out, rhs)]
    return out.dtype == rhs.dtype and places[0] == places[1]


def _width(layout: Layout, itemsize: int, lanes: int, one: bool) -> int:
    """Systems of a block of columns: what fits the cache, in few streams, and feeds every core."""
    room = BLOCK // (layout.num_steps * itemsize)
    width = max(2 * lanes, min(room, 8192 // itemsize)) if one else 4 * lanes
    return min(width // (2 * lanes) * 2 * lanes, -(-layout.inner // lanes) * lanes)


# ---------------------------------------------------------------- what failed


def _matrix_status(failed: Array, flat: list[Array], batch: tuple[int, ...]) -> Array:
    # The coefficients that are ignored have to be finite for the right word, not for the result.
    parts = [array.reshape(-1, failed.size) for array in flat]
    inside = (parts[0][1:], parts[1], parts[2][:-1])
    finite = np.logical_and.reduce([np.isfinite(part).all(axis=0) for part in inside])
    status = np.where(finite, Status.SINGULAR, Status.NOT_FINITE).astype(np.int8)
    status[~np.isnan(failed)] = Status.SOLVED
    return status.reshape(batch)


def _status(x: Array, axis: int) -> Array:
    finite = np.isfinite(x).all(axis=axis)
    return np.where(finite, Status.SOLVED, Status.NOT_FINITE).astype(np.int8)

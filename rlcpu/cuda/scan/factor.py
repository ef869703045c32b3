"""Tridiagonal matrices on the device that are factored once and solved with many times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.operands import constants, is_same, operand, overlap
from rlcpu.cuda.scan.factor_kernels import COUNT, column_solver, factor_kernel, row_solver
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.tridiagonal_input import common_dtype
from rlcpu.cuda.scan.tridiagonal_rows import WARP
from rlcpu.scan.arguments import check_axis
from rlcpu.scan.tridiagonal.status import SingularMatrixError

_NAMES = ("lower", "diagonal", "upper")
_BLOCK = 64  # threads: few systems are spread over more multiprocessors that way
_NONE = (0, 0, 0)  # strides of an array that is not there


class TridiagonalFactors:
    """`rlcpu.scan.TridiagonalFactors` on the device.

    Attributes:
        shape: of the matrices' coefficients, broadcast.
        axis: of the unknowns, as it was given.
        dtype: float32 or float64.
    """

    def __init__(self, packed: DeviceArray, shape: tuple[int, ...], axis: int) -> None:
        self.shape, self.axis, self.dtype = shape, axis, packed.dtype
        self._packed = packed
        layout = Layout(shape, axis % len(shape))
        self._batch, self._size = layout.ends, layout.num_steps

    def __repr__(self) -> str:
        return f"TridiagonalFactors(shape={self.shape}, axis={self.axis}, dtype={self.dtype})"

    def solve(self, rhs: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """The x of A x = rhs.

        Args:
            rhs: C-contiguous array on the device, or an array on the host, which is copied: n
                numbers of the matrices' dtype along `axis`. Matrices broadcast to its other axes,
                but not along one between two of theirs.
            axis: of the unknowns in `rhs`; by default the one that was given for the matrices.
            out: of rhs's shape and dtype, overwritten with x; may be rhs itself.

        Returns:
            x, of rhs's shape; `out` if given. Waits for it.

        Raises:
            TypeError, ValueError, SingularMatrixError: see `rlcpu.scan.TridiagonalFactors.solve`.
        """
        values = operand("rhs", rhs, self.dtype, np.shape(rhs))
        layout = self._check_axis(self.axis if axis is None else axis, values.shape)
        repeats = self._repeats(layout.ends)
        target = _check_out(out, values)
        if target.size:
            self._launch(layout, values, repeats, target)
        return target if out is None else out

    def _check_axis(self, axis: int, shape: tuple[int, ...]) -> Layout:
        layout = Layout(shape, check_axis(axis, shape, "rhs"))
        if layout.num_steps != self._size:
            raise ValueError(
                f"rhs: expected {self._size} numbers along axis {layout.axis}, got shape {shape}"
            )
        pairs = zip(reversed(self._batch), reversed(layout.ends), strict=False)
        if len(self._batch) > len(layout.ends) or any(m not in (1, r) for m, r in pairs):
            raise ValueError(
                f"rhs: the matrices' shape {self._batch} does not broadcast to {layout.ends}, "
                f"its shape without axis {layout.axis}"
            )
        return layout

    def _repeats(self, ends: tuple[int, ...]) -> int:
        """How many systems of (ends...), one after the other, have the same matrix.

        Raises:
            ValueError: matrices are repeated along an axis between two of theirs.
        """
        padded = (1,) * (len(ends) - len(self._batch)) + self._batch
        own = [i for i, (m, r) in enumerate(zip(padded, ends, strict=True)) if m == r != 1]
        first, last = (own[0], own[-1]) if own else (0, len(ends) - 1)
        if own and any(padded[i] != ends[i] for i in range(first, last)):
            raise ValueError(
                f"rhs: the matrices' shape {self._batch} is repeated along an axis of {ends} "
                "between two of theirs; expected leading or trailing ones"
            )
        return math.prod(ends[last + 1 :]) if own else math.prod(ends)

    def _launch(self, layout: Layout, rhs: DeviceArray, repeats: int, out: DeviceArray) -> None:
        """Overwrite `out`.

        Raises:
            SingularMatrixError: something is not finite.
        """
        places = [layout.strides(name, array) for name, array in (("rhs", rhs), ("out", out))]
        strides = [places[0], (repeats, 0, 0), _NONE, _NONE, places[1]]
        plan = _plan(layout, math.prod(self._batch), strides)
        status, failed = arrays.empty(layout.ends, np.int8), arrays.zeros(1, np.int32)
        arguments = self._packed, rhs, plan, out, status, failed
        systems, dtype = layout.outer * layout.inner, self.dtype.type
        if layout.inner == 1:
            launch_grid(row_solver(dtype), -(-systems // WARP), WARP, *arguments)
        else:
            launch(column_solver(dtype), systems, *arguments, block=_BLOCK)
        if failed.copy_to_host()[0]:
            raise SingularMatrixError(status.copy_to_host())


def factor_tridiagonal(lower: Any, diagonal: Any, upper: Any, *, axis: int = -1) -> Any:
    """`rlcpu.scan.factor_tridiagonal` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. Waits for the factors.

    Raises:
        TypeError, ValueError, SingularMatrixError: see `rlcpu.scan.factor_tridiagonal`.
    """
    given = (lower, diagonal, upper)
    dtype = common_dtype(_NAMES, given)
    inputs = [operand(name, value, dtype) for name, value in zip(_NAMES, given, strict=True)]
    try:
        shape = np.broadcast_shapes(*(array.shape for array in inputs))
    except ValueError:
        found = ", ".join(f"{n} {a.shape}" for n, a in zip(_NAMES, inputs, strict=True))
        raise ValueError(f"shapes do not broadcast: {found}") from None
    layout = Layout(shape, check_axis(axis, shape, "lower, diagonal and upper"))
    if layout.num_steps == 0:
        where = f"axis {layout.axis} of shape {shape}"
        raise ValueError(f"lower, diagonal, upper: no unknowns along {where}")
    strides = [layout.strides(name, array) for name, array in zip(_NAMES, inputs, strict=True)]
    plan, count = _plan(layout, 0, [*strides, _NONE, _NONE]), layout.outer * layout.inner
    packed = arrays.empty(layout.num_steps * COUNT * count, dtype)
    status, failed = arrays.empty(layout.ends, np.int8), arrays.zeros(1, np.int32)
    arguments = *inputs, plan, packed, status, failed
    launch(factor_kernel(np.dtype(dtype).type), count, *arguments, block=_BLOCK)
    if failed.copy_to_host()[0]:
        raise SingularMatrixError(status.copy_to_host(), "matrices not factored")
    return TridiagonalFactors(packed, shape, int(axis))


def _plan(layout: Layout, number: int, strides: list[tuple[int, int, int]]) -> DeviceArray:
    sizes = layout.outer, layout.num_steps, layout.inner, number
    return constants((*sizes, *(s[i] for i in range(3) for s in strides)), np.dtype(np.int64))


def _check_out(out: Any, rhs: DeviceArray) -> DeviceArray:
    if out is None:
        return arrays.empty(rhs.shape, rhs.dtype)
    target = arrays.take("out", out, rhs.dtype, rhs.shape, write=True)
    if overlap(target, rhs) and not is_same(target, rhs):
        raise ValueError("out: overlaps rhs; it may be rhs itself, or apart")
    return target

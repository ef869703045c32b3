"""Gradients of solves and scans of arrays on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import constants, operand, real_dtype, result
from rlcpu.cuda.scan.gradient_kernels import (
    decay_kernel,
    linear_kernel,
    shift_kernel,
    tridiagonal_kernel,
    weigh_kernel,
)
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.linear import linear_scan
from rlcpu.cuda.scan.sums import summed_to
from rlcpu.cuda.scan.tridiagonal import solve_tridiagonal
from rlcpu.scan.arguments import check_axis
from rlcpu.scan.recurrences.linear import LinearGradients
from rlcpu.scan.tridiagonal.vjp import TridiagonalGradients


def tridiagonal_vjp(
    lower: Any,
    diagonal: Any,
    upper: Any,
    x: Any,
    grad: Any,
    *,
    axis: int = -1,
    out: TridiagonalGradients | None = None,
) -> TridiagonalGradients:
    """`rlcpu.scan.tridiagonal_vjp` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. Sums over repeated coefficients are added up in
    a fixed order. Waits for the transposed solve.

    Raises:
        SingularSystemError, TypeError, ValueError: see `rlcpu.scan.tridiagonal_vjp`.
    """
    x = arrays.take("x", x, real_dtype("x", x))
    grad = arrays.take("grad", grad, x.dtype, x.shape)
    layout = Layout(x.shape, check_axis(axis, x.shape, "x"))
    names = ("lower", "diagonal", "upper")
    given = [
        operand(name, value, x.dtype)
        for name, value in zip(names, (lower, diagonal, upper), strict=True)
    ]
    for name, array in zip(names, given, strict=True):
        layout.strides(name, array)
    results = _tridiagonal_results(out, (*given, x, grad))
    if x.size:
        _tridiagonal(layout, given, x, grad, results)
    else:
        for found in results:
            found.memory.copy_to_device(np.zeros(found.memory.shape, found.dtype))
    return TridiagonalGradients(*results) if out is None else out


def _tridiagonal_results(out: Any, taken: tuple[DeviceArray, ...]) -> list[DeviceArray]:
    """Arrays for the gradients of the first three of `taken` and of the right-hand sides."""
    if out is not None and not isinstance(out, TridiagonalGradients):
        raise TypeError(f"out: expected TridiagonalGradients, got {type(out).__name__}")
    found: list[DeviceArray] = []
    for i, name in enumerate(TridiagonalGradients._fields):
        given = None if out is None else out[i]
        shape, dtype = taken[i].shape, taken[i].dtype
        found.append(result(f"out.{name}", given, shape, dtype, [*taken, *found]))
    return found


def _tridiagonal(
    layout: Layout,
    given: list[DeviceArray],
    x: DeviceArray,
    grad: DeviceArray,
    results: list[DeviceArray],
) -> None:
    """Overwrite the gradients of arguments that have been checked."""
    full = [r if r.shape == x.shape else arrays.empty(x.shape, x.dtype) for r in results]
    lower, diagonal, upper, rhs = full
    # The transposed coefficients wait where their gradients will be.
    shifted(layout, given[2], -1, lower)
    shifted(layout, given[0], 1, upper)
    solve_tridiagonal(lower, given[1], upper, grad, axis=layout.axis, out=rhs)
    steps, inner = layout.num_steps, layout.inner
    arguments = rhs, x, steps, inner, lower, diagonal, upper
    launch(tridiagonal_kernel(x.dtype.type), x.size, *arguments)
    for found, computed in zip(results, full, strict=True):
        if found is not computed:
            summed_to(computed, found.shape, found)


def shifted(layout: Layout, source: DeviceArray, by: int, out: DeviceArray) -> None:
    """Overwrite `out`, of the layout's shape, with the source's steps so many steps later."""
    strides = constants(layout.strides("source", source), np.dtype(np.int64))
    kernel, (steps, inner) = shift_kernel(out.dtype.type), (layout.num_steps, layout.inner)
    launch(kernel, out.size, source, steps, inner, strides, by, out)


def linear_scan_vjp(
    a: Any,
    y: Any,
    grad: Any,
    *,
    axis: int = -1,
    initial: Any = None,
    reverse: bool = False,
) -> LinearGradients:
    """`rlcpu.scan.linear_scan_vjp` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. Returns before the result is there.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.linear_scan_vjp`.
    """
    y = arrays.take("y", y, real_dtype("y", y))
    a, grad = operand("a", a, y.dtype), operand("grad", grad, y.dtype)
    layout = Layout(y.shape, check_axis(axis, y.shape, "y"))
    start = operand("initial", 0.0 if initial is None else initial, y.dtype)
    layout.strides("grad", grad)
    strides = *layout.strides("a", a), *layout.end_strides("initial", start)[::2]
    firsts, h = arrays.zeros(layout.ends, y.dtype), arrays.empty(y.shape, y.dtype)
    if not y.size:
        return LinearGradients(arrays.zeros(a.shape, y.dtype), h, firsts)
    shift = arrays.empty(y.shape, y.dtype)
    shifted(layout, a, -1 if reverse else 1, shift)
    linear_scan(shift, grad, axis=layout.axis, reverse=not reverse, out=h)
    sizes = layout.num_steps, layout.inner, constants(strides, np.dtype(np.int64))
    products, back = shift, -1 if reverse else 1  # what was shifted is used up
    arguments = h, y, a, start, *sizes, back, products, firsts
    launch(linear_kernel(y.dtype.type), y.size, *arguments)
    if a.shape == y.shape:
        return LinearGradients(products, h, firsts)
    sums = arrays.empty(a.shape, y.dtype)
    summed_to(products, a.shape, sums)
    return LinearGradients(sums, h, firsts)


def logcumsumexp_vjp(x: Any, y: Any, grad: Any, *, axis: int = -1, reverse: bool = False) -> Any:
    """`rlcpu.scan.logcumsumexp_vjp` of C-contiguous arrays on the device.

    Arrays on the host are copied there. Returns before the result is there.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.logcumsumexp_vjp`.
    """
    x = arrays.take("x", x, real_dtype("x", x))
    y, grad = arrays.take("y", y, x.dtype, x.shape), arrays.take("grad", grad, x.dtype, x.shape)
    layout = Layout(x.shape, check_axis(axis, x.shape, "x"))
    h = arrays.empty(x.shape, x.dtype)
    if x.size:
        decay, by = arrays.empty(x.shape, x.dtype), -1 if reverse else 1
        sizes = layout.num_steps, layout.inner
        launch(decay_kernel(x.dtype.type), x.size, y, *sizes, by, decay)
        linear_scan(decay, grad, axis=layout.axis, reverse=not reverse, out=h)
        launch(weigh_kernel(x.dtype.type), x.size, x, y, h)
    return h

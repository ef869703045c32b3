"""The first-order linear recurrence of arrays on the device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.operands import is_same, operand, overlap, real_dtype
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.row_scan import Drivers, Scan, make_drivers, scan_rows
from rlcpu.cuda.scan.run import UNUSED, Problem, run
from rlcpu.scan.arguments import check_axis
from rlcpu.scan.recurrences.linear import LINEAR

#: Rows from which each has a thread of its own, as it has where lanes lie next to each other: the
#: lines that a warp reads a number of stay in the first cache until it has read them all.
MANY = 2**12


def linear_scan(
    a: Any,
    b: Any,
    *,
    axis: int = -1,
    initial: Any = None,
    reverse: bool = False,
    out: Any = None,
) -> Any:
    """`rlcpu.scan.linear_scan` of C-contiguous arrays on the device.

    Numbers and arrays on the host are copied there. A few rows are computed in parts, in parallel,
    whose rounding differs from a loop's; where their products overflow, one after the other.
    Returns before the result is there.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.linear_scan`.
    """
    on_device = b if arrays.is_device_array(b) or np.ndim(b) else a
    dtype = real_dtype("b" if on_device is b else "a", on_device)
    a, b = operand("a", a, dtype), operand("b", b, dtype)
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"a: shape {a.shape} does not broadcast with b's, {b.shape}") from None
    layout = Layout(shape, check_axis(axis, shape, "a * b"))
    start = operand("initial", 0.0 if initial is None else initial, dtype)
    layout.end_strides("initial", start)
    target = _check_out(out, (a, b, start), shape, dtype)
    if target.size:
        _run(layout, (a, b, start), bool(reverse), target)
    return target if out is None else out


def _check_out(
    out: Any, inputs: tuple[DeviceArray, ...], shape: tuple[int, ...], dtype: Any
) -> DeviceArray:
    if out is None:
        return arrays.empty(shape, dtype)
    target = arrays.take("out", out, dtype, shape, write=True)
    for array in inputs:
        if overlap(target, array) and not (array is inputs[1] and is_same(target, array)):
            raise ValueError("out: overlaps another array; it may be b itself")
    return target


def _run(layout: Layout, inputs: tuple[DeviceArray, ...], reverse: bool, out: DeviceArray) -> None:
    a, b, start = inputs
    rows, steps = layout.outer, layout.num_steps
    plain = all(array.size in (1, steps, out.size) for array in (a, b)) and start.size in (1, rows)
    if layout.inner == 1 and rows < MANY and steps > 1 and plain:
        flat = out.view((rows, steps))
        dtype: Any = out.dtype.type
        scan_rows(linear_drivers(dtype), inputs, reverse, flat, dtype)
        return
    problem = Problem(
        UNUSED._replace(reward=b, gamma=a), initial=start, direction=1 if reverse else -1
    )
    run(LINEAR, layout, problem, (out,))


@functools.cache
def linear_drivers(dtype: Any) -> Drivers:
    """Kernels of y = a * y' + b: states (a, b) of y as a function of an earlier y'."""
    zero, one = dtype(0.0), dtype(1.0)

    def number(array: Any, row: Any, k: Any, steps: Any) -> Any:
        if array.size == 1:
            return array[0]
        return array[k] if array.size == steps else array[row * steps + k]

    def load(inputs: Any, row: Any, k: Any, steps: Any) -> Any:
        return number(inputs[0], row, k, steps), number(inputs[1], row, k, steps)

    def start(inputs: Any, row: Any) -> Any:
        initial = inputs[2]
        return zero, initial[row if initial.size > 1 else 0]

    def merge(m: Any, s: Any, n: Any, t: Any) -> Any:
        return m * n, s * n + t

    def advance(m: Any, s: Any, n: Any, t: Any) -> Any:
        return zero, s * n + t

    def value(m: Any, s: Any) -> Any:
        return s

    return make_drivers(Scan(load, start, merge, value, (one, zero), dtype, advance))

"""Logarithms of cumulative sums of exponentials, of arrays on the device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import is_same, overlap, real_dtype
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.linear import MANY
from rlcpu.cuda.scan.row_scan import Drivers, Scan, make_drivers, scan_rows
from rlcpu.scan.arguments import check_axis
from rlcpu.scan.log_sums import advance, level, merge


def logcumsumexp(x: Any, *, axis: int = -1, reverse: bool = False, out: Any = None) -> Any:
    """`rlcpu.scan.logcumsumexp` of a C-contiguous array on the device.

    Computed in float64, whatever the dtype. Returns before the result is there.

    Raises:
        TypeError, ValueError: see `rlcpu.scan.logcumsumexp`.
    """
    array = arrays.take("x", x, real_dtype("x", x))
    layout = Layout(array.shape, check_axis(axis, array.shape, "x"))
    if out is None:
        target = arrays.empty(array.shape, array.dtype)
    else:
        target = arrays.take("out", out, array.dtype, array.shape, write=True)
        if overlap(target, array) and not is_same(target, array):
            raise ValueError("out: overlaps x; it may be x itself, or apart")
    if target.size:
        _run(layout, array, bool(reverse), target)
    return target if out is None else out


def _run(layout: Layout, x: DeviceArray, reverse: bool, out: DeviceArray) -> None:
    outer, steps, inner = layout.outer, layout.num_steps, layout.inner
    if inner == 1 and outer < MANY:
        flat = out.view((outer, steps))
        scan_rows(exponential_drivers(), (x, x, x), reverse, flat, np.float64)
    else:
        launch(lane_kernel(), outer * inner, x, steps, inner, reverse, out, block=64)


@functools.cache
def exponential_drivers() -> Drivers:
    """Kernels for rows: states are a maximum and a sum relative to it."""
    nothing, zero, one = -np.inf, 0.0, 1.0

    def load(inputs: Any, row: Any, k: Any, steps: Any) -> Any:
        x = np.float64(inputs[0][row * steps + k])
        return x, zero if x == nothing else one

    def start(inputs: Any, row: Any) -> Any:
        return nothing, zero

    return make_drivers(Scan(load, start, merge, level, (nothing, zero), np.float64))


@functools.cache
def lane_kernel() -> Any:
    """(x, num_steps, inner, reverse, out): a thread for each lane of (outer, num_steps, inner)."""

    @kernel(dtype=np.float64, exact=True)
    def scan(x, steps, inner, reverse, out):
        lane = cuda.grid(1)
        if lane < x.size // steps:
            outer = lane // inner
            at = outer * steps * inner + (lane - outer * inner)
            m, s = -np.inf, 0.0
            for i in range(steps):
                k = at + (steps - 1 - i if reverse else i) * inner
                m, s = advance(m, s, np.float64(x[k]))
                out[k] = level(m, s)

    return scan

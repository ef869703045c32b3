"""The kernel that suits how tridiagonal systems lie on the device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch_grid
from rlcpu.cuda.operands import constants
from rlcpu.cuda.scan.machine import machine
from rlcpu.cuda.scan.tridiagonal_columns import column_kernel
from rlcpu.cuda.scan.tridiagonal_input import NAMES, Systems
from rlcpu.cuda.scan.tridiagonal_rings import ring_kernel
from rlcpu.cuda.scan.tridiagonal_rows import WARP, row_kernel
from rlcpu.cuda.scan.tridiagonal_steps import make_steps

#: Threads of a multiprocessor that are worth having, whatever their scratch takes.
_LEAST, _MOST = 64, 1024


class Mode(NamedTuple):
    """How to solve."""

    pivoting: bool
    periodic: bool


class Found(NamedTuple):
    """What became of the systems.

    Attributes:
        status: (batch...) int8, overwritten with a `Status` for each.
        failed: (1,) int32, set to 1 if a status is not 0.
    """

    status: DeviceArray
    failed: DeviceArray


def make_plan(systems: Systems) -> DeviceArray:
    """The integers that kernels take, see `tridiagonal_steps`."""
    layout = systems.layout
    strides = [
        layout.strides(name, array)
        for name, array in zip((*NAMES, "out"), (*systems.inputs, systems.out), strict=True)
    ]
    own = int(systems.lengths is not None)
    sizes = layout.outer, layout.num_steps, layout.inner, own
    return constants((*sizes, *(s[i] for i in range(3) for s in strides)), np.dtype(np.int64))


def lengths_of(systems: Systems, plan: DeviceArray) -> DeviceArray:
    """Their lengths, or any whole numbers, which kernels do not read then."""
    return plan if systems.lengths is None else systems.lengths


def solve_each(systems: Systems, mode: Mode, found: Found) -> None:
    """Solve systems, one to a thread; returns before that has happened."""
    layout, out = systems.layout, systems.out
    plan, dtype = make_plan(systems), out.dtype.type
    row = make_steps(dtype, mode.pivoting or mode.periodic).keeps * layout.num_steps
    threads = _threads(layout.outer * layout.inner, row * out.dtype.itemsize)
    pivots = arrays.empty(row * threads, out.dtype)
    make = row_kernel if layout.inner == 1 else column_kernel
    driver = (ring_kernel if mode.periodic else make)(dtype, mode.pivoting)
    arguments = (*systems.inputs, lengths_of(systems, plan), plan, pivots, out, *found)
    launch_grid(driver, threads // WARP, WARP, *arguments)


def _threads(systems: int, each: int) -> int:
    """Threads of the grid, whole warps: as many as three quarters of the second cache hold."""
    device = machine()
    fitting = max(3 * device.cache // 4 // each, _LEAST * device.multiprocessors)
    most = min(fitting, _MOST * device.multiprocessors, systems)
    return -(-most // WARP) * WARP

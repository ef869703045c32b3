"""Backward errors of solutions on the device, and refinement of those that are too large."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import BLOCK, launch, launch_grid
from rlcpu.cuda.operands import constants
from rlcpu.cuda.provider import SIMULATED
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.machine import machine
from rlcpu.cuda.scan.tridiagonal_drive import Found, Mode, lengths_of, make_plan
from rlcpu.cuda.scan.tridiagonal_error_kernels import (
    gather_kernel,
    improve_kernel,
    judge_kernel,
    residual_kernel,
)
from rlcpu.cuda.scan.tridiagonal_input import Systems
from rlcpu.cuda.scan.tridiagonal_steps import OUT
from rlcpu.scan.tridiagonal.status import INACCURATE, REFINED

_STEPS = 3  # of refinement at most
_WAVES = 4  # of blocks on every multiprocessor: fewer threads compete for the largest error
_BLOCK = 16 if SIMULATED else BLOCK  # threads, which the simulator starts one by one

Solve = Callable[[Systems, Mode, Found], None]


def copied(array: DeviceArray) -> DeviceArray:
    """A copy on the device."""
    copy = arrays.empty(array.shape, array.dtype)
    copy.memory.copy_to_device(array.memory)
    return copy


def residual(systems: Systems, mode: Mode) -> tuple[DeviceArray, DeviceArray]:
    """Residuals, laid out as the solutions, and the backward error of each system.

    Oettli and Prager 1964, see `rlcpu.scan.tridiagonal.equations.backward_error`. NaN counts as
    none.
    """
    out, plan = systems.out, make_plan(systems)
    lacking = arrays.empty(out.shape, out.dtype)
    errors = arrays.zeros(systems.layout.ends, out.dtype)
    blocks = min(-(-out.size // _BLOCK), _WAVES * machine().multiprocessors)
    arguments = (*systems.inputs, out, lengths_of(systems, plan), plan, mode.periodic)
    launch_grid(residual_kernel(out.dtype.type), blocks, _BLOCK, *arguments, lacking, errors)
    return lacking, errors


def refine(systems: Systems, mode: Mode, solve: Solve) -> DeviceArray:
    """Improve solutions whose backward error is above the limit; the errors of all.

    Waits for the solutions. What is lacking is solved for once more (Skeel 1980), by the same
    elimination.

    Args:
        systems: solved; out is not the right-hand sides.
        mode: how they were solved.
        solve: solves some of them, which are rows.
    """
    limit = REFINED * np.finfo(systems.out.dtype).eps
    lacking, errors = residual(systems, mode)
    for _ in range(_STEPS):
        again = np.flatnonzero(errors.copy_to_host().reshape(-1) > limit)
        if not again.size:
            break
        _improve(systems, mode, solve, lacking, again)
        lacking, errors = residual(systems, mode)
    return errors


def _improve(
    systems: Systems, mode: Mode, solve: Solve, lacking: DeviceArray, again: np.ndarray
) -> None:
    """Add to some solutions those of the residuals."""
    plan, dtype = make_plan(systems), systems.out.dtype
    numbers, shape = arrays.from_host(again, np.int64), (again.size, systems.layout.num_steps)
    rows = [arrays.empty(shape, dtype) for _ in range(5)]
    sources = (*systems.inputs[:3], lacking)
    for array, (source, row) in enumerate(zip(sources, rows[:4], strict=True)):
        as_in = OUT if source is lacking else array
        launch(gather_kernel(dtype.type), row.size, source, as_in, plan, numbers, row)
    lengths = None
    if systems.lengths is not None:
        lengths = arrays.from_host(systems.lengths.copy_to_host().reshape(-1)[again], np.int64)
    found = Found(arrays.zeros(again.size, np.int8), arrays.zeros(1, np.int32))
    solve(Systems(Layout(shape, 1), rows[:4], lengths, rows[4]), mode, found)
    launch(improve_kernel(dtype.type), rows[4].size, rows[4], plan, numbers, systems.out)


def judge(errors: DeviceArray, found: Found) -> None:
    """Mark what is solved and inaccurate; errors of what is not solved become NaN."""
    dtype = errors.dtype
    limit = constants((INACCURATE * float(np.finfo(dtype).eps),), dtype)
    launch(judge_kernel(dtype.type), errors.size, limit, errors, *found)

"""What the equations of long tridiagonal systems lack to hold, and how much that is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.memory import pointer_to, shifted
from rlcpu.kernels.threads import Kernels, launch
from rlcpu.scan.tridiagonal.plan import (
    INNER,
    LENGTH,
    OUTER,
    PLACES,
    Array,
    Arrays,
    batch_order,
    make_plans,
    place,
    split,
)
from rlcpu.scan.tridiagonal.steps import inlined

_GRAIN = 2**15  # numbers from which a second core is worth waking
_ROWS = 2**13  # that a core takes at once


@inlined
def _row(arrays, k, n, periodic, least):  # type: ignore[no-untyped-def]
    """Residual of an equation, and the sum of its terms, see `steps.backward_error`."""
    lower, diagonal, upper, rhs, x = arrays
    left = right = rhs[k] - rhs[k]
    middle, coefficients = diagonal[k] * x[k], abs(diagonal[k])
    if k > 0 or periodic:
        left = lower[k] * x[k - 1 if k > 0 else n - 1]
        coefficients += abs(lower[k])
    if k < n - 1 or periodic:
        right = upper[k] * x[k + 1 if k < n - 1 else 0]
        coefficients += abs(upper[k])
    size = abs(left) + abs(middle) + abs(right) + abs(rhs[k]) + coefficients * least
    return rhs[k] - middle - left - right, size


@inlined
def _lack(plan, periodic, lacking, part, least):  # type: ignore[no-untyped-def]
    """Write the residuals of some equations of a system; their largest backward error."""
    n, (system, first), zero = plan[LENGTH], part, least - least
    index, worst = split(plan, system), zero
    arrays = (
        shifted(pointer_to(plan[PLACES], zero), place(plan, 0, index)),
        shifted(pointer_to(plan[PLACES + 1], zero), place(plan, 1, index)),
        shifted(pointer_to(plan[PLACES + 2], zero), place(plan, 2, index)),
        shifted(pointer_to(plan[PLACES + 3], zero), place(plan, 3, index)),
        shifted(pointer_to(plan[PLACES + 4], zero), place(plan, 4, index)),
    )
    for k in range(first, min(first + _ROWS, n)):
        lack, size = _row(arrays, k, n, periodic, least)
        lacking[system, k] = lack
        error = abs(lack) / size if size != 0 else zero
        worst = error if error > worst else worst
    return worst


def _make(parallel: bool) -> Any:
    """Driver: residuals (systems, n) and backward errors (systems,), from a plan.

    `least` is the smallest normal number, see `steps.backward_error`.
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def lack(plan, periodic, least, lacking, errors):  # type: ignore[no-untyped-def]
        systems, parts = plan[OUTER] * plan[INNER], (plan[LENGTH] + _ROWS - 1) // _ROWS
        found = np.zeros((systems, parts), errors.dtype)
        for i in prange(systems * parts):
            part = i // parts, i % parts * _ROWS
            found[i // parts, i % parts] = _lack(plan, periodic, lacking, part, least)
        for system in range(systems):
            errors[system] = found[system].max()

    return lack


@functools.cache
def _kernels() -> Kernels:
    return Kernels(_make(False), _make(True), _GRAIN)


def residual(arrays: Arrays, periodic: bool, num_threads: int | None = None) -> tuple[Array, Array]:
    """Residuals of all equations, and the backward error of each system; NaN counts as none.

    Oettli and Prager 1964, see `steps.backward_error`.

    Args:
        arrays: (batch..., n), at least one system, numbers of one next to each other.
        periodic: whether lower[0] is the coefficient of x[n-1], and upper[n-1] that of x[0].
        num_threads: of the kernel; None for all.

    Returns:
        Arrays (batch..., n) and (batch...,) of the systems' dtype.
    """
    shape, dtype = arrays.out.shape, arrays.out.dtype
    order = batch_order(shape, arrays.out.strides)
    lacking = np.zeros((*(shape[i] for i in order), shape[-1]), dtype)
    errors = np.zeros(lacking.shape[:-1], dtype)
    flat, some, begin = lacking.reshape(-1, shape[-1]), errors.reshape(-1), 0
    for plan in make_plans(arrays):
        end = begin + int(plan[OUTER] * plan[INNER])
        work = (plan, periodic, np.finfo(dtype).smallest_normal, flat[begin:end], some[begin:end])
        launch(_kernels(), (end - begin) * shape[-1], num_threads, *work)
        begin = end
    back = np.argsort(order)
    return lacking.transpose(*back, -1), errors.transpose(back)
